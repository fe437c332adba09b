"""Useful work and rooflines; and that the micro-kernels of peaks do the work their rates are of, over a fake GPU."""

import dataclasses
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from fake_gpu import FACTS, FakeCublas, open_fake
from kernel_problems import TRANSFORMER, mobilenet

from nnzbench.bench import peaks
from nnzbench.core.gpus import Peaks
from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.decoder import MODELS
from nnzbench.data.problems.experiment import POLICIES
from nnzbench.data.problems.operands import Operands, make_operands
from nnzbench.data.problems.problem import ITEM_BYTES, ConvShape, Problem
from nnzbench.data.problems.reference import reference
from nnzbench.devices import open_device
from nnzbench.devices.gpu_backend import GpuFacts
from nnzbench.kernels.registry import kernels
from nnzbench.results import roofline
from nnzbench.results.records.describe import class_of
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


@pytest.mark.parametrize("policy", [*POLICIES, "check"])
@pytest.mark.parametrize("math", [*ITEM_BYTES, "tf32"])
def test_the_limit_is_what_each_rate_leaves_and_none_without_one_that_it_needs(policy, math):
    """Of every set of rates, for little and much work, that L2 holds, holds in part, or not."""
    names = [one.name for one in dataclasses.fields(Peaks)][:8]
    tops = {"f32": 50.0, "tf32": 400.0, "f16": 800.0, "bf16": 800.0}.get(math, 0.0)
    rate = {"f32": "fp32_tflops", "tf32": "tf32_tflops"}.get(math, "f16_tflops")
    floor = "floor_cold_us" if policy == "cold" else "floor_hot_us"
    for bits in range(1 << len(names)):
        missing = {name for at, name in enumerate(names) if bits >> at & 1}
        peaks = dataclasses.replace(PEAKS, **dict.fromkeys(missing))
        near = policy in ("hot", "loop") and peaks.l2_bytes is not None
        needed = {"copy_gbs", rate, floor, *["l2_gbs"] * near}
        told = tops and policy != "check" and not needed & missing
        for flops, moved in ((1e9, 1e3), (1.0, 8e6), (1.0, 8e7), (8e8, 5e7)):
            found = roofline_us(Work(flops, moved), peaks, policy, math)
            held = min(moved, 5e7) if near else 0.0
            assert (found is None) == (not told)
            if told:  # a millionth of a second moves a thousandth of what a second does in gigabytes
                memory = held / 8e6 + (moved - held) / 4e6
                assert found == pytest.approx((3 if policy == "cold" else 1) + max(flops / tops / 1e6, memory))


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


SLOW_MEMORY = Peaks(4e-3, 8e-3, 1e9, 1e9, 1e9, 1.0, 3.0, l2_bytes=64)
SLOW_MULTIPLICATION = Peaks(1e9, 1e9, 5e-6, 4e-6, 8e-6, 1.0, 3.0, l2_bytes=64)
OF_SIZES = {"spmm", "spmv", "conv1d", "conv2d", "gemm"}


def row_of(kernel, one, given, variant, policy, peaks):
    """A record as a run writes it."""
    math = class_of(kernel, variant, one.dtype)
    work = row_work(kernel, one, given, variant)
    return SimpleNamespace(
        **{name: getattr(one, name) for name in ("experiment", "m", "k", "n", "shape", "dtype", "source")},
        op=one.recorded_op, problem=one.name, sparsity=given.sparse.sparsity, nnz=given.sparse.nnz, kernel=kernel,
        variant=variant, policy=policy, math=math, flops=useful_work(one, given).flops, bytes=work.bytes,
        limit_us=roofline_us(work, peaks, policy, math),
    )  # fmt: skip


