"""Steps of a run and who takes them when: what runs in one process and runs on a cluster have in common.

A step is all kernels of one problem in one dtype. An order puts steps in a sequence; a `Queue` gives out the next one
that still fits into the time, at the pace so far, and knows at the end what nobody did.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from nnzbench.data.problems.operands import matrix_of
from nnzbench.data.problems.problem import Problem
from nnzbench.results.records.beside import Scope

DAMPING_S = 20.0
"""Seconds of work as predicted that the observed pace is weighed against."""
NEAR = 64
"""Next steps among which one is chosen by something else than the order."""


@dataclass(frozen=True)
class Step:
    """Kernels to run on one problem in one dtype."""

    experiment: str
    paper: str
    problem: Problem
    kernels: tuple[str, ...]
    scope: Scope = "all"
    seconds: float = 0.0
    """Predicted."""
    gpu_s: float = 0.0
    """Of them, those in which a GPU is needed."""

    @property
    def place(self) -> tuple[str, Problem]:
        """What its first choices and its tuning have in common."""
        return self.experiment, self.problem

    @property
    def matrix(self) -> tuple[object, ...]:
        """Equal for steps of one experiment with one matrix, in any type."""
        return self.experiment, *matrix_of(replace(self.problem, dtype="f32"))

    def __str__(self) -> str:
        return f"{self.experiment} {self.problem.name} {self.problem.dtype}"


@dataclass
class Queue:
    """The steps that nobody has begun, in their order; what is begun may be given back."""

    steps: Iterable[Step]
    ends: float | None = None
    """Of the clock; None for all the time that it takes."""
    clock: Callable[[], float] = time.monotonic
    waiting: deque[Step] = field(init=False)
    left_out: list[Step] = field(default_factory=list)
    predicted: float = DAMPING_S
    taken: float = DAMPING_S
    """Seconds of the steps that are done, as predicted and as they took."""

    alone: set[Step] = field(default_factory=set)
    """Steps that were given back: each is for itself then."""

    def __post_init__(self) -> None:
        self.waiting = deque(self.steps)
        self._untuned = Counter(step.place for step in self.waiting if step.scope == "first")

    @property
    def left_s(self) -> float | None:
        """Of the time; None for no end."""
        return None if self.ends is None else self.ends - self.clock()

    def over(self) -> bool:
        """Whether nothing more is to be begun."""
        return self.ends is not None and self.clock() >= self.ends

    def take(self, rank: Callable[[Step], Any] | None = None, alike_s: float | None = None) -> list[Step]:
        """The next step that fits into the time; empty where there is none, now or at all.

        Nothing is tuned on a problem whose first choices nobody has done. `rank`: the least of those near is taken.
        `alike_s`: with those near that have the same matrix, so many seconds of them in all.
        """
        left_s, pace = self.left_s, self.taken / self.predicted

        def fits(step: Step, seconds: float = 0.0) -> bool:
            in_time = left_s is None or (seconds + step.seconds) * pace <= left_s
            return in_time and (step.scope == "first" or self._untuned[step.place] <= 0)

        if left_s is not None and left_s <= 0.0:
            return []
        fitting = ((at, step) for at, step in enumerate(self.waiting) if fits(step))
        near = list(islice(fitting, 1 if rank is None else NEAR))
        if not near:
            return []
        at, step = near[0] if rank is None else min(near, key=lambda one: (rank(one[1]), one[0]))
        del self.waiting[at]
        found = [step]
        if alike_s is not None and step not in self.alone:
            seconds = step.seconds
            for other in list(islice(self.waiting, NEAR)):
                alike = other.scope == step.scope and other.matrix == step.matrix and other not in self.alone
                if alike and seconds + other.seconds <= alike_s and fits(other, seconds):
                    self.waiting.remove(other)
                    found.append(other)
                    seconds += other.seconds
        return found

    def done(self, step: Step) -> None:
        """Nobody is at the step any more, and it is not given back."""
        if step.scope == "first":
            self._untuned[step.place] -= 1

    def timed(self, steps: Sequence[Step], seconds: float) -> None:
        """Learns the pace from what steps took."""
        self.predicted += sum(step.seconds for step in steps)
        self.taken += seconds

    def leave_out(self, step: Step) -> None:
        self.left_out.append(step)

    def give_back(self, step: Step) -> None:
        """Whoever had it did not finish: it is the next."""
        self.alone.add(step)
        self.waiting.appendleft(step)

    def not_done(self) -> list[Step]:
        return [*self.left_out, *self.waiting]

    def each(self) -> Iterator[Step]:
        """One step after another, for one process that does them at once."""
        while steps := self.take():
            started = self.clock()
            yield steps[0]
            self.timed(steps, self.clock() - started)
            self.done(steps[0])
