"""Runs with a time limit: a few problems that answer each question, tuned; then everything untuned; then the rest.

First comes what leads (`Experiment.leads`), for half of the time at most; then a typical problem of each experiment,
a second one of each, and so on, the cheapest first. Then papers take turns: every problem untuned, and tuning where it
promises most.

A step is all kernels of one problem in one dtype, libraries first: what is recorded when the time is over has its
dense rivals beside it, hot and cold. Which candidates a step tries is fixed before it starts.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

from nnzbench.bench.costs import Costs, operands_s
from nnzbench.bench.steps import Step
from nnzbench.bench.sweep import Planned, Run
from nnzbench.data.problems.experiment import Experiment
from nnzbench.data.problems.operands import matrix_of
from nnzbench.data.problems.problem import Problem, stem_of
from nnzbench.kernels.registry import about
from nnzbench.results.records.beside import Scope

SPARE = 0.97
"""Share of the time that is planned for."""
NAMED = 20
"""Problems that don't fit are named where they are no more than so many."""
DEAR = 3.0
"""Times the middle price of a table's steps, beyond which one comes last where not all fit."""
LEAD = 0.5
"""Share of the time that what leads may take before what is typical."""
ROUNDING_S = 1e-6
"""Of sums."""
HURRY = 2.0
"""Times its predicted seconds that a step is begun before the end of a run: many compile at once then."""
EVENNESS = 3.5
"""How sharply what a run waits for changes from its processes to its GPUs: the more alike steps are, the sharper."""


@dataclass(frozen=True)
class Resources:
    """What works on a schedule: processes, and the GPUs that they share."""

    processes: int = 1
    gpus: int = 1

    def wall_s(self, seconds: float, gpu_s: float) -> float:
        """Of wall clock, for so many seconds of work: the processes or the GPUs are busy nearly all the time.

        Where both have about as much to do, each also waits for the other: by the queue of eight processes at a GPU,
        a fifth of the time.
        """
        busy, on_gpus = seconds / self.processes, gpu_s / self.gpus
        return busy if self.processes <= self.gpus else float((busy**EVENNESS + on_gpus**EVENNESS) ** (1 / EVENNESS))

    def wall_of(self, steps: Iterable[Step]) -> float:
        every = list(steps)
        return self.wall_s(sum(step.seconds for step in every), sum(step.gpu_s for step in every))

    def price_s(self, step: Step) -> float:
        """What a step takes away from others: of both, as either may turn out to be what the run waits for."""
        return step.seconds / self.processes + step.gpu_s / self.gpus