@pytest.mark.parametrize("peaks", [SLOW_MEMORY, SLOW_MULTIPLICATION], ids=["slow memory", "slow multiplication"])
@pytest.mark.parametrize("kernel", [name for name, one in kernels().items() if one.ops & OF_SIZES])
def test_a_recorded_row_has_the_roofline_that_a_new_one_gets(kernel, peaks):
    """And an older one, that says more, no more than that: of every kernel, type, policy and number of nonzeros."""
    rng = np.random.default_rng(4)
    held = kernels()[kernel]
    for op, dtype, policy in itertools.product(sorted(held.ops & OF_SIZES), sorted(held.dtypes), POLICIES):
        conv = None
        if op.startswith("conv"):
            conv = ConvShape(2, 3, 5, 5, 4, 3, 3, 1, 1) if op == "conv2d" else ConvShape(2, 3, 1, 9, 4, 1, 3, 0, 1)
        m, k = (conv.filters, conv.channels * conv.r * conv.s) if conv else (4, 64)
        n = conv.batch * conv.out_height * conv.out_width if conv else 1 if op == "spmv" else int(rng.integers(2, 9))
        one = problem(op=op, m=m, k=k, n=n, dtype=dtype, conv=conv, source="balanced:1:0")
        dense = {"x": (2, 3, conv.height, conv.width)} if conv else {"b": (k, n)}
        given = operands(m, k, int(rng.choice([3, m * k // 2, m * k - 1])), **dense)
        variant = str(rng.choice(["f32_eng1", "tf32_eng6_winograd"])) if kernel == "cudnn" else ""
        row = row_of(kernel, one, given, variant, policy, peaks)
        limit = row.limit_us
        if limit is None:  # integers and FP8 have no peak
            assert dtype in ("i8", "f8")
            assert np.isnan(recorded_us(row, peaks))
            continue
        for told in (limit, 1e12):
            row.limit_us = told
            assert recorded_us(row, peaks) == pytest.approx(limit)
        row.limit_us = limit / 2
        assert recorded_us(row, peaks) == limit / 2


@pytest.mark.parametrize("op", ["sddmm", "pointwise", "attention", "depthwise"])
def test_a_recorded_row_whose_sizes_do_not_tell_its_work_keeps_its_roofline(op):
    one = problem(op=op, m=6, k=6)
    if op == "depthwise":
        one = problem(op=op, m=3, k=9, n=25, conv=ConvShape(1, 3, 5, 5, 3, 3, 3, 1, 1, groups=3))
    row = row_of("sputnik", one, make_operands(one), "", "hot", SLOW_MEMORY)
    for part in ({}, {"shape": "a step", "op": "gemm"}, {"op": "spmm"}, {"shape": "transformer", "op": "conv2d"}):
        vars(row).update(part, limit_us=1e12)
        assert recorded_us(row, SLOW_MEMORY) == 1e12


CSR_ARRAYS = "4 * (nnz + m + 1) + size * nnz"


@pytest.mark.parametrize(
    ("asked", "sparse"),
    [
        (problem(), CSR_ARRAYS),
        (problem(op="spmv", n=1), CSR_ARRAYS),
        (problem(op="gemm", sparsity=0.0), "size * m * k"),
        (problem(op="conv2d", k=27, n=18, conv=CONV), CSR_ARRAYS),
        (problem(op="pointwise"), CSR_ARRAYS),
        (problem(op="sddmm"), "4 * (nnz + m + 1)"),
        (problem(op="sparse_softmax", n=6), "4 * (m + 1) + size * nnz"),  # columns are not read
        (problem(op="attention", m=6), "4 * (nnz + m + 1)"),
        (TRANSFORMER, "4 * (nnz + m + 1)"),
        (mobilenet(0.5), "4 * (nnz + m + 1)"),
    ],
    ids=lambda one: getattr(one, "op", ""),
)
@pytest.mark.parametrize("dtype", ["f32", "f16", "i8", "f8"])
def test_each_array_of_a_problem_moves_once(asked, sparse, dtype):
    given = make_operands(asked)
    size, of_sum = {"f32": (4, 4), "f16": (2, 2), "i8": (1, 4), "f8": (1, 2)}[dtype]
    told = {"size": size, "m": given.sparse.m, "k": given.sparse.k, "nnz": given.sparse.nnz}
    result = (of_sum if "k" in sparse or sparse == CSR_ARRAYS else size) * reference(asked, given).value.size
    dense = size * sum(array.size for array in given.dense.values())
    found = useful_work(dataclasses.replace(asked, dtype=dtype), given)
    assert found.bytes == eval(sparse, told) + dense + result
    if asked.op not in ("sparse_softmax", "attention"):  # a dense one has as many operations as one of every weight
        full = dataclasses.replace(asked, sparsity=0.0, source=asked.source.replace(":6:", ":45:"))
        most = dense_work(asked, given).flops
        assert most == useful_work(full, make_operands(full)).flops >= found.flops
        assert (most == found.flops) == (asked.sparsity == 0)


def test_a_decoder_reads_weights_and_caches_once_a_block_and_its_vocabulary_once():
    net, n = MODELS["tiny"], 3
    one = problem(op="decoder", m=net.weights // 256, k=256, n=n, sparsity=0.6, dtype="f16", label="tiny_kv40")
    given = make_operands(one)
    nnz, seen, vocabulary = given.sparse.nnz, 41 * n * 128, 512 * 256  # of a head, two of which read one of the cache

    def work(weights, held):
        return Work(
            2 * (2 * n * weights + 2 * 2 * 2 * seen) + 2 * n * vocabulary, 2 * (held + 2 * 2 * seen) + 2 * vocabulary
        )

    assert useful_work(one, given) == work(nnz, 4 * (nnz + one.m + 1) + 2 * nnz)
    assert useful_work(one, given, operand=1000) == work(nnz, 1000)
    assert dense_work(one, given) == work(net.weights, 2 * net.weights)


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
    rate = peaks._tensor_tflops
    monkeypatch.setattr(peaks, "_tensor_tflops", lambda device, math: int(math[-2:]) * rate(device, math))
    measured = peaks.measure_peaks(device)
    assert measured.copy_gbs == pytest.approx(2 * (1 << 20) / 10e-6 * 1e-9)
    assert measured.l2_gbs == pytest.approx(96 * (1 << 18) / 10e-6 * 1e-9)
    assert measured.fp32_tflops == pytest.approx(2 * 128 * 200 * 32 * 256 / 10e-6 * 1e-12)
    assert measured.tf32_tflops == 2 * measured.f16_tflops == pytest.approx(32 * 2 * 16 * 16 * 8 / 4e-6 * 1e-12)
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
    floors = {"hot": 1.0, "cold": 3.0}
    monkeypatch.setattr(peaks, "measure", lambda timer, run, policy: SimpleNamespace(median=floors[policy]))
    measured = peaks.measure_peaks(fake_gpu(monkeypatch, GpuFacts(**{**FACTS.__dict__, "compute_capability": (7, 0)})))
    assert measured.tf32_tflops is None
    assert measured.f16_tflops is None
    assert {policy: measured.floor_us(policy) for policy in floors} == floors
    assert measured.copy_gbs > 0
