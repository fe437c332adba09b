"""Joules: windows of launches back to back, each between two ticks of the board's counter, candidates in turn.

The counter moves about ten times a second, so that a window of unaligned ends is off by a tick at either. Its sensor
sees a part of the time alone, which is why a window takes seconds; and it is not trusted without a second reading, of
the power.

A trial takes the candidates A, B, C, each checked, in the order A B C C B A: what drifts meanwhile, such as the
silicon's temperature, is then the same for all of them.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from nnzbench.bench.session import Session
from nnzbench.bench.subject import Subject
from nnzbench.bench.timing import Clock, repeat
from nnzbench.bench.trial import check_copies, enumerate_candidates, failure, fresh_result
from nnzbench.core.plan import Candidate, Unsupported
from nnzbench.data.problems.check import held
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.devices import Device, DeviceLost, Timer
from nnzbench.kernels.copies import each, over_copies
from nnzbench.results.records.beside import Key, Window

AGREE = 0.05
"""Share of the counter's joules by which the integrated power may differ from them."""
LEAD_S = 0.3
"""Of the same work before the first tick that counts: what is read then is of nothing else."""
REPLAY_US = 4000.0
"""A replay takes at least this long: launches are counted by replays, and the host is heard of this seldom."""
AHEAD_US = 50_000.0
"""Of work that is enqueued, in which the host reads, or does something else."""
POLL_S, POWER_S, CLOCK_S = 0.001, 0.01, 0.5
"""Between readings of the counter, of the power, and of the clock with what limits it."""
FEWEST_TICKS = 5
"""In a window: of fewer, a tick missed at its end is much of it."""
SILENT_S = 2.0
"""Without a tick, after which the counter is taken for dead."""
WARM_S = 1.0
"""Of the first candidate's work before the first window, in which the silicon warms up."""


class Meter(Protocol):
    """What the board tells of itself; None for what it does not tell."""

    def energy_j(self) -> float | None:
        """Joules taken since some moment in the past."""

    def power_w(self) -> float | None:
        """Watts taken now."""

    def temperature_c(self) -> float | None:
        """Of the GPU."""


@dataclass(frozen=True)
class Bench:
    """What windows are taken with; `clock` and `sleep` are of the host, injected by tests."""

    timer: Timer
    meter: Meter
    clock: Clock = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Load:
    """Work kept ahead of the GPU: replays of `launches` launches each."""

    def __init__(
        self, timer: Timer, replay: Callable[[], None], launches: int, replay_us: float = REPLAY_US, keep: object = None
    ) -> None:
        """`keep`: what holds the memory that a captured replay works on, as the graph does not."""
        self._timer, self._replay, self.launches, self._keep = timer, replay, launches, keep
        self._depth = max(2, math.ceil(AHEAD_US / replay_us))
        self._ahead: deque[Callable[[], bool]] = deque()
        self.done = 0
        """Launches that the GPU is through with."""
        self.starved = 0
        """Times that the GPU was found with nothing left to do."""

    def feed(self) -> bool:
        """Counts what is done, and enqueues as much again; whether a replay ended."""
        begun, before = bool(self._ahead), self.done
        self._count()
        self.starved += begun and not self._ahead
        while len(self._ahead) < self._depth:
            self._ahead.append(self._timer.enqueue(self._replay))
        return self.done > before

    def drain(self, bench: Bench) -> None:
        """Waits until the GPU is through with everything."""
        while self._ahead:
            bench.sleep(POLL_S)
            self._count()

    def _count(self) -> None:
        while self._ahead and self._ahead[0]():
            self._ahead.popleft()
            self.done += self.launches


class _Tick(NamedTuple):
    at: float
    joules: float


@dataclass(frozen=True)
class Reading:
    """What a window says, by the names of its row."""

    reason: str
    """Why it says nothing of the launches; empty where it does."""
    launches: int
    seconds: float
    joules: float
    integral_joules: float
    tick_ms: float
    temperature_c: float | None
    sm_clock_mhz: float | None
    throttled: str

    @property
    def watts(self) -> float:
        """Mean power by the counter."""
        return self.joules / self.seconds


