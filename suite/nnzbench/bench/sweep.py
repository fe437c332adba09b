"""Runs an experiment: problems x dtypes x kernels x candidates, each outcome a row on disk at once.

Failures are rows with a reason; the run goes on, unless the device itself is lost.
"""

from __future__ import annotations

import datetime
import fnmatch
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from nnzbench.bench.attempts import CHECK, Attempts, Counts
from nnzbench.bench.phases import ON_GPU
from nnzbench.bench.session import Session
from nnzbench.bench.steps import Queue, Step
from nnzbench.bench.subject import Subject
from nnzbench.bench.timing import QUICK, StoppingRule
from nnzbench.bench.trial import FirstChoices, Outcome, enumerate_candidates
from nnzbench.core.progress import RunProgress
from nnzbench.data.problems.experiment import AS_TABLE, Experiment, Policy
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import DType, Problem
from nnzbench.data.problems.tables import as_uniform
from nnzbench.kernels.registry import AnyKernel, about, of_study
from nnzbench.results.records.beside import Scope, Tuning
from nnzbench.results.records.folder import Results
from nnzbench.results.records.record import Record

QUICK_PROBLEMS = 3
QUICK_CANDIDATES = 8
NO_PLAN = "the kernel has no candidate for this problem and does not say why"


@dataclass(frozen=True)
class Choice:
    """Which part of an experiment to run; None means all of it."""

    policies: tuple[Policy, ...] | None = None
    kernels: tuple[str, ...] | None = None
    dtypes: tuple[DType, ...] | None = None
    problems: tuple[str, ...] | None = None
    """Shell patterns over problem names."""
    quick: bool = False
    """The smallest problems, few candidates, a short stopping rule."""
    real: bool | None = None
    uniform: bool = False
    """Uniformly random patterns of the same sizes and levels instead."""
    resume: bool = False
    before: datetime.datetime | None = None
    """With `resume`: what was recorded before then is measured again."""
    overwrite: bool = False
    candidates: int | None = None
    """Most candidates of a kernel on one problem; None for all, or for `QUICK_CANDIDATES` of a quick run."""
    yes: bool = False
    """Overwrite also where more is recorded than this run brings."""

    @property
    def limit(self) -> int | None:
        return self.candidates or (QUICK_CANDIDATES if self.quick else None)


@dataclass(frozen=True)
class Summary:
    """What a run added."""

    folder: Path
    counts: Counts = field(default_factory=Counts)
    planless: frozenset[str] = frozenset()
    """Kernels that were asked and had not one candidate for any problem, nor a reason."""


Contest = tuple[str, str, str, str]
"""Problem, dtype, kernel and policy."""
Planned = tuple[Experiment, "Run", Sequence[tuple[Problem, Sequence[str]]]]
"""An experiment, its run, and its problems in each type with their kernels."""


def run_experiment(
    experiment: Experiment, session: Session, folder: Path, choice: Choice, progress: RunProgress
) -> Summary:
    """Runs the chosen part of an experiment into `folder`; what is recorded stays, whatever ends the run.

    Raises `RecordError` (see `Results`), `MatrixError` (no such problem table), `DeviceLost`.
    """
    with opened([experiment], session, lambda name: folder, choice, progress) as planned:
        if not planned:
            return Summary(folder)
        steps = (
            Step(one.name, one.paper, problem, tuple(names)) for one, _, work in planned for problem, names in work
        )
        queue = Queue(steps)  # as the tables have them
        progress.start("run", len(queue.waiting))
        carry_out(queue, planned, progress)
    return planned[0][1].summary()


@contextmanager
def opened(
    experiments: Iterable[Experiment],
    session: Session,
    place: Callable[[str], Path],
    choice: Choice,
    progress: RunProgress,
    whole: bool = True,
) -> Iterator[list[Planned]]:
    """The experiments that have work, with their results folders, which are this process's until the `with` block ends.

    `whole`: all of the work will be done. Whatever else is recorded stays, or must be given up by `choice`. Raises
    `RecordError`.
    """
    planned = list[Planned]()
    with ExitStack() as folders:
        for one in experiments:
            for name in wanted_kernels(one, choice):
                if name not in session.kernels and session.libraries:
                    progress.note(f"{one.name}: kernel '{name}' is not in this version; skipped")
            work = plan_work(one, session.kernels, choice)
            if not work:  # what is recorded stays, whatever the choice says of replacing it
                progress.note(f"{one.name}: nothing matches what was asked for; skipped")
                continue
            policies = policies_of(one, session, choice) or (CHECK,)
            contests = {(p.name, p.dtype, name, policy) for p, some in work for name in some for policy in policies}
            again, device = contests if whole else frozenset[Contest](), session.device.name
            asks = None if choice.yes else partial(rows_left_out, again, device, choice.limit)
            stale = partial(is_older, choice.before, contests, device) if choice.before else None
            results = Results(
                place(one.name), choice.resume, choice.overwrite, session.environment, progress.note, asks, stale
            )
            planned.append((one, Run(one, session, folders.enter_context(results), choice), work))
        yield planned


