"""Timing policies over an injected `Timer`: plain logic, no GPU library.

Hot: launches back to back in one CUDA graph, operands wherever the last launch left them (what the papers report).
Cold: the L2 cache is overwritten before every launch, outside the timed interval.
Stream: launches back to back in one CUDA graph, each over another copy of the weights, so many that L2 holds none until
its turn comes again. Dense operand and result are the same buffers for all, as in a model the activations of a layer
come from the launch before it, and lie in L2.
Loop: no graph; 25 launches, then 100 between two events, as many benchmarks time a kernel.

Where there are several runs that have the weights at other addresses, as many samples are taken at each: some places in
memory are slower than others by a few percent, and what a row then says includes that.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from nnzbench.data.problems.experiment import Policy
from nnzbench.devices import Timer

Clock = Callable[[], float]
Batch = Callable[[int], list[float]]
"""Takes that many samples."""

REPLAY_US = 200.0
"""A timed replay lasts at least this long, so that event resolution (0.5 us as documented) is below 0.3 %."""
LAUNCHES = (10, 200)
"""Fewest and most launches in one graph."""
LOOP = (25, 100)
"""Launches before the events of a loop's sample, and between them."""
LONGEST_REPLAY_US = 2000.0
"""Where the fewest launches would take longer, a graph holds fewer, down to one: more samples fit in the wall cap."""
FEWEST_SAMPLES = 3
"""Taken even where they outlast the wall cap: fewer have no quartiles."""
BEHIND = 1.25
"""A candidate whose fastest samples take this much longer than a competitor's median can't win."""
FAR_BEHIND = 4.0
"""The same, told by the fewest samples: some library algorithms take a hundred times as long as others."""
EVENT_STEP_US = 0.064
"""Two ticks of the event clock, as seen on Hopper: no finer interval is asked of single launches."""


@dataclass(frozen=True)
class StoppingRule:
    """When a measurement ends: its median is known well enough, or the wall clock says so.

    A relative standard deviation alone is never the rule: short kernels don't reach one.
    """

    min_samples: int = 15
    max_samples: int = 500
    max_seconds: float = 0.06
    """Wall-clock cap of the sampling; reached with the median still uncertain, the result is marked unstable."""
    tolerance: float = 0.005
    """Largest half width of the median's 95 % confidence interval, as a fraction of the median."""
    slower_tolerance: float = 0.02
    """The same where the whole interval is above a competitor's median. Of small products such candidates took seven in
    eight of the cold samples."""
    ramp_seconds: float = 0.005
    """Untimed work before the samples: the clock falls while the host checks a result."""

    def settled(self, samples: Sequence[float], step_us: float = 0.0, to_beat_us: float | None = None) -> bool:
        """Whether the confidence interval of the median is within the tolerance, or one step of the clock.

        `to_beat_us`: median of a competitor.
        """
        if len(samples) < self.min_samples:
            return False
        low, high = median_interval(samples)
        slower = to_beat_us is not None and low > to_beat_us
        tolerance = max(self.tolerance, self.slower_tolerance) if slower else self.tolerance
        return high - low <= max(2 * tolerance * statistics.median(samples), step_us)


QUICK = StoppingRule(min_samples=7, max_samples=50, max_seconds=0.015, tolerance=0.02, ramp_seconds=0.002)
"""For `--quick`: a first look, not a number to publish."""


