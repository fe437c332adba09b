"""Small experiments on pretended kernels and GPUs, for tests of runs. Not a test file."""

from __future__ import annotations

from fakes import FakeDevice, Silent

from nnzbench.bench.session import Session
from nnzbench.bench.sweep import Choice, run_experiment
from nnzbench.core.gpus import Peaks
from nnzbench.data.problems.experiment import Experiment
from nnzbench.data.problems.problem import Problem
from nnzbench.results.records.beside import Tuning
from nnzbench.results.records.record import read_records

PEAKS = Peaks(
    copy_gbs=4000.0, l2_gbs=8000.0, fp32_tflops=50.0, floor_hot_us=1.0, floor_cold_us=3.0, l2_bytes=50_000_000
)
SLOW = {f"v{i}": (10.0 + i, "") for i in range(5)}
"""Variants, the first the fastest."""


class Small(Experiment):
    """Two small problems on uniform patterns, or as many as `count` says."""

    count = 2

    def problems(self, real=None):
        return [Problem("small", f"p{i}", "spmm", 8 + i, 16, 4, 0.5, f"uniform:{i}") for i in range(self.count)]


class Notes(Silent):
    def __init__(self):
        self.notes, self.steps, self.total = [], 0, 0

    def start(self, title, steps, ends=None):
        self.total = steps

    def advance(self):
        self.steps += 1

    def note(self, text):
        self.notes.append(text)

    tell = note


def experiment(*kernels, dtypes=("f32",), policies=("hot", "cold")):
    return Small("small", "", "", "", {kernel.name: dtypes for kernel in kernels}, policies=policies)


def sweep(tmp_path, *kernels, device=None, choice=None, progress=None, exp=None, **environment):
    device = device or FakeDevice()
    session = Session(
        device,
        {kernel.name: kernel for kernel in kernels},
        PEAKS,
        {"driver": "1", **environment},
        device.timer.clock if device.timer else lambda: 0.0,
    )
    return run_experiment(
        exp or experiment(*kernels), session, tmp_path / "out", choice or Choice(), progress or Silent()
    )


def rows(tmp_path):
    return read_records(tmp_path / "out" / "records.csv")


def tuning(kernel="cublas", problem="p0", candidates=4, seconds=8.0, scope="all", device="cupy"):
    return Tuning(problem, "f32", kernel, device, "hot+cold", candidates, candidates, seconds, scope)