def _fault(found: Reading, starved: int, ticks: int, idle: bool) -> str:
    if starved:
        return f"the GPU waited for the host {starved} times"
    if ticks < FEWEST_TICKS:
        return f"the counter ticked {ticks} times in {found.seconds:.3g} s: too few"
    if not idle and not found.launches:
        return f"no two replays ended within {found.seconds:.3g} s"
    if abs(found.integral_joules - found.joules) > AGREE * found.joules:
        both = f"the counter says {found.joules:.4g} J and the integrated power {found.integral_joules:.4g} J"
        return f"{both}: they differ by more than {100 * AGREE:g} %"
    return ""


@dataclass
class _Seen:
    """Readings of one window as they come."""

    ticks: list[_Tick] = field(default_factory=list)
    done: list[tuple[float, int]] = field(default_factory=list)
    """When which number of launches was first seen done."""
    powers: list[tuple[float, float]] = field(default_factory=list)
    clocks: list[float] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)
    looked: float = float("-inf")

    @property
    def rate(self) -> float:
        """Launches a second, from one replay's end to another's: windows end within replays."""
        if len(self.done) < 2:
            return 0.0
        (start, first), (end, last) = self.done[0], self.done[-1]
        return (last - first) / (end - start)

    def power(self, bench: Bench, least_s: float) -> None:
        """Reads the power where the last reading is at least that old."""
        now = bench.clock()
        if not self.powers or now - self.powers[-1][0] >= least_s:
            self.powers.append((now, _told(bench.meter.power_w(), "power")))

    def look(self, bench: Bench) -> None:
        """Reads the clock and what limits it, now and then."""
        if (now := bench.clock()) - self.looked >= CLOCK_S:
            self.looked = now
            if (mhz := bench.timer.sm_clock_mhz()) is not None:
                self.clocks.append(mhz)
            self.reasons.update(bench.timer.throttle_reasons())


def window(bench: Bench, load: Load | None, seconds: float) -> Reading:
    """Keeps the GPU at the load (idle for None) and reads from one tick to the first that is `seconds` later or more.

    Raises `Unsupported` where the board tells no energy or power, or its counter stands still.
    """
    meter, seen = bench.meter, _Seen()
    before = load.starved if load else 0
    started = bench.clock()
    last = _told(meter.energy_j(), "energy")
    changed = started
    while not seen.ticks or seen.ticks[-1].at - seen.ticks[0].at < seconds:
        if load:
            ended = load.feed()
            if ended and seen.ticks:
                seen.done.append((bench.clock(), load.done))
        now, joules = bench.clock(), _told(meter.energy_j(), "energy")
        if joules != last:
            last, changed = joules, now
            if now - started >= LEAD_S:
                seen.ticks.append(_Tick(now, joules))
        elif now - changed > SILENT_S:
            raise Unsupported(f"the board's energy counter did not move for {SILENT_S:g} s")
        if seen.ticks:
            seen.power(bench, POWER_S)
            seen.look(bench)
        bench.sleep(POLL_S)
    seen.power(bench, 0.0)
    temperature = meter.temperature_c()
    starved = load.starved - before if load else 0
    if load:
        load.drain(bench)
    first, end = seen.ticks[0], seen.ticks[-1]
    count = len(seen.ticks) - 1
    read = Reading(
        reason="",
        launches=round(seen.rate * (end.at - first.at)) if load else 0,
        seconds=end.at - first.at,
        joules=end.joules - first.joules,
        integral_joules=_integral(seen.powers, first.at, end.at),
        tick_ms=1e3 * (end.at - first.at) / count if count else 0.0,
        temperature_c=temperature,
        sm_clock_mhz=statistics.median(seen.clocks) if seen.clocks else None,
        throttled=" ".join(sorted(seen.reasons)),
    )
    return replace(read, reason=_fault(read, starved, count, load is None))


