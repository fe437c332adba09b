"""Runs an experiment: problems x dtypes x kernels x candidates, each outcome a row on disk at once.

Failures are rows with a reason; the run goes on, unless the device itself is lost.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nnzbench.devices import Device, DeviceLost
from nnzbench.kernels.registry import AnyKernel
from nnzbench.matrices.formats import MatrixError
from nnzbench.measure.peaks import Peaks
from nnzbench.measure.progress import RunProgress
from nnzbench.measure.rows import Subject, make_record
from nnzbench.measure.timing import QUICK, StoppingRule, warm_up
from nnzbench.measure.trial import Conditions, Outcome, enumerate_candidates, try_candidate
from nnzbench.measure.watchdog import HANG_S, watch
from nnzbench.plans.plan import Candidate
from nnzbench.problems.experiment import AS_TABLE, Experiment, Policy
from nnzbench.problems.operands import Maker, Operands, Reference, reference
from nnzbench.problems.problem import DType, Op, Problem
from nnzbench.problems.tables import as_uniform
from nnzbench.records import memory
from nnzbench.records.folder import Results, Tuning
from nnzbench.records.record import FAILURES, Record

QUICK_PROBLEMS = 3
QUICK_CANDIDATES = 8
REASONS = 5
"""Reasons of each status that a run's summary tells."""
REASON_LENGTH = 200
"""Characters of each."""
NO_PLAN = "the kernel has no candidate for this problem and does not say why"
CHECK = "check"
"""Policy of rows from the processor, which are checked and never timed."""


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
    overwrite: bool = False
    yes: bool = False
    """Overwrite also where more is recorded than this run brings."""


@dataclass
class Session:
    """What one process knows of its device; shared by the experiments it runs."""

    device: Device
    kernels: Mapping[str, AnyKernel]
    peaks: Peaks = field(default_factory=Peaks)
    environment: Mapping[str, Any] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    libraries: bool = True
    """Whether vendors' libraries are among the kernels."""
    _warm: bool = False

    def warm_up(self, run: Callable[[], None]) -> None:
        """Brings the GPU to a steady clock, the first time it is called."""
        if not self._warm and self.device.timer is not None:
            warm_up(self.device.timer, run, self.clock)
            self._warm = True


@dataclass(frozen=True)
class Summary:
    """What a run added."""

    folder: Path
    statuses: Mapping[str, int]
    """Rows added per status."""
    reasons: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """Rows added that are not `ok`, by status, kernel and the first line of the reason."""
    planless: frozenset[str] = frozenset()
    """Kernels that were asked and had not one candidate for any problem, nor a reason."""

    @property
    def failed(self) -> bool:
        """Whether a kernel computed something wrong, crashed or did not compile."""
        return any(self.statuses.get(status) for status in FAILURES)

    def explain(self) -> Iterator[str]:
        """One line per reason that something is not `ok`, most frequent first, `REASONS` of each status."""
        for status in sorted({key[0] for key in self.reasons}):
            found = [(count, *key[1:]) for key, count in self.reasons.items() if key[0] == status]
            found.sort(key=lambda one: -one[0])
            for count, kernel, reason in found[:REASONS]:
                yield f"{count} {status}: {kernel}: {reason}"
            if len(found) > REASONS:
                rest = sum(count for count, *_ in found[REASONS:])
                yield f"{rest} {status} for {len(found) - REASONS} other reasons: see {self.folder / 'records.csv'}"


def run_experiment(
    experiment: Experiment, session: Session, folder: Path, choice: Choice, progress: RunProgress
) -> Summary:
    """Runs the chosen part of an experiment into `folder`; what is recorded stays, whatever ends the run.

    Raises `RecordError` (see `Results`), `MatrixError` (no such problem table), `DeviceLost`.
    """
    for name in wanted_kernels(experiment, choice):
        if name not in session.kernels and session.libraries:
            progress.note(f"{experiment.name}: kernel '{name}' is not in this version; skipped")
    work = plan_work(experiment, session.kernels, choice)
    if not work:  # what is recorded stays, whatever the choice says of replacing it
        progress.note(f"{experiment.name}: nothing matches what was asked for; skipped")
        return Summary(folder, {})
    policies = policies_of(experiment, session, choice) or (CHECK,)
    contests = {(p.name, p.dtype, kernel, policy) for p, names in work for kernel in names for policy in policies}

    def not_again(rows: Sequence[Record]) -> int:
        return rows_left_out(rows, contests, session.device.name, choice.quick)

    asks = None if choice.yes else not_again
    with Results(folder, choice.resume, choice.overwrite, session.environment, progress.note, asks) as results:
        run = _Run(experiment, session, results, choice)
        progress.start(experiment.name, sum(len(names) for _, names in work))
        for problem, names in work:
            run.problem(problem, names, progress)
    return Summary(folder, dict(run.counts), dict(run.reasons), frozenset(run.planless - run.planned))


