"""Device memory of attention's candidates: what is measured, written and read, and what is left out."""

import gc
import math

import numpy as np
import pytest
from fake_gpu import open_fake
from fakes import FakeDevice, FakeKernel
from small_sweeps import Notes, Small, sweep

from nnzbench.bench.memory import measure
from nnzbench.bench.sweep import Choice
from nnzbench.core.plan import Candidate, Prepared
from nnzbench.data.problems.problem import Problem
from nnzbench.devices import DeviceLost
from nnzbench.results.records.beside import MEMORY, STEP, Memory, Use
from nnzbench.results.records.record import RecordError
from nnzbench.results.result_set import load

ATTENTION = Problem("small", "p0", "attention", 8, 8, 8, 0.0, "banded:2:0")
MB = 1 << 20


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(gc, "collect", lambda: 0)  # all that tests have loaded: half a second each time


def candidate(device, kept_mb, passing_mb=0, run=lambda: None):
    """Holds some memory while it is prepared, and more that preparing frees again."""

    def prepare():
        held = [device.empty((kept_mb * MB,), np.uint8)]
        if passing_mb:
            device.empty((passing_mb * MB,), np.uint8)
        return Prepared(run, lambda: np.zeros(1), lambda: None, held.clear)

    return Candidate("v", "f32", prepare)


def test_the_most_that_was_held_is_measured():
    device = open_fake()
    kept = device.empty((3 * MB,), np.uint8)
    use = measure(ATTENTION, candidate(device, 7, 5), device)
    assert use == Use(503 * MB, 515 * MB, 503 * MB)
    assert (use.taken_bytes, use.steady) == (12 * MB, True)
    kept.close()
    use = measure(ATTENTION, candidate(device, 7), device)
    assert use == Use(500 * MB, 507 * MB, 500 * MB)


def test_what_a_larger_piece_left_over_hides_nothing():
    device = open_fake()
    device.backend.leftover_bytes = 100 * MB
    assert measure(ATTENTION, candidate(device, 7, 5), device) == Use(500 * MB, 512 * MB, 500 * MB)
    assert device.backend.leftover_bytes == 100 * MB


def test_what_is_loaded_once_is_not_the_candidates():
    device = open_fake()
    loads = iter([40 * MB, 0, 0])

    def run():
        device.backend.other_bytes += next(loads)

    use = measure(ATTENTION, candidate(device, 7, run=run), device)
    assert use == Use(540 * MB, 547 * MB, 540 * MB)


def test_memory_of_other_programs_that_keeps_moving_is_told():
    device = open_fake()

    def run():
        device.backend.other_bytes += 9 * MB

    use = measure(ATTENTION, candidate(device, 7, run=run), device)
    assert use == Use(518 * MB, 534 * MB, 527 * MB)
    assert not use.steady


@pytest.mark.parametrize(("more", "steady"), [(STEP, True), (STEP + 1, False), (-STEP - 1, False)])
def test_a_step_of_the_driver_is_no_other_program(more, steady):
    use = Use(10 * MB, 50 * MB, 10 * MB + more)
    assert (use.taken_bytes, use.steady) == (40 * MB, steady)


def test_nothing_is_measured_of_other_ops_and_off_a_gpu():
    def prepare():
        raise AssertionError("prepared for nothing")

    one = Candidate("v", "f32", prepare)
    assert measure(Problem("t", "p", "spmm", 8, 8, 8, 0.5, "uniform:0"), one, open_fake()) is None
    assert measure(ATTENTION, one, FakeDevice()) is None


def test_memory_is_freed_where_the_run_fails():
    device = open_fake()

    def run():
        raise RuntimeError("too many resources")

    with pytest.raises(RuntimeError, match="too many"):
        measure(ATTENTION, candidate(device, 7, run=run), device)
    device.release()
    assert device.used_bytes() == 500 * MB


@pytest.mark.parametrize(
    "text", ["problem,dtype\np,f32\n", "", "x", "-1", "1.5"], ids=["columns", "blank", "word", "below", "broken"]
)
def test_another_table_is_refused(tmp_path, text):
    path = tmp_path / MEMORY.file
    header = "problem,dtype,kernel,variant,device,before_bytes,peak_bytes,after_bytes\n"
    path.write_text(text if "problem" in text else f"{header}p,f32,k,v,cupy,{text},2,3\n")
    with pytest.raises(RecordError, match=r"memory\.csv: not a table of memory"):
        MEMORY.read(tmp_path)


def small(tmp_path, kernel, **changes):
    return sweep(tmp_path, kernel, exp=Small("small", "", "", "", {kernel.name: ("f32",)}, ("hot", "cold")), **changes)


def test_a_run_writes_one_row_per_right_candidate(tmp_path, monkeypatch):
    uses = iter([Use(10, 50 * MB, 10), Use(10, 70 * MB, 10), Use(10, 30 * MB, 90 * MB), RuntimeError("no memory")])

    def measure(problem, candidate, device):
        use = next(uses)
        if isinstance(use, Exception):
            raise use
        return use

    monkeypatch.setattr("nnzbench.bench.memory.measure", measure)
    monkeypatch.setattr("nnzbench.bench.memory.OPS", {"spmm"})
    notes = Notes()
    kernel = FakeKernel(variants={"slow": (20.0, ""), "bad": (1.0, "wrong"), "fast": (5.0, "")})
    small(tmp_path, kernel, progress=notes)
    found = MEMORY.read(tmp_path / "out")
    assert [row.candidate[:4] for row in found] == [
        ("p0", "f32", "fake", "slow"),
        ("p0", "f32", "fake", "fast"),
        ("p1", "f32", "fake", "slow"),
    ]
    assert "fake fast on p1: memory not measured (no memory)" in notes.notes
    frame = load(tmp_path / "out").frame.set_index(["problem", "variant", "policy"])["memory_bytes"]
    assert frame["p0", "slow", "hot"] == frame["p0", "slow", "cold"] == 50 * MB - 10
    assert frame["p0", "fast", "hot"] == 70 * MB - 10
    assert math.isnan(frame["p1", "slow", "hot"])  # another program's memory moved meanwhile
    assert math.isnan(frame["p1", "fast", "hot"])
    MEMORY.add(tmp_path / "out", Memory("p0", "f32", "fake", "slow", "cupy", 10, 60 * MB, 10))
    frame = load(tmp_path / "out").frame.set_index(["problem", "variant", "policy"])["memory_bytes"]
    assert frame["p0", "slow", "hot"] == 60 * MB - 10  # the later one counts
    monkeypatch.setattr("nnzbench.bench.memory.measure", lambda *of: None)
    small(tmp_path, kernel, choice=Choice(overwrite=True))
    assert not (tmp_path / "out" / MEMORY.file).exists()


def test_a_device_that_is_lost_ends_the_run(tmp_path, monkeypatch):
    def lost(*of):
        raise DeviceLost("an illegal memory access was encountered")

    monkeypatch.setattr("nnzbench.bench.memory.measure", lost)
    monkeypatch.setattr("nnzbench.bench.memory.OPS", {"spmm"})
    with pytest.raises(DeviceLost):
        small(tmp_path, FakeKernel())
