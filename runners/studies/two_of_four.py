"""Clocks of Hopper's matrix instruction, dense and 2:4, over tiles that lie in shared memory.

    python runners/gpu_studies.py two_of_four [--out FOLDER]

Two warp groups a multiprocessor issue `wgmma` of 64 rows by 256 or 128 columns in fp16, A from shared memory or from
registers, over and over the same tiles, and count clocks. Beside each stands what follows from 2,048 multiply-adds and
128 bytes of shared memory a clock (docs/two-of-four-on-hopper.md). Writes FOLDER/<gpu>/two_of_four/: README.md and
clocks.csv (default: results/). Exit status: 2 without a GPU of sm_90.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from nnzbench.core import paths
from nnzbench.core.plan import Launch, Plan, Unsupported
from nnzbench.devices.gpu import GpuDevice
from nnzbench.report.text import markdown
from studies import gpu_for, write_environment

ROWS, GROUPS, CHUNKS = 64, 2, 4
"""Rows of an instruction, warp groups of a block, and tiles of 64 fp16 (128 bytes, swizzled) along K."""
TOGETHER, ROUNDS = 16, 400
"""Instructions that are issued before any is waited for, and how often."""
MULTIPLY_ADDS, PORT_BYTES = 2048, 128
"""Of a multiprocessor's tensor cores in fp16, and of its shared memory, a clock."""


