import itertools
from dataclasses import replace

import numpy as np
import pytest
from fakes import FakeTimer
from scipy.stats import binom

from nnzbench.bench import timing
from nnzbench.bench.timing import LAUNCHES, StoppingRule, measure, median_interval, warm_up


def timer_of(times) -> FakeTimer:
    return FakeTimer(times=iter(times))


def run(timer, policy, rule=None, **options):
    return measure(timer, timer.launch, policy, rule, clock=timer.clock, **options)


@pytest.mark.parametrize(
    ("launch_us", "launches"),
    [(0.0, 200), (0.5, 200), (3.0, 67), (5.0, 40), (100.0, 10), (300.0, 6), (500.0, 4), (1e5, 1)],
)
def test_a_replay_lasts_long_enough_within_bounds(launch_us, launches):
    timer = timer_of(itertools.repeat(launch_us))
    result = run(timer, "hot")
    captured = [call[1] for call in timer.calls if call[0] == "capture"]
    assert captured[-1] == launches
    assert captured[0] == min(launches, LAUNCHES[0])
    assert result.median == pytest.approx(launch_us)


@pytest.mark.parametrize(("one", "others", "launches"), [(1.0, 1000.0, [10, 2]), (1000.0, 1.0, [2, 200])])
def test_how_long_a_launch_takes_is_told_by_several(one, others, launches):
    timer = timer_of(itertools.chain([one], itertools.repeat(others)))
    run(timer, "hot")
    assert [call[1] for call in timer.calls if call[0] == "capture"] == launches


def test_streamed_launches_are_counted_one_by_one():
    timer = timer_of(itertools.cycle([3.0, 5.0]))

    def over_both():
        timer.launch()
        timer.launch()

    result = measure(timer, over_both, "stream", clock=timer.clock, launches=2)
    assert result.median == pytest.approx(4.0)
    assert [call[1] for call in timer.calls if call[0] == "capture"] == [LAUNCHES[0], 25]  # of 8 us each


def test_hot_without_capture_loops_over_the_stream():
    timer = timer_of(itertools.repeat(4.0))
    result = run(timer, "hot", capturable=False)
    assert all(call[0] == "elapsed" for call in timer.calls)
    assert result.median == pytest.approx(4.0)


@pytest.mark.parametrize("policy", ["hot", "cold", "loop"])
def test_each_place_has_as_many_samples_and_only_what_they_spread_at_one_keeps_a_median_from_settling(policy):
    timer, noise = FakeTimer(), itertools.cycle([0.0, 0.001, -0.001])

    def at(us, noise=noise):
        def run():
            timer.enqueued_us += us * (1 + next(noise))

        return run

    fast, slow = at(10.0), at(11.0)
    result = measure(timer, fast, policy, clock=timer.clock, elsewhere=[slow])
    assert result.stable  # though 10 % lie between the two
    assert len(result.samples_us) == 16
    assert sum(us < 10.5 for us in result.samples_us) == len(result.samples_us) / 2
    assert (result.q1, result.median, result.q3) == pytest.approx((10.0, 10.5, 11.0), rel=2e-3)
    seldom = at(10.0, itertools.cycle([-0.5, *[0.0] * 6]))
    assert len(measure(timer, fast, policy, clock=timer.clock, elsewhere=[seldom]).samples_us) == 16, (
        "not the least of one"
    )
    rule = StoppingRule(max_samples=49, max_seconds=1e9)
    wild = at(10.0, iter(np.random.default_rng(2).normal(0.0, 0.1, 1000).tolist()))
    unsure = measure(timer, wild, "cold", rule, clock=timer.clock, elsewhere=[wild])
    assert not unsure.stable
    assert len(unsure.samples_us) == 50


def test_hot_samples_of_a_place_follow_launches_at_it():
    """The first replay at a place, whose operands are no longer in L2, takes longer: no sample has it."""
    timer, last = FakeTimer(), [""]

    def at(place):
        def run():
            timer.enqueued_us += 10.0 if last[0] == place else 1000.0
            last[0] = place

        return run

    result = measure(timer, at("one"), "hot", clock=timer.clock, elsewhere=[at("other")])
    assert result.stable
    assert max(result.samples_us) == pytest.approx(10.0)


def test_cold_leaves_the_overwrite_outside_and_captures_nothing():
    timer = timer_of(itertools.repeat(7.0))
    result = run(timer, "cold")
    assert result.median == pytest.approx(7.0)
    assert {call[0] for call in timer.calls} == {"cold", "elapsed"}