@dataclass(frozen=True)
class Schedule:
    """All that there is to do, in order. What fits is done; of what does not, smaller steps after it may."""

    steps: tuple[Step, ...]
    fitting: frozenset[int]
    """Places of the steps that are expected to be reached."""
    budget_s: float
    resources: Resources = Resources()
    room_s: float = float("inf")
    """Of the budget, what is there for steps."""

    @property
    def seconds(self) -> float:
        """Of wall clock, predicted for the steps that fit.

        Of several processes the others have nothing to do while one ends the longest step: as likely as not it began in
        the middle.
        """
        planned = [self.steps[at] for at in self.fitting]
        even = self.resources.wall_of(planned)
        longest = max((step.seconds for step in planned), default=0.0)
        alone = self.resources.processes == 1
        return even if alone else min(max(even + longest / 2, longest), max(even, self.room_s))

    def until(self, now: float, ends: float) -> float:
        """When what begins now is over: with its last step or, where not all fits, with the time."""
        return min(ends, now + self.seconds) if len(self.fitting) == len(self.steps) else ends

    def line(self) -> str:
        """The plan in one sentence: problems in each of their types."""
        every = {(step.experiment, step.problem) for step in self.steps}
        tuned, untuned = (
            {(step.experiment, step.problem) for at in self.fitting if (step := self.steps[at]).scope == scope}
            for scope in ("all", "first")
        )
        names = len({name for name, _ in tuned | untuned})
        rest = len(every - tuned - untuned)
        left = f"; {rest} of {len(every)} are left to later runs with --resume" if rest else ""
        return (
            f"{_minutes(self.budget_s)}: {len(tuned)} problems tuned and {len(untuned - tuned)} untuned, "
            f"of {names} experiment{'s' * (names != 1)}{left}"
        )

    def unreached(self, left: Iterable[Step]) -> Iterator[str]:
        """What was not done, in words."""
        left = list(left)
        for scope, words in (("first", "not reached"), ("all", "not tuned")):
            count = Counter(step.experiment for step in left if step.scope == scope)
            of = Counter(step.experiment for step in self.steps if step.scope == scope)
            yield from (f"  {name}: {some} of {of[name]} problems {words}" for name, some in count.items())

    def took(self, seconds: float) -> str:
        return f"It took {_minutes(seconds)}; {_minutes(self.seconds)} were planned."

    def lines(self, cluster: Resources | None = None) -> Iterator[str]:
        """The plan in detail, an experiment a line; where it lacks time, also what `cluster` would need."""
        yield f"{_minutes(self.budget_s)}, of which about {_minutes(self.seconds)} are planned for:"
        planned = [self.steps[at] for at in sorted(self.fitting)]
        spent: defaultdict[str, float] = defaultdict(float)
        for step in planned:
            spent[step.experiment] += step.seconds
        wall = self.seconds / max(sum(spent.values()), 1e-9)
        for name in dict.fromkeys(step.experiment for step in self.steps):
            parts = []
            for scope, word in (("first", "untuned"), ("all", "tuned")):
                kind = (name, scope)
                done, of = (sum((s.experiment, s.scope) == kind for s in some) for some in (planned, self.steps))
                parts.append(f"{word} {done} of {of}" if of else "")
            yield f"  {name}: {', '.join(filter(None, parts))} problems, {_minutes(spent[name] * wall)}"
        firsts = [step for step in self.steps if step.scope == "first"]
        late = [s for at, s in enumerate(self.steps) if s.scope == "first" and at not in self.fitting]
        if late:
            for step in late if len(late) <= NAMED else ():
                yield f"  not {step.experiment} {step.problem.name} {step.problem.dtype}, {_minutes(step.seconds)}"
            whole, of = _minutes(self.resources.wall_of(firsts)), len(firsts)
            yield f"  {len(late)} of {of} problems don't fit: to run all {of} untuned takes about {whole}"
            if cluster is not None and cluster.processes > self.resources.processes:
                whole = _minutes(cluster.wall_of(firsts))
                yield f"  with --cluster local (extra `cluster`), as {cluster.processes} processes, about {whole}"


def make_schedule(
    experiments: Sequence[Planned],
    costs: Costs,
    budget_s: float,
    startup_s: float = 0.0,
    resources: Resources = Resources(),
    typical: Mapping[str, Sequence[str]] | None = None,
) -> Schedule:
    """Orders what of the experiments' work is not recorded yet, and predicts how much of it `budget_s` is enough for.

    `startup_s` of it is gone already. `typical`: stems of the problems that stand for an experiment, first ones first.
    """
    room = SPARE * budget_s - startup_s
    typical = typical or {}
    lead = [
        step
        for one, run, work in experiments
        if one.leads
        for step in tuned(one, run, [*_named(work, typical.get(one.name, ())), *spread(work)], costs)
    ]
    first, later = _apart(dict.fromkeys(lead), resources, LEAD * room)
    rounds = _typical(experiments, typical, costs, resources)
    head, _ = _apart((*first, *rounds, *later), resources, room)  # others may fit untuned
    steps = (*head, *_breadth(experiments, costs, room, resources, {(one.experiment, one.problem) for one in head}))
    return Schedule(steps, _fitting(steps, resources, room), budget_s, resources, room)