@dataclass(frozen=True)
class Instruction:
    """One form of it."""

    sparse: bool
    columns: int
    registers: bool
    """Whether A comes from registers."""

    @property
    def k(self) -> int:
        """Columns of A, zeros included, that it multiplies by."""
        return 32 if self.sparse else 16

    @property
    def tensor_clocks(self) -> float:
        """By multiply-adds: a 2:4 instruction skips half of them."""
        return ROWS * self.columns * 16 / MULTIPLY_ADDS

    @property
    def shared_clocks(self) -> float:
        """By bytes of B, and of A where it lies there: stored values, half of a 2:4 tile."""
        return 2 * (self.columns * self.k + (0 if self.registers else ROWS * 16)) / PORT_BYTES

    def lines(self) -> str:
        """PTX of `TOGETHER` instructions that walk along the tiles, with the accumulators as operands from 0 on."""
        sums = ", ".join(f"%{at}" for at in range(self.columns // 2))
        after = self.columns // 2  # operands that follow: descriptors of A and B, metadata, and four registers of A
        kind = ".sp" if self.sparse else ""
        shape = f"m{ROWS}n{self.columns}k{self.k}"
        found = []
        for step in range(TOGETHER):
            at = 2 * self.k * step  # bytes along a row of B
            b = (at // 128 % CHUNKS * self.columns * 128 + at % 128) >> 4
            a = (32 * step // 128 % CHUNKS * ROWS * 128 + 32 * step % 128) >> 4
            left = f"{{%{after + 3}, %{after + 4}, %{after + 5}, %{after + 6}}}" if self.registers else "a"
            meta = f", %{after + 2}, 0" if self.sparse else ""
            turned = "0" if self.registers else "0, 0"
            found += [
                f"add.s64 a, %{after}, {a};",
                f"add.s64 b, %{after + 1}, {b};",
                f"wgmma.mma_async{kind}.sync.aligned.{shape}.f32.f16.f16 {{{sums}}}, {left}, b{meta}, "
                f"p, 1, 1, {turned};",
            ]
        return "\\n".join(found)

    def source(self) -> str:
        """The program: entry `rate`, one clock count a block."""
        sums = ", ".join(f'"+f"(d[{at}])' for at in range(self.columns // 2))
        return f"""
extern "C" __global__ void __launch_bounds__({128 * GROUPS}) rate(long long* __restrict__ out, int rounds) {{
    extern __shared__ __align__(1024) unsigned tiles[];
    for (int at = threadIdx.x; at < {self.shared_bytes // 4}; at += blockDim.x) tiles[at] = 0x2c00u + at % 7;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(tiles));
    // rows of 128 bytes, swizzled; groups of 8 rows lie 1024 bytes apart
    const unsigned long long form = (1ull << 62) | (64ull << 32) | (1ull << 16);
    const unsigned long long a = form | (base >> 4), b = form | ((base + {CHUNKS * ROWS * 128}) >> 4);
    float d[{self.columns // 2}] = {{}};
    __syncthreads();
    const long long began = clock64();
    for (int round = 0; round < rounds; ++round) {{
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        asm volatile("{{\\n.reg .b64 a, b;\\n.reg .pred p;\\nsetp.ne.b32 p, 1, 0;\\n{self.lines()}\\n}}"
                     : {sums}
                     : "l"(a), "l"(b), "r"(0x44444444),
                       "r"(0x2c012c00), "r"(0x2c022c01), "r"(0x2c032c02), "r"(0x2c042c03));
        asm volatile("wgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    }}
    __syncthreads();
    const long long ended = clock64();
    float sum = 0;
    for (int at = 0; at < {self.columns // 2}; ++at) sum += d[at];
    if (threadIdx.x == 0) out[blockIdx.x] = sum == -1.0f ? 0 : ended - began;
}}
"""

    @property
    def shared_bytes(self) -> int:
        """Of all tiles of A and B."""
        return CHUNKS * 128 * (ROWS + self.columns)


INSTRUCTIONS = tuple(
    Instruction(sparse, columns, registers)
    for columns in (256, 128)
    for registers in (False, True)
    for sparse in (False, True)
)


@dataclass(frozen=True)
class Row:
    """Clocks of one instruction on one multiprocessor: by counts, and the median over all of them."""

    instruction: str
    columns: int
    a_from: str
    tensor: float
    shared: float
    measured: float


def plan_of(one: Instruction, sms: int) -> Plan:
    """A block a multiprocessor."""
    args = ("out", ROUNDS)
    launch = Launch("rate", (sms, 1, 1), (128 * GROUPS, 1, 1), args, shared_bytes=one.shared_bytes)
    name = f"{'2of4' if one.sparse else 'dense'}_{one.columns}_{'registers' if one.registers else 'shared'}"
    return Plan(name, "cuda", one.source(), {}, {"out": np.zeros(sms, np.int64)}, "out", (launch,), features="a")


def clocks(device: GpuDevice, one: Instruction) -> float:
    """Of an instruction: the second of two launches, as the first one loads the program."""
    with closing(device.prepare(plan_of(one, device.facts.sms))) as prepared:
        for _ in range(2):
            prepared.run()
            device.synchronise()
        return float(np.median(prepared.read())) / (GROUPS * TOGETHER * ROUNDS)


def page(gpu: str, rows: Sequence[Row]) -> str:
    """Each instruction beside what follows from counts, and what 2:4 gains."""
    gains = {
        (dense.columns, dense.a_from): 2 * dense.measured / halved.measured
        for dense, halved in zip(rows[::2], rows[1::2], strict=True)
    }
    told = ", ".join(f"{gain:.2f}x with {columns} columns and A from {a}" for (columns, a), gain in gains.items())
    head = ("instruction", "columns", "A from", "tensor cores, clocks", "shared memory, clocks", "measured")
    table = markdown(
        head,
        [
            (one.instruction, str(one.columns), one.a_from, f"{one.tensor:g}", f"{one.shared:g}", f"{one.measured:.1f}")
            for one in rows
        ],
    )
    return f"""# The 2:4 instruction on {gpu}

**2:4 does {told} the work of dense in the same clocks.**

{table}

Counts are of 2,048 multiply-adds and 128 bytes of shared memory a clock; an instruction takes the larger. fp16, tiles
that lie in shared memory, nothing is loaded or stored. `python runners/gpu_studies.py two_of_four` measures it on your
GPU.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=paths.results())


def study(asked: argparse.Namespace) -> int:
    device = gpu_for("tensor cores are timed")
    if device.arch != "sm_90":
        raise Unsupported(f"wgmma is an instruction of sm_90, and this GPU is {device.arch}")
    rows = [
        Row(
            "2:4" if one.sparse else "dense", one.columns, "registers" if one.registers else "shared memory",
            one.tensor_clocks, one.shared_clocks, round(clocks(device, one), 2),
        )
        for one in INSTRUCTIONS
    ]  # fmt: skip
    folder = asked.out / device.gpu / "two_of_four"
    paths.write_csv(pd.DataFrame(map(asdict, rows)), folder / "clocks.csv")
    paths.write_text(folder / "README.md", page(device.facts.name, rows))
    write_environment(device, folder)
    device.close()
    print(folder / "README.md")
    return 0