def test_a_candidate_that_is_slower_for_certain_is_measured_less_precisely_than_one_that_may_win():
    noise = np.random.default_rng(1).normal(10.0, 0.3, 1_000_000)
    rule = StoppingRule(max_seconds=10.0)
    slower, close, exact = (
        run(timer_of(noise), "cold", one, to_beat_us=best)
        for one, best in ((rule, 9.0), (rule, 10.0), (replace(rule, slower_tolerance=rule.tolerance), 9.0))
    )
    assert slower.stable
    assert not slower.behind
    assert len(slower.samples_us) < 60 < len(close.samples_us) == len(exact.samples_us)
    low, high = median_interval(slower.samples_us)
    assert (high - low) / 2 <= 0.02 * slower.median


@pytest.mark.parametrize("most", [20, 500])
def test_a_kernel_that_never_settles_ends_at_the_sample_limit_marked(most):
    times = itertools.cycle([10.0] * 3 + [14.0] * 3)
    result = run(timer_of(times), "cold", StoppingRule(max_samples=most, max_seconds=1e9))
    assert not result.stable
    assert len(result.samples_us) == most


def test_the_wall_cap_ends_a_slow_kernel_after_few_samples():
    timer = timer_of(itertools.repeat(1e6))  # one second per launch
    result = run(timer, "cold")
    assert not result.stable
    assert len(result.samples_us) == 3
    assert timer.clock.now < 10
    assert len(run(timer, "cold", elsewhere=[timer.launch]).samples_us) == 4


def test_the_wall_cap_ends_a_noisy_kernel_within_one_batch():
    noise = np.random.default_rng(3).normal(2000.0, 400.0, 10_000)
    result = run(timer_of(noise), "cold", StoppingRule(max_seconds=0.06))
    assert not result.stable
    assert 0.06 <= sum(result.samples_us) * 1e-6 <= 0.06 + 8 * 0.003


def test_quartiles_lie_between_samples():
    found = timing.Measurement((8.0, 1.0, 4.0, 2.0), None, (), True)
    assert (found.q1, found.median, found.q3) == (1.75, 3.0, 5.0)


def test_nothing_is_discarded():
    times = [10.0] * 5 + [1000.0] + [10.0] * 10_000
    result = run(timer_of(times), "cold", StoppingRule(ramp_seconds=0.0))
    assert max(result.samples_us) == 1000.0


def test_throttling_is_marked_and_its_samples_are_kept():
    seen = itertools.chain([(), ("sw_power_cap",)], itertools.repeat(()))
    timer = timer_of(itertools.repeat(10.0))
    timer.reasons = lambda: next(seen)
    result = run(timer, "cold")
    assert result.throttled == ("sw_power_cap",)
    assert len(result.samples_us) >= 15


def test_the_clock_is_the_median_of_readings_and_none_when_unreadable():
    timer = timer_of(itertools.repeat(10.0))
    for first, median in (([1000.0], 1980.0), ([1985.0], 1980.0), ([1000.0, 1010.0], 1010.0)):
        readings = itertools.chain(first, itertools.repeat(1980.0))
        timer.mhz = lambda told=readings: next(told)
        assert run(timer, "cold").sm_clock_mhz == median  # of three
    timer.mhz = lambda: None
    assert run(timer, "cold").sm_clock_mhz is None


def test_the_interval_of_a_median_has_95_percent_and_one_narrower_has_less():
    """Of every number of samples: ranks of those below a median are binomial."""
    for count in range(6, 501):
        low, high = median_interval(np.random.default_rng(count).permutation(count).tolist())
        assert low + high - (count - 1) in (0, 1)
        assert binom.cdf(high, count, 0.5) - binom.cdf(low, count, 0.5) > 0.947
        assert binom.cdf(high - 1, count, 0.5) - binom.cdf(low + 1, count, 0.5) < 0.95
    assert [median_interval([2.0, 3.0, 1.0][:count]) for count in (1, 2, 3)] == [(2.0, 2.0), (2.0, 3.0), (1.0, 3.0)]


def test_a_median_is_settled_at_its_tolerance_and_no_further_off():
    """And one that is slower for certain at the larger one; cold, in one step of the clock."""
    low, high = map(int, median_interval(range(15)))

    def settled(off, **told):
        samples = [1000.0] * 15
        samples[: low + 1], samples[high:] = [1000.0 - off] * (low + 1), [1000.0 + off] * (15 - high)
        return StoppingRule().settled(samples[: told.pop("count", 15)], **told)

    assert [settled(off) for off in (5.0, 5.1)] == [True, False]
    assert [settled(off, to_beat_us=970.0) for off in (20.0, 20.1)] == [True, False]
    assert [settled(off, to_beat_us=990.0) for off in (9.9, 10.0)] == [True, False], "which may win"
    assert [settled(off, step_us=20.0) for off in (10.0, 10.1)] == [True, False]
    assert not settled(0.0, count=14)


