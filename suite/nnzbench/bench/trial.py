"""One candidate on one device: prepare, run into a poisoned output, check, time, and check again.

Before that, which candidates a kernel has, and which of them run untuned: its rule's choice, the paper's, and of a
library its defaults.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TypeVar

import numpy as np

from nnzbench.bench.phases import Phase, Phases, Work
from nnzbench.bench.timing import BEHIND, FAR_BEHIND, Clock, Measurement, StoppingRule, measure
from nnzbench.bench.values import Guard, Outside
from nnzbench.core import paths
from nnzbench.core.plan import Array, Candidate, Prepared, Resources, Unsupported
from nnzbench.data.problems.check import Wrong, held
from nnzbench.data.problems.experiment import Policy
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.parts import over_parts
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import Reference
from nnzbench.devices import Device, DeviceLost, Timer
from nnzbench.devices.build.cache import CompileError, CompileTimeout
from nnzbench.devices.build.pool import compiled_ahead
from nnzbench.devices.gpu import PAUSES_S, short_of_memory
from nnzbench.kernels.copies import at_two_places, each, over_copies
from nnzbench.kernels.registry import AnyKernel, about, candidates
from nnzbench.results.records.beside import Scope
from nnzbench.results.records.describe import is_default
from nnzbench.results.records.record import NOT_TIMED, Status

T = TypeVar("T")

LAUNCHES_NEEDED = 60
"""About the launches that the hot and cold policies make together of a slow kernel that no faster one ends early."""
LOOKED_AT = 64
"""Candidates of a kernel with its paper's variants beside ours, among which the first of each is looked for."""


@dataclass(frozen=True)
class Conditions:
    """How candidates are tried."""

    policies: tuple[Policy, ...]
    rule: StoppingRule = field(default_factory=StoppingRule)
    timeout_s: float = 60.0
    """Wall-clock limit of one candidate's launches; a slower one becomes a `timeout` row."""
    clock: Clock = time.monotonic
    work: Work = field(default_factory=Work)
    """Counts the seconds, and waits for other processes to leave the GPU."""
    to_beat_us: Mapping[Policy, float] = field(default_factory=dict)
    """Fastest median so far that the candidate competes with: one clearly behind it is not measured to the end."""
    refused_behind: float = math.inf
    """Times the least time under one policy from which on a candidate is refused under those after it: `FAR_BEHIND` or
    `BEHIND`. Of a library's algorithms only the fastest matter, and its defaults, which papers divide by: slow ones
    took half the GPU time of language-model layers. A search for the fastest of all asks for nobody's other times."""
    operands: Operands | None = None
    """Of the problem: they tell weights from dense operands, which the policy `stream` needs."""
    outside: Outside | None = None
    """For plans that are not ours: operands of other values, which they must follow."""


@dataclass(frozen=True)
class Outcome:
    """What became of a candidate. `measurements` is empty unless `status` is `ok`, and on the processor."""

    status: Status
    reason: str = ""
    error: float | None = None
    measurements: Mapping[Policy, Measurement] = field(default_factory=dict)
    refused: Mapping[Policy, str] = field(default_factory=dict)
    """Policies that a candidate which is `ok` can't be timed under, and why."""
    prepare_ms: float | None = None
    compile_ms: float | None = None
    resources: Resources | None = None
    capturable: bool = True
    lost: bool = False
    """The device does not answer any more: nothing else can run in this process."""

    @property
    def short(self) -> bool:
        """Whether there was no memory: where other processes share the machine, that says nothing of the candidate."""
        return self.status in ("launch-error", "compile-error") and not self.lost and short_of_memory(self.reason)


def failure(error: Exception | SystemExit) -> Outcome:
    """The outcome that an exception from planning, preparing or running stands for.

    Raises it again where it is the machine's, such as a full disk: that says nothing of the candidate.
    """
    if isinstance(error, OSError) and paths.of_machine(error):
        raise error
    text = str(error) or type(error).__name__
    if isinstance(error, Wrong):
        return Outcome("wrong", text, error.error)
    if isinstance(error, Unsupported):
        return Outcome("unsupported", text)
    if isinstance(error, CompileTimeout | TimeoutError):
        return Outcome("timeout", text)
    if isinstance(error, CompileError):
        return Outcome("compile-error", text)
    return Outcome("launch-error", f"{type(error).__name__}: {text}", lost=isinstance(error, DeviceLost))