def carry_out(queue: Queue, planned: Iterable[Planned], progress: RunProgress) -> None:
    """Does the steps in this process, until there is none or the time is over. Raises `DeviceLost`."""
    runs = {one.name: run for one, run, _ in planned}
    for step in queue.each():
        runs[step.experiment].perform(step, progress, queue.over)
        progress.advance()


def all_problems(experiment: Experiment, choice: Choice) -> list[Problem]:
    """Every problem of the experiment on the data that the choice names."""
    problems = experiment.problems(choice.real)
    if choice.uniform:
        problems = list({one.name: one for one in map(as_uniform, problems)}.values())
    return problems


def plan_work(
    experiment: Experiment,
    known: Mapping[str, AnyKernel],
    choice: Choice,
    keep: Callable[[Problem], bool] = lambda problem: True,
) -> list[tuple[Problem, list[str]]]:
    """The chosen problems of an experiment in each dtype, with the kernels to run, those of other ops left out.

    A kernel that computes no op of the whole experiment is kept everywhere: its rows then say so. Of a quick run, the
    smallest problems that one of those kernels runs.
    """
    problems = all_problems(experiment, choice)
    wanted = {name: dtypes for name, dtypes in wanted_kernels(experiment, choice).items() if name in known}
    ops = {problem.op for problem in problems}
    named = ("*",) if choice.problems is None else choice.problems
    taken: list[tuple[Problem, list[str]]] = []
    for one in problems:
        if not keep(one) or not any(fnmatch.fnmatchcase(one.name, pattern) for pattern in named):
            continue
        able = [name for name in wanted if one.op in known[name].ops or not ops & known[name].ops]
        dtypes = {name: wanted[name] or (one.dtype,) for name in able}
        for dtype in dict.fromkeys(itertools.chain(*dtypes.values())):
            problem = replace(one, dtype=dtype)
            names = [name for name in able if dtype in dtypes[name] and experiment.takes(name, problem)]
            if names and (choice.dtypes is None or dtype in choice.dtypes):
                taken.append((problem, names))
    if not choice.quick:
        return taken
    sizes = {problem.name: problem.m * problem.k * problem.n for problem, _ in taken}
    smallest = set(sorted(sizes, key=lambda name: sizes[name])[:QUICK_PROBLEMS])
    return [(problem, names) for problem, names in taken if problem.name in smallest]


def policies_of(experiment: Experiment, session: Session, choice: Choice) -> tuple[Policy, ...]:
    """Policies to time; none on the processor."""
    return () if session.device.timer is None else choice.policies or experiment.policies


def is_older(
    before: datetime.datetime, contests: Set[Contest], device: str, row: Record, snapshot: Mapping[str, Any]
) -> bool:
    """Whether a row is of one of the contests, and its session began before that time or is not told."""
    if row.device != device or (row.problem, row.dtype, row.kernel, row.policy) not in contests:
        return False
    recorded = snapshot.get("recorded_at")
    return not recorded or datetime.datetime.fromisoformat(recorded) < before


def rows_left_out(contests: Set[Contest], device: str, limit: int | None, rows: Iterable[Record]) -> int:
    """How many of the recorded rows a run has no counterpart of.

    Those of another device, or of a problem, dtype, kernel and policy that are not in `contests`; and of a run that
    tries `limit` candidates of a kernel, those beyond that number.
    """
    found = Counter((row.device, row.problem, row.dtype, row.kernel, row.policy) for row in rows)
    lost = 0
    for (ran_on, *contest), count in found.items():
        again = ran_on == device and tuple(contest) in contests
        lost += count if not again else max(0, count - limit) if limit else 0
    return lost


def wanted_kernels(experiment: Experiment, choice: Choice) -> dict[str, tuple[DType, ...]]:
    """Dtypes per kernel to run: those of the experiment, or those asked for by name."""
    if choice.kernels is None:
        return dict(experiment.kernels)
    return {name: experiment.kernels.get(name, AS_TABLE) for name in choice.kernels}


