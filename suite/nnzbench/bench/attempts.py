"""One candidate after another, each of them rows on disk at once: what every kind of run is made of."""

from __future__ import annotations

import functools
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from nnzbench.bench import memory
from nnzbench.bench.session import Session
from nnzbench.bench.subject import Subject
from nnzbench.bench.timing import FAR_BEHIND, Measurement, StoppingRule
from nnzbench.bench.trial import Conditions, Outcome, failure, far_behind, try_candidate
from nnzbench.bench.values import MOST_MS, follow
from nnzbench.core import paths
from nnzbench.core.plan import Candidate, Resources
from nnzbench.core.progress import RunProgress
from nnzbench.data.problems.experiment import Policy
from nnzbench.data.problems.problem import Problem
from nnzbench.devices import DeviceLost
from nnzbench.kernels.registry import about
from nnzbench.results.records import describe
from nnzbench.results.records.beside import Memory
from nnzbench.results.records.describe import class_of
from nnzbench.results.records.folder import Results
from nnzbench.results.records.record import SCHEMA, Key, Record, Verdict, is_fault, verdict
from nnzbench.results.roofline import LEAST_OF_LIMIT, impossible, roofline_us, row_work, useful_work

HANG_S = 300.0
"""Longest a candidate may take in all: checking the largest convolutions and some searches take tens of seconds."""
CAPTURED = ("hot", "stream")
"""Policies whose launches are replayed as a graph where they can be."""
CHECK = "check"
"""Policy of rows from the processor, which are checked and never timed."""
_NO_RESOURCES = dict.fromkeys(Resources.__annotations__)
REASON_LENGTH = 200
"""Characters of a reason that a summary tells."""


@contextmanager
def watch(give_up: Callable[[], None], seconds: float = HANG_S) -> Iterator[None]:
    """Calls `give_up` on a thread of its own where the block takes longer than `seconds`.

    It ends a process that a library does not come back from: such a call can't be interrupted, only recorded.
    """
    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@dataclass
class Counts:
    """Of the rows that a run added."""

    rows: Counter[str] = field(default_factory=Counter)
    """By status."""
    candidates: Counter[tuple[Verdict, str]] = field(default_factory=Counter)
    """By verdict and kernel; a candidate's rows under several policies count once."""
    reasons: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Rows that are not `ok`, by status, kernel and the first line of the reason."""

    def add(self, rows: Iterable[Record]) -> None:
        """Counts rows; all of one candidate together, right where any policy has a time."""
        rows = list(rows)
        self.rows.update(row.status for row in rows)
        each = {row.key[:-1]: row for row in sorted(rows, key=lambda row: row.status == "ok")}.values()
        self.candidates.update((verdict(row.status, row.kernel), row.kernel) for row in each)
        bad = [(row, row.reason.strip().partition("\n")[0]) for row in rows if row.status != "ok"]
        self.reasons.update((row.status, row.kernel, reason[:REASON_LENGTH]) for row, reason in bad)

    def update(self, other: Counts) -> None:
        self.rows.update(other.rows)
        self.candidates.update(other.candidates)
        self.reasons.update(other.reasons)

    @property
    def failed(self) -> bool:
        """Whether something was wrong, or a kernel that is no library's crashed or did not compile."""
        return any(is_fault(status, kernel) for status, kernel, _ in self.reasons)

    def number(self, what: Verdict) -> int:
        """Candidates of which that was said."""
        return sum(count for (said, _), count in self.candidates.items() if said == what)

    def refused(self) -> dict[str, int]:
        """Candidates refused, by the name that readers know of the kernel; most first."""
        found = {about(name).label: count for (said, name), count in self.candidates.items() if said == "refused"}
        return dict(sorted(found.items(), key=lambda one: -one[1]))

    def line(self) -> str:
        """Such as `done: 692 candidates right, 0 wrong, 3 refused by cuSPARSELt, 0 failed, 12 unsupported`."""
        refused = self.refused()
        by = ", ".join(name if len(refused) == 1 else f"{name} ({count})" for name, count in refused.items())
        told = f"{self.number('refused')} refused{f' by {by}' if by else ''}"
        wrong, failed = self.number("wrong"), self.number("failed")
        return (
            f"done: {self.number('right')} candidates right, {wrong} wrong, {told}, {failed} failed, "
            f"{self.number('unsupported')} unsupported"
        )

    def explain(self, faults: bool = False) -> Iterator[str]:
        """One line per reason that something is not right, most frequent first; with `faults` those alone."""
        for (status, kernel, reason), count in self.reasons.most_common():
            if not faults or is_fault(status, kernel):
                yield f"{count} {status}: {kernel}: {reason}"


