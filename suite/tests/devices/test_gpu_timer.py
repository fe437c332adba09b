"""The order of events, flushes and launches that makes a time right."""

import itertools
from functools import partial
from types import SimpleNamespace

import pytest
from fake_gpu import FACTS, FakeDriverError, fake_nvml, open_fake

from nnzbench.devices import DeviceLost, gpu_timer
from nnzbench.devices.gpu_timer import DELAYS, LEAST_FLUSH_BYTES, GpuTimer
from nnzbench.devices.nvml import Clocks


def run_of(device, host_ms=0.0, us=(7.0,)):
    """A kernel of 7 us, or of those in turn, that the host takes so long to launch."""
    took = itertools.cycle(us)

    def run():
        device.backend.host_ms += host_ms
        device.backend._step("launch", "k")
        device.backend.work(next(took) / 1e3)

    return run


def names(device, start):
    return [step[1] if step[0] == "launch" else step[0] for step in device.backend.log[start:]]


def test_the_gpu_is_kept_busy_before_a_timed_interval():
    device = open_fake()
    timer = device.timer
    start = len(device.backend.log)
    assert timer.elapsed_us(run_of(device)) == pytest.approx(7.0)  # without the delay's own 10
    assert names(device, start) == ["delay", "record", "k", "record", "elapsed"]


def test_cold_samples_flush_before_each_run_and_outside_the_interval():
    device = open_fake()
    timer = device.timer
    start = len(device.backend.log)
    times = timer.cold_us(run_of(device, us=(7.0, 9.0)), 2)
    assert times == pytest.approx([7.0, 9.0])
    sample = ["fill", "record", "k", "record"]
    assert names(device, start) == ["allocate", *sample, *sample, "synchronise", "elapsed", "elapsed"]


@pytest.mark.parametrize("cold", [True, False])
def test_an_interval_that_waited_for_the_host_is_taken_again_behind_more_delays(cold):
    device = open_fake()
    timer = device.timer

    def take(host_ms, samples=3):
        run = run_of(device, host_ms)
        return timer.cold_us(run, samples) if cold else [timer.elapsed_us(run) for _ in range(samples)]

    start = len(device.backend.log)
    assert take(0.2) == pytest.approx([7.0] * 3)  # the host's 200 are in none
    assert names(device, start).count("k") > 3, "samples were taken again"
    for _ in range(8):  # each call begins with half the delays of the last
        take(0.001, 1)
    start = len(device.backend.log)
    assert take(0.001, 2) == pytest.approx([7.0] * 2)
    assert names(device, start).count("delay") == (0 if cold else 2)  # what precedes an interval anyway
    assert names(device, start).count("k") == 2


def test_a_host_that_is_too_slow_for_any_delay_does_not_hang_the_timer():
    device = open_fake()
    timer, start = device.timer, len(device.backend.log)
    assert timer.cold_us(run_of(device, 50.0), 2) == pytest.approx([50_007.0] * 2, rel=0.1)
    assert names(device, start).count("k") == len(DELAYS) + 1  # the second begins with the most


def test_the_flush_buffer_is_several_times_the_l2_cache_and_allocated_once():
    device = open_fake()
    for _ in range(3):
        device.timer.cold_us(lambda: None, 2)
    fills = [step[2] for step in device.backend.log if step[0] == "fill"]
    assert fills == [device.timer.flush_bytes] * 6  # all of it, before each run
    large = [step for step in device.backend.log if step[0] == "allocate" and step[1] >= LEAST_FLUSH_BYTES]
    assert len(large) == 1
    big = GpuTimer(device.backend, lambda call: call(), lambda: None, 60 << 20, None)
    assert big.flush_bytes == 240 << 20
    assert GpuTimer(device.backend, lambda call: call(), lambda: None, 1 << 20, None).flush_bytes == 64 << 20
    middle = GpuTimer(device.backend, lambda call: call(), lambda: None, 17 << 20, None)
    start = len(device.backend.log)
    middle.cold_us(lambda: None, 1)
    sizes = {step[0]: step[-1] for step in device.backend.log[start:] if step[0] in ("allocate", "fill")}
    assert sizes == {"allocate": 68 << 20, "fill": 68 << 20}


