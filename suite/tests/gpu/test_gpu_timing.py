"""Times on a real GPU: two runs of one build say SAME, and peaks are physical."""

import time

import pytest
from fakes import Silent

from nnzbench.bench import peaks
from nnzbench.bench.peaks import measure_peaks
from nnzbench.bench.session import Session
from nnzbench.bench.sweep import Choice, run_experiment
from nnzbench.bench.timing import measure, warm_up
from nnzbench.core.plan import Unsupported
from nnzbench.data.problems.experiment import Experiment
from nnzbench.data.problems.problem import Problem
from nnzbench.devices import open_device
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.registry import kernels
from nnzbench.results.records.record import frame_of, read_records
from nnzbench.results.result_set import each
from nnzbench.results.runs import compare

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cache_dir")]


class Pair(Experiment):
    def problems(self, real=None):
        return [
            Problem(self.name, "small", "spmm", 256, 256, 196, 0.9, "uniform:1"),
            Problem(self.name, "large", "spmm", 2048, 1024, 256, 0.9, "uniform:2"),
        ]


def test_two_runs_of_one_build_are_the_same(gpu, tmp_path):
    pair = Pair("pair", "", "", "", {"sputnik": (), "cublas": ()})
    session = Session(gpu, kernels())
    choice = Choice(quick=False)
    for name in ("a", "b"):
        run_experiment(pair, session, tmp_path / name, choice, Silent())
    a, b = (read_records(tmp_path / name / "records.csv") for name in ("a", "b"))
    assert {record.status for record in a + b} == {"ok"}
    result = compare(frame_of(a), frame_of(b)).rows
    different = [
        (row.problem, row.kernel, row.variant, row.verdict, row.ratio) for row in each(result) if row.verdict != "SAME"
    ]
    assert len(result) >= 8
    assert not [one for one in different if one[3] != "UNCLEAR"], different
    assert len(different) <= len(result) // 10, different


def test_peaks_are_physical_and_repeat(gpu):
    first, second = measure_peaks(gpu), measure_peaks(gpu)
    assert first.floor_hot_us is not None
    assert first.floor_cold_us is not None
    assert 0 < first.floor_hot_us < first.floor_cold_us < 50
    assert first.copy_gbs is not None
    assert first.l2_gbs is not None
    assert first.l2_gbs > first.copy_gbs > 100
    for name in ("copy_gbs", "l2_gbs", "fp32_tflops", "floor_hot_us"):
        assert getattr(first, name) == pytest.approx(getattr(second, name), rel=0.1), name


def test_a_replayed_graph_takes_as_long_as_its_launches(gpu):
    prepared = gpu.prepare(peaks.fma_plan(gpu.facts.sms, 400))
    timer = gpu.timer
    warm_up(timer, prepared.run)
    once, many = timer.capture(prepared.run, 1), timer.capture(prepared.run, 20)
    single = min(timer.elapsed_us(once) for _ in range(5))
    assert min(timer.elapsed_us(many) for _ in range(5)) == pytest.approx(20 * single, rel=0.15)
    prepared.close()


def test_hosts_time_is_not_in_the_interval(gpu):
    prepared = gpu.prepare(peaks.empty_plan())
    prepared.run()
    gpu.synchronise()
    # an event pair round an empty kernel is about 2 us apart; enqueueing it from Python takes longer
    assert min(gpu.timer.elapsed_us(prepared.run) for _ in range(20)) < 6.0
    prepared.close()


@pytest.mark.parametrize("name", ["cupy", "pycuda", "cuda-core"])
def test_a_host_that_is_slow_between_two_launches_is_not_in_the_interval(name):
    try:
        device = open_device(name)
    except Unsupported as reason:
        pytest.skip(str(reason))
    assert isinstance(device, GpuDevice)
    prepared = device.prepare(peaks.empty_plan())

    def calls(pause_s):
        def run():
            prepared.run()
            until = time.perf_counter() + pause_s
            while time.perf_counter() < until:
                pass
            prepared.run()

        return run

    for call in (calls(0.0), calls(0.3e-3)):
        call()
        for times in (device.timer.cold_us(call, 15), [device.timer.elapsed_us(call) for _ in range(15)]):
            assert sorted(times)[7] < 25.0, times  # of 300 us
    prepared.close()
    device.close()


def test_cold_is_slower_than_hot_where_operands_fit_in_cache(gpu):
    size = gpu.facts.l2_bytes // 8 // peaks.CHUNK_BYTES * peaks.CHUNK_BYTES
    prepared = gpu.prepare(peaks.read_plan(size, gpu.facts.sms * 4, 1))
    prepared.run()
    hot, cold = (measure(gpu.timer, prepared.run, policy).median for policy in ("hot", "cold"))
    assert cold > 1.2 * hot
    prepared.close()