class Tried(NamedTuple):
    """What became of a candidate; of none, where `variant` is empty."""

    variant: str
    math: str
    outcome: Outcome


@dataclass
class Attempts:
    """Tries candidates under `policies` (none: checks them) and records what became of each, in all of `labels`."""

    experiment: str
    session: Session
    results: Results
    policies: tuple[Policy, ...]
    rule: StoppingRule
    counts: Counts = field(default_factory=Counts)
    kept: list[Record] | None = None
    """Every row recorded is added here too, where there is a list."""
    tried: list[Tried] | None = None
    """Every outcome is added here too, with its samples, where there is a list."""
    followed: set[tuple[str, str, str]] = field(default_factory=set)
    """Problems, dtypes and kernels whose result follows other weights."""
    refused_behind: float = FAR_BEHIND
    """Of whom only the fastest matter, as `Conditions` has it; of all kernels where that is `BEHIND`."""
    short: Counter[str] = field(default_factory=Counter)
    """By kernel, candidates that have no row because other processes had the memory of a shared GPU."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Policies that rows are written for."""
        return self.policies or (CHECK,)

    def attempt(
        self,
        subject: Subject,
        kernel: str,
        candidate: Candidate,
        fastest: dict[tuple[str, Policy], float],
        progress: RunProgress,
    ) -> Outcome | None:
        """Tries a candidate under the policies that it has no row of; None where it has all.

        `fastest` is the least median so far per arithmetic class and policy, and is kept up to date. Raises
        `DeviceLost`, and ends the process for a candidate that does not come back.
        """
        problem = subject.problem
        missing = tuple(p for p in self.labels if not self.recorded(problem, kernel, candidate.variant, p))
        if not missing:
            return None
        policies = tuple(policy for policy in self.policies if policy in missing)
        rivals = {} if about(kernel).part else fastest  # parts of a network are no alternatives of one another
        to_beat = {p: rivals[candidate.math, p] for p in policies if (candidate.math, p) in rivals}
        work = self.session.work
        ours = about(kernel).role != "external" or (candidate.plan is None and not candidate.of_file)
        default = describe.is_default(candidate.variant)
        only_fastest = about(kernel).role == "library" and not default
        if only_fastest and (far := self._far(problem, kernel, candidate, fastest)):
            outcome = Outcome("ok", refused=dict.fromkeys(policies, far_behind(far)))
            self.add(subject, kernel, candidate.variant, outcome, candidate.math)
            return outcome
        quoted = default or about(kernel).study or about(kernel).of_paper(candidate.variant)
        conditions = Conditions(
            policies,
            replace(self.rule, slower_tolerance=self.rule.tolerance) if quoted else self.rule,
            clock=self.session.clock,
            work=work,
            to_beat_us=to_beat,
            refused_behind=self.refused_behind if only_fastest or self.refused_behind < FAR_BEHIND else math.inf,
            operands=subject.operands,
            outside=None if ours else subject.outside,
        )
        with watch(functools.partial(self._hung, subject, kernel, candidate, progress)):
            outcome = try_candidate(
                candidate, self.session.device.timer, subject.truth, conditions, self.session.warm_up
            )
            if not ours:
                outcome = self._possible(subject, kernel, candidate.math, outcome)
            if outcome.status == "ok" and (candidate.plan is not None or not ours):
                outcome = self._follows(subject, kernel, candidate, outcome)
            if outcome.status == "ok" and problem.op in memory.OPS:
                outcome = self._memory(problem, kernel, candidate, progress) or outcome
        for policy, measured in outcome.measurements.items():
            key = (candidate.math, policy)
            fastest[key] = min(measured.median, fastest.get(key, measured.median))
        with work.phases.of("recording"):
            self.add(subject, kernel, candidate.variant, outcome, candidate.math)
        if outcome.status == "wrong":
            progress.note(f"WRONG: {kernel} {candidate.variant} on {problem.name}: {outcome.reason}")
        if outcome.lost:
            raise DeviceLost(
                f"the device stopped answering after {kernel} {candidate.variant} on {problem.name} "
                f"({outcome.reason}); all rows are kept, go on with --resume"
            )
        return outcome

    def _possible(self, subject: Subject, kernel: str, math: str, outcome: Outcome) -> Outcome:
        """The outcome, wrong where a median is one that this GPU can't have: `validate` refuses those of every row."""
        if subject.operands is None:
            return outcome
        work = row_work(kernel, subject.problem, subject.operands)
        for policy, measured in outcome.measurements.items():
            limit = roofline_us(work, self.session.peaks, policy, math)
            if limit is not None and measured.median < LEAST_OF_LIMIT * limit:
                return replace(outcome, status="wrong", reason=impossible(measured.median, limit), measurements={})
        return outcome

    def _follows(self, subject: Subject, kernel: str, candidate: Candidate, outcome: Outcome) -> Outcome:
        """The outcome, wrong where the result does not follow other weights: once a problem and kernel."""
        key = (subject.problem.name, subject.problem.dtype, kernel)
        slow = candidate.plan is not None and (outcome.prepare_ms or 0.0) > MOST_MS
        if key in self.followed or slow or candidate.truth is not None or subject.moved is None:
            return outcome
        try:
            with self.session.work.on_gpu("checking"):
                known, device = self.session.kernels[kernel], self.session.device
                follow(known, candidate, subject.problem, subject.moved, device)
        except (Exception, SystemExit) as error:
            failed, reason = failure(error), f"over other weights: {error}"
            return replace(outcome, status=failed.status, reason=reason, measurements={}, lost=failed.lost)
        self.followed.add(key)
        return outcome

    def add(self, subject: Subject, kernel: str, variant: str, outcome: Outcome, math: str = "") -> None:
        """Records an outcome under every policy that it has no row of, unless it is for want of a shared memory."""
        if outcome.short and self.session.work.shared:
            self.short[kernel] += 1
            return
        if self.tried is not None:
            self.tried.append(Tried(variant, math, outcome))
        rows = [
            self._record(subject, kernel, variant, policy, outcome, math)
            for policy in self.labels
            if not self.recorded(subject.problem, kernel, variant, policy)
        ]
        self.results.add(rows)
        if self.kept is not None:
            self.kept += rows
        self.counts.add(rows)

    def _record(self, subject: Subject, kernel: str, variant: str, policy: str, outcome: Outcome, math: str) -> Record:
        """One row, not yet selected. `math` is the arithmetic class that sets its roofline."""
        problem, operands = subject.problem, subject.operands
        device, peaks = self.session.device, self.session.peaks
        timed: Measurement | None = next((m for p, m in outcome.measurements.items() if p == policy), None)
        refused = next((why for one, why in outcome.refused.items() if one == policy), "")
        work = row_work(kernel, problem, operands, variant) if operands else None
        resources: dict[str, Any] = vars(outcome.resources) if outcome.resources else _NO_RESOURCES
        times: dict[str, Any] = dict.fromkeys(("median_us", "q1_us", "q3_us", "samples", "sm_clock_mhz", "limit_us"))
        if timed:
            times = {"median_us": timed.median, "q1_us": timed.q1, "q3_us": timed.q3, "samples": len(timed.samples_us),
                     "sm_clock_mhz": timed.sm_clock_mhz, "limit_us": None}  # fmt: skip
            if work and not about(kernel).part:
                times["limit_us"] = roofline_us(work, peaks, policy, math)
        of_candidate = describe.of_candidate(kernel, variant, problem.dtype)
        return Record(
            schema=SCHEMA, experiment=self.experiment, problem=problem.name, op=problem.recorded_op,
            **{name: getattr(problem, name) for name in ("m", "k", "n", "shape", "dtype", "source")},
            sparsity=operands.sparse.sparsity if operands else problem.sparsity,
            nnz=operands.sparse.nnz if operands else 0, pattern_hash=operands.pattern if operands else "",
            kernel=kernel, variant=variant, selected=False, device=device.name, gpu=device.gpu, arch=device.arch,
            policy=policy, status="unsupported" if refused else outcome.status,
            reason=paths.without_folders(refused or outcome.reason or _remarks(timed, outcome, policy)), **times,
            flops=useful_work(problem, operands).flops if operands else 0.0, bytes=work.bytes if work else 0.0,
            floor_us=peaks.floor_us(policy), prepare_ms=outcome.prepare_ms, compile_ms=outcome.compile_ms, **resources,
            relative_error=outcome.error if outcome.error is None or outcome.error < float("inf") else None,
            environment=self.results.environment,
            **describe.of_problem(problem), **of_candidate._asdict(),
            settled=timed is not None and bool(timed.stable) and not timed.behind,
            throttled=", ".join(timed.throttled) if timed else "",
            captured=timed is not None and policy in CAPTURED and bool(outcome.capturable),
            search="", metric="us",
        )  # fmt: skip

    def recorded(self, problem: Problem, kernel: str, variant: str, policy: str) -> bool:
        return self._key(problem, kernel, variant, policy) in self.results.done

    def _key(self, problem: Problem, kernel: str, variant: str, policy: str) -> Key:
        device = self.session.device.name
        return (self.experiment, problem.name, problem.dtype, kernel, variant, device, policy)

    def recorded_fastest(self, problem: Problem, kernel: str) -> dict[tuple[str, Policy], float]:
        """The least recorded median of a kernel on a problem, per arithmetic class and policy."""
        found: dict[tuple[str, Policy], float] = {}
        for key in self.results.of_kernel[self.experiment, problem.name, problem.dtype, kernel]:
            *_, variant, device, policy = key
            if (median_us := self.results.done[key]) is not None and device == self.session.device.name:
                at = (class_of(kernel, variant, problem.dtype), cast(Policy, policy))
                found[at] = min(median_us, found.get(at, median_us))
        return found

    def _far(
        self, problem: Problem, kernel: str, candidate: Candidate, fastest: Mapping[tuple[str, Policy], float]
    ) -> Policy | None:
        """A policy under which the candidate is recorded as far behind another one: those added later need no time."""
        for policy in self.policies:
            median_us = self.results.done.get(self._key(problem, kernel, candidate.variant, policy))
            least_us = fastest.get((candidate.math, policy))
            if median_us and least_us and median_us > FAR_BEHIND * least_us:
                return policy
        return None

    def _memory(self, problem: Problem, kernel: str, candidate: Candidate, progress: RunProgress) -> Outcome | None:
        """Measures the memory of a candidate that computed the right thing; where that fails, its times stay.

        But where that fails for want of a shared memory, this is the candidate's outcome.
        """
        device = self.session.device
        try:
            with self.session.work.on_gpu("memory"):
                use = memory.measure(problem, candidate, device)
        except DeviceLost:
            raise
        except Exception as error:
            if (failed := failure(error)).short and self.session.work.shared:
                return failed
            progress.note(f"{kernel} {candidate.variant} on {problem.name}: memory not measured ({error})")
            return None
        if use is not None:
            key = (problem.name, problem.dtype, kernel, candidate.variant, device.name)
            self.results.add_memory(Memory(*key, **vars(use)))
        return None

    def _hung(self, subject: Subject, kernel: str, candidate: Candidate, progress: RunProgress) -> None:
        """Records the candidate that does not come back and ends the process, whose main thread can't be stopped."""
        reason = f"no answer within {HANG_S:g} s"
        try:
            self.add(subject, kernel, candidate.variant, Outcome("timeout", reason), candidate.math)
            progress.tell(
                f"{kernel} {candidate.variant} on {subject.problem.name}: {reason}; all rows are kept, go on with "
                "--resume"
            )
            self.session.device.abandon()
        finally:
            os._exit(1)


def _remarks(timed: Measurement | None, outcome: Outcome, policy: str) -> str:
    """What a reader of a good row must know: throttling, an uncertain median, launches that were not a graph."""
    if timed is None:
        return ""
    remarks = []
    if timed.throttled:
        remarks.append(f"throttled ({', '.join(timed.throttled)})")
    if timed.behind:
        remarks.append("ended early, clearly behind a faster candidate")
    elif not timed.stable:
        remarks.append("median not settled within the time limit")
    if policy in CAPTURED and not outcome.capturable:
        remarks.append("stream launches, not a graph")
    return "; ".join(remarks)