@dataclass(frozen=True)
class Measurement:
    """All samples of one candidate under one policy (microseconds per launch) and their summary."""

    samples_us: tuple[float, ...]
    sm_clock_mhz: float | None
    """Median of the readings taken between samples; None where the clock can't be read."""
    throttled: tuple[str, ...]
    """Throttle reasons seen at any reading, sorted. The samples are kept."""
    stable: bool
    """False where the wall cap or the sample limit ended the measurement."""
    behind: bool = False
    """True where it was ended early, because a competing candidate is clearly faster."""
    far: bool = False
    """True where that one is over `FAR_BEHIND` times as fast."""

    @property
    def median(self) -> float:
        return statistics.median(self.samples_us)

    @property
    def q1(self) -> float:
        return float(np.quantile(self.samples_us, 0.25))

    @property
    def q3(self) -> float:
        return float(np.quantile(self.samples_us, 0.75))


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Distribution-free 95 % confidence interval of the median, from order statistics (binomial, normal limit)."""
    ordered = sorted(samples)
    count = len(ordered)
    half = 0.98 * math.sqrt(count)
    low = max(0, math.floor(count / 2 - half))
    high = min(count - 1, math.ceil(count / 2 + half))
    return ordered[low], ordered[high]


def measure(
    timer: Timer,
    run: Callable[[], None],
    policy: Policy,
    rule: StoppingRule | None = None,
    capturable: bool = True,
    clock: Clock = time.monotonic,
    to_beat_us: float | None = None,
    watched: Callable[[Batch], Batch] | None = None,
    launches: int = 1,
    elsewhere: Sequence[Callable[[], None]] = (),
) -> Measurement:
    """Times `run` (already run once, so that modules are loaded) under `policy`.

    Under `stream`, `run` launches `launches` times, once over each copy of the weights. Nothing is discarded. `clock`
    gives host seconds, injected by tests. With `to_beat_us`, the median of a competitor, the measurement ends earlier
    once it is clear that it will not be reached. `watched` is put round what takes the samples. `elsewhere`: the same
    with operands at other addresses.
    """
    rule = rule or StoppingRule()
    if policy == "cold":
        batches: list[Batch] = [partial(timer.cold_us, one) for one in (run, *elsewhere)]
    elif policy == "loop":
        batches = [partial(_loop_us, timer, one) for one in (run, *elsewhere)]
    else:
        batches = _hot_batches(timer, (run, *elsewhere), capturable, launches)
    if watched is not None:
        batches = list(map(watched, batches))
    until = clock() + rule.ramp_seconds
    while clock() < until:
        batches[0](1)
    return _sample(timer, batches, rule, clock, EVENT_STEP_US if policy == "cold" else 0.0, to_beat_us)


def warm_up(
    timer: Timer, run: Callable[[], None], clock: Clock = time.monotonic, least: float = 0.2, most: float = 3.0
) -> None:
    """Works the GPU until its SM clock is steady (three readings within 1 %), once per session.

    Lasts `least` to `most` seconds; `least` where the clock can't be read.
    """
    end, readings, start = clock(), [], clock()
    while end - start < most:
        until = clock() + 0.05
        while clock() < until:
            timer.elapsed_us(lambda: repeat(run, LAUNCHES[0]))
        readings.append(timer.sm_clock_mhz())
        end = clock()
        last = [value for value in readings[-3:] if value is not None]
        steady = len(last) == 3 and max(last) - min(last) <= 0.01 * max(last)
        if end - start >= least and (steady or readings[-1] is None):
            return


def repeat(run: Callable[[], None], times: int) -> None:
    """Enqueues the run so often."""
    for _ in range(times):
        run()


def _loop_us(timer: Timer, run: Callable[[], None], samples: int) -> list[float]:
    before, timed = LOOP
    found = []
    for _ in range(samples):
        timer.elapsed_us(partial(repeat, run, before))
        found.append(timer.elapsed_us(partial(repeat, run, timed)) / timed)
    return found


def _hot_batches(timer: Timer, places: Sequence[Callable[[], None]], capturable: bool, launches: int) -> list[Batch]:
    """Of each place, samples of one graph replay each; a stream loop of as many runs where no graph can be captured."""

    def body(run: Callable[[], None], runs: int) -> Callable[[], None]:
        return timer.capture(run, runs) if capturable else partial(repeat, run, runs)

    first = min(LAUNCHES[0], _runs(timer.elapsed_us(places[0])))
    replay = body(places[0], first)
    timer.elapsed_us(replay)  # the first replay uploads the graph
    runs = _runs(timer.elapsed_us(replay) / first)
    if runs != first:
        replay = body(places[0], runs)
        timer.elapsed_us(replay)

    def samples(replay: Callable[[], None], count: int) -> list[float]:
        if len(places) > 1:
            timer.elapsed_us(replay)  # the last launches were at another place: hot is what this one's leave in L2
        return [timer.elapsed_us(replay) / (runs * launches) for _ in range(count)]

    return [partial(samples, one) for one in (replay, *(body(run, runs) for run in places[1:]))]


def _runs(run_us: float) -> int:
    """Of one replay, where one takes about so long."""
    fewest, most = LAUNCHES
    if run_us <= 0:
        return most
    fewest = max(1, min(fewest, int(LONGEST_REPLAY_US / run_us)))
    return max(fewest, min(most, math.ceil(REPLAY_US / run_us)))


def _sample(
    timer: Timer, batches: Sequence[Batch], rule: StoppingRule, clock: Clock, step_us: float, to_beat_us: float | None
) -> Measurement:
    """As many samples of each place. What settles a median is how far they spread at a place: that places differ is in
    the quartiles, and would not change with more samples."""
    places: list[list[float]] = [[] for _ in batches]
    samples: list[float] = []
    clocks: list[float] = []
    throttled: set[str] = set()

    def read_clock() -> None:
        mhz = timer.sm_clock_mhz()
        if mhz is not None:
            clocks.append(mhz)
        throttled.update(timer.throttle_reasons())

    start = clock()
    step = -(-FEWEST_SAMPLES // len(places))  # a slow kernel must be able to stop at the wall cap
    stable = behind = far = False
    while True:
        left = (rule.max_samples - len(samples)) // len(places)
        for place, batch in zip(places, batches, strict=True):
            place += batch(max(1, min(step, left)))
        samples = [us for place in places for us in place]
        if len(clocks) < 2:
            read_clock()  # and once more at the end: a reading can take longer than the samples
        alike = samples
        if len(places) > 1:
            whole = statistics.median(samples)
            alike = [us * whole / statistics.median(place) for place in places for us in place]
        stable = rule.settled(alike, step_us, to_beat_us)
        lead = min(samples) / to_beat_us if to_beat_us else 0.0
        behind = lead > BEHIND
        far = behind and lead > FAR_BEHIND
        if behind and (far or len(samples) >= rule.min_samples // 2):
            break
        if stable or len(samples) >= rule.max_samples or clock() - start >= rule.max_seconds:
            break
        step = max(1, rule.min_samples // 2 // len(places))
    read_clock()
    mhz_median = statistics.median(clocks) if clocks else None
    return Measurement(tuple(samples), mhz_median, tuple(sorted(throttled)), stable, behind, far)
