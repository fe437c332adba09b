"""The fastest kernel for one problem within a time limit: candidates of all kernels, in turns.

Libraries come first and whole, because what a kernel must beat is the best of their algorithms. Then whichever kernel
has taken the least time so far has the next candidate; one whose best is far behind the fastest waits longer. Where
time is enough every candidate is tried.

Programs compile on the host's other processors while the GPU is timed: a few candidates of each kernel are planned
ahead, in the time that measuring leaves. A program that holds the weights compiles for seconds, so that the first
kernel of this kind begins before the libraries are timed. Any other one waits as if it had taken already what its
programs take to compile, and none begins what can't end within the limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from nnzbench.build.ahead import Coming, Crew
from nnzbench.build.pool import Beside
from nnzbench.kernels.registry import about
from nnzbench.measure.attempts import Attempts, Tried
from nnzbench.measure.trial import Outcome, planned_candidates
from nnzbench.plans.plan import Candidate
from nnzbench.problems.experiment import Policy
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import DType
from nnzbench.progress import EVERY_S, RunProgress

AHEAD = 6
"""Candidates of a kernel that are planned ahead of its turn: few, as the search may end before the last."""
PLANNING_SHARE = 0.25
"""Of the time so far, what planning ahead may take."""
NOT_REACHED = "the time was over before it was tried"
COMPILE_S_PER_NONZERO = 1.2e-4
"""Of a program that holds the weights: 12 s for 100,000 of them, where a few are compiled side by side."""
HALF_NONZEROS = 10_000
"""From which on a program of 16-bit weights takes longer, in proportion: its conversions cost ptxas the square."""
REFUSED_S = 60.0
"""A kernel whose programs would take longer is asked whatever time is left: it refuses such a matrix, and says why."""


@dataclass
class Turn:
    """Where a kernel stands."""

    kernel: str
    coming: Coming[Outcome]
    seconds: float = 0.0
    tried: int = 0
    done: bool = False
    best_us: float | None = None
    compile_s: float = 0.0
    """What compiling a few of its candidates is expected to take, where its programs hold the weights."""
    most: int = AHEAD
    """Candidates that are held at most."""

    @property
    def ready(self) -> bool:
        """Whether its next candidate can be tried at once."""
        return (len(self.coming) > 0 or self.coming.over) and not self.coming.awaited()

    def may_hold(self, left: float) -> bool:
        """Whether one more candidate can be planned whose programs are compiled in so many seconds."""
        in_time = self.compile_s <= left or self.compile_s > REFUSED_S
        return in_time and not self.coming.over and len(self.coming) < self.most

    @property
    def plans_ahead(self) -> bool:
        """Whether a candidate may be planned before its turn: libraries have no programs, long ones are begun late."""
        begun = self.tried > 0 or len(self.coming) > 0
        return not self.done and about(self.kernel).role != "library" and (begun or not self.compile_s)

    def able(self, left: float) -> bool:
        """Whether its next candidate can be tried, or planned at least, none being compiled."""
        return not self.done and (self.ready or (not len(self.coming) and self.may_hold(left)))

    def cost(self, fastest_us: float | None) -> float:
        """Seconds taken, or at first to be taken, counted more where its best is behind the fastest of all."""
        behind = self.best_us / fastest_us if self.best_us and fastest_us else 1.0
        return max(self.seconds, self.compile_s) * max(1.0, behind) ** 2


Seen = Callable[[str, Candidate, Outcome], None]
"""Told of each candidate that was right: its kernel, itself, what was measured."""


@dataclass(frozen=True)
class Found:
    """What a search tried."""

    tried: Mapping[str, int]
    """Candidates by kernel."""
    unfinished: tuple[str, ...]
    """Kernels with candidates left when the time was over."""


def search(
    subject: Tried,
    operands: Operands,
    names: Sequence[str],
    attempts: Attempts,
    seconds: float,
    progress: RunProgress,
    seen: Seen | None = None,
) -> Found:
    """Tries candidates of the named kernels until all are tried or `seconds` of the session's clock are over.

    A candidate that was begun is finished. Where nothing is timed, each kernel's first candidate
    is all that is tried. Raises `DeviceLost`.
    """
    with Search(subject, operands, names, attempts, progress, seen) as one:
        found = one.go(seconds)
        one.tell_unreached()
        return found


class Search:
    """A search that can go on after its time was over; what compiles beside it ends with the `with` block."""

    def __init__(
        self,
        subject: Tried,
        operands: Operands,
        names: Sequence[str],
        attempts: Attempts,
        progress: RunProgress,
        seen: Seen | None = None,
        crew: Crew | None = None,
    ) -> None:
        """`crew` compiles; None: worker processes, for a device that takes its programs from the compile cache."""
        self._subject, self._attempts, self._progress, self._seen = subject, attempts, progress, seen
        self._clock = attempts.session.clock
        device = attempts.session.device
        limit = None if device.timer is not None else 1
        self._crew: Crew | None = crew or (Beside() if device.compiles_from_cache else None)
        self._fastest: dict[tuple[str, Policy], float] = {}
        self._planning_s = 0.0
        phases = attempts.session.work.phases
        most_long = max(1, min(AHEAD, self._crew.workers // 2)) if self._crew else 1
        self._turns = [
            Turn(
                name,
                Coming(
                    planned_candidates(
                        attempts.session.kernels[name], subject.problem, operands, device, limit, "all", phases
                    ),
                    device.arch,
                    device.link,
                    self._crew,
                ),
                compile_s=_compile_s(name, operands, subject.problem.dtype) if limit is None else 0.0,
                most=most_long if about(name).weights_in_code else AHEAD,
            )
            for name in sorted(names, key=lambda name: about(name).role != "library")
        ]

    def __enter__(self) -> Search:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._crew is not None:
            self._crew.close()

    def go(self, seconds: float) -> Found:
        """Tries candidates for so many seconds, or all that are left. Raises `DeviceLost`."""
        begun = self._clock()
        self._begin_the_longest(seconds)
        told = -math.inf
        libraries = [turn for turn in self._turns if about(turn.kernel).role == "library"]
        for group in (libraries, self._turns):
            while (left := seconds - (self._clock() - begun)) > 0:
                turn = self._next(group, left)
                if turn is None:
                    if not self._wait(group, left):
                        break
                    continue
                if not turn.ready:
                    self._hold(turn)
                    continue
                if self._clock() - told >= EVERY_S:  # candidates are too many for a line each
                    told = self._clock()
                    problem = self._subject.problem
                    self._progress.step(f"{problem.name} {problem.dtype} {turn.kernel}")
                self._try(turn)
                self._plan_ahead(turn, begun, seconds)
        return self.found

    @property
    def found(self) -> Found:
        """What was tried so far."""
        unfinished = tuple(turn.kernel for turn in self._turns if not turn.done)
        return Found({turn.kernel: turn.tried for turn in self._turns}, unfinished)

    @property
    def compiling(self) -> bool:
        """Whether programs of candidates that were not tried are compiled, or being compiled."""
        return any(len(turn.coming) > 0 for turn in self._turns if not turn.done)

    def settle(self, seconds: float) -> Found:
        """Tries what is compiled, or will be within so many seconds; begins nothing. Raises `DeviceLost`."""
        begun = self._clock()
        while self.compiling and (left := seconds - (self._clock() - begun)) > 0:
            held = [turn for turn in self._turns if not turn.done and len(turn.coming)]
            ready = [turn for turn in held if turn.ready]
            if ready:
                self._try(min(ready, key=lambda one: one.cost(self._leader())))
            elif not self._wait_for(held, left):
                break
        return self.found

    def tell_unreached(self) -> None:
        """Records of each kernel that had no turn that the time was over."""
        for turn in self._turns:
            if not turn.tried and not turn.done:
                self._attempts.add(self._subject, turn.kernel, "", Outcome("timeout", NOT_REACHED))

    def _begin_the_longest(self, seconds: float) -> None:
        """Plans the first kernel whose programs hold the weights, where processors are left for the others'."""
        first = next((turn for turn in self._turns if turn.compile_s), None)
        if first is not None and self._crew is not None and self._crew.workers > 1:
            while first.may_hold(seconds):
                self._hold(first)

    def _next(self, group: Sequence[Turn], left: float) -> Turn | None:
        """Whose candidate is tried, or planned; None where all that are left are compiling."""
        leader = self._leader()
        able = [turn for turn in group if turn.able(left)]
        return min(able, key=lambda one: (one.tried > 0 or one.compile_s > 0, one.cost(leader)), default=None)

    def _leader(self) -> float | None:
        return min((turn.best_us for turn in self._turns if turn.best_us), default=None)

    def _wait(self, group: Sequence[Turn], left: float) -> bool:
        """Plans one more candidate, or else waits until something is compiled; false where nothing compiles."""
        compiling = [turn for turn in group if not turn.done and turn.coming.awaited()]
        if more := next((turn for turn in compiling if turn.may_hold(left)), None):
            self._hold(more)
        elif compiling:
            self._wait_for(compiling, left)
        return bool(compiling)

    def _wait_for(self, turns: Sequence[Turn], left: float) -> bool:
        """Waits until one of the programs that turns wait for is compiled; false where they wait for none."""
        awaited = [one for turn in turns for one in turn.coming.awaited()]
        if awaited and self._crew is not None:
            with self._attempts.session.work.phases.of("compiling"):
                self._crew.wait(awaited, left)
        return bool(awaited)

    def _plan_ahead(self, last: Turn, begun: float, seconds: float) -> None:
        """Plans a candidate of the kernel that was just tried, and one of the kernel that holds the fewest."""
        for turn in (last, min(self._turns, key=lambda one: (not one.plans_ahead, one.coming.over, len(one.coming)))):
            started = self._clock()
            spent = started - begun
            if turn.plans_ahead and turn.may_hold(seconds - spent) and self._planning_s <= PLANNING_SHARE * spent:
                self._hold(turn)
                self._planning_s += self._clock() - started

    def _hold(self, turn: Turn) -> None:
        started = self._clock()
        turn.coming.hold()
        turn.seconds += self._clock() - started

    def _try(self, turn: Turn) -> None:
        """Tries the next candidate of a kernel; a kernel with none left, or none at all, is done."""
        started = self._clock()
        candidate = turn.coming.take()
        if candidate is None:
            candidate = Outcome("unsupported", "it has no candidate and does not say why") if not turn.tried else None
        if candidate is None or isinstance(candidate, Outcome):
            if candidate is not None:
                self._attempts.add(self._subject, turn.kernel, "", candidate)
            turn.done = True
            self._progress.advance()
            return
        outcome = self._attempts.attempt(self._subject, turn.kernel, candidate, self._fastest, self._progress)
        turn.tried += 1
        turn.seconds += self._clock() - started
        if outcome is None or outcome.status != "ok":
            return
        medians = [one.median for one in outcome.measurements.values()]
        if medians:
            turn.best_us = min(filter(None, (turn.best_us, medians[0])))
        if self._seen is not None:
            self._seen(turn.kernel, candidate, outcome)


def _compile_s(name: str, operands: Operands, dtype: DType) -> float:
    if not about(name).weights_in_code:
        return 0.0
    nnz = operands.sparse.nnz
    seconds = nnz * COMPILE_S_PER_NONZERO
    return seconds if dtype == "f32" else max(seconds, min(REFUSED_S, seconds * nnz / HALF_NONZEROS))
