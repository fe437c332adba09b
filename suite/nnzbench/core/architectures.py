"""The one table of GPU architectures: all that plans, generated programs, compilers and occupancy need to know of them.

What is here holds for every GPU of an architecture, but for `sms`: without a GPU plans are made for the part it is best
known by.
Facts of single GPUs (clock, bandwidth, data-sheet rates) are in `datasets/gpus.csv`.

Sources, by column:

* `part`, `sms`: NVIDIA's data sheets and architecture whitepapers of the parts named. Of Blackwell: B200 and B300 as
  their driver reports them, GeForce RTX 5090 (21,760 cores of 128 an SM), GB10 of DGX Spark (6,144 cores).
* `blocks`, `warps`, `shared_bytes`, `block_shared_bytes`, registers: CUDA programming guide, "Technical Specifications
  per Compute Capability" (the one of CUDA 12.9 still lists 7.x). `cuda_occupancy.h` of CUDA 13.0 agrees on `blocks`
  (`cudaOccMaxBlocksPerMultiprocessor`) and on the sizes that `shared_bytes` can be set to.
* `shared_unit`, `register_unit`, `partitions`: `cuda_occupancy.h` of CUDA 13.0.
* `reserved_bytes`: CUDA programming guide, compute capabilities 8.x and later: the system takes 1 KB of every block.
* `l1_clock_bytes`: Z. Jia, M. Maggioni, J. Smith, D. P. Scarpazza, "Dissecting the NVidia Turing T4 GPU via
  Microbenchmarking" (2019; V100 and T4); NVIDIA's A100, H100 and Ada whitepapers leave Volta's figure.
* `ptx`: PTX ISA, "Release Notes" (version that introduced the target).
* `last_cuda`: CUDA 13.0 release notes (Maxwell, Pascal and Volta are no longer compiled for).
* `capabilities`, `accelerated`, `suffixes`: PTX ISA, "Target ISA Notes" of each instruction. `CAPABILITIES` names one
  instruction of each kind, and a test has the assembler accept or refuse it on every architecture of this table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from nnzbench.core.plan import Unsupported

_KIB = 1024
Family = Literal["server", "graphics", "integrated"]

CAPABILITIES = {
    "mma_f16_k4": "mma.sync .m8n8k4 of fp16: the tensor cores of Volta",
    "mma_f16_k8": "mma.sync .m16n8k8 of fp16",
    "ldmatrix": "ldmatrix: 8x8 tiles of 16 bits from shared memory into the layout of mma.sync",
    "mma_f16_k16": "mma.sync .m16n8k16 of fp16",
    "mma_bf16": "mma.sync .m16n8k16 of bf16",
    "mma_tf32": "mma.sync .m16n8k8 of tf32",
    "mma_sparse": "mma.sp: two of four elements of A stored",
    "cp_async": "cp.async: 4, 8 or 16 bytes from global into shared memory without a register",
    "mbarrier": "mbarrier: a barrier in shared memory that threads arrive at and wait for apart",
    "mma_fp8": "mma.sync .m16n8k32 of e4m3 and e5m2",
    "try_wait": "mbarrier.try_wait: a wait that suspends the thread",
    "bulk_copy": "cp.async.bulk: one thread copies kilobytes, counted by an mbarrier",
    "tensor_map": "cp.async.bulk.tensor: a box of a tensor, by its descriptor",
    "clusters": "barrier.cluster: blocks that reach each other's shared memory",
    "dependent_launch": "griddepcontrol: a launch that begins before the one that precedes it has ended",
    "vector_atomics": "atom .v2 and .v4 of f32 in global memory",
    "gather4": "cp.async.bulk.tensor .tile::gather4 into the block's own shared memory: four rows by index",
    "fma_f32x2": "fma .f32x2: two products of fp32 by one instruction",
    "wgmma": "wgmma.mma_async: Hopper's tensor cores, operands in shared memory",
    "setmaxnreg": "setmaxnreg: registers handed from one warpgroup to another",
    "tcgen05": "tcgen05: Blackwell's tensor cores and their own memory",
    "block_scaled_mma": "mma.sync .block_scale of fp8, fp6 and fp4 with a scale per block",
}
"""What an architecture can be asked for by name, and the instruction that is meant."""

_SM_70 = frozenset({"mma_f16_k4"})
_SM_75 = _SM_70 | {"mma_f16_k8", "ldmatrix"}
_SM_80 = _SM_75 | {"mma_f16_k16", "mma_bf16", "mma_tf32", "mma_sparse", "cp_async", "mbarrier"}
_SM_89 = _SM_80 | {"mma_fp8"}
_SM_90 = _SM_89 | {"try_wait", "bulk_copy", "tensor_map", "clusters", "dependent_launch", "vector_atomics"}
_SM_100 = _SM_90 | {"gather4", "fma_f32x2"}


@dataclass(frozen=True)
class Architecture:
    """What is the same on every GPU of an architecture, and the size of its best-known part."""

    name: str
    """Such as `sm_90`; with its suffix where a form was asked for, such as `sm_90a`."""
    part: str
    """The GPU that it is best known by, which `sms` is of."""
    sms: int
    """Multiprocessors. Where a GPU is there, plans are made for its own number (`Part`)."""
    blocks: int
    """Most resident blocks of an SM."""
    warps: int
    """Most resident warps of an SM."""
    shared_bytes: int
    """Shared memory of an SM, all blocks together."""
    block_shared_bytes: int
    """Most shared memory that one block can opt in to."""
    ptx: str
    """Oldest PTX version that knows the target."""
    capabilities: frozenset[str]
    """Of `CAPABILITIES`, those of this form."""
    accelerated: frozenset[str] = frozenset()
    """Those that only the forms with a suffix have."""
    suffixes: str = ""
    """Forms that exist: `a` (this architecture alone), `f` (its family too)."""
    last_cuda: int | None = None
    """Last major version of CUDA that compiles for it, None where none has dropped it."""
    compiled: bool = False
    """Whether every kernel must compile for it, and `nnzbench compile` shows it unasked."""
    whole: bool = False
    """Of these, whether `nnzbench compile` builds every program for it unasked, rather than a sample of each kernel."""
    shared_unit: int = 128
    """Shared memory is handed out to blocks in steps of so many bytes."""
    reserved_bytes: int = 1 * _KIB
    """Shared memory that the system takes in every block."""
    l1_clock_bytes: int = 128
    """Most bytes an SM loads from its L1 cache or shared memory in a clock."""
    registers: int = 64 * _KIB
    """32-bit registers of an SM."""
    thread_registers: int = 255
    """Most registers of a thread."""
    register_unit: int = 256
    """Registers are handed out to warps in these steps."""
    partitions: int = 4
    """An SM's registers and warps are split evenly over so many schedulers."""
    family: Family = "graphics"
    """Whether its parts have HBM (`server`), share their memory with a processor (`integrated`), or are graphics cards
    and what is made of the same chips."""

    @property
    def number(self) -> int:
        """90 for `sm_90` and `sm_90a`."""
        return number(self.name)

    def has(self, capability: str) -> bool:
        """Whether programs for this form may use `capability`. Raises ValueError for a name not in `CAPABILITIES`."""
        if capability not in CAPABILITIES:
            raise ValueError(f"'{capability}' is not a capability: one of {', '.join(CAPABILITIES)}")
        return capability in self.capabilities

    def ptx_header(self) -> list[str]:
        """The directives that a PTX module starts with, in the oldest version, and for the form without a suffix."""
        return [f".version {self.ptx}", f".target sm_{self.number}", ".address_size 64"]


