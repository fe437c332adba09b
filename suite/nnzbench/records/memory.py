"""Device memory that a candidate takes, measured: bytes of the GPU in use before it is prepared, at most, and after.

Attention and whole networks alone are measured, whose memory is a claim of their paper; every other kernel is timed as
before. A candidate is prepared anew for it, when its check and its times are done and the libraries have loaded what
they keep for good. So nothing of this is inside a time, and a library's own kernels and workspace are in all three
numbers.
"""

from __future__ import annotations

import csv
import gc
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from nnzbench import paths
from nnzbench.devices import Device
from nnzbench.devices.gpu import GpuDevice
from nnzbench.plans.plan import Candidate
from nnzbench.problems.problem import NETWORKS, Problem
from nnzbench.records.record import RecordError

OPS = frozenset({"attention"}) | NETWORKS
"""What is computed by the candidates that are measured."""
STEP = 2 << 20
"""Bytes in which the driver hands out memory: what it says moves by no less."""
TRIES = 3
"""A candidate is measured so often until as much is in use after as before."""

FILE = "memory.csv"
Key = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Use:
    """Bytes of the GPU in use, by all programs on it, as the driver counts them."""

    before_bytes: int
    """Before the candidate is prepared."""
    peak_bytes: int
    """The most by the end of its first run."""
    after_bytes: int
    """When it is gone."""

    @property
    def steady(self) -> bool:
        """Whether nothing else came or went meanwhile, another program's memory for one."""
        return abs(self.after_bytes - self.before_bytes) <= STEP

    @property
    def taken_bytes(self) -> int:
        """What the candidate took at most, inputs and output included."""
        return self.peak_bytes - self.before_bytes


@dataclass(frozen=True)
class Memory:
    """One row of memory.csv."""

    problem: str
    dtype: str
    kernel: str
    variant: str
    device: str
    before_bytes: int
    peak_bytes: int
    after_bytes: int

    @property
    def key(self) -> Key:
        """What names the candidate; of two rows the later one counts."""
        return (self.problem, self.dtype, self.kernel, self.variant, self.device)

    @property
    def use(self) -> Use:
        """The three numbers."""
        return Use(self.before_bytes, self.peak_bytes, self.after_bytes)


def measure(problem: Problem, candidate: Candidate, device: Device) -> Use | None:
    """Prepares and runs the candidate once; None for an op that is not measured, and off a GPU.

    Raises what preparing and running it raises.
    """
    if problem.op not in OPS or not isinstance(device, GpuDevice):
        return None
    use = _once(candidate, device)
    for _ in range(TRIES - 1):
        if use.steady:
            break
        use = _once(candidate, device)
    return use


def _once(candidate: Candidate, device: GpuDevice) -> Use:
    """What is freed goes into a pool and not to the driver, so that the peak is still seen after it.

    The pool is the candidate's own: in the device's, what larger operands left over served smaller ones unseen.
    """
    before = _in_use(device)
    with device.separate():
        prepared = candidate.prepare()
        try:
            prepared.run()
            device.synchronise()
            peak = device.used_bytes()
        finally:
            prepared.close()
        del prepared
        gc.collect()
    return Use(before, peak, _in_use(device))


def _in_use(device: GpuDevice) -> int:
    gc.collect()
    device.release()
    return device.used_bytes()


def add(path: Path, memory: Memory) -> None:
    """Appends one row to memory.csv."""
    with paths.appending(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(field.name for field in fields(Memory))
        writer.writerow(astuple(memory))


def read(path: Path) -> dict[Key, Use]:
    """The rows of memory.csv by candidate, none where there is no file. Raises `RecordError` for another table."""
    if not path.is_file():
        return {}
    found: dict[Key, Use] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                words = (row["problem"], row["dtype"], row["kernel"], row["variant"], row["device"])
                sizes = (int(row["before_bytes"]), int(row["peak_bytes"]), int(row["after_bytes"]))
                if min(sizes) < 0:
                    raise ValueError("a number of bytes is below zero")
                found[words] = Use(*sizes)
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise RecordError(f"{path}: not a table of memory ({error})") from None
    return found