def _libraries_first(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: about(name).role != "library")


def tuned(one: Experiment, run: Run, work: Iterable[tuple[Problem, Sequence[str]]], costs: Costs) -> Iterator[Step]:
    """A step for each problem that is not finished, with all candidates of all its kernels."""
    for problem, names in work:
        if waiting := run.waiting(problem, _libraries_first(names)):
            yield _step(one, problem, "all", waiting, run.waiting(problem, waiting, "first"), costs)


def _step(
    one: Experiment, problem: Problem, scope: Scope, names: Sequence[str], fresh: Sequence[str], costs: Costs
) -> Step:
    """`fresh`: kernels of the step whose first choices are part of it."""
    seconds, gpu_s = operands_s(problem), 0.0
    for name in names if scope == "all" else ():
        seconds += costs.tuning(one.name, problem, name)
        gpu_s += costs.tuning_gpu(one.name, problem, name)
    for name in fresh:
        seconds += costs.first(one.name, problem, name)
        gpu_s += costs.first_gpu(one.name, problem, name)
    return Step(one.name, one.paper, problem, tuple(names), scope, seconds, gpu_s)


def _typical(
    experiments: Sequence[Planned], typical: Mapping[str, Sequence[str]], costs: Costs, resources: Resources
) -> list[Step]:
    """Each experiment's first typical problem in all its types, then each one's second, and so on; cheapest first."""
    rounds: defaultdict[int, list[list[Step]]] = defaultdict(list)
    for one, run, work in experiments:
        for at, stem in enumerate(() if one.leads else typical.get(one.name, ())):
            rounds[at].append(list(tuned(one, run, _named(work, [stem]), costs)))

    def price(some: list[Step]) -> float:
        return sum(resources.price_s(step) for step in some)

    return [step for at in sorted(rounds) for some in sorted(rounds[at], key=price) for step in some]


def _named(work: Sequence[tuple[Problem, Sequence[str]]], stems: Sequence[str]) -> list[tuple[Problem, Sequence[str]]]:
    """The problems of these stems, in that order, in each type."""
    return [one for stem in stems for one in work if stem_of(one[0].name) == stem]


def _apart(steps: Iterable[Step], resources: Resources, room: float) -> tuple[list[Step], list[Step]]:
    """Steps that fit, all types of a problem together as they are compared; and the others."""
    groups: defaultdict[tuple[str, str], list[Step]] = defaultdict(list)
    for step in steps:
        groups[step.experiment, stem_of(step.problem.name)].append(step)
    inside: list[Step] = []
    outside: list[Step] = []
    for some in groups.values():
        more = [*inside, *some]
        (inside if len(_fitting(more, resources, room)) == len(more) else outside).extend(some)
    return inside, outside


def _breadth(
    experiments: Sequence[Planned], costs: Costs, room: float, resources: Resources, begun: Set[tuple[str, Problem]]
) -> Iterator[Step]:
    """First choices of every problem that is not `begun`, then tuning."""
    firsts: dict[tuple[str, str], deque[Step]] = {}
    tunings: dict[tuple[str, str], deque[Step]] = {}
    for one, run, work in experiments:
        queue = firsts.setdefault((one.paper, one.name), deque())
        promising: list[tuple[float, Step]] = []
        for problem, names in spread([(problem, names) for problem, names in work if (one.name, problem) not in begun]):
            ordered = _libraries_first(names)
            if waiting := run.waiting(problem, ordered, "first"):
                queue.append(_step(one, problem, "first", waiting, waiting, costs))
            if waiting := run.waiting(problem, ordered):
                step = _step(one, problem, "all", waiting, (), costs)
                gain = sum(costs.gain(one.name, problem, name) for name in waiting)
                promising.append((gain / resources.price_s(step), step))
        promising.sort(key=lambda one: -one[0])
        tunings[one.paper, one.name] = deque(step for _, step in promising)
    if resources.wall_of(step for queue in firsts.values() for step in queue) > room:
        firsts = {key: _dear_last(queue, resources) for key, queue in firsts.items()}
    yield from in_turns(firsts, resources)
    yield from in_turns(tunings, resources)