_TABLE = (
    Architecture(
        "sm_70", "Tesla V100", 80, 32, 64, 96 * _KIB, 96 * _KIB, "6.0", _SM_70,
        last_cuda=12, compiled=True, shared_unit=256, reserved_bytes=0, family="server",
    ),
    Architecture(
        "sm_72", "Jetson AGX Xavier", 8, 32, 64, 96 * _KIB, 96 * _KIB, "6.1", _SM_70,
        last_cuda=12, shared_unit=256, reserved_bytes=0, family="integrated",
    ),
    Architecture(
        "sm_75", "Tesla T4", 40, 16, 32, 64 * _KIB, 64 * _KIB, "6.3", _SM_75,
        compiled=True, shared_unit=256, reserved_bytes=0, l1_clock_bytes=64,
    ),
    Architecture("sm_80", "A100", 108, 32, 64, 164 * _KIB, 163 * _KIB, "7.0", _SM_80, compiled=True, family="server"),
    Architecture("sm_86", "RTX A6000", 84, 16, 48, 100 * _KIB, 99 * _KIB, "7.1", _SM_80, compiled=True),
    Architecture(
        "sm_87", "Jetson AGX Orin", 16, 16, 48, 164 * _KIB, 163 * _KIB, "7.4", _SM_80, family="integrated"
    ),
    Architecture("sm_89", "GeForce RTX 4090", 128, 24, 48, 100 * _KIB, 99 * _KIB, "7.8", _SM_89, compiled=True),
    Architecture(
        "sm_90", "H100", 132, 32, 64, 228 * _KIB, 227 * _KIB, "7.8", _SM_90,
        frozenset({"wgmma", "setmaxnreg"}), "a", compiled=True, whole=True, family="server",
    ),
    Architecture(
        "sm_100", "B200", 148, 32, 64, 228 * _KIB, 227 * _KIB, "8.6", _SM_100,
        frozenset({"tcgen05", "setmaxnreg"}), "af", compiled=True, family="server",
    ),
    Architecture(
        "sm_103", "B300", 148, 32, 64, 228 * _KIB, 227 * _KIB, "8.8", _SM_100,
        frozenset({"tcgen05", "setmaxnreg"}), "af", compiled=True, family="server",
    ),
    Architecture(
        "sm_120", "GeForce RTX 5090", 170, 24, 48, 100 * _KIB, 99 * _KIB, "8.7", _SM_100,
        frozenset({"block_scaled_mma", "setmaxnreg"}), "af", compiled=True,
    ),
    Architecture(
        "sm_121", "GB10", 48, 24, 48, 100 * _KIB, 99 * _KIB, "8.8", _SM_100,
        frozenset({"block_scaled_mma", "setmaxnreg"}), "af", compiled=True, family="integrated",
    ),
)  # fmt: skip