def _told(value: float | None, what: str) -> float:
    if value is None:
        raise Unsupported(f"NVML tells no {what} of this GPU: joules need its total-energy counter and its power")
    return value


def _integral(powers: list[tuple[float, float]], start: float, end: float) -> float:
    """Joules from `start` to `end`, each reading held half of the way to its neighbours."""
    return sum(
        max(0.0, min(later, end) - max(at, start)) * (watts + other) / 2
        for (at, watts), (later, other) in itertools.pairwise(powers)
    )


@dataclass(frozen=True)
class Entrant:
    """A candidate that is measured, by its names in the records."""

    problem: Problem
    kernel: str
    variant: str

    def key(self, device: str) -> Key:
        """`Window.candidate` of its windows."""
        return (self.problem.name, self.problem.dtype, self.kernel, self.variant, device)


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
        window(bench, loads[0], WARM_S)
        for trial in range(begun + 1, recipe.trials + 1):
            rows = []
            for place, (at, seconds) in enumerate(recipe.order(len(entrants)), start=1):
                found = window(bench, loads[at], seconds)
                key = entrants[at].key(session.device.name)
                known: dict[str, Any] = {"idle_watts": idle_watts, "environment": environment, **vars(found)}
                rows.append(Window(*key, trial, place, "refused" if found.reason else "ok", **known))
            yield rows


def _loads(entrants: Sequence[Entrant], session: Session, timer: Timer, stack: ExitStack) -> list[Load]:
    """Each candidate's work, checked; its memory is freed with the stack."""
    loads = []
    for one in entrants:
        subject = session.subjects.of(one.problem)
        if subject.operands is None:
            raise Unsupported(f"{one.problem.name}: {subject.reason}")
        candidate = _candidate(one, subject.operands, session)
        try:
            loads.append(_load(timer, *_checked(candidate, subject, subject.operands, timer, stack)))
        except DeviceLost:
            raise
        except Exception as error:
            raise Unsupported(f"{one.kernel} {one.variant} on {one.problem.name}: {failure(error).reason}") from error
    return loads


def _candidate(one: Entrant, operands: Operands, session: Session) -> Candidate:
    """The one of that name. Raises `Unsupported` where this version or this GPU has none."""
    if kernel := session.kernels.get(one.kernel):
        phases = session.work.phases
        for found in enumerate_candidates(kernel, one.problem, operands, session.device, phases=phases, ahead=False):
            if isinstance(found, Candidate) and found.variant == one.variant:
                return found
    raise Unsupported(f"{one.problem.name}: {one.kernel} has no variant '{one.variant}' here; run the experiment anew")


def _checked(
    candidate: Candidate, subject: Subject, operands: Operands, timer: Timer, stack: ExitStack
) -> tuple[list[Callable[[], None]], bool]:
    """The candidate over as many copies of its weights as L2 does not hold, each right; and whether graphs hold it."""
    prepared = candidate.prepare()
    stack.callback(prepared.close)
    truth = candidate.truth or subject.truth
    first = fresh_result(prepared)
    held(first, truth(), candidate.tolerance or candidate.math)
    runs = over_copies(candidate, prepared, operands, timer)
    check_copies(candidate, runs, prepared, first, truth)
    return runs, prepared.capturable


def _load(timer: Timer, runs: Sequence[Callable[[], None]], capturable: bool) -> Load:
    """Replays that take as long as windows need them to, of whole rounds over the copies."""

    once = functools.partial(each, runs)

    def rounds(count: int) -> Callable[[], None]:
        return timer.capture(once, count) if capturable else functools.partial(repeat, once, count)

    replay = rounds(1)
    timer.elapsed_us(replay)  # the first replay uploads the graph
    round_us = max(1.0, timer.elapsed_us(replay))
    count = max(1, math.ceil(REPLAY_US / round_us))
    return Load(timer, rounds(count) if count > 1 else replay, count * len(runs), count * round_us, runs)
