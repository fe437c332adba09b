"""The micro-kernels do the work their rates are computed from; the measuring itself over a GPU made of Python."""

import itertools
from dataclasses import fields

import numpy as np
import pytest
from fake_gpu import FACTS, FakeCublas, open_fake

from nnzbench.devices import open_device
from nnzbench.devices.gpu_backend import GpuFacts
from nnzbench.measure import roofline as peaks
from nnzbench.measure.roofline import CHUNK_BYTES, FMA_PER_ROUND, THREADS, Peaks, measure_peaks
from nnzbench.plans.plan import Unsupported


@pytest.fixture(scope="module")
def cpu(cache_dir):
    try:
        device = open_device("cpu")
    except Unsupported as reason:
        pytest.skip(str(reason))
    yield device
    device.close()


def output(device, plan):
    prepared = device.prepare(plan)
    prepared.poison()
    prepared.run()
    result = prepared.read()
    prepared.close()
    return result


@pytest.mark.parametrize("size", [CHUNK_BYTES, 16, 3 * CHUNK_BYTES - 16])
def test_the_copy_moves_every_byte(cpu, size):
    plan = peaks.copy_plan(size)
    copied = output(cpu, plan)
    assert np.array_equal(copied.view(np.uint32), plan.buffers["source"].view(np.uint32))


@pytest.mark.parametrize(("chunks", "blocks", "passes"), [(1, 1, 1), (3, 2, 5), (2, 7, 4)])
def test_the_read_sweeps_the_buffer_as_often_as_its_rate_says(cpu, chunks, blocks, passes):
    plan = peaks.read_plan(chunks * CHUNK_BYTES, blocks, passes)
    total = output(cpu, plan).sum(dtype=np.float64)
    assert total == pytest.approx(passes * plan.buffers["buffer"].sum(dtype=np.float64), rel=1e-4, abs=1e-2)


def test_the_multiply_adds_are_as_many_as_their_rate_says(cpu):
    # with y = 0 nothing is forgotten: each of 8 chains is multiplied FMA_PER_ROUND / 8 times per round
    rounds, x = 3, np.float32(0.99)
    plan = peaks.fma_plan(1, rounds)
    plan.buffers["factors"][:] = [x, 0.0]
    starts = np.arange(THREADS)[:, None] + np.arange(8)
    expected = starts.sum(axis=1) * float(x) ** (rounds * FMA_PER_ROUND // 8)
    assert output(cpu, plan) == pytest.approx(expected, rel=1e-4)


def test_the_delay_and_the_empty_kernel_write_nothing(cpu):
    assert np.isnan(output(cpu, peaks.empty_plan())).all()


def test_the_processor_has_no_peaks(cpu):
    assert measure_peaks(cpu) == Peaks()


def fake_gpu(monkeypatch, facts=FACTS):
    nothing = {name: lambda *call: None for name in ("peak_copy", "peak_read", "peak_fma", "empty")}
    device = open_fake(nothing, facts)
    monkeypatch.setattr(peaks, "warm_up", lambda timer, run: run())
    monkeypatch.setattr(peaks, "_COPY_BYTES", 1 << 20)
    monkeypatch.setattr(peaks, "_GEMM_SIZE", 16)
    return device


def test_rates_are_work_over_time(monkeypatch):
    device = fake_gpu(monkeypatch)  # every launch takes 10 us
    library = FakeCublas(device.backend)
    monkeypatch.setattr("nnzbench.kernels.vendor.cublas.load_bindings", lambda name: library)
    multiply = library.gemm_ex

    def slow(*call):
        device.backend.now_ms += 0.004
        if not device.backend.capturing:
            multiply(*call)

    library.gemm_ex = slow
    measured = measure_peaks(device)
    assert measured.copy_gbs == pytest.approx(2 * (1 << 20) / 10e-6 * 1e-9)
    assert measured.l2_gbs == pytest.approx(96 * (1 << 18) / 10e-6 * 1e-9)
    assert measured.fp32_tflops == pytest.approx(2 * 128 * 200 * 32 * 256 / 10e-6 * 1e-12)
    assert measured.tf32_tflops == measured.f16_tflops == pytest.approx(2 * 16 * 16 * 8 / 4e-6 * 1e-12)
    assert measured.floor_us("hot") == pytest.approx(10.0)
    assert measured.floor_us("cold") == pytest.approx(10.0)
    assert (measured.l2_bytes, measured.sms) == (FACTS.l2_bytes, FACTS.sms)


def test_a_peak_is_that_of_the_shortest_run_but_the_first(monkeypatch):
    device = fake_gpu(monkeypatch)
    lasts = itertools.chain([0.001], itertools.cycle([0.05, 0.02, 0.03]))

    def launch():
        device.backend.now_ms += next(lasts)

    assert peaks._best_us(device.timer, launch) == pytest.approx(20.0)


def test_rates_that_can_not_be_measured_are_unknown(monkeypatch):
    def missing(name):
        raise Unsupported("no cuBLAS")

    monkeypatch.setattr("nnzbench.kernels.vendor.cublas.load_bindings", missing)
    measured = measure_peaks(fake_gpu(monkeypatch, GpuFacts(**{**FACTS.__dict__, "compute_capability": (7, 0)})))
    assert measured.tf32_tflops is None
    assert measured.f16_tflops is None
    assert measured.copy_gbs > 0


def test_an_unknown_policy_has_no_floor():
    assert Peaks(floor_hot_us=1.0).floor_us("warm") is None
    assert {field.default for field in fields(Peaks)} == {None}