ARCHITECTURES = {one.name: one for one in _TABLE}
"""By name without a suffix, oldest first."""


def number(arch: str) -> int:
    """90 for `sm_90` and `sm_90a`, listed or not. Raises `Unsupported` for text that names no architecture."""
    return int(_parts(arch)[0])


class Part(str):
    """An architecture's name that also tells the multiprocessors of the GPU that plans are made for."""

    sms: int

    def __new__(cls, arch: str, sms: int = 0) -> Part:
        one = super().__new__(cls, arch)
        one.sms = sms
        return one


@cache
def architecture(arch: str) -> Architecture:
    """The architecture named, `sm_90` or `sm_90a`; what only a form with a suffix can do is added to that form.

    Raises `Unsupported` for other text, an architecture that is not in the table, and a form that does not exist.
    """
    digits, suffix = _parts(arch)
    found = ARCHITECTURES.get(f"sm_{digits}")
    if found is None:
        raise Unsupported(f"{arch} is not in the table of architectures: {', '.join(ARCHITECTURES)}")
    if suffix not in found.suffixes:
        raise Unsupported(f"{found.name} has no form {arch}")
    return replace(found, name=arch, capabilities=found.capabilities | (found.accelerated if suffix else frozenset()))


def compiled_architectures() -> tuple[str, ...]:
    """Names of those that every kernel must compile for."""
    return tuple(one.name for one in _TABLE if one.compiled)


def whole_architectures() -> frozenset[str]:
    """Names of those that every program of every kernel is compiled for, where the others get a sample."""
    return frozenset(one.name for one in _TABLE if one.compiled and one.whole)


def block_shared_bytes(arch: str) -> int:
    """Most shared memory one block can opt in to, bytes. Raises `Unsupported` as `architecture` does."""
    return architecture(arch).block_shared_bytes


def sm_count(arch: str) -> int:
    """Multiprocessors: of a `Part` its own, else those of the one that the architecture is best known by.

    Raises `Unsupported` as `architecture` does.
    """
    return (isinstance(arch, Part) and arch.sms) or architecture(arch).sms


def _parts(arch: str) -> tuple[str, str]:
    match = re.fullmatch(r"sm_(\d{2,3})([af]?)", arch)
    if match is None:
        raise Unsupported(f"'{arch}' is not an architecture such as sm_80 or sm_90a")
    return match[1], match[2]
