"""What a search works with, on a clock that goes on by what planning, compiling and timing are said to take."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

from nnzbench.bench.phases import Work
from nnzbench.bench.trial import Outcome
from nnzbench.core.plan import Candidate, Plan


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@dataclass
class Compilation:
    clock: Clock
    ends: float

    def done(self):
        return self.clock.now >= self.ends

    def result(self):
        return None


class Compilers:
    """Processors that compile beside the search, each program for as many seconds as its text says."""

    def __init__(self, clock, workers):
        self.workers, self.closed = workers, False
        self.clock, self.free = clock, [0.0] * workers

    def add(self, job, timeout_s):
        at = min(range(self.workers), key=lambda one: self.free[one])
        self.free[at] = max(self.free[at], self.clock.now) + float(job.source)
        return Compilation(self.clock, self.free[at])

    def wait(self, begun, seconds):
        self.clock.now = min([one.ends for one in begun] + [self.clock.now + seconds])

    def close(self):
        self.closed = True


@dataclass
class TimedKernel:
    """A kernel whose candidates take these microseconds, and seconds to plan and to compile (0: a library's)."""

    name: str
    times: list[float]
    clock: Clock
    compile_s: float = 0.0
    plan_s: float = 0.0
    paper: str = ""
    ops = frozenset({"spmm"})
    dtypes = frozenset({"f32", "f16"})

    def candidates(self, problem, operands, device):
        for at in range(len(self.times)):
            self.clock.now += self.plan_s
            text = str(self.compile_s)
            plan = Plan(f"v{at}", "cuda", text, {}, {}, "c", ()) if self.compile_s else None
            yield Candidate(f"v{at}", "f32", lambda: None, plan=plan)


@dataclass
class Attempts:
    """Stands where a search tries candidates, each for a second; keeps kernel, variant and when it ended."""

    clock: Clock
    kernels: dict[str, TimedKernel]
    tried: list[tuple[str, str, float]] = field(default_factory=list)
    told: list[tuple[str, str]] = field(default_factory=list)
    policies = ("hot", "cold")

    @property
    def session(self):
        device = SimpleNamespace(timer=object(), arch="sm_90", link="", compiles_from_cache=True)
        return SimpleNamespace(clock=self.clock, device=device, kernels=self.kernels, work=Work())

    def attempt(self, subject, kernel, candidate, fastest, progress):
        self.clock.now += 1.0
        self.tried.append((kernel, candidate.variant, self.clock.now))
        us = self.kernels[kernel].times[int(candidate.variant[1:])]
        return Outcome("ok", measurements={"hot": SimpleNamespace(median=us)})

    def add(self, subject, kernel, variant, outcome, math=""):
        self.told.append((kernel, outcome.status))
