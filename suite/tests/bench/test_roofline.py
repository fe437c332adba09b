"""Useful work and rooflines; and that the micro-kernels of peaks do the work their rates are of, over a fake GPU."""

import dataclasses
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from fake_gpu import FACTS, FakeCublas, open_fake

from nnzbench.bench import peaks
from nnzbench.core.gpus import Peaks
from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import ConvShape, Problem
from nnzbench.devices import open_device
from nnzbench.devices.gpu_backend import GpuFacts
from nnzbench.results import roofline
from nnzbench.results.roofline import (
    Work,
    dense_work,
    recorded_us,
    roofline_us,
    row_work,
    useful_work,
)

PEAKS = Peaks(4000.0, 8000.0, 50.0, 400.0, 800.0, floor_hot_us=1.0, floor_cold_us=3.0, l2_bytes=50_000_000)


def problem(**changes) -> Problem:
    return dataclasses.replace(Problem("e", "p", "spmm", 4, 6, 8, 0.5, "uniform:0"), **changes)


def operands(m: int, k: int, nnz: int, **dense: tuple[int, ...]) -> Operands:
    mask = np.zeros(m * k)
    mask[:nnz] = 1.0
    return Operands(CSR.from_dense(mask.reshape(m, k)), {name: np.zeros(size) for name, size in dense.items()}, "")


PRODUCT = operands(4, 6, 10, b=(6, 8))
SAMPLED = operands(4, 8, 10, a=(4, 6), b=(8, 6))
CONV = ConvShape(2, 3, 5, 5, 4, 3, 3, 1, 1, stride=2)


@pytest.mark.parametrize(
    ("changes", "given", "useful", "dense"),
    [
        ({}, PRODUCT, Work(2 * 10 * 8, 10 * 8 + 5 * 4 + 4 * (6 * 8 + 4 * 8)), Work(384, 4 * (4 * 6 + 6 * 8 + 4 * 8))),
        # half precision halves values and dense operands but not indices
        ({"dtype": "f16"}, PRODUCT, Work(160, 10 * (2 + 4) + 5 * 4 + 2 * (6 * 8 + 4 * 8)), Work(384, 2 * 104)),
        # sums of integers are written in four bytes
        ({"dtype": "i8"}, PRODUCT, Work(160, 10 * 5 + 5 * 4 + 6 * 8 + 4 * 32), Work(384, 4 * 6 + 6 * 8 + 4 * 32)),
        ({"op": "gemm"}, PRODUCT, Work(384, 4 * 104), Work(384, 4 * 104)),
        # two dense operands are read and the pattern is written; a dense one computes every element
        ({"op": "sddmm"}, SAMPLED, Work(120, 4 * (10 + 5 + 24 + 48 + 10)), Work(2 * 4 * 6 * 8, 4 * (24 + 48 + 32))),
        # each output pixel of each image
        (
            {"op": "conv2d", "m": 4, "k": 27, "n": 18, "conv": CONV},
            operands(4, 27, 20, x=(2, 3, 5, 5)),
            Work(2 * 20 * (2 * 3 * 3), 20 * 8 + 5 * 4 + 4 * (2 * 3 * 5 * 5) + 4 * (2 * 4 * 3 * 3)),
            Work(2 * 4 * 27 * 18, 4 * (4 * 27 + 2 * 3 * 5 * 5 + 4 * 18)),
        ),
        # four operations per nonzero; the values move twice
        ({"op": "sparse_softmax"}, operands(4, 6, 10), Work(4 * 10, 5 * 4 + 2 * 4 * 10), None),
    ],
)
def test_useful_work_is_of_nonzeros_and_dense_work_of_all_and_everything_moves_once(changes, given, useful, dense):
    assert useful_work(problem(**changes), given) == useful
    if dense is not None:
        assert dense_work(problem(**changes), given) == dense


def test_dense_libraries_are_bounded_by_the_dense_product_alone():
    assert row_work("cublas", problem(), PRODUCT) == dense_work(problem(), PRODUCT)
    assert row_work("sputnik", problem(), PRODUCT) == useful_work(problem(), PRODUCT)


