"""The fastest kernel for one problem within a time limit: candidates of all kernels, in turns.

Nothing is tuned before whoever may win was timed once: the first candidate, its rule's choice, of the dense library
that is expected to be the fastest, then of each kernel that is expected within `WITHIN` times the least time of its
side (dense, or without the zeros), and of those of which nothing is expected. Then whichever kernel has taken the least
time so far has the next candidate; one whose best, or expected, time is far behind the fastest of its side waits
longer. Where time is enough every candidate is tried.

Programs compile on the host's other processors while the GPU is timed: a few candidates of each kernel are planned
ahead, in the time that measuring leaves. A program that holds the weights compiles for seconds, so that the first
kernel of this kind begins before anything is timed. Any other one waits as if it had taken already what its programs
take to compile, and none begins what can't end within the limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from nnzbench.bench.attempts import Attempts
from nnzbench.bench.subject import Subject
from nnzbench.bench.trial import Outcome, enumerate_candidates
from nnzbench.core.plan import Candidate
from nnzbench.core.progress import RunProgress
from nnzbench.data.problems.experiment import Policy
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import DType
from nnzbench.devices.build.pool import CompilePool, Pending
from nnzbench.kernels.registry import about

WITHIN = 2.0
"""Times the least expected time of its side, up to which a kernel is timed before any is tuned."""
OWED = 2
"""The expected fastest of either side are tried however little time there is: without them there is no answer."""
LEAST_WAIT_S = 1.0
"""For what is compiled, where these have no time left."""
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
class KernelState:
    """Where a kernel stands."""

    kernel: str
    pending: Pending[Outcome]
    seconds: float = 0.0
    tried: int = 0
    done: bool = False
    best_us: float | None = None
    expected_us: float | None = None
    """By records of like problems; None where nothing tells."""
    compile_s: float = 0.0
    """What compiling a few of its candidates is expected to take, where its programs hold the weights."""
    most: int = AHEAD
    """Candidates that are held at most."""

    @property
    def dense(self) -> bool:
        """Whether it multiplies by every weight."""
        return about(self.kernel).work == "dense"

    @property
    def ready(self) -> bool:
        """Whether its next candidate can be tried at once."""
        return (len(self.pending) > 0 or self.pending.over) and not self.pending.awaited()

    def may_hold(self, left: float) -> bool:
        """Whether one more candidate can be planned whose programs are compiled in so many seconds."""
        in_time = self.compile_s <= left or self.compile_s > REFUSED_S
        return in_time and not self.pending.over and len(self.pending) < self.most

    @property
    def plans_ahead(self) -> bool:
        """Whether a candidate may be planned before its turn: libraries have no programs, long ones are begun late."""
        begun = self.tried > 0 or len(self.pending) > 0
        return not self.done and about(self.kernel).role != "library" and (begun or not self.compile_s)

    def able(self, left: float) -> bool:
        """Whether its next candidate can be tried, or planned at least, none being compiled."""
        return not self.done and (self.ready or (not len(self.pending) and self.may_hold(left)))

    def cost(self, fastest_us: float | None) -> float:
        """Seconds taken, or at first to be taken, counted more where its time is behind the fastest of its side."""
        known_us = self.best_us or self.expected_us
        behind = known_us / fastest_us if known_us and fastest_us else 1.0
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
    missed: Mapping[str, float] = field(default_factory=dict)
    """Expected microseconds of kernels that were not timed, and might have been the fastest of their side."""


class Search:
    """A search of the named kernels, which can go on after its time was over; what compiles beside it ends with the
    `with` block. Where nothing is timed, each kernel's first candidate is all that is tried.
    """

    def __init__(
        self,
        subject: Subject,
        operands: Operands,
        names: Sequence[str],
        attempts: Attempts,
        progress: RunProgress,
        seen: Seen | None = None,
        pool: CompilePool | None = None,
        expected: Mapping[str, float] | None = None,
    ) -> None:
        """`pool` compiles; None: worker processes, for a device that takes its programs from the compile cache.

        `expected`: microseconds by kernel, of those that anything is known of.
        """
        self._subject, self._attempts, self._progress, self._seen = subject, attempts, progress, seen
        self._clock = attempts.session.clock
        device = attempts.session.device
        limit = None if device.timer is not None else 1
        self._pool: CompilePool | None = pool or (CompilePool() if device.compiles_from_cache else None)
        self._fastest: dict[bool, dict[tuple[str, Policy], float]] = {True: {}, False: {}}
        """Of the dense kernels and of the others, by arithmetic and policy: no side ends the other's timing early."""
        self._planning_s = 0.0
        phases = attempts.session.work.phases
        most_long = max(1, min(AHEAD, self._pool.workers // 2)) if self._pool else 1
        self._states = []
        for name in sorted(names, key=lambda name: about(name).role != "library"):
            kernel, problem = attempts.session.kernels[name], subject.problem
            found = enumerate_candidates(kernel, problem, operands, device, limit, phases=phases, ahead=False)
            pending = Pending(found, device.arch, device.link, self._pool)
            compile_s = _compile_s(name, operands, problem.dtype) if limit is None else 0.0
            most = most_long if about(name).weights_in_code else AHEAD
            us = (expected or {}).get(name)
            self._states.append(KernelState(name, pending, expected_us=us, compile_s=compile_s, most=most))
        self._leading = self._first_timed()

    def __enter__(self) -> Search:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.close()

    def go(self, seconds: float) -> Found:
        """Tries candidates for so many seconds of the session's clock, or all that are left.

        A candidate that was begun is finished. Raises `DeviceLost`.
        """
        begun = self._clock()
        first = next((state for state in self._leading if state.compile_s), None)
        if first is not None and self._pool is not None and self._pool.workers > 1:  # one processor is for the others'
            while first.may_hold(seconds):
                self._hold(first)
        self._time_once(begun, seconds)
        while (left := seconds - (self._clock() - begun)) > 0:
            state = self._next(left)
            if state is None:
                if not self._wait(left):
                    break
            elif not state.ready:
                self._hold(state)
            else:
                self._try(state)
                self._plan_ahead(state, begun, seconds)
        return self.found

    def _time_once(self, begun: float, seconds: float) -> None:
        """Tries the first candidate of each that leads, in their order; what compiles for seconds is not waited for."""
        while True:
            left = seconds - (self._clock() - begun)
            leading = self._leading if left > 0 else self._leading[:OWED]
            group = [one for one in leading if not (one.tried or one.done or one.compile_s)]
            left = max(left, LEAST_WAIT_S)
            state = next((one for one in group if one.able(left)), None)
            if state is None:
                if not self._wait_for(group, left):
                    return
            elif not state.ready:
                self._hold(state)
            else:  # the next one's program compiles while this one is timed
                others = (one for one in group if one is not state and not len(one.pending) and one.may_hold(left))
                if ahead := next((one for one in others if one.plans_ahead), None):
                    self._hold(ahead)
                self._try(state)

    @property
    def found(self) -> Found:
        unfinished = tuple(state.kernel for state in self._states if not state.done)
        missed = {
            state.kernel: state.expected_us
            for state in self._states
            if state.expected_us and not state.tried and not state.done
            and state.expected_us < (self._leader(state) or math.inf)
        }  # fmt: skip
        return Found({state.kernel: state.tried for state in self._states}, unfinished, missed)

    @property
    def compiling(self) -> bool:
        """Whether programs of candidates that were not tried are compiled, or being compiled."""
        return any(len(state.pending) > 0 for state in self._states if not state.done)

    def settle(self, seconds: float) -> Found:
        """Tries what is compiled, or will be within so many seconds; begins nothing. Raises `DeviceLost`."""
        begun = self._clock()
        while self.compiling and (left := seconds - (self._clock() - begun)) > 0:
            held = [state for state in self._states if not state.done and len(state.pending)]
            ready = [state for state in held if state.ready]
            if ready:
                self._try(min(ready, key=lambda one: one.cost(self._leader(one))))
            elif not self._wait_for(held, left):
                break
        return self.found

    def record_unreached(self) -> None:
        """A row for each kernel that had no turn, which says that the time was over."""
        for state in self._states:
            if not state.tried and not state.done:
                self._attempts.add(self._subject, state.kernel, "", Outcome("timeout", NOT_REACHED))

    def _first_timed(self) -> list[KernelState]:
        """Who has a turn before anything is tuned, in that order: see the module."""
        least = {
            dense: min((one.expected_us for one in self._states if one.expected_us and one.dense == dense), default=0.0)
            for dense in (True, False)
        }

        def place(one: KernelState) -> tuple[bool, bool, float]:
            best = one.expected_us is not None and one.expected_us == least[one.dense]
            return not (best and one.dense), not best, one.expected_us or math.inf

        able = [
            one for one in self._states if (one.expected_us or 0.0) <= WITHIN * least[one.dense] or not least[one.dense]
        ]
        return sorted(able, key=place)

    def _next(self, left: float) -> KernelState | None:
        """Whose candidate is tried, or planned; None where all that are left are compiling."""

        def place(one: KernelState) -> tuple[bool, float]:
            compiled = one in self._leading and one.ready
            return one.tried > 0 or (one.compile_s > 0 and not compiled), one.cost(self._leader(one))

        return min((state for state in self._states if state.able(left)), key=place, default=None)

    def _leader(self, of: KernelState) -> float | None:
        """The least time of its side."""
        return min((one.best_us for one in self._states if one.best_us and one.dense == of.dense), default=None)

    def _wait(self, left: float) -> bool:
        """Plans one more candidate if it may, or else waits until something is compiled; false where nothing is."""
        compiling = [state for state in self._states if not state.done and state.pending.awaited()]
        if more := next((state for state in compiling if state.may_hold(left)), None):
            self._hold(more)
        elif compiling:
            self._wait_for(compiling, left)
        return bool(compiling)

    def _wait_for(self, states: Sequence[KernelState], left: float) -> bool:
        """Waits until one of the programs that these wait for is compiled; false where they wait for none."""
        awaited = [one for state in states for one in state.pending.awaited()]
        if awaited and self._pool is not None:
            with self._attempts.session.work.phases.of("compiling"):
                self._pool.wait(awaited, left)
        return bool(awaited)

    def _plan_ahead(self, last: KernelState, begun: float, seconds: float) -> None:
        """Plans a candidate of the kernel that was just tried, and one of the kernel that holds the fewest."""
        fewest = min(self._states, key=lambda one: (not one.plans_ahead, one.pending.over, len(one.pending)))
        for state in (last, fewest):
            started = self._clock()
            spent = started - begun
            if state.plans_ahead and state.may_hold(seconds - spent) and self._planning_s <= PLANNING_SHARE * spent:
                self._hold(state)
                self._planning_s += self._clock() - started

    def _hold(self, state: KernelState) -> None:
        started = self._clock()
        state.pending.hold()
        state.seconds += self._clock() - started

    def _try(self, state: KernelState) -> None:
        """Tries the next candidate of a kernel; a kernel with none left, or none at all, is done."""
        started, problem = self._clock(), self._subject.problem
        self._progress.step(f"{problem.name} {problem.dtype} {state.kernel}")
        candidate = state.pending.take()
        if candidate is None:
            candidate = Outcome("unsupported", "it has no candidate and does not say why") if not state.tried else None
        if candidate is None or isinstance(candidate, Outcome):
            if candidate is not None:
                self._attempts.add(self._subject, state.kernel, "", candidate)
            state.done = True
            self._progress.advance()
            return
        fastest = self._fastest[state.dense]
        outcome = self._attempts.attempt(self._subject, state.kernel, candidate, fastest, self._progress)
        state.tried += 1
        state.seconds += self._clock() - started
        if outcome is None or outcome.status != "ok":
            return
        medians = [one.median for one in outcome.measurements.values()]
        if medians:
            state.best_us = min(filter(None, (state.best_us, medians[0])))
        if self._seen is not None:
            self._seen(state.kernel, candidate, outcome)


def _compile_s(name: str, operands: Operands, dtype: DType) -> float:
    if not about(name).weights_in_code:
        return 0.0
    nnz = operands.sparse.nnz
    seconds = nnz * COMPILE_S_PER_NONZERO
    return seconds if dtype == "f32" else max(seconds, min(REFUSED_S, seconds * nnz / HALF_NONZEROS))