class Run:
    """One experiment under way."""

    def __init__(self, experiment: Experiment, session: Session, results: Results, choice: Choice) -> None:
        policies = policies_of(experiment, session, choice)
        rule = QUICK if choice.quick else StoppingRule()
        self.attempts = Attempts(experiment.name, session, results, policies, rule)
        self.session, self.results = session, results
        self.limit = choice.limit
        self.planned: set[str] = set()
        self.planless: set[str] = set()

    def summary(self) -> Summary:
        return Summary(self.results.folder, self.attempts.counts, frozenset(self.planless - self.planned))

    def waiting(self, problem: Problem, names: Sequence[str], scope: Scope = "all") -> list[str]:
        """The kernels whose candidates of that scope are not all recorded yet."""
        enough: set[Scope | None] = {scope, "all", "some" if self.limit else "all"}

        def done(name: str) -> bool:
            said = self.results.tuned.get(self._tuning_key(problem, name))
            return said in enough and not (said == "all" and not self.limit and self._lacks(problem, name))

        return [name for name in names if not done(name)]

    def _lacks(self, problem: Problem, kernel: str) -> bool:
        """Whether what was all tried has more since: a kernel of ours another first choice, a study a variant without a
        row."""
        said = about(kernel)
        if said.role != "library" and self._tuning_key(problem, kernel)[:4] in self.results.outgrown:
            return True
        needed = said.study_variants
        if needed is None:
            return False
        rows = self.results.of_kernel[self.attempts.experiment, problem.name, problem.dtype, kernel]
        there = {(variant, policy) for *_, variant, device, policy in rows if device == self.session.device.name}
        return not all(
            any(policy == under and of_study(variant, one) for variant, under in there)
            for one in needed(problem)
            for policy in self.attempts.labels
        )

    def perform(self, step: Step, progress: RunProgress, over: Callable[[], bool] = lambda: False) -> None:
        """All kernels of the step that are not recorded yet.

        Where `over` is true no further candidate is begun, and a later run goes on there.
        """
        problem = step.problem
        waiting = self.waiting(problem, step.kernels, step.scope)
        if not waiting:
            return
        subject = self.session.subjects.of(problem)
        for name in waiting:
            if subject.operands is None:
                self.attempts.add(subject, name, "", Outcome("unsupported", subject.reason))
            elif over():
                return
            else:
                progress.step(f"{step} {name}")
                self._kernel(subject, subject.operands, self.session.kernels[name], progress, step.scope, over)

    def _kernel(
        self,
        subject: Subject,
        operands: Operands,
        kernel: AnyKernel,
        progress: RunProgress,
        scope: Scope,
        over: Callable[[], bool],
    ) -> None:
        phases = self.session.work.phases
        before = phases.seconds.copy()
        start = time.monotonic()
        tried = correct = 0
        choices, untuned = FirstChoices(kernel.name), list[str]()
        answered, short = False, self.attempts.short[kernel.name]
        problem = subject.problem
        fastest = self.attempts.recorded_fastest(problem, kernel.name)
        device = self.session.device
        for candidate in enumerate_candidates(
            kernel, problem, operands, device, self.limit, scope=scope, phases=phases
        ):
            self.planned.add(kernel.name)
            answered = True
            if isinstance(candidate, Outcome):
                self.attempts.add(subject, kernel.name, "", candidate)
                continue
            if tried and over():
                return
            tried += 1
            if choices.takes(candidate):
                untuned.append(candidate.variant)
            outcome = self.attempts.attempt(subject, kernel.name, candidate, fastest, progress)
            correct += outcome is not None and outcome.status == "ok"
        if not answered:
            self.planless.add(kernel.name)
            self.attempts.add(subject, kernel.name, "", Outcome("unsupported", NO_PLAN))
        if self.attempts.short[kernel.name] > short:
            return  # not all of its candidates have rows: it is to be run again
        spent = phases.since(before)
        seconds = time.monotonic() - start - spent.get("waiting", 0.0)
        on_gpu = sum(spent.get(phase, 0.0) for phase in ON_GPU)
        key = self._tuning_key(problem, kernel.name)
        if scope == "all" and self.limit is not None and tried >= self.limit:
            scope = "some"  # there may be more, for a run that is not limited
        self.results.add_tuning(Tuning(*key, tried, correct, seconds, scope, on_gpu, " ".join(untuned)))

    def _tuning_key(self, problem: Problem, kernel: str) -> tuple[str, str, str, str, str]:
        return (problem.name, problem.dtype, kernel, self.session.device.name, "+".join(self.attempts.labels))