def all_problems(experiment: Experiment, choice: Choice) -> list[Problem]:
    """Every problem of the experiment on the data that the choice names."""
    problems = experiment.problems(choice.real)
    if choice.uniform:
        problems = list({one.name: one for one in map(as_uniform, problems)}.values())
    return problems


def plan_work(
    experiment: Experiment, known: Mapping[str, AnyKernel], choice: Choice
) -> list[tuple[Problem, list[str]]]:
    """The chosen problems of an experiment in each dtype, with the kernels to run; see `choose_work`."""
    problems = all_problems(experiment, choice)
    wanted = {name: dtypes for name, dtypes in wanted_kernels(experiment, choice).items() if name in known}
    ops = {problem.op for problem in problems}
    work = choose_work(choose_problems(problems, choice), ops, wanted, known, choice)
    return [(problem, names) for problem, names in work if names]


def policies_of(experiment: Experiment, session: Session, choice: Choice) -> tuple[Policy, ...]:
    """Policies to time; none on the processor."""
    return () if session.device.timer is None else choice.policies or experiment.policies


def rows_left_out(rows: Iterable[Record], contests: Set[tuple[str, str, str, str]], device: str, quick: bool) -> int:
    """How many of the recorded rows a run has no counterpart of.

    Those of another device, or of a problem, dtype, kernel and policy that are not in `contests`; and of a quick run,
    which tries few candidates, those beyond that number.
    """
    found = Counter((row.device, row.problem, row.dtype, row.kernel, row.policy) for row in rows)
    lost = 0
    for (ran_on, *contest), count in found.items():
        again = ran_on == device and tuple(contest) in contests
        lost += count if not again else max(0, count - QUICK_CANDIDATES) if quick else 0
    return lost


def choose_problems(problems: list[Problem], choice: Choice) -> list[Problem]:
    """The problems that match the patterns; the smallest of them for a quick run."""
    if choice.problems is not None:
        problems = [p for p in problems if any(fnmatch.fnmatchcase(p.name, pattern) for pattern in choice.problems)]
    if choice.quick:
        problems = sorted(problems, key=lambda p: p.m * p.k * p.n)[:QUICK_PROBLEMS]
    return problems


def wanted_kernels(experiment: Experiment, choice: Choice) -> dict[str, tuple[DType, ...]]:
    """Dtypes per kernel to run: those of the experiment, or those asked for by name."""
    if choice.kernels is None:
        return dict(experiment.kernels)
    return {name: experiment.kernels.get(name, AS_TABLE) for name in choice.kernels}


def choose_work(
    problems: list[Problem],
    ops: Set[Op],
    chosen: Mapping[str, tuple[DType, ...]],
    known: Mapping[str, AnyKernel],
    choice: Choice,
) -> Iterator[tuple[Problem, list[str]]]:
    """Each problem in each dtype with the kernels that run it, those of other ops left out.

    A kernel that computes none of `ops`, those of the whole experiment, is kept everywhere: its rows then say so.
    """
    for problem in problems:
        able = [n for n in chosen if problem.op in known[n].ops or not ops & known[n].ops]
        dtypes = {name: chosen[name] or (problem.dtype,) for name in able}
        for dtype in dict.fromkeys(dtype for name in able for dtype in dtypes[name]):
            if choice.dtypes is None or dtype in choice.dtypes:
                yield replace(problem, dtype=dtype), [name for name in able if dtype in dtypes[name]]


