"""Windows of energy on a simulated board: aligned to ticks, refused where readings differ, the same for equal work."""

import gc
import math
import weakref
from types import SimpleNamespace

import pytest
from fake_board import IDLE_W, TICK_S, Board, BoardTimer

from nnzbench.bench import energy
from nnzbench.bench.energy import Bench, Load, Recipe, window
from nnzbench.core.plan import Unsupported

LAUNCHES = 400
"""Of a replay, 10 us each."""


def bench_of(**board):
    timer = BoardTimer()
    found = Board(timer, **board)
    return Bench(timer, found, timer.clock, found.sleep)


def load_of(bench):
    def replay():
        bench.timer.enqueued_us += LAUNCHES * 10.0

    return Load(bench.timer, replay, LAUNCHES)


def test_a_window_lies_between_ticks_and_knows_what_a_launch_takes():
    bench = bench_of()
    load = load_of(bench)
    load.starved = 3  # in a window before this one
    found = window(bench, load, 2.0)
    assert found.reason == ""
    assert 2.0 <= found.seconds < 2.0 + 1.1 * TICK_S
    assert found.tick_ms == pytest.approx(1e3 * TICK_S, rel=0.01)
    assert found.joules / found.launches == pytest.approx(400.0 * 10e-6, rel=0.004)
    assert found.integral_joules == pytest.approx(found.joules, rel=0.01)
    assert (found.temperature_c, found.sm_clock_mhz) == (55.0, 1980.0)


@pytest.mark.parametrize("after", [0.0, 0.03, 0.099])
def test_nothing_of_before_is_counted_wherever_between_ticks_a_window_begins(after):
    bench = bench_of()
    bench.timer.watts = lambda at: 1000.0 if at < 0.15 else 300.0
    bench.sleep(after)
    found = window(bench, load_of(bench), 1.0)
    assert found.watts == pytest.approx(300.0, rel=0.005)


def test_launches_are_counted_to_the_tick_however_long_a_replay_is():
    bench = bench_of()
    launches, us = 70, 7e5

    def replay():
        bench.timer.enqueued_us += us

    found = window(bench, Load(bench.timer, replay, launches, us), 2.0)
    assert found.reason == ""
    assert found.seconds / found.launches == pytest.approx(1e-2, rel=0.01)


def test_idle_is_a_window_without_work():
    found = window(bench_of(), None, 1.0)
    assert (found.launches, found.reason) == (0, "")
    assert found.watts == pytest.approx(IDLE_W, rel=0.01)


@pytest.mark.parametrize(("gain", "refused"), [(1.04, False), (0.96, False), (1.07, True), (0.93, True)])
def test_a_counter_and_a_power_that_differ_by_5_percent_refuse_the_window_and_name_both(gain, refused):
    bench = bench_of(gain=gain)
    found = window(bench, load_of(bench), 1.0)
    assert bool(found.reason) == refused
    if refused:
        assert f"{found.joules:.4g} J" in found.reason
        assert f"{found.integral_joules:.4g} J" in found.reason


@pytest.mark.parametrize(
    ("joules", "ticks", "launches", "starved", "said"),
    [(105.0, 5, 1, 0, ""), (105.1, 5, 1, 0, "differ"), (94.9, 5, 1, 0, "differ"), (95.0, 4, 1, 0, "too few"),
     (100.0, 5, 0, 0, "no two replays"), (100.0, 5, 1, 1, "waited for the host 1")],
)  # fmt: skip
def test_what_a_window_is_refused_for(joules, ticks, launches, starved, said):
    reading = energy.Reading("", launches, 1.0, 100.0, joules, 100.0, None, None, "")
    assert said in energy._fault(reading, starved, ticks, idle=False)
    assert bool(energy._fault(reading, starved, ticks, idle=False)) == bool(said)
    assert launches or not energy._fault(reading, starved, ticks, idle=True)


def test_power_between_two_readings_is_their_mean_within_the_window_alone():
    powers = [(0.0, 10.0), (1.0, 20.0), (3.0, 40.0), (4.0, 80.0)]
    assert energy._integral(powers, 0.5, 2.0) == pytest.approx(0.5 * 15 + 1.0 * 30)
    assert energy._integral(powers, -1.0, 9.0) == pytest.approx(15 + 60 + 60)


