"""What a search tries and when, over a device, kernels and compilers whose seconds pass on one fake clock."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from fakes import FakeClock, FakeDevice, Silent

from nnzbench.measure import search as module
from nnzbench.measure.phases import Work
from nnzbench.measure.search import Search, search
from nnzbench.measure.trial import Outcome
from nnzbench.plans.plan import Candidate, Plan, Unsupported


class Compiling:
    """A program under way: done at a time of the fake clock."""

    def __init__(self, clock, ends):
        self._clock, self.ends = clock, ends

    def done(self):
        return self._clock.now >= self.ends

    def result(self):
        assert self.done()


class Crew:
    """Compilers that take as many seconds as a program's text says."""

    def __init__(self, clock, workers=4):
        self.workers, self._clock, self._free, self.closed = workers, clock, [0.0] * workers, False

    def add(self, job, timeout_s):
        at = min(range(self.workers), key=lambda one: self._free[one])
        self._free[at] = max(self._free[at], self._clock.now) + float(job.source)
        return Compiling(self._clock, self._free[at])

    def close(self):
        self.closed = True


class Kernel:
    """A library (no program), or a kernel whose candidates compile for so many seconds."""

    ops, dtypes, paper = frozenset({"spmm"}), frozenset({"f32"}), ""

    def __init__(self, name, times, compile_s=None, plan_s=0.0):
        self.name, self._times, self._compile_s, self._plan_s = name, times, compile_s, plan_s

    def candidates(self, problem, operands, device):
        for at in range(len(self._times)):
            device.clock.now += self._plan_s
            plan = None if self._compile_s is None else Plan("v", "cuda", f"{self._compile_s}", {}, {}, "c", ())
            yield Candidate(f"v{at}", "f32", lambda: None, plan=plan)


class Attempts:
    """Each candidate takes a second of the GPU; kernel, variant and time of its end are kept."""

    def __init__(self, clock, kernels, device):
        self.session = SimpleNamespace(clock=clock, device=device, kernels=kernels, work=Work())
        self.policies, self.tried, self.told = ("hot",), [], []

    def attempt(self, subject, kernel, candidate, fastest, progress):
        clock = self.session.clock
        clock.now += 1.0
        self.tried.append((kernel, candidate.variant, round(clock.now, 1)))
        us = self.session.kernels[kernel]._times[int(candidate.variant[1:])]
        return Outcome("ok", measurements={"hot": SimpleNamespace(median=us)})

    def add(self, subject, kernel, variant, outcome, math=""):
        self.told.append((kernel, outcome.status))


@pytest.fixture
def world(monkeypatch):
    """A library, a kernel that compiles at once, and two that compile for ten seconds with 50,000 weights in them."""
    clock = FakeClock()
    device = FakeDevice()
    device.clock = clock
    monkeypatch.setattr(module, "Beside", lambda: Crew(clock))

    def wait(futures, timeout, how):
        ends = [one.ends for one in futures]
        clock.now = min([*ends, math.inf if timeout is None else clock.now + timeout])

    monkeypatch.setattr(module, "wait", wait)
    kernels = {
        "sputnik": Kernel("sputnik", [5.0, 4.0, 3.0], 0.5, 0.01),
        "sparsert": Kernel("sparsert", [2.0, 1.0, 1.5], 6.0, 0.2),
        "sparsert_paper": Kernel("sparsert_paper", [2.5, 2.4], 6.0, 0.2),
        "cublas": Kernel("cublas", [9.0, 8.0]),
    }
    return clock, Attempts(clock, kernels, device)


SUBJECT = SimpleNamespace(problem=SimpleNamespace(name="p", op="spmm", dtype="f32"))
OPERANDS = SimpleNamespace(sparse=SimpleNamespace(nnz=50_000))
NAMES = ("sputnik", "sparsert", "sparsert_paper", "cublas")


def test_programs_compile_while_others_are_timed(world):
    clock, attempts = world
    found = search(SUBJECT, OPERANDS, NAMES, attempts, math.inf, Silent())
    assert [name for name, _, _ in attempts.tried[:6]] == ["cublas"] * 2 + ["sputnik"] * 3 + ["sparsert"]
    assert found.tried == {"cublas": 2, "sputnik": 3, "sparsert": 3, "sparsert_paper": 2}
    assert not found.unfinished
    assert attempts.tried[5] == ("sparsert", "v0", 7.2)  # planned for 0.2 s, compiled for 6, timed for 1
    assert clock.now < 16  # 10 s on the GPU; 42 s of compilations but for what no other program hid


def test_what_takes_longest_begins_before_the_libraries_are_timed(world):
    clock, attempts = world
    found = search(SUBJECT, OPERANDS, NAMES, attempts, 8.0, Silent())
    assert ("sparsert", "v0", 7.2) in attempts.tried
    assert found.unfinished == ("sparsert", "sparsert_paper")
    assert found.tried["cublas"] == 2
    assert found.tried["sputnik"] == 3
    assert attempts.told[-1] == ("sparsert_paper", "timeout")
    assert clock.now < 9.0


def test_nothing_is_begun_that_cannot_end_within_the_time(world):
    clock, attempts = world
    found = search(SUBJECT, OPERANDS, NAMES, attempts, 5.5, Silent())  # 6 s are expected of 50,000 weights
    assert found.tried == {"cublas": 2, "sputnik": 3, "sparsert": 0, "sparsert_paper": 0}
    assert clock.now < 5.6


def test_a_kernel_that_refuses_a_matrix_says_so_whatever_time_is_left(world):
    clock, attempts = world

    def refuse(problem, operands, device):
        raise Unsupported("600000 nonzeros")

    attempts.session.kernels["sparsert"].candidates = refuse
    many = SimpleNamespace(sparse=SimpleNamespace(nnz=600_000))
    found = search(SUBJECT, many, ("cublas", "sputnik", "sparsert"), attempts, 7.0, Silent())
    assert attempts.told == [("sparsert", "unsupported")]
    assert not found.unfinished
    assert clock.now < 7.0


def test_a_search_goes_on_where_its_time_was_over(world):
    _, attempts = world
    with Search(SUBJECT, OPERANDS, NAMES, attempts, Silent()) as one:
        within = one.go(4.0)
        before = len(attempts.tried)
        everything = one.go(math.inf)
        crew = one._crew
    assert crew.closed
    assert 0 < before < len(attempts.tried) == 10
    assert len(set(attempts.tried)) == 10
    assert sum(within.tried.values()) == before
    assert sum(everything.tried.values()) == 10
    assert not everything.unfinished
    assert not attempts.told


def test_a_host_of_one_compiler_keeps_it_for_the_short_programs(world, monkeypatch):
    clock, attempts = world
    monkeypatch.setattr(module, "Beside", lambda: Crew(clock, 1))
    search(SUBJECT, OPERANDS, NAMES, attempts, 14.0, Silent())
    names = [name for name, _, _ in attempts.tried]
    assert names[:5] == ["cublas", "cublas", "sputnik", "sputnik", "sputnik"]
    assert attempts.tried[4][2] < 6.5


def test_planning_ahead_leaves_the_time_to_measuring(world):
    """A kernel whose plans take seconds holds up what is timed by a quarter of the time at most."""
    _, attempts = world
    attempts.session.kernels["ring"] = Kernel("ring", [7.0] * 4, 0.1, 2.0)
    search(SUBJECT, OPERANDS, (*NAMES, "ring"), attempts, 4.5, Silent())
    assert [name for name, _, _ in attempts.tried[:2]] == ["cublas", "cublas"]
    assert attempts.tried[1][2] < 4.5