@dataclass
class _Run:
    experiment: Experiment
    session: Session
    results: Results
    choice: Choice
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    planned: set[str] = field(default_factory=set)
    planless: set[str] = field(default_factory=set)
    maker: Maker = field(default_factory=Maker)

    @property
    def policies(self) -> tuple[Policy, ...]:
        """Policies to time; none on the processor."""
        return policies_of(self.experiment, self.session, self.choice)

    @property
    def labels(self) -> tuple[str, ...]:
        """Policies that rows are written for."""
        return self.policies or (CHECK,)

    def problem(self, problem: Problem, names: list[str], progress: RunProgress) -> None:
        """All the named kernels on one problem in one dtype; operands and reference are made once and dropped."""
        waiting = [name for name in names if self._tuning_key(problem, name) not in self.results.tuned]
        for _ in range(len(names) - len(waiting)):
            progress.advance()
        if not waiting:
            return
        try:
            operands = self.maker.operands(problem)
        except MatrixError as error:
            for name in waiting:
                self._add(problem, None, name, "", Outcome("unsupported", f"no operands: {error}"))
                progress.advance()
            return
        truth = functools.cache(lambda: reference(problem, operands))
        for name in waiting:
            progress.step(f"{problem.name} {problem.dtype} {name}")
            self._kernel(problem, operands, truth, self.session.kernels[name], progress)
            progress.advance()

    def _kernel(
        self,
        problem: Problem,
        operands: Operands,
        truth: Callable[[], Reference],
        kernel: AnyKernel,
        progress: RunProgress,
    ) -> None:
        start = time.monotonic()
        tried = correct = 0
        answered = False
        fastest: dict[tuple[str, Policy], float] = {}  # per arithmetic class and policy
        limit = QUICK_CANDIDATES if self.choice.quick else None
        for candidate in enumerate_candidates(kernel, problem, operands, self.session.device, limit):
            self.planned.add(kernel.name)
            answered = True
            if isinstance(candidate, Outcome):
                self._add(problem, operands, kernel.name, "", candidate)
                continue
            tried += 1
            missing = tuple(p for p in self.labels if not self._recorded(problem, kernel.name, candidate.variant, p))
            if not missing:
                continue
            policies = tuple(policy for policy in self.policies if policy in missing)
            to_beat = {p: fastest[candidate.math, p] for p in policies if (candidate.math, p) in fastest}
            rule = QUICK if self.choice.quick else StoppingRule()
            conditions = Conditions(policies, rule, clock=self.session.clock, to_beat_us=to_beat)
            with watch(functools.partial(self._hung, problem, operands, kernel.name, candidate, progress)):
                outcome = try_candidate(candidate, self.session.device.timer, truth, conditions, self.session.warm_up)
                if outcome.status == "ok":
                    self._memory(problem, kernel.name, candidate, progress)
            correct += outcome.status == "ok"
            for policy, measured in outcome.measurements.items():
                key = (candidate.math, policy)
                fastest[key] = min(measured.median, fastest.get(key, measured.median))
            self._add(problem, operands, kernel.name, candidate.variant, outcome, candidate.math)
            if outcome.status == "wrong":
                progress.note(f"WRONG: {kernel.name} {candidate.variant} on {problem.name}: {outcome.reason}")
            if outcome.lost:
                raise DeviceLost(
                    f"the device stopped answering after {kernel.name} {candidate.variant} on {problem.name} "
                    f"({outcome.reason}); all rows are kept, go on with --resume"
                )
        if not answered:
            self.planless.add(kernel.name)
            self._add(problem, operands, kernel.name, "", Outcome("unsupported", NO_PLAN))
        self.results.add_tuning(
            Tuning(*self._tuning_key(problem, kernel.name), tried, correct, time.monotonic() - start)
        )

    def _memory(self, problem: Problem, kernel: str, candidate: Candidate, progress: RunProgress) -> None:
        """Measures the memory of a candidate that computed the right thing; where that fails, its times stay."""
        device = self.session.device
        try:
            use = memory.measure(problem, candidate, device)
        except DeviceLost:
            raise
        except Exception as error:
            progress.note(f"{kernel} {candidate.variant} on {problem.name}: memory not measured ({error})")
            return
        if use is not None:
            sizes = (use.before_bytes, use.peak_bytes, use.after_bytes)
            name = (problem.name, problem.dtype, kernel, candidate.variant, device.name)
            self.results.add_memory(memory.Memory(*name, *sizes))

    def _hung(
        self, problem: Problem, operands: Operands, kernel: str, candidate: Candidate, progress: RunProgress
    ) -> None:
        """Records the candidate that does not come back and ends the process, whose main thread can't be stopped."""
        reason = f"no answer within {HANG_S:g} s"
        try:
            self._add(problem, operands, kernel, candidate.variant, Outcome("timeout", reason), candidate.math)
            progress.note(
                f"{kernel} {candidate.variant} on {problem.name}: {reason}; all rows are kept, go on with --resume"
            )
            self.session.device.abandon()
        finally:
            os._exit(1)

    def _recorded(self, problem: Problem, kernel: str, variant: str, policy: str) -> bool:
        device = self.session.device.name
        key = (self.experiment.name, problem.name, problem.dtype, kernel, variant, device, policy)
        return key in self.results.done

    def _tuning_key(self, problem: Problem, kernel: str) -> tuple[str, str, str, str, str]:
        return (problem.name, problem.dtype, kernel, self.session.device.name, "+".join(self.labels))

    def _add(
        self, problem: Problem, operands: Operands | None, kernel: str, variant: str, outcome: Outcome, math: str = ""
    ) -> None:
        subject = Subject(self.experiment.name, problem, operands, self.session.device, self.results.environment)
        rows = [
            make_record(subject, kernel, variant, policy, outcome, math, self.session.peaks)
            for policy in self.labels
            if not self._recorded(problem, kernel, variant, policy)
        ]
        self.results.add(rows)
        self.counts.update(row.status for row in rows)
        first = next(iter(outcome.reason.strip().splitlines()), "")[:REASON_LENGTH]
        self.reasons.update((row.status, kernel, first) for row in rows if row.status != "ok")