def _fitting(steps: Sequence[Step], resources: Resources, room: float) -> frozenset[int]:
    """Places of the steps that end within so many seconds of wall clock, if each is done that fits.

    Nothing is tuned on a problem whose first choices did not fit, which makes it `unbegun`.
    """
    seconds = gpu_s = 0.0
    fitting, unbegun = set(), set[tuple[str, Problem]]()
    for at, step in enumerate(steps):
        ends = max(
            resources.wall_s(seconds + step.seconds, gpu_s + step.gpu_s),
            resources.wall_s(seconds, gpu_s) + step.seconds,
        )
        fits, place = ends <= room + ROUNDING_S, (step.experiment, step.problem)
        if step.scope == "first" and not fits:
            unbegun.add(place)
        if fits and place not in unbegun:
            fitting.add(at)
            seconds, gpu_s = seconds + step.seconds, gpu_s + step.gpu_s
    return frozenset(fitting)


def spread(work: Sequence[tuple[Problem, Sequence[str]]]) -> list[tuple[Problem, Sequence[str]]]:
    """The problems in an order of which each beginning lies evenly over the table: first, middle, quarters, ...

    Those of one matrix follow each other: making it can take longer than all that is measured on it.
    """
    by_matrix: dict[tuple[object, ...], list[tuple[Problem, Sequence[str]]]] = {}
    for problem, names in work:
        by_matrix.setdefault(matrix_of(replace(problem, dtype="f32")), []).append((problem, names))
    every = list(by_matrix.values())
    digits = max(len(every) - 1, 1).bit_length()
    order = sorted(range(len(every)), key=lambda at: int(f"{at:0{digits}b}"[::-1], 2))
    return [item for at in order for item in every[at]]


def _dear_last(steps: deque[Step], resources: Resources) -> deque[Step]:
    """The same, those last that cost much more than most: where time is short each would stand for several others."""
    prices = [resources.price_s(step) for step in steps]
    most = DEAR * statistics.median(prices) if prices else 0.0
    return deque(sorted(steps, key=lambda step: resources.price_s(step) > most))


def in_turns(queues: Mapping[tuple[str, str], deque[Step]], resources: Resources) -> Iterator[Step]:
    """The next step is of the paper, and of its experiments the one, that had the least time so far."""
    papers: defaultdict[str, float] = defaultdict(float)
    experiments: defaultdict[tuple[str, str], float] = defaultdict(float)
    left = {key: queue for key, queue in queues.items() if queue}
    while left:
        key = min(left, key=lambda one: (papers[one[0]], experiments[one]))
        step = left[key].popleft()
        papers[key[0]] += resources.price_s(step)
        experiments[key] += resources.price_s(step)
        if not left[key]:
            del left[key]
        yield step


def abreast(steps: Iterable[Step], wall_s: float = math.inf) -> tuple[Step, ...]:
    """The steps of each experiment in their order, evenly over the whole: some compile while others need the GPUs.

    Those that follow one another with one matrix, in any type, stay together. None is begun so late that it alone is
    left, of a run that takes `wall_s`: the GPUs have nothing to do while the last programs are compiled.
    """
    placed: list[tuple[float, Step]] = []
    for _, some in groupby(steps, lambda step: step.experiment):
        mine, at = list(some), 0
        for _, group in groupby(mine, lambda step: step.matrix):
            near = list(group)
            latest = 1 - HURRY * max(step.seconds for step in near) / wall_s
            place = max(0.0, min((at + len(near) / 2) / len(mine), latest))
            placed += [(place, step) for step in near]
            at += len(near)
    return tuple(step for _, step in sorted(placed, key=itemgetter(0)))


def _minutes(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
