"""What `nnzbench best` would have found within a time, replayed over recorded searches that tried everything.

    python runners/trials/replay_best.py RECORDS... [--seconds 15] [--candidate 0.08] [--processors 16]

RECORDS are records.csv of searches that had no limit, such as `part-*/records.csv` of best_trial.py: of each kernel
every candidate in its order, with its time and what its program took to compile. The search is the one that `best`
runs; the seconds are a clock's that goes on by what planning, compiling and timing are taken for. So the order
of candidates, and what a time limit leaves out, can be judged without a GPU.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nnzbench.build.cache import Job
from nnzbench.kernels.registry import about, known
from nnzbench.measure.phases import Work
from nnzbench.measure.search import Search
from nnzbench.measure.trial import Outcome
from nnzbench.plans.plan import Candidate, Plan, Unsupported
from nnzbench.progress import Quiet
from nnzbench.records.record import RecordError
from nnzbench.records.selection import class_of
from nnzbench.report.text.tables import markdown

PLAN_S = 0.003
PLAN_S_PER_NONZERO = 1e-7
CODE_S_PER_NONZERO = 5e-6
"""To plan a candidate whose program holds the weights: its text is written then."""
CHOICE_S_PER_NONZERO = 8e-6
"""To choose among its tilings, before the first."""
HOT_SHARE = 0.55
"""Of a candidate's seconds, where it is timed hot alone."""


class Clock:
    """Seconds that pass when something is said to take them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Compilation:
    """A program under way: done at a time of the clock."""

    clock: Clock
    ends: float

    def done(self) -> bool:
        """Whether its time has come."""
        return self.clock.now >= self.ends

    def result(self) -> None:
        """Nothing went wrong."""


class Compilers:
    """Processors that compile beside the search, each program for as many seconds as its text says."""

    def __init__(self, clock: Clock, workers: int) -> None:
        self.workers, self.closed = workers, False
        self._clock, self._free = clock, [0.0] * workers

    def add(self, job: Job, timeout_s: float) -> Compilation:
        """On the processor that is free first."""
        at = min(range(self.workers), key=lambda one: self._free[one])
        self._free[at] = max(self._free[at], self._clock.now) + float(job.source)
        return Compilation(self._clock, self._free[at])

    def wait(self, begun: Sequence[Compilation], seconds: float) -> None:
        """Time passes."""
        self._clock.now = min([one.ends for one in begun] + [self._clock.now + seconds])

    def close(self) -> None:
        """Nothing is under way any more."""
        self.closed = True


@dataclass
class Timed:
    """One recorded candidate."""

    variant: str
    us: float | None
    compile_s: float
    """0 for a library."""
    reason: str = ""


@dataclass
class Replayed:
    """A kernel whose candidates are those that were recorded."""

    name: str
    candidates_of: Sequence[Timed]
    clock: Clock
    first_plan_s: float = PLAN_S
    plan_s: float = PLAN_S
    ops: frozenset[str] = frozenset({"spmm"})
    dtypes: frozenset[str] = frozenset({"f32", "f16", "bf16"})
    paper: str = ""

    def candidates(self, problem: Any, operands: Any, device: Any) -> Iterator[Candidate]:
        """In their order; planning takes its time."""
        for at, one in enumerate(self.candidates_of):
            if one.us is None and one.reason:
                raise Unsupported(one.reason)
            self.clock.now += self.plan_s if at else self.first_plan_s
            text = str(one.compile_s)
            plan = Plan(one.variant, "cuda", text, {}, {}, "c", ()) if one.compile_s else None
            yield Candidate(one.variant, "f32", _never, plan=plan)


def _never() -> Any:
    raise AssertionError("nothing runs here")


@dataclass
class Attempts:
    """Stands where a search tries candidates: each takes `candidate_s`; kernel, variant, its end and time are kept."""

    clock: Clock
    kernels: Mapping[str, Replayed]
    candidate_s: float
    policies: tuple[str, ...] = ("hot", "cold")
    tried: list[tuple[str, str, float, float]] = field(default_factory=list)
    told: list[tuple[str, str]] = field(default_factory=list)

    @property
    def session(self) -> Any:
        """A GPU, as far as a search asks."""
        device = SimpleNamespace(timer=object(), arch="sm_90", link="", compiles_from_cache=True)
        return SimpleNamespace(clock=self.clock, device=device, kernels=self.kernels, work=Work())

    def attempt(self, subject: Any, kernel: str, candidate: Candidate, fastest: Any, progress: Any) -> Outcome:
        """Its recorded time."""
        self.clock.now += self.candidate_s * (1.0 if len(self.policies) > 1 else HOT_SHARE)
        us = next(one.us for one in self.kernels[kernel].candidates_of if one.variant == candidate.variant)
        self.tried.append((kernel, candidate.variant, self.clock.now, us or math.inf))
        return Outcome("ok", measurements={"hot": SimpleNamespace(median=us or math.inf)})  # type: ignore[dict-item]

    def add(self, subject: Any, kernel: str, variant: str, outcome: Outcome, math: str = "") -> None:
        """What stopped a kernel."""
        self.told.append((kernel, outcome.status))


@dataclass(frozen=True)
class Replay:
    """What one problem's search found."""

    problem: str
    nonzeros: int
    found: tuple[str, str, float, float] | None
    """Kernel, variant, when, and microseconds; None where no sparse kernel was timed."""
    best: tuple[str, str, float, float]
    tried: int
    candidates: int
    within_s: float
    rest_s: float

    @property
    def ratio(self) -> float:
        """Of the time found to the least there is."""
        return self.found[3] / self.best[3] if self.found else math.inf