class FirstChoices:
    """Tells, of a kernel's candidates in their order, which run untuned.

    The first candidate of each arithmetic; of a library also every default, in each layout. Kernels yield what their
    rule would run first, and one that has variants of its paper beside ours has a first of each. All candidates of a
    kernel with nothing to tune.
    """

    def __init__(self, kernel: str) -> None:
        self._said = about(kernel)
        self._library = self._said.role == "library"
        self._choosers = 2 if self._said.paper_variants else 1
        self._seen: set[tuple[bool, str]] = set()
        self.looked_at = 0

    @property
    def complete(self) -> bool:
        """Whether no further candidate can be one."""
        return not (self._library or self._said.nothing_to_tune) and (
            len({of_paper for of_paper, _ in self._seen}) >= self._choosers or self.looked_at >= LOOKED_AT
        )

    def takes(self, candidate: Candidate) -> bool:
        """Whether the next candidate runs untuned."""
        if self.complete:
            return False
        self.looked_at += 1
        kind = (self._said.of_paper(candidate.variant), candidate.math)
        new = kind not in self._seen
        self._seen.add(kind)
        return new or (self._library and is_default(candidate.variant)) or self._said.nothing_to_tune


def first_choices(kernel: str, found: Iterator[Candidate]) -> Iterator[Candidate]:
    """The candidates that run untuned, and no others."""
    choices = FirstChoices(kernel)
    for candidate in found:
        if choices.takes(candidate):
            yield candidate
        if choices.complete:
            return


def enumerate_candidates(
    kernel: AnyKernel,
    problem: Problem,
    operands: Operands,
    device: Device,
    limit: int | None = None,
    scope: Scope = "all",
    phases: Phases | None = None,
    ahead: bool = True,
) -> Iterator[Candidate | Outcome]:
    """The first `limit` candidates of a kernel (None: all), then what stopped them coming, if anything did.

    Of the scope `first` those alone that run untuned (`first_choices`). Where the device takes its programs from the
    shared compile cache, they are compiled `ahead`, many in parallel; else none is compiled yet.
    """
    phases = phases or Phases()
    chosen = candidates(kernel, problem, operands, device, untuned=scope == "first")
    wanted = islice(chosen if scope == "all" else first_choices(kernel.name, chosen), limit)
    found = _counted(_until_failure(wanted), phases, "planning")
    if not ahead or not device.compiles_from_cache:
        return found
    return _counted(compiled_ahead(found, device.arch, device.link), phases, "compiling")


def _counted(found: Iterator[T], phases: Phases, phase: Phase) -> Iterator[T]:
    """The same items; what it takes to make them is that phase's."""
    while True:
        with phases.of(phase):
            item = next(found, None)
        if item is None:
            return
        yield item


def _until_failure(found: Iterator[Candidate]) -> Iterator[Candidate | Outcome]:
    while True:
        try:
            candidate = next(found)
        except StopIteration:
            return
        except (Exception, SystemExit) as error:
            yield failure(error)
            return
        yield candidate


def try_candidate(
    candidate: Candidate,
    timer: Timer | None,
    reference: Callable[[], Reference],
    conditions: Conditions,
    before_timing: Callable[[Callable[[], None]], None],
) -> Outcome:
    """Runs one candidate to an outcome; device memory is freed whatever happens.

    `before_timing` gets the checked `run` before it is first timed (the session's warm-up). Where the memory of a
    shared GPU is used up, it is tried again: what other processes hold there comes free as their candidates end.
    """
    trial = _Trial(candidate, timer, reference, conditions, before_timing)
    outcome = trial.run()
    for pause in PAUSES_S if conditions.work.shared else ():
        if not outcome.short:
            break
        with conditions.work.phases.of("waiting"):
            time.sleep(pause)
        outcome = trial.run()
    return outcome


