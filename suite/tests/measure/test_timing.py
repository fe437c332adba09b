from __future__ import annotations

import itertools

import numpy as np
import pytest
from fakes import FakeTimer

from nnzbench.measure.timing import LAUNCHES, Measurement, StoppingRule, measure, median_interval, warm_up


def timer_of(times) -> FakeTimer:
    return FakeTimer(times=iter(times))


def run(timer, policy, rule=None, **options):
    return measure(timer, timer.launch, policy, rule, clock=timer.clock, **options)


@pytest.mark.parametrize(("launch_us", "launches"), [(0.5, 200), (5.0, 40), (100.0, 10), (500.0, 4), (1e5, 1)])
def test_a_replay_lasts_long_enough_within_bounds(launch_us, launches):
    timer = timer_of(itertools.repeat(launch_us))
    result = run(timer, "hot")
    captured = [call[1] for call in timer.calls if call[0] == "capture"]
    assert captured[-1] == launches
    assert captured[0] == min(launches, LAUNCHES[0])
    assert result.median == pytest.approx(launch_us)


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


def test_cold_leaves_the_overwrite_outside_and_captures_nothing():
    timer = timer_of(itertools.repeat(7.0))
    result = run(timer, "cold")
    assert result.median == pytest.approx(7.0)
    assert {call[0] for call in timer.calls} == {"cold", "elapsed"}


def test_a_stable_kernel_stops_soon_after_the_least_number_of_samples():
    result = run(timer_of(itertools.repeat(10.0)), "cold")
    assert result.stable
    assert 15 <= len(result.samples_us) < 30


def test_a_noisy_kernel_takes_more_samples_until_its_median_is_known():
    noise = np.random.default_rng(1).normal(10.0, 0.3, 1_000_000)
    rule = StoppingRule(max_seconds=10.0)
    result = run(timer_of(noise), "cold", rule)
    assert result.stable
    assert len(result.samples_us) > 60
    low, high = median_interval(result.samples_us)
    assert (high - low) / 2 <= 0.005 * result.median


def test_a_kernel_that_never_settles_ends_at_the_sample_limit_marked():
    times = itertools.cycle([10.0] * 3 + [14.0] * 3)
    result = run(timer_of(times), "cold", StoppingRule(max_seconds=1e9))
    assert not result.stable
    assert len(result.samples_us) == 500


def test_the_wall_cap_ends_a_slow_kernel_after_few_samples():
    timer = timer_of(itertools.repeat(1e6))  # one second per launch
    result = run(timer, "cold")
    assert not result.stable
    assert len(result.samples_us) == 3
    assert timer.clock.now < 10


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
    readings = itertools.chain([1000.0], itertools.repeat(1980.0))
    timer = timer_of(itertools.repeat(10.0))
    timer.mhz = lambda: next(readings)
    assert run(timer, "cold").sm_clock_mhz == 1980.0
    timer.mhz = lambda: None
    assert run(timer, "cold").sm_clock_mhz is None


def test_median_interval_covers_the_median_at_its_level():
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(2000):
        low, high = median_interval(rng.exponential(1.0, 25).tolist())
        hits += low <= np.log(2) <= high
    assert hits / 2000 > 0.94


def test_warm_up_ends_when_the_clock_is_steady():
    readings = iter([300.0, 900.0, 1500.0, 1900.0, *[1980.0] * 50])
    timer = timer_of(itertools.repeat(10.0))
    timer.mhz = lambda: next(readings)
    warm_up(timer, timer.launch, timer.clock)
    assert next(readings) == 1980.0
    assert timer.clock.now < 1.0


def test_warm_up_never_lasts_longer_than_its_limit():
    swing = itertools.cycle([1000.0, 2000.0])
    timer = timer_of(itertools.repeat(10.0))
    timer.mhz = lambda: next(swing)
    warm_up(timer, timer.launch, timer.clock)
    assert 3.0 <= timer.clock.now < 3.5


def test_a_candidate_clearly_behind_is_not_measured_to_the_end():
    noisy = itertools.cycle([30.0, 41.0, 55.0])
    result = run(timer_of(noisy), "cold", to_beat_us=10.0)
    assert result.behind
    assert not result.stable
    assert len(result.samples_us) < StoppingRule().min_samples
    assert not run(timer_of(itertools.cycle([30.0, 41.0, 55.0])), "cold", to_beat_us=29.0).behind


def test_one_far_behind_takes_the_fewest_samples():
    noisy = itertools.cycle([3000.0, 4100.0, 5500.0])
    result = run(timer_of(noisy), "cold", to_beat_us=10.0)
    assert result.behind
    assert len(result.samples_us) == 3


def test_single_launches_need_not_be_known_finer_than_the_event_clock():
    ticks = itertools.cycle([2.848, 2.88, 2.912])
    assert run(timer_of(ticks), "cold").stable


def test_the_summary_is_the_median_between_the_quartiles():
    measured = Measurement((9.0, 1.0, 3.0, 2.0, 100.0), None, (), True)
    assert (measured.q1, measured.median, measured.q3) == (2.0, 3.0, 9.0)


def test_graph_replays_are_known_finer_than_the_event_clock():
    timer = FakeTimer()
    timer.times = ((2.85, 2.91)[len(timer.calls) % 2] for _ in itertools.count())  # of one replay all alike
    assert not run(timer, "hot").stable
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
    def times(timer):
        return (20.0 if timer.clock.now < 0.005 else 10.0 for _ in itertools.count())

    for policy in ("hot", "cold"):
        timer = FakeTimer()
        timer.times = times(timer)
        assert set(run(timer, policy).samples_us) == {10.0}
    timer = FakeTimer()
    timer.times = times(timer)
    assert 20.0 in run(timer, "cold", StoppingRule(ramp_seconds=0.0)).samples_us


def test_one_behind_but_not_far_takes_half_of_the_least_samples():
    result = run(timer_of(itertools.repeat(30.0)), "cold", to_beat_us=10.0)
    assert result.behind
    assert len(result.samples_us) == 10


def test_the_sample_limit_is_kept_wherever_it_lies():
    rule = StoppingRule(max_samples=20, max_seconds=1e9)
    assert len(run(timer_of(itertools.cycle([10.0] * 3 + [14.0] * 3)), "cold", rule).samples_us) == 20


@pytest.mark.parametrize("mhz", [1980.0, None])
def test_warm_up_lasts_its_least_time_though_the_clock_is_steady_or_unknown(mhz):
    timer = timer_of(itertools.repeat(10.0))
    timer.mhz = lambda: mhz
    warm_up(timer, timer.launch, timer.clock)
    assert 0.2 <= timer.clock.now < 0.3


def test_two_equal_readings_are_no_steady_clock():
    readings = iter([1000.0, 1000.0, 1980.0, 1980.0, 1980.0])
    timer = timer_of(itertools.repeat(10.0))
    timer.mhz = lambda: next(readings)
    warm_up(timer, timer.launch, timer.clock, least=0.0)
    assert list(readings) == []