def test_a_balanced_matrix_is_bounded_by_positions_within_its_ranges():
    given = operands(4, 64, 128, b=(64, 8))
    shape = problem(k=64, source="balanced:0")
    work = row_work("balanced", shape, given)
    assert work == Work(2 * 128 * 8, 128 * 5 + 4 * (64 * 8 + 4 * 8))
    assert row_work("balanced", dataclasses.replace(shape, dtype="f16"), given).bytes == 128 * 3 + 2 * (64 * 8 + 4 * 8)
    wide = problem(k=512, source="balanced:1:0")  # one range of 512 columns
    assert row_work("balanced", wide, operands(4, 512, 128, b=(512, 8))).bytes == 128 * 6 + 4 * (
        128 * 8 + 4 * 8  # 128 nonzeros meet no more rows than that
    )
    assert row_work("sputnik", shape, given).bytes > work.bytes


@pytest.mark.parametrize(
    ("work", "policy", "math", "expected"),
    [
        (Work(50e6, 1e3), "hot", "f32", 1 + 1.0),
        (Work(400e6, 1e3), "hot", "tf32", 1 + 1.0),
        (Work(800e6, 1e3), "cold", "f16", 3 + 1.0),
        (Work(1.0, 8e6), "hot", "f32", 1 + 1.0),  # fits in L2
        (Work(1.0, 8e6), "cold", "f32", 3 + 2.0),
        (Work(1.0, 80e6), "hot", "f32", 1 + 6.25 + 7.5),  # L2 holds 50 MB of it
        (Work(1.0, 50e6), "hot", "f32", 1 + 6.25),  # just fits
        (Work(1.0, 8e6), "stream", "f32", 1 + 2.0),  # L2 has none of it any more
        (Work(800e6, 1e3), "hot", "bf16", 1 + 1.0),  # the peak of fp16
    ],
)
def test_limit_is_floor_plus_the_slower_of_compute_and_memory(work, policy, math, expected):
    assert roofline_us(work, PEAKS, policy, math) == pytest.approx(expected)


def test_no_limit_without_the_peak_it_needs():
    assert roofline_us(Work(1, 1), dataclasses.replace(PEAKS, tf32_tflops=None), "hot", "tf32") is None
    assert roofline_us(Work(1, 1), dataclasses.replace(PEAKS, tf32_tflops=None), "hot", "f32") is not None
    assert roofline_us(Work(1, 1), Peaks(), "hot", "f32") is None
    assert roofline_us(Work(1, 1), PEAKS, "check", "f32") is None
    assert roofline_us(Work(800e6, 1e3), PEAKS, "hot", "i8") is None


def test_attention_counts_two_products_and_a_softmax_and_a_dense_one_stops_at_the_last_key():
    mask = CSR.from_dense(np.array([[1, 0, 1, 0, 0, 0], [0] * 6, [0, 1, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0]], np.float32))
    dense = {"q": np.zeros((4, 8)), "k": np.zeros((6, 8)), "v": np.zeros((6, 8))}
    given, moved = Operands(mask, dense, ""), 4 * (2 * 4 * 8 + 2 * 6 * 8)
    assert useful_work(problem(op="attention"), given) == Work(5 * (2 * 2 * 8 + 4), 4 * (5 + 5) + moved)
    assert dense_work(problem(op="attention"), given) == Work((3 + 6 + 1) * (2 * 2 * 8 + 4), moved)


def test_winograd_multiplies_less_and_2_to_4_moves_two_bits_a_place():
    conv = ConvShape(2, 3, 5, 5, 4, 3, 3, 1, 1)
    shape = problem(op="conv2d", m=4, k=27, n=50, conv=conv)
    given = operands(4, 27, 20, x=(2, 3, 5, 5))
    plain, winograd = (row_work("cudnn", shape, given, name) for name in ("tf32_nchw_eng1", "f32_nchw_eng6_winograd"))
    assert plain.flops == 4 * winograd.flops
    assert roofline.winograd_saving("f32_winograd", "n1_c2_h8_w8_d2_r1_s5_p0_u1") == pytest.approx(20 / 8)
    given = operands(4, 64, 128, b=(64, 8))
    assert row_work("cusparselt", problem(k=64, dtype="f16"), given).bytes == 128 * 2 + 32 + 2 * (64 * 8 + 4 * 8)


