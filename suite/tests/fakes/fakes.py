"""A device that computes nothing on any hardware: a clock, a timer and results that tests decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from nnzbench.core.plan import Candidate, Plan, Prepared, Unsupported
from nnzbench.core.progress import RunProgress
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import reference

Silent = RunProgress


class FakeClock:
    """Host seconds that pass only when the fake device works."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1e-6
        return self.now


@dataclass
class FakeTimer:
    """Each launch takes the next of `times` microseconds; every call is kept in `calls`."""

    clock: FakeClock = field(default_factory=FakeClock)
    times: Iterator[float] | None = None
    mhz: Callable[[], float | None] = lambda: 1980.0
    reasons: Callable[[], tuple[str, ...]] = lambda: ()
    calls: list = field(default_factory=list)
    enqueued_us: float = 0.0
    broken: bool = False
    flush_bytes: int = 1000

    def launch(self):
        """What a fake kernel's `run` does."""
        self.enqueued_us += next(self.times) if self.times else 10.0

    def capture(self, run, launches):
        self.calls.append(("capture", launches))

        def replay():
            for _ in range(launches):
                run()

        return replay

    def elapsed_us(self, body):
        if self.broken:
            raise RuntimeError("an illegal memory access was encountered")
        self.calls.append(("elapsed",))
        before = self.enqueued_us
        body()
        passed = self.enqueued_us - before
        self.clock.now += passed * 1e-6 + 5e-6
        return passed

    def cold_us(self, run, samples):
        self.calls.append(("cold", samples))
        found = []
        for _ in range(samples):
            self.clock.now += 50e-6  # the overwrite of L2 costs wall time and is outside the interval
            found.append(self.elapsed_us(run))
        return found

    def sm_clock_mhz(self):
        return self.mhz()

    def throttle_reasons(self):
        return self.reasons()


class FakeDevice:
    """Has a timer like a GPU, or none like the processor."""

    def __init__(self, timed=True, gpu="fake-gpu"):
        self.timer = FakeTimer() if timed else None
        self.name = "cupy" if timed else "cpu"
        self.gpu = gpu if timed else "cpu"
        self.arch = "sm_90"
        self.link = ""
        self.compiles_from_cache = timed
        self.closed = self.abandoned = False

    def prepare(self, plan: Plan) -> Prepared:
        raise NotImplementedError("fake kernels are vendor kernels")

    def abandon(self):
        self.abandoned = True

    def close(self):
        self.closed = True


@dataclass
class FakeKernel:
    """A kernel whose variants take given times and may fail in a given way.

    `variants` maps a name to (microseconds, fault); faults: "", "wrong", "stale", "launch", "lost", "unsupported" or an
    exception that `prepare` raises.
    """

    name: str = "fake"
    variants: dict = field(default_factory=lambda: {"v1": (10.0, "")})
    ops: frozenset = frozenset({"spmm"})
    dtypes: frozenset = frozenset({"f32"})
    math: str | None = None
    paper: str = "none"
    open_count: int = 0
    prepared: list = field(default_factory=list)
    after_prepare: Callable[[], None] = lambda: None
    weights: np.ndarray | None = None
    """What a policy that streams copies; a result over the nth copy is off by the nth of them."""
    copies: int = 0

    def candidates(self, problem: Problem, operands, device):
        for variant, (us, fault) in self.variants.items():
            if fault == "unsupported":
                raise Unsupported("no such device")
            math = self.math or (variant.partition("_")[0] if variant.startswith("tf32") else problem.dtype)
            yield Candidate(
                variant, math, lambda u=us, f=fault, v=variant: self._prepare(problem, operands, device, v, u, f)
            )

    def _prepare(self, problem, operands, device, variant, us, fault):
        if isinstance(fault, BaseException):
            raise fault
        self.prepared.append(variant)
        self.open_count += 1
        self.after_prepare()
        good = reference(problem, operands).value
        output = np.full_like(good, np.nan)
        runs = 0

        def run():
            nonlocal runs
            runs += 1
            if device.timer is not None:
                device.timer.enqueued_us += us
            if fault == "launch":
                raise RuntimeError("too many resources requested for launch")
            if fault == "lost":
                device.timer.broken = True
                raise RuntimeError("an illegal memory access was encountered")
            if fault == "stale" and runs > 1:
                return
            output[...] = good + 1.0 if fault == "wrong" else good

        def close():
            self.open_count -= 1

        def copied(names):
            off = self.weights[self.copies]
            self.copies += 1

            def over():
                run()
                output[...] += off

            return over

        return Prepared(
            run, output.copy, lambda: output.fill(np.nan), close, prepare_ms=1.0, compile_ms=2.0,
            arrays={} if self.weights is None else {"weights": self.weights},
            copied=None if self.weights is None else copied,
        )  # fmt: skip
