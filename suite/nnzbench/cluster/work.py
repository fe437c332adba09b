"""The work of all GPUs of one model: what is done, what is left, and which step a worker gets next."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from operator import itemgetter

from nnzbench.measure.budget import DAMPING_S, Schedule, Step
from nnzbench.measure.sweep import Run
from nnzbench.problems.operands import matrix_of
from nnzbench.problems.problem import Problem, stem_of
from nnzbench.records.record import Key

TRIES = 3
"""Workers that a step may cost, or times that it finds no memory, before it is left out."""
NEAR = 64
"""Next steps among which a worker gets one of the matrix that it has already."""
HURRY = 2.0
"""Times its predicted seconds that a step is begun before the end of a run: many compile at once then."""
Unit = tuple[str, str]
"""Host and GPU."""
Begun = tuple[str, str, str]
"""Experiment, problem and type; without a type the problem's name has none either."""


@dataclass
class Model:
    """The work of all GPUs of one model."""

    schedule: Schedule
    runs: dict[str, Run]
    queue: deque[Step]
    started: float
    put_off: list[Step] = field(default_factory=list)
    """Steps that seemed not to fit any more when their turn came."""
    short: list[Step] = field(default_factory=list)
    """Steps that found no memory beside other workers: they are for the end, one at a time on a GPU."""
    left_out: list[Step] = field(default_factory=list)
    lost: Counter[Step] = field(default_factory=Counter)
    """Workers that each step has cost, and times that it found no memory."""
    done: dict[str, defaultdict[str, dict[Key, float | None]]] = field(default_factory=dict)
    """Rows that are recorded, with their medians, by experiment and problem."""
    homes: dict[Begun, Unit] = field(default_factory=dict)
    """GPUs that problems were begun on, in one type and in any: what is compared should come from one."""
    predicted: float = DAMPING_S
    taken: float = DAMPING_S
    """Seconds of the steps that are done, as predicted and as they took."""
    phases: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def next_step(
        self,
        unit: Unit,
        matrix: tuple[object, ...],
        left_s: float | None,
        others: Collection[tuple[object, ...]] = (),
        sole: bool = False,
    ) -> Step | None:
        """The next step that fits into the time that is left (None: all the time that there is), for a worker of a GPU.

        Among those that are near, one of a problem that was begun on that GPU (or on none), in its type or, where that
        is new, in another: pages compare fp32 kernels with dense fp16, too. Then one of the matrix that the worker has
        already, else, without a limit, of one that none of the `others` has, as many would make the same one. When
        there are no more, one that was put off because of what steps took while all workers were waiting for the GPUs:
        they may wait less by then. Last, where this would be the `sole` worker at work on that GPU, one that found no
        memory.
        """
        pace = self.taken / self.predicted
        if left_s is not None and left_s <= 0.0:
            return None

        def away(step: Step) -> bool:
            known = [self.homes[one] for one in begun(step.experiment, step.problem) if one in self.homes]
            return known[:1] not in ([], [unit])

        def place(one: tuple[int, Step]) -> tuple[bool, bool, bool, bool, int]:
            at, step = one
            later, of = step.scope != self.queue[0].scope, matrix_of(step.problem)
            return later, away(step), of != matrix, left_s is None and of in others, at

        while self.queue:
            at, step = min(enumerate(islice(self.queue, NEAR)), key=place)
            if left_s is None or step.seconds * pace <= left_s:
                del self.queue[at]
                return step
            fits = [one.seconds * pace <= left_s for one in self.queue]  # all at once: there are thousands
            self.put_off += [one for one, fit in zip(self.queue, fits, strict=True) if not fit]
            self.queue = deque(one for one, fit in zip(self.queue, fits, strict=True) if fit)
        waited = self.phases.get("waiting", 0.0)
        alone = max(DAMPING_S, self.taken - waited) / self.predicted
        for at, step in enumerate(self.put_off):
            if left_s is not None and step.seconds * alone <= left_s:
                return self.put_off.pop(at)
        if sole and self.short:
            return self.short.pop(min(range(len(self.short)), key=lambda at: away(self.short[at])))
        return None

    def begin(self, step: Step, unit: Unit) -> None:
        """Remembers where what is compared with this step should come from."""
        for one in begun(step.experiment, step.problem):
            self.homes.setdefault(one, unit)

    def forget(self, step: Step, unit: Unit) -> None:
        """Lets any GPU have the problem of a step whose worker died."""
        for one in begun(step.experiment, step.problem):
            if self.homes.get(one) == unit:
                del self.homes[one]

    def again(self, step: Step, rest: Iterable[str], short: bool = False) -> bool:
        """Puts back what is left of a step that has cost a worker, or was `short` of memory.

        False where that was once too often, and it is left out.
        """
        left = replace(step, kernels=tuple(rest))
        self.lost[left] = self.lost[step] + 1
        if self.lost[left] == TRIES:
            self.left_out.append(step)
            return False
        if short:
            self.short.append(left)
        else:
            self.queue.appendleft(left)
        return True

    def not_done(self) -> Iterator[Step]:
        """Steps that were left out, or that nobody has begun."""
        yield from self.left_out
        yield from self.put_off
        yield from self.short
        yield from self.queue


def abreast(steps: Iterable[Step], wall_s: float = math.inf) -> tuple[Step, ...]:
    """The steps of each experiment in their order, evenly over the whole: some compile while others need the GPUs.

    Those that follow one another with one matrix, in any type, stay together. None is begun so late that it alone is
    left, of a run that takes `wall_s`: the GPUs have nothing to do while the last programs are compiled.
    """
    placed: list[tuple[float, Step]] = []
    for _, some in groupby(steps, lambda step: step.experiment):
        mine, at = list(some), 0
        for _, group in groupby(mine, lambda step: matrix_of(replace(step.problem, dtype="f32"))):
            near = list(group)
            latest = 1 - HURRY * max(step.seconds for step in near) / wall_s
            place = max(0.0, min((at + len(near) / 2) / len(mine), latest))
            placed += [(place, step) for step in near]
            at += len(near)
    return tuple(step for _, step in sorted(placed, key=itemgetter(0)))


def begun(experiment: str, problem: Problem) -> tuple[Begun, Begun]:
    """What a problem is remembered by: in its type, and in any."""
    return (experiment, problem.name, problem.dtype), (experiment, stem_of(problem.name), "")


def homes(schedule: Schedule, runs: Mapping[str, Run], units: Mapping[str, Unit]) -> Iterator[tuple[Step, Unit]]:
    """The steps whose problem an earlier run began, and the GPU that it began it on, where that is one of `units`.

    Those are by the digest that snapshots tell GPUs apart by.
    """
    workers: dict[tuple[str, str], str] = {}
    for step in schedule.steps:
        results = runs[step.experiment].results
        file = results.measured_in.get((step.problem.name, step.problem.dtype))
        if file is None:
            continue
        if (step.experiment, file) not in workers:
            workers[step.experiment, file] = str(results.snapshot(file).get("worker", ""))
        unit = units.get(workers[step.experiment, file])
        if unit is not None:
            yield step, unit
