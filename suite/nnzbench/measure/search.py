"""The fastest kernel for one problem within a time limit: candidates of all kernels, in turns.

Libraries come first and whole, because what a kernel must beat is the best of their algorithms. Then whichever kernel
has taken the least time so far has the next candidate; one whose best is far behind the fastest waits longer. One whose
programs hold the weights waits as if it had taken the time already that they take to compile, and does not begin what
can't end within the limit. So a kernel that compiles for minutes can't take the time of the others, and where time is
enough every candidate is tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nnzbench.build import ahead
from nnzbench.kernels.registry import about
from nnzbench.measure.attempts import Attempts, Tried
from nnzbench.measure.progress import EVERY_S, RunProgress
from nnzbench.measure.trial import Outcome, enumerate_candidates
from nnzbench.plans.plan import Candidate
from nnzbench.problems.experiment import Policy
from nnzbench.problems.operands import Operands

AT_ONCE = 6
"""Candidates of a kernel that are compiled together within a time limit: few, as it may end before the last."""
NOT_REACHED = "the time was over before it was tried"
COMPILE_S_PER_NONZERO = 1.2e-4
"""Of a program that holds the weights: 12 s for 100,000 of them, where a few are compiled side by side."""


@dataclass
class Turn:
    """Where a kernel stands."""

    kernel: str
    coming: Iterator[Candidate | Outcome]
    seconds: float = 0.0
    tried: int = 0
    done: bool = False
    best_us: float | None = None
    compile_s: float = 0.0
    """What compiling a few of its candidates is expected to take, where its programs hold the weights."""

    def fits(self, left: float, at_once: int) -> bool:
        """Whether its next candidate, compiled already unless it is the first of a few, can end in so many seconds."""
        return self.tried % at_once != 0 or self.compile_s <= left

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
    session = attempts.session
    ends = session.clock() + seconds
    limit = None if session.device.timer is not None else 1
    at_once = AT_ONCE if math.isfinite(seconds) else ahead.AT_ONCE
    nonzeros = operands.sparse.nnz
    turns = [
        Turn(
            name,
            enumerate_candidates(session.kernels[name], subject.problem, operands, session.device, limit, at_once),
            compile_s=nonzeros * COMPILE_S_PER_NONZERO if about(name).weights_in_code and limit is None else 0.0,
        )
        for name in sorted(names, key=lambda name: about(name).role != "library")
    ]
    libraries = [turn for turn in turns if about(turn.kernel).role == "library"]
    fastest: dict[tuple[str, Policy], float] = {}
    told = -math.inf
    for group in (libraries, turns):
        while (left := ends - session.clock()) > 0 and (
            waiting := [turn for turn in group if not turn.done and turn.fits(left, at_once)]
        ):
            leader = min((turn.best_us for turn in turns if turn.best_us), default=None)
            turn = min(waiting, key=lambda one: (one.tried > 0 or one.compile_s > 0, one.cost(leader)))
            if session.clock() - told >= EVERY_S:  # candidates are too many for a line each
                told = session.clock()
                progress.step(f"{subject.problem.name} {subject.problem.dtype} {turn.kernel}")
            _next(turn, subject, attempts, fastest, progress, seen)
    for turn in turns:
        if not turn.tried and not turn.done:
            attempts.add(subject, turn.kernel, "", Outcome("timeout", NOT_REACHED))
    return Found({turn.kernel: turn.tried for turn in turns}, tuple(turn.kernel for turn in turns if not turn.done))


def _next(
    turn: Turn,
    subject: Tried,
    attempts: Attempts,
    fastest: dict[tuple[str, Policy], float],
    progress: RunProgress,
    seen: Seen | None,
) -> None:
    """Tries the next candidate of a kernel; a kernel with none left, or none at all, is done."""
    clock = attempts.session.clock
    started = clock()
    candidate = next(turn.coming, None)
    if candidate is None:
        if not turn.tried:
            attempts.add(subject, turn.kernel, "", Outcome("unsupported", "it has no candidate and does not say why"))
        turn.done = True
        progress.advance()
        return
    if isinstance(candidate, Outcome):
        attempts.add(subject, turn.kernel, "", candidate)
        turn.done = True
        progress.advance()
        return
    outcome = attempts.attempt(subject, turn.kernel, candidate, fastest, progress)
    turn.tried += 1
    turn.seconds += clock() - started
    if outcome is None or outcome.status != "ok":
        return
    medians = [one.median for one in outcome.measurements.values()]
    if medians:
        turn.best_us = min(filter(None, (turn.best_us, medians[0])))
    if seen is not None:
        seen(turn.kernel, candidate, outcome)
