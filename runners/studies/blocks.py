"""Holds Sputnik's formula of the block scheduler against where and when blocks run.

    python runners/gpu_studies.py blocks [--out FOLDER]

Each block writes its multiprocessor (%smid) and when it began and ended (%globaltimer), and spins meanwhile. Grids of
equal blocks, one or several of which fit a multiprocessor, show the first wave; blocks of uneven length show what
follows it. Writes FOLDER/<gpu>/block_scheduler/: README.md and blocks.csv, every block (default: results/). Exit
status: 2 without a GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnzbench.core import paths
from nnzbench.core.plan import Launch, Plan
from nnzbench.devices.gpu import GpuDevice
from nnzbench.report.text import markdown
from studies import gpu_for

SOURCE = """
extern "C" __global__ void where(long long* __restrict__ out, const int* __restrict__ spins) {
    extern __shared__ int unused[];
    if (threadIdx.x != 0) return;
    unsigned sm;
    unsigned long long began, now;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
    const long long until = clock64() + spins[blockIdx.x];
    while (clock64() < until) {}
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    out[3 * blockIdx.x] = sm;
    out[3 * blockIdx.x + 1] = static_cast<long long>(began);
    out[3 * blockIdx.x + 2] = static_cast<long long>(now);
}
"""
WAVES = 4
SPIN = 60_000
"""Cycles of a block, some 30 us: a step of the timer, a microsecond at most, is little beside it."""
STEP = 1100
"""Of the timer, ns."""
SIDES = (1, 2, 4)
"""Blocks that fit a multiprocessor at once, by the shared memory that each asks for."""


@dataclass(frozen=True)
class Grid:
    """One launch: what each block wrote, by its index."""

    name: str
    per_sm: int
    sm: NDArray[np.int64]
    began: NDArray[np.int64]
    """ns"""
    ended: NDArray[np.int64]


def formula(block: NDArray[np.int64], sms: int) -> NDArray[np.int64]:
    """The multiprocessor of a block of the first wave (section V-C1 of Sputnik, where the GPU is a V100 with 80)."""
    half = sms // 2
    return 2 * (block % half) + block // half % 2


def first_wave(grid: Grid) -> NDArray[np.int64]:
    """The indices of the blocks that begin before any block has ended."""
    return np.flatnonzero(grid.began < grid.ended.min())


def told(grid: Grid, sms: int) -> dict[str, str]:
    """What a grid says of the formula and of what it is used for."""
    wave = first_wave(grid)
    each = np.bincount(grid.sm[wave], minlength=sms)[:sms]
    right = np.mean(grid.sm[wave] == formula(wave, sms))
    rounds = [grid.sm[wave[at : at + sms]] for at in range(0, len(wave), sms)]
    robin = np.mean([len(set(some)) / len(some) for some in rounds])
    pairs = np.mean(grid.sm[wave[1::2]] - grid.sm[wave[: len(wave) // 2 * 2 : 2]][: len(wave[1::2])] == 1)
    later = np.setdiff1d(np.arange(len(grid.sm)), wave)
    return {
        "blocks": grid.name,
        "fit an SM": str(grid.per_sm),
        "first wave": str(len(wave)),
        "as the formula": f"{100 * right:.0f} %",
        "a round of SMs has each once": f"{100 * robin:.0f} %",
        "next block on the next SM": f"{100 * pairs:.0f} %",
        "blocks an SM has of it": f"{each.min()} to {each.max()}",
        "later blocks in order": f"{100 * in_order(grid.began[later]):.0f} %",
        "put where a block ended last": f"{100 * followed(grid, later):.0f} %",
    }


def in_order(began: NDArray[np.int64]) -> float:
    """Of neighbours by index, the share of which the later one does not begin earlier (by more than a timer's step)."""
    return float(np.mean(np.diff(began) >= -STEP)) if len(began) > 1 else 1.0


def followed(grid: Grid, later: NDArray[np.int64]) -> float:
    """The share of later blocks that begin on an SM within 5 us of the end of a block there."""
    if not len(later):
        return 1.0
    close = [bool(np.any(np.abs(grid.ended[grid.sm == grid.sm[at]] - grid.began[at]) <= 5000)) for at in later.tolist()]
    return float(np.mean(close))


def run(device: GpuDevice, name: str, per_sm: int, spins: NDArray[np.int32]) -> Grid:
    """One launch, the second of two: the first one loads the program."""
    shared = device.facts.shared_optin_bytes // per_sm - (1024 if per_sm > 1 else 0)
    count = len(spins)
    launch = Launch("where", (count, 1, 1), (32, 1, 1), ("out", "spins"), shared_bytes=shared // 128 * 128)
    plan = Plan(name, "cuda", SOURCE, {}, {"out": np.zeros((count, 3), np.int64), "spins": spins}, "out", (launch,))
    with closing(device.prepare(plan)) as prepared:
        prepared.run()
        device.synchronise()
        prepared.run()
        sm, began, ended = prepared.read().T
    return Grid(name, per_sm, sm, began - began.min(), ended - began.min())


def page(gpu: str, sms: int, grids: Sequence[Grid]) -> str:
    rows = [told(grid, sms) for grid in grids]
    table = markdown(list(rows[0]), [list(row.values()) for row in rows], left=1)
    right = rows[0]["as the formula"]
    return f"""# Where blocks run on {gpu}

**Does Sputnik's formula of the block scheduler hold here?**

It puts {right} of the first wave's blocks where they are, with {sms} multiprocessors in the place of a V100's 80
(section V-C1 of *Sparse GPU Kernels for Deep Learning*: block b of the first wave on 2 (b mod 40) + (b / 40) mod 2).
What the row swizzle needs of it is less: that a round of as many blocks as there are multiprocessors has each once, and
that later blocks begin in the order of their index, each where another one has ended.

{table}

Shared memory decides how many blocks fit. Each spins for about 30 µs, uneven ones for up to four times that, the
longest first as the swizzle sorts them. `python runners/gpu_studies.py blocks` measures it on your GPU;
every block is a row of [blocks.csv](blocks.csv).
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=paths.results())


def study(asked: argparse.Namespace) -> int:
    device = gpu_for("blocks are scheduled")
    sms = device.facts.sms
    equal = [run(device, "equal", per_sm, np.full(WAVES * per_sm * sms, SPIN, np.int32)) for per_sm in SIDES]
    falling = np.linspace(4 * SPIN, SPIN, WAVES * sms).astype(np.int32)
    grids = [*equal, run(device, "uneven, longest first", 1, falling)]
    folder = asked.out / device.gpu / "block_scheduler"
    table = pd.concat(
        pd.DataFrame({"grid": one.name, "per_sm": one.per_sm, "block": np.arange(len(one.sm)), "sm": one.sm,
                      "began_ns": one.began, "ended_ns": one.ended}) for one in grids
    )  # fmt: skip
    paths.write_csv(table, folder / "blocks.csv")
    paths.write_text(folder / "README.md", page(device.facts.name, sms, grids))
    device.close()
    print(folder / "README.md")
    return 0
