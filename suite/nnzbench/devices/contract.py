"""What every device offers: the `Device` and `Timer` protocols; and a prepared candidate over copies of its weights, as
many as L2 does not hold: what the policy `stream` runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from nnzbench.plans.plan import Candidate, Plan, Prepared, Unsupported
from nnzbench.problems.buffers import weights_of
from nnzbench.problems.operands import Operands


class DeviceLost(RuntimeError):
    """The device no longer answers (a fault corrupted its context); only a new process can go on."""


class Timer(Protocol):
    """What a GPU device offers for timing; the policies in `nnzbench.measure.timing` are plain logic over it."""

    flush_bytes: int
    """Bytes that, read or written, leave nothing in L2 of what was there before: four times its size or more."""

    def capture(self, run: Callable[[], None], launches: int) -> Callable[[], None]:
        """Captures `launches` back-to-back runs into one CUDA graph; the result enqueues one replay of it."""

    def elapsed_us(self, body: Callable[[], None]) -> float:
        """Microseconds between two events recorded just before and after `body` enqueues its work; waits."""

    def cold_us(self, run: Callable[[], None], samples: int) -> list[float]:
        """For each sample: overwrite the L2 cache, then time one `run` between events. The overwrite is outside."""

    def enqueue(self, body: Callable[[], None]) -> Callable[[], bool]:
        """Enqueues what `body` does and does not wait; the result says whether the GPU is through with it."""

    def sm_clock_mhz(self) -> float | None:
        """Current SM clock, None where it can't be read."""

    def throttle_reasons(self) -> tuple[str, ...]:
        """Active clock-throttle reasons (idle excluded), empty when none or unknown."""


class Device(Protocol):
    """Uploads, launches and reads back plans."""

    name: str
    """`cupy`, `pycuda`, `cuda-core` or `cpu`."""
    gpu: str
    """Slug of the device's name, such as `nvidia-h200`; `cpu` for the processor."""
    link: str
    """The GPU's own architecture where `arch` is another one whose plans are checked on it, else empty."""
    compiles_from_cache: bool
    """Whether programs come from the shared compile cache, so that many can be put there at once beforehand."""

    @property
    def arch(self) -> str:
        """Architecture that plans are made and compiled for, such as `sm_90`."""

    @property
    def timer(self) -> Timer | None:
        """None on the processor: its times mean nothing for a GPU and are never recorded."""

    def prepare(self, plan: Plan) -> Prepared:
        """Compiles and uploads. Raises `CompileError` or `Unsupported`."""

    def abandon(self) -> None:
        """Just before this process ends at once, from any thread: ends other processes and removes temporary files."""

    def close(self) -> None:
        """Frees everything the device holds."""


MOST_COPIES = 1000
"""Smaller weights than 4x L2 over this are in L2 in part."""


def weight_names(candidate: Candidate, prepared: Prepared, operands: Operands | None) -> tuple[str, ...]:
    """Which of `prepared.arrays` are weights. Raises `Unsupported` where it can't run over copies of them."""
    plan, operands = candidate.plan, candidate.operands or operands
    if prepared.copied is None or (plan is not None and operands is None):
        raise Unsupported("it can't run over copies of its weights")
    return weights_of(plan, operands) if plan is not None and operands is not None else tuple(prepared.arrays)


def over_copies(
    candidate: Candidate, prepared: Prepared, operands: Operands | None, timer: Timer
) -> list[Callable[[], None]]:
    """Its own run, then those over copies: two or more, together more than L2 keeps until the next round.

    Raises `Unsupported` as `weight_names`, `LaunchError` where there is no memory.
    """
    if prepared.rotates:
        return [prepared.run]
    names = weight_names(candidate, prepared, operands)
    held = [prepared.arrays[name] for name in names]
    size = sum(math.prod(one.shape) * one.dtype.itemsize for one in held)
    if candidate.plan is not None and candidate.plan.language == "ptx" and prepared.resources is not None:
        size += prepared.resources.code_bytes
    count = min(MOST_COPIES, max(2, math.ceil(timer.flush_bytes / max(1, size))))
    copied = prepared.copied or (lambda _: prepared.run)
    return [prepared.run, *(copied(names) for _ in range(count - 1))]


def each(runs: Sequence[Callable[[], None]]) -> None:
    """Enqueues one after another."""
    for run in runs:
        run()