def replay(
    problem: str, nonzeros: int, dtype: str, kernels: Mapping[str, Sequence[Timed]], seconds: float, candidate_s: float,
    processors: int,
) -> Replay:  # fmt: skip
    """Searches one problem, of kernels in the order of their names in the registry."""
    clock = Clock()
    made = {}
    for name in (name for name in known() if name in kernels):
        said = about(name)
        plan_s = PLAN_S + nonzeros * (CODE_S_PER_NONZERO if said.weights_in_code else PLAN_S_PER_NONZERO)
        first_s = plan_s + (nonzeros * CHOICE_S_PER_NONZERO if said.weights_in_code else 0.0)
        library = said.role == "library"
        made[name] = Replayed(name, kernels[name], clock, 0.0 if library else first_s, 0.0 if library else plan_s)
    attempts = Attempts(clock, made, candidate_s)
    subject: Any = SimpleNamespace(problem=SimpleNamespace(name=problem, op="spmm", dtype=dtype))
    operands: Any = SimpleNamespace(sparse=SimpleNamespace(nnz=nonzeros))
    stand_in: Any = attempts
    pool = Compilers(clock, max(1, processors - 1))
    with Search(subject, operands, list(made), stand_in, Quiet(), pool=pool) as search:
        within = search.go(seconds)
        found, ended = _fastest(attempts.tried, dtype), clock.now
        attempts.policies = ("hot",)
        everything = search.go(math.inf)
    best = _fastest(attempts.tried, dtype)
    if best is None:
        raise RecordError(f"{problem}: no sparse kernel has a time")
    return Replay(
        problem, nonzeros, found, best, sum(within.tried.values()), sum(everything.tried.values()), ended,
        clock.now - ended,
    )  # fmt: skip


def _fastest(tried: Iterable[tuple[str, str, float, float]], dtype: str) -> tuple[str, str, float, float] | None:
    """Of the kernels that leave zeros out, in the precision asked for."""
    able = (one for one in tried if about(one[0]).work != "dense" and class_of(one[0], one[1], dtype) == dtype)
    return min(able, key=lambda one: one[3], default=None)


def recorded(path: Path) -> Iterator[tuple[str, int, str, dict[str, list[Timed]]]]:
    """Problem, nonzeros, type, and the candidates of each kernel, of every problem in a file of records."""
    problems: dict[tuple[str, str], tuple[int, dict[str, list[Timed]]]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["policy"] != "hot" or row["status"] == "timeout":
                    continue
                _, kernels = problems.setdefault((row["problem"], row["dtype"]), (int(row["nnz"]), {}))
                us = float(row["median_us"]) if row["median_us"] else None
                library = about(row["kernel"]).role == "library"
                compile_s = 0.0 if library else max(1e-3, float(row["compile_ms"] or 0.0) / 1e3)
                kernels.setdefault(row["kernel"], []).append(Timed(row["variant"], us, compile_s, row["reason"]))
    except (OSError, KeyError, ValueError, csv.Error) as error:
        raise RecordError(f"{path}: can't be read as records ({error})") from error
    for (problem, dtype), (nonzeros, kernels) in problems.items():
        yield problem, nonzeros, dtype, kernels


def page(replays: Sequence[Replay]) -> str:
    """Markdown."""
    ratios = [one.ratio for one in replays]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    rows = [
        (
            one.problem[:60], f"{one.nonzeros:,}", _named(one.found), _named(one.best), f"{one.ratio:.3f}",
            f"{one.tried} of {one.candidates}", f"{one.within_s:.1f} + {one.rest_s:.1f}",
        )
        for one in replays
    ]  # fmt: skip
    header = ("problem", "nonzeros", "within the time", "of all", "ratio", "tried", "seconds")
    return f"{markdown(header, rows, 2)}\n\nGeometric mean {mean:.3f}, worst {max(ratios):.3f}."


def _named(one: tuple[str, str, float, float] | None) -> str:
    return f"{one[0]} {one[1]}, {one[3]:.2f} µs at {one[2]:.1f} s" if one else "none"


def main() -> None:
    """Parses the command line and prints the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--seconds", type=float, default=15.0, help="what the search has")
    parser.add_argument("--candidate", type=float, default=0.08, help="seconds to time and check one, hot and cold")
    parser.add_argument("--processors", type=int, default=16)
    parser.add_argument("--fewest", type=int, default=100, help="leave out problems with fewer candidates: cut short")
    given = parser.parse_args()
    try:
        replays = [
            replay(problem, nonzeros, dtype, kernels, given.seconds, given.candidate, given.processors)
            for path in given.records
            for problem, nonzeros, dtype, kernels in recorded(path)
            if sum(map(len, kernels.values())) >= given.fewest
        ]
    except RecordError as error:
        raise SystemExit(str(error)) from None
    if not replays:
        raise SystemExit(f"no problem has {given.fewest} candidates")
    print(page(replays))


if __name__ == "__main__":
    main()