def test_a_replay_is_of_whole_rounds_over_the_copies_and_lasts_four_milliseconds():
    timer, done = BoardTimer(), []
    for us in (10.0, 1500.0, 1e5):
        runs = [
            lambda us=us, at=at: done.append(at) or setattr(timer, "enqueued_us", timer.enqueued_us + us)
            for at in (0, 1)
        ]
        rounds = math.ceil(4000 / (2 * us))
        load = energy._load(timer, runs, False)
        assert (load.launches, load._depth) == (2 * rounds, max(2, math.ceil(50_000 / (rounds * 2 * us))))
        done.clear()
        load._replay()
        assert done == [0, 1] * rounds


def test_a_gpu_that_waits_for_the_host_refuses_the_window():
    bench = bench_of()
    slow = Bench(bench.timer, bench.meter, bench.clock, lambda seconds: bench.sleep(0.2))
    assert "waited for the host" in window(slow, load_of(bench), 3.0).reason


@pytest.mark.parametrize(("board", "said"), [({"stuck": True}, "did not move"), ({"tells": False}, "tells no energy")])
def test_a_board_without_a_counter_is_refused_at_once(board, said):
    bench = bench_of(**board)
    with pytest.raises(Unsupported, match=said):
        window(bench, load_of(bench), 1.0)


def test_a_trial_goes_there_and_back_so_that_drift_is_the_same_for_all():
    order = Recipe(seconds=1.0).order(3)
    assert [at for at, _ in order] == [0, 1, 2, 2, 1, 0]
    bench = bench_of()
    bench.timer.watts = lambda at: 300.0 + 10.0 * at  # the silicon warms up
    loads = [load_of(bench) for _ in range(3)]
    joules = dict.fromkeys(range(3), 0.0)
    for at, seconds in order:
        joules[at] += window(bench, loads[at], seconds).watts
    assert max(joules.values()) == pytest.approx(min(joules.values()), rel=0.003)


def test_the_first_candidate_warms_the_gpu_up_and_trials_go_on_behind_those_that_are_there(monkeypatch):
    seen, reading = [], energy.Reading("", 1, 1.0, 1.0, 1.0, 1.0, None, None, "")
    monkeypatch.setattr(energy, "_loads", lambda *_: ["a", "b"])
    monkeypatch.setattr(energy, "window", lambda bench, load, seconds: seen.append((load, seconds)) or reading)
    entrants = [energy.Entrant(SimpleNamespace(name=one, dtype="f32"), "k", "v") for one in "ab"]
    session, bench = SimpleNamespace(device=SimpleNamespace(name="cupy")), SimpleNamespace(timer=None)
    trials = list(energy.contest(entrants, session, bench, Recipe(2.0, trials=3), 70.0, "environment.json", begun=1))
    assert seen == [("a", energy.WARM_S), *[(one, 2.0) for one in "abba" * 2]]
    assert [(one.trial, one.place) for some in trials for one in some] == [
        (at, one) for at in (2, 3) for one in range(1, 5)
    ]
    assert [one.problem for one in trials[0]] == ["a", "b", "b", "a"]


def test_a_check_takes_each_alone_in_windows_of_one_length_and_of_twice_it():
    lengths = (1.5, 3.0, 3.0, 1.5)
    assert Recipe(seconds=1.5, check=True).order(2) == [(one, length) for one in (0, 1) for length in lengths]


def test_what_a_graph_works_on_lives_as_long_as_its_load():
    class Run:
        def __call__(self):
            bench.timer.enqueued_us += 10.0

    def capture(run, launches):  # as a GPU's graph, which holds no Python object
        return lambda: setattr(bench.timer, "enqueued_us", bench.timer.enqueued_us + 4e3)

    bench = bench_of()
    bench.timer.capture = capture
    runs = [Run(), Run()]
    copies = [weakref.ref(one) for one in runs]
    load = energy._load(bench.timer, runs, True)
    del runs
    gc.collect()
    assert all(one() is not None for one in copies)
    del load
    gc.collect()
    assert all(one() is None for one in copies)