@dataclass(frozen=True)
class _Trial:
    candidate: Candidate
    timer: Timer | None
    reference: Callable[[], Reference]
    conditions: Conditions
    before_timing: Callable[[Callable[[], None]], None]

    @property
    def truth(self) -> Callable[[], Reference]:
        return self.candidate.truth or self.reference

    def run(self) -> Outcome:
        """Prepares the candidate, and whatever happens frees it again."""
        work = self.conditions.work
        try:
            if self.candidate.ready is not None:
                with work.phases.of("compiling" if self.candidate.plan else "operands"):
                    self.candidate.ready()
            with work.on_gpu("preparing"):
                prepared = self.candidate.prepare()
        except (Exception, SystemExit) as error:
            return _unless_lost(failure(error), self.timer)
        known = {name: getattr(prepared, name) for name in ("prepare_ms", "compile_ms", "resources", "capturable")}
        try:
            return replace(self._checked_and_timed(prepared), **known)
        except (Exception, SystemExit) as error:
            return _unless_lost(replace(failure(error), **known), self.timer)
        finally:
            with suppress(Exception):  # freeing fails on a lost device; the outcome already says so
                prepared.close()

    def _checked_and_timed(self, prepared: Prepared) -> Outcome:
        work, clock = self.conditions.work, self.conditions.clock
        tolerance = self.candidate.tolerance or self.candidate.math
        start = clock()
        with work.on_gpu("preparing"):
            first = fresh_result(prepared)
        with work.phases.of("checking"):
            error = held(first, self.truth(), tolerance)
        seconds = clock() - start
        guard = None
        plan, known = self.candidate.plan, self.conditions.outside
        if known is not None and (plan is not None or prepared.ends is not None):
            guard = Guard(prepared, plan, tolerance, known)
            # calls of a file's own: what is on another stream is in no graph of this one
            replay = self.timer.capture(prepared.run, 1) if plan is None and self.timer is not None else prepared.run
            with work.on_gpu("checking"):
                error = max(error, guard.check(replay))
        if self.timer is None:
            return Outcome("ok", "", error)
        limit_s = self.conditions.timeout_s
        if seconds * LAUNCHES_NEEDED > limit_s:
            # the first run loads modules and the check runs on the host: only a second run has the launch's own time
            with work.on_gpu("preparing"):
                start = clock()
                self.timer.elapsed_us(prepared.run)
                seconds = clock() - start
            if seconds * LAUNCHES_NEEDED > limit_s:
                reason = f"one launch took {seconds:.3g} s: timing it would pass the limit of {limit_s:g} s"
                return Outcome("timeout", reason, error)
        with work.on_gpu("warming"):
            places = [prepared.run]
            if guard is None and self.conditions.policies != ("stream",):  # whose values are written at one place
                places = at_two_places(self.candidate, prepared, self.conditions.operands)
            measurements, refused = self._timed(self.timer, prepared, places, guard, first)
            if guard is not None:
                error = max(error, guard.check_timing(self.timer))
            with work.phases.of("preparing"):
                # a kernel that kept its first result leaves the poison in place
                last = fresh_result(replace(prepared, run=places[-1]))
        with work.phases.of("checking"):
            again = error if _same_bits(first, last) else held(last, self.truth(), tolerance, "after timing: ")
        return Outcome("ok", "", max(error, again), measurements, refused)

    def _timed(
        self,
        timer: Timer,
        prepared: Prepared,
        places: Sequence[Callable[[], None]],
        guard: Guard | None,
        first: Array,
    ) -> tuple[dict[Policy, Measurement], dict[Policy, str]]:
        """A measurement under each policy, or the reason why there is none. `first`: the result, checked already.

        `places`: runs with the weights at different addresses.
        """
        self.before_timing(prepared.run)
        found: dict[Policy, Measurement] = {}
        refused: dict[Policy, str] = {}
        rule, clock = self.conditions.rule, self.conditions.clock
        far = ""
        for policy in self.conditions.policies:
            if far:
                refused[policy] = far
                continue
            runs = [prepared.run]
            to_beat = self.conditions.to_beat_us.get(policy)
            watched = partial(guard.renewing, policy) if guard else None
            with self.conditions.work.phases.of(policy):
                if policy == "stream":
                    try:
                        runs = over_copies(self.candidate, prepared, self.conditions.operands, timer)
                    except Unsupported as error:
                        refused[policy] = str(error)
                        continue
                run, *others = [partial(each, runs)] if policy == "stream" else places
                count, capturable = len(runs), prepared.capturable
                found[policy] = measure(timer, run, policy, rule, capturable, clock, to_beat, watched, count, others)
            limit = self.conditions.refused_behind
            if {FAR_BEHIND: found[policy].far, BEHIND: found[policy].behind}.get(limit):
                far = far_behind(policy, limit)
            if len(runs) > 1:
                check_copies(self.candidate, runs, prepared, first, self.truth)
            # after the first one the clock is up, and stays so: the host checks nothing in between
            rule = replace(rule, ramp_seconds=0.0)
        return found, refused


def far_behind(policy: Policy, limit: float = FAR_BEHIND) -> str:
    """Why a candidate is not timed under the other policies."""
    return f"{NOT_TIMED}over {limit:g} times as slow as another candidate under the policy {policy}"


def check_copies(
    candidate: Candidate,
    runs: Sequence[Callable[[], None]],
    prepared: Prepared,
    first: Array,
    truth: Callable[[], Reference],
) -> None:
    """Raises `Wrong` where a run over a copy of the weights has another result than `first`, and a wrong one."""
    for run in runs:
        found = fresh_result(replace(prepared, run=run))
        if not _same_bits(first, found):
            held(found, truth(), candidate.tolerance or candidate.math, "over a copy of the weights: ")


def fresh_result(prepared: Prepared) -> Array:
    """Of a run into poison."""
    prepared.poison()
    prepared.run()
    return prepared.read()


def _same_bits(first: Array, last: Array) -> bool:
    """Compared in the order of memory, whatever that of the axes is: results may take gigabytes."""
    if first.shape != last.shape or first.strides != last.strides:
        return False
    bits = np.dtype(f"u{first.itemsize}")
    one, other = (array.view(bits).ravel(order="K") for array in (first, last))
    return all(over_parts(lambda part: bool((one[part] == other[part]).all()), one.shape))


def _unless_lost(outcome: Outcome, timer: Timer | None) -> Outcome:
    """Marks the outcome `lost` where the device fails at nothing at all: a fault stays with its context."""
    if timer is None or outcome.status != "launch-error" or outcome.lost:
        return outcome
    try:
        timer.elapsed_us(lambda: None)
    except Exception:
        return replace(outcome, lost=True)
    return outcome
