"""The candidates of one problem against each other: each checked, then a window for all in turn, there and back.

A trial takes the candidates A, B, C in the order A B C C B A: what drifts meanwhile, such as the silicon's temperature,
is then the same for all of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from nnzbench.devices import Device, DeviceLost, Timer
from nnzbench.devices.copies import each, over_copies
from nnzbench.measure.energy.window import REPLAY_US, Bench, Load, Meter, Reading, window
from nnzbench.measure.session import Session
from nnzbench.measure.timing import repeat
from nnzbench.measure.trial import check_copies, failure, fresh_result, planned_candidates
from nnzbench.plans.plan import Candidate, Unsupported
from nnzbench.problems.check import passes, relative_error, why
from nnzbench.problems.operands import Maker, Operands
from nnzbench.problems.problem import Problem
from nnzbench.problems.reference import reference
from nnzbench.records.beside import Status, Window

WARM_S = 1.0
"""Of the first candidate's work before the first window, in which the silicon warms up."""


@dataclass(frozen=True)
class Entrant:
    """A candidate that is measured, by its names in the records."""

    problem: Problem
    kernel: str
    variant: str


@dataclass(frozen=True)
class Recipe:
    """How long windows are, and how often."""

    seconds: float = 5.0
    trials: int = 3
    check: bool = False
    """Whether each candidate meets itself instead: windows of that length, of twice it, twice again, and of it."""

    def order(self, entrants: int) -> list[tuple[int, float]]:
        """The windows of a trial: whose each is, and its seconds."""
        if self.check:
            lengths = (self.seconds, 2 * self.seconds, 2 * self.seconds, self.seconds)
            return [(one, length) for one in range(entrants) for length in lengths]
        there = [(one, self.seconds) for one in range(entrants)]
        return [*there, *reversed(there)]

    def expected_s(self, entrants: int, begun: int = 0) -> float:
        """Of wall clock, what is prepared left aside."""
        return WARM_S + (self.trials - begun) * sum(seconds + 0.5 for _, seconds in self.order(entrants))


def open_bench(device: Device) -> Bench:
    """What windows are taken with. Raises `Unsupported` where there is no GPU, or NVML tells no energy of it."""
    timer = device.timer
    meter: Meter | None = getattr(device, "clocks", None)
    if timer is None:
        raise Unsupported(f"energy needs a GPU: the device {device.name} has no counter of joules")
    if meter is None:
        raise Unsupported("energy needs NVML: pip install nvidia-ml-py, and NVIDIA's driver")
    if meter.energy_j() is None or meter.power_w() is None:
        raise Unsupported("NVML tells no energy of this GPU: joules need its total-energy counter (Volta and later)")
    return Bench(timer, meter)


def contest(
    entrants: Sequence[Entrant],
    session: Session,
    bench: Bench,
    recipe: Recipe,
    idle_watts: float,
    environment: str,
    begun: int = 0,
) -> Iterator[list[Window]]:
    """The windows of each trial, as rows, behind the first `begun` ones, which are there.

    Raises `Unsupported` for a candidate that this version does not have, or that computes wrong.
    """
    with ExitStack() as stack:
        loads = _loads(entrants, session, bench.timer, stack)
        keep_busy(bench, loads[0], WARM_S)
        for trial in range(begun + 1, recipe.trials + 1):
            rows = []
            for place, (at, seconds) in enumerate(recipe.order(len(entrants)), start=1):
                found = window(bench, loads[at], seconds)
                rows.append(row_of(entrants[at], session, found, trial, place, idle_watts, environment))
            yield rows


def row_of(
    one: Entrant, session: Session, found: Reading, trial: int, place: int, idle_watts: float, environment: str
) -> Window:
    """A window as it is recorded."""
    fault = found.fault
    status: Status = "refused" if fault else "ok"
    return Window(
        problem=one.problem.name,
        dtype=one.problem.dtype,
        kernel=one.kernel,
        variant=one.variant,
        device=session.device.name,
        trial=trial,
        place=place,
        status=status,
        reason=fault,
        launches=found.launches,
        seconds=found.seconds,
        joules=found.joules,
        integral_joules=found.integral_joules,
        tick_ms=found.tick_ms,
        idle_watts=idle_watts,
        temperature_c=found.temperature_c,
        sm_clock_mhz=found.sm_clock_mhz,
        throttled=" ".join(found.throttled),
        environment=environment,
    )


def keep_busy(bench: Bench, load: Load, seconds: float) -> None:
    """The same work without a reading."""
    ends = bench.clock() + seconds
    while bench.clock() < ends:
        load.feed()
        bench.sleep(0.001)
    load.drain(bench)


def _loads(entrants: Sequence[Entrant], session: Session, timer: Timer, stack: ExitStack) -> list[Load]:
    """Each candidate's work, checked; its memory is freed with the stack."""
    maker = Maker()
    loads = []
    for one in entrants:
        operands = maker.operands(one.problem)
        candidate = _candidate(one, operands, session)
        try:
            loads.append(_load(timer, *_checked(one, candidate, operands, timer, stack)))
        except DeviceLost:
            raise
        except Exception as error:
            raise Unsupported(f"{one.kernel} {one.variant} on {one.problem.name}: {failure(error).reason}") from error
    return loads


def _candidate(one: Entrant, operands: Operands, session: Session) -> Candidate:
    """The one of that name. Raises `Unsupported` where this version or this GPU has none."""
    kernel = session.kernels.get(one.kernel)
    found = (
        []
        if kernel is None
        else planned_candidates(kernel, one.problem, operands, session.device, None, "all", session.work.phases)
    )
    for candidate in found:
        if isinstance(candidate, Candidate) and candidate.variant == one.variant:
            return candidate
    raise Unsupported(f"{one.problem.name}: {one.kernel} has no variant '{one.variant}' here; run the experiment anew")


def _checked(
    one: Entrant, candidate: Candidate, operands: Operands, timer: Timer, stack: ExitStack
) -> tuple[list[Callable[[], None]], bool]:
    """The candidate over as many copies of its weights as L2 does not hold, each right; and whether graphs hold it."""
    prepared = candidate.prepare()
    stack.callback(prepared.close)
    truth = candidate.truth or functools.partial(reference, one.problem, operands)
    first, tolerance = fresh_result(prepared), candidate.tolerance or candidate.math
    error = relative_error(first, truth())
    if not passes(error, tolerance):
        raise ValueError(why(first, truth(), error, tolerance))
    runs = over_copies(candidate, prepared, operands, timer)
    check_copies(candidate, runs, prepared, first, truth)
    return runs, prepared.capturable


def _load(timer: Timer, runs: Sequence[Callable[[], None]], capturable: bool) -> Load:
    """Replays that take as long as windows need them to, of whole rounds over the copies."""

    def rounds(count: int) -> Callable[[], None]:
        return timer.capture(once, count) if capturable else functools.partial(repeat, once, count)

    once = functools.partial(each, runs)
    replay = rounds(1)
    timer.elapsed_us(replay)  # the first replay uploads the graph
    round_us = max(1.0, timer.elapsed_us(replay))
    count = max(1, math.ceil(REPLAY_US / round_us))
    return Load(timer, rounds(count) if count > 1 else replay, count * len(runs), count * round_us, runs)