def test_lines_that_persist_in_l2_are_forgotten_where_there_is_a_driver(monkeypatch):
    told = []
    for driver in (SimpleNamespace(cuCtxResetPersistingL2Cache=lambda: told.append("reset")), None):
        monkeypatch.setattr(gpu_timer, "_driver", lambda found=driver: found)
        gpu_timer.forget_persisting_l2()
    assert told == ["reset"]


def test_what_is_enqueued_is_done_where_the_gpu_has_come_behind_it():
    device = open_fake()
    timer, start, told = device.timer, len(device.backend.log), []
    done = timer.enqueue(run_of(device))
    assert names(device, start) == ["k", "record"]
    device.backend.host_ms += 100.0
    assert done()
    timer.elapsed_us(lambda: told.append(done()))
    assert told == [True], "whatever is timed since"


def test_a_graph_holds_the_launches_and_runs_nothing_while_captured():
    device = open_fake()
    replay = device.timer.capture(run_of(device), 25)
    assert device.timer.elapsed_us(replay) == pytest.approx(250.0)


def test_device_faults_surface_from_every_measurement():
    device = open_fake()
    timer = device.timer

    def faulty():
        raise FakeDriverError("an illegal memory access was encountered")

    for measure in (
        lambda: timer.elapsed_us(faulty),
        lambda: timer.cold_us(faulty, 1),
        lambda: timer.capture(faulty, 1),
    ):
        with pytest.raises(DeviceLost):
            measure()


@pytest.mark.parametrize(
    ("told", "mhz", "reasons"),
    [
        ({"ClockInfo": 1755, "CurrentClocksEventReasons": 1 | 4 | 64}, 1755.0, ("hw_thermal_slowdown", "sw_power_cap")),
        ({"CurrentClocksThrottleReasons": 4}, None, ("sw_power_cap",)),  # an older name
        ({}, None, ()),
        (None, None, ()),
    ],
    ids=["idle is no throttling", "older", "no answer", "no NVML"],
)
def test_clock_and_throttling_come_from_nvml(told, mhz, reasons):
    device = open_fake(**told or {})
    timer = device.timer
    if told is None:
        timer = GpuTimer(device.backend, lambda call: call(), lambda: None, FACTS.l2_bytes, None)
    assert (timer.sm_clock_mhz(), timer.throttle_reasons()) == (mhz, reasons)


def test_the_board_tells_joules_watts_degrees_and_clocks():
    def instant(handle, fields, error=0):
        return [SimpleNamespace(nvmlReturn=error if fields == [186] else 1, value=SimpleNamespace(uiVal=312_500))]

    told = {
        "TotalEnergyConsumption": 5_250,
        "PowerUsage": 250_000,  # the mean of a second
        "Temperature": lambda handle, sensor: {0: 41}[sensor],
        "ClockInfo": lambda handle, kind: {1: 1755, 2: 2619}[kind],
    }
    board = Clocks(fake_nvml(**told), "handle")
    assert (board.energy_j(), board.power_w(), board.temperature_c()) == (5.25, 250.0, 41.0)
    assert (board.sm_mhz(), board.clock_mhz("MEM", "ClockInfo")) == (1755.0, 2619)
    for error, watts in ((0, 312.5), (3, 250.0)):
        of_now = Clocks(fake_nvml(**told, FieldValues=partial(instant, error=error)), "handle")
        assert of_now.power_w() == watts
    silent = Clocks(fake_nvml(), "handle")
    assert [silent.energy_j(), silent.power_w(), silent.temperature_c(), silent.sm_mhz()] == [None] * 4