@pytest.mark.parametrize(
    "peaks",
    [Peaks(4e-3, 8e-3, 1e9, 1e9, 1e9, 1.0, 3.0, l2_bytes=64), Peaks(1e9, 1e9, 5e-6, 4e-6, 8e-6, 1.0, 3.0, l2_bytes=64)],
    ids=["slow memory", "slow multiplication"],
)
@pytest.mark.parametrize(
    ("kernel", "variant", "changes"),
    [
        ("cublas", "", {}),
        ("sputnik", "", {}),
        ("cusparselt", "", {"k": 64, "dtype": "f16"}),
        ("cudnn", "eng6_winograd", {"op": "conv2d", "k": 27, "n": 50, "conv": ConvShape(2, 3, 5, 5, 4, 3, 3, 1, 1)}),
    ],
)
def test_a_recorded_row_has_the_roofline_that_a_new_one_gets(kernel, variant, changes, peaks):
    """And an older one, that says more, no more than that."""
    one = problem(**changes)
    dense = {"x": (2, 3, 5, 5)} if one.conv else {"b": (one.k, one.n)}
    given = operands(one.m, one.k, one.m * one.k // 2, **dense)
    work, math = row_work(kernel, one, given, variant), one.dtype
    limit = roofline_us(work, peaks, "hot", math)
    row = SimpleNamespace(
        **{name: getattr(one, name) for name in ("experiment", "op", "m", "k", "n", "shape", "dtype", "source")},
        problem=one.name, sparsity=0.5, nnz=given.sparse.nnz, kernel=kernel, variant=variant, policy="hot", math=math,
        flops=useful_work(one, given).flops, bytes=work.bytes, limit_us=limit,
    )  # fmt: skip
    assert recorded_us(row, peaks) == pytest.approx(limit)
    row.limit_us = 1e12
    assert recorded_us(row, peaks) == pytest.approx(limit)
    row.limit_us = None
    assert np.isnan(recorded_us(row, peaks))


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


@pytest.mark.parametrize("size", [peaks.CHUNK_BYTES, 16, 3 * peaks.CHUNK_BYTES - 16])
def test_the_copy_moves_every_byte(cpu, size):
    plan = peaks.copy_plan(size)
    copied = output(cpu, plan)
    assert np.array_equal(copied.view(np.uint32), plan.buffers["source"].view(np.uint32))


@pytest.mark.parametrize(("chunks", "blocks", "passes"), [(1, 1, 1), (3, 2, 5), (2, 7, 4)])
def test_the_read_sweeps_the_buffer_as_often_as_its_rate_says(cpu, chunks, blocks, passes):
    plan = peaks.read_plan(chunks * peaks.CHUNK_BYTES, blocks, passes)
    total = output(cpu, plan).sum(dtype=np.float64)
    assert total == pytest.approx(passes * plan.buffers["buffer"].sum(dtype=np.float64), rel=1e-4, abs=1e-2)


def test_the_multiply_adds_are_as_many_as_their_rate_says(cpu):
    # with y = 0 nothing is forgotten: each of 8 chains is multiplied FMA_PER_ROUND / 8 times per round
    rounds, x = 3, np.float32(0.99)
    plan = peaks.fma_plan(1, rounds)
    plan.buffers["factors"][:] = [x, 0.0]
    starts = np.arange(peaks.THREADS)[:, None] + np.arange(8)
    expected = starts.sum(axis=1) * float(x) ** (rounds * peaks.FMA_PER_ROUND // 8)
    assert output(cpu, plan) == pytest.approx(expected, rel=1e-4)


def test_the_delay_and_the_empty_kernel_write_nothing(cpu):
    assert np.isnan(output(cpu, peaks.empty_plan())).all()


def test_the_processor_has_no_peaks(cpu):
    assert peaks.measure_peaks(cpu) == Peaks()


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
    monkeypatch.setattr("nnzbench.kernels.vendor.support.load_bindings", lambda name: library)
    multiply = library.gemm_ex

    def slow(*call):
        device.backend.now_ms += 0.004
        if not device.backend.capturing:
            multiply(*call)

    library.gemm_ex = slow
    measured = peaks.measure_peaks(device)
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

    monkeypatch.setattr("nnzbench.kernels.vendor.support.load_bindings", missing)
    measured = peaks.measure_peaks(fake_gpu(monkeypatch, GpuFacts(**{**FACTS.__dict__, "compute_capability": (7, 0)})))
    assert measured.tf32_tflops is None
    assert measured.f16_tflops is None
    assert measured.copy_gbs > 0