@pytest.mark.parametrize(
    ("readings", "least", "lasts"),
    [
        ([300.0, 900.0, 1500.0, 1900.0, *[1980.0] * 50], 0.2, (0.3, 0.5)),
        ([1978.0, 2000.0] * 50, 0.2, (3.0, 3.5)),
        ([1981.0, 2000.0] * 50, 0.2, (0.2, 0.3)),
        ([1980.0] * 50, 0.2, (0.2, 0.3)),
        ([None] * 50, 0.2, (0.2, 0.3)),
        ([1000.0, 1000.0, 1980.0, 1980.0, 1980.0], 0.0, (0.25, 0.3)),
    ],
    ids=["rising", "never steady", "within 1 %", "steady at once", "unreadable", "two equal readings are not steady"],
)
def test_warm_up_ends_when_the_clock_is_steady_between_its_least_and_its_most_time(readings, least, lasts):
    timer, told = timer_of(itertools.repeat(10.0)), iter(readings)
    timer.mhz = lambda: next(told)
    warm_up(timer, timer.launch, timer.clock, least=least)
    assert lasts[0] <= timer.clock.now < lasts[1]
    assert timer.enqueued_us == pytest.approx(10.0 * LAUNCHES[0] * len(timer.calls))


@pytest.mark.parametrize(
    ("times", "to_beat", "samples"),
    [
        ([30.0, 41.0, 55.0], 10.0, 10),  # half of the least samples more than the fewest
        ([30.0], 10.0, 10),
        ([3000.0, 4100.0, 5500.0], 10.0, 3),  # far behind
        ([40.0], 10.0, 10),
        ([30.0, 41.0, 55.0], 29.0, None),
        ([25.0, 41.0, 55.0], 20.0, None),
    ],
)
def test_a_candidate_clearly_behind_is_not_measured_to_the_end(times, to_beat, samples):
    result = run(timer_of(itertools.cycle(times)), "cold", to_beat_us=to_beat)
    assert result.behind == (samples is not None)
    assert not (result.behind and result.stable)
    assert samples in (None, len(result.samples_us))


def test_graph_replays_are_known_finer_than_the_event_clock():
    for policy, every in (("hot", 1), ("loop", 2)):
        timer = FakeTimer()
        timer.times = (
            (2.85, 2.91)[len(timer.calls) // every % 2] for _ in itertools.count()
        )  # of one replay all alike
        assert not run(timer, policy).stable
    assert run(timer_of(itertools.cycle([2.85, 2.91])), "cold").stable


def test_the_first_replay_of_a_graph_is_no_sample_and_no_measure_of_its_length():
    timer = timer_of(itertools.repeat(10.0))
    capture = timer.capture

    def uploaded_late(run, launches):
        replay, uploads = capture(run, launches), [1000.0]

        def first_uploads():
            timer.enqueued_us += uploads.pop() if uploads else 0.0
            replay()

        return first_uploads

    timer.capture = uploaded_late
    result = run(timer, "hot", StoppingRule(ramp_seconds=0.0))
    assert [call[1] for call in timer.calls if call[0] == "capture"][-1] == 20
    assert set(result.samples_us) == {10.0}


def test_work_before_the_samples_is_not_timed():
    def times(timer, before=None):
        for _ in itertools.count():
            early = timer.clock.now < 0.005
            before is None or before.append(early)
            yield 20.0 if early else 10.0

    for policy in ("hot", "cold"):
        timer, before = FakeTimer(), []
        timer.times = times(timer, before)
        assert set(run(timer, policy).samples_us) == {10.0}
        assert sum(before) > 60, "and it is work"
    timer = FakeTimer()
    timer.times = times(timer)
    assert 20.0 in run(timer, "cold", StoppingRule(ramp_seconds=0.0)).samples_us


def test_a_sample_of_a_loop_is_a_hundred_launches_between_two_events_after_twenty_five_others():
    timer = FakeTimer(times=itertools.cycle([50.0] * 25 + [8.0] * 100))
    result = run(timer, "loop", StoppingRule(ramp_seconds=0.0))
    assert set(result.samples_us) == {8.0}
    assert {name for name, *_ in timer.calls} == {"elapsed"}
