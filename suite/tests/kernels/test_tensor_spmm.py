"""`tensor_spmm` against float64 on the processor, and its packed strips against the matrix they hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from on_cpu import execute, fresh_cache, matrix, mutated  # noqa: F401
from on_cpu import spmm_operands as operands

from nnzbench.build.cache import Job
from nnzbench.devices import gpu
from nnzbench.devices.cpu import LaunchError
from nnzbench.devices.cpu_device import CpuDevice
from nnzbench.kernels.tensor import work
from nnzbench.kernels.tensor.banks import dealt_starts
from nnzbench.kernels.tensor.slices import first_chunks
from nnzbench.kernels.tensor.spmm import TensorSpmm, Tiling, make_plan, tilings
from nnzbench.kernels.tensor.strips import STEP_COLUMNS, STRIP_ROWS, Form, Strips, pack
from nnzbench.matrices import generate
from nnzbench.matrices.formats import CSR
from nnzbench.plans.architectures import block_shared_bytes
from nnzbench.plans.plan import Unsupported
from nnzbench.problems import tables
from nnzbench.problems.check import relative_error
from nnzbench.problems.operands import Operands, reference
from nnzbench.problems.problem import DType, Problem
from nnzbench.problems.sources import load_sparse

# columns per block, warps, words of bits, stages, rows per panel, panels, blocks, slices
TILINGS = (
    Tiling(8, 4, 1, 3, 128, 2, 1, 2, bulk=False),
    Tiling(16, 4, 2, 2, 256, 2, 1, 1, wide=True),
    Tiling(32, 4, 1, 3, 128, 3, 1, 3, separate=True),
    Tiling(64, 4, 1, 2, 128, 2, 1, 2, wide=True, separate=True),
    Tiling(128, 4, 1, 2, 128, 2, 1, 2, wide=True),
    Tiling(128, 4, 2, 2, 256, 2, 1, 1, bulk=False),
    Tiling(8, 4, 4, 2, 256, 1, 1, 2, form="halves"),
    Tiling(16, 4, 2, 3, 128, 2, 1, 2, wide=True, form="halves"),
    Tiling(8, 4, 2, 2, 256, 1, 1, 2, form="bitmap"),
    Tiling(32, 4, 1, 3, 128, 2, 1, 2, wide=True, form="bitmap"),
    Tiling(8, 4, 1, 3, 128, 2, 1, 3, early=True, spread=True, dealt=True),
    Tiling(16, 4, 2, 2, 256, 2, 1, 2, bulk=False, form="halves", early=True),
    Tiling(32, 4, 2, 3, 256, 2, 1, 2, wide=True, early=True, spread=True, dealt=True),
    Tiling(128, 4, 1, 2, 128, 2, 1, 3, wide=True, early=True, spread=True),
)
# m, k, n, density: edges of strips, steps and panels, one column, one row, copies of 2, 4, 8 and 16 bytes
CASES = (
    ((70, 300, 7, 0.1), TILINGS[0]),
    ((33, 520, 1, 0.2), TILINGS[0]),
    ((37, 65, 16, 0.3), TILINGS[1]),
    ((1, 300, 12, 0.5), TILINGS[1]),
    ((65, 390, 30, 0.25), TILINGS[2]),
    ((40, 129, 49, 0.2), TILINGS[3]),
    ((20, 257, 104, 0.4), TILINGS[4]),
    ((32, 64, 130, 1.0), TILINGS[5]),
    ((70, 520, 7, 0.3), TILINGS[6]),
    ((65, 390, 12, 0.6), TILINGS[7]),
    ((70, 520, 7, 0.3), TILINGS[8]),
    ((65, 390, 12, 0.6), TILINGS[9]),
    ((70, 390, 7, 0.2), TILINGS[10]),
    ((33, 520, 1, 0.2), TILINGS[10]),
    ((1, 300, 12, 0.5), TILINGS[11]),
    ((65, 700, 30, 0.25), TILINGS[12]),
    ((40, 390, 104, 0.3), TILINGS[13]),
    ((32, 640, 49, 1.0), TILINGS[12]),
)


def problem(data: Operands, dtype: DType) -> Problem:
    sparse, b = data.sparse, data.dense["b"]
    return Problem("test", "test", "spmm", sparse.m, sparse.k, b.shape[1], sparse.sparsity, "uniform:0", dtype)


def whole(sparse: CSR, n: int, dtype: DType = "f16") -> Operands:
    """Small whole numbers: products and sums are exact, and so is rounding them."""
    rng = np.random.default_rng(5)
    values = rng.integers(1, 4, sparse.nnz) * rng.choice((-1, 1), sparse.nnz)
    b = rng.integers(-1, 2, (sparse.k, n))
    return Operands(sparse.with_values(values.astype(np.float32)), {"b": b.astype(np.float32)}, "").cast(dtype)


def assert_exact(
    data: Operands, tiling: Tiling, dtype: DType = "f16", build: str = "plain", order: str = "forward"
) -> None:
    expected = reference(problem(data, dtype), data).value
    assert np.abs(expected).max(initial=0) < 256  # a whole number of either type
    assert np.array_equal(execute(make_plan(problem(data, dtype), data, tiling), build, order), expected), tiling


@pytest.mark.parametrize(("shape", "tiling"), CASES, ids=str)
def test_every_sum_is_right(shape: tuple[int, int, int, float], tiling: Tiling) -> None:
    m, k, n, density = shape
    assert_exact(whole(matrix(m, k, density, empty=(m - 1,) if m > 1 else (), full=m // 2), n), tiling)


def test_bf16_and_rounding() -> None:
    data = operands(matrix(40, 200, 0.3), 20).cast("bf16")
    plan = make_plan(problem(data, "bf16"), data, TILINGS[2])
    assert plan.math == "bf16"
    truth = reference(problem(data, "bf16"), data)
    allowed = 2.0**-8 * np.abs(truth.value) + 1e-6 * truth.scale
    assert (np.abs(execute(plan) - truth.value) <= allowed).all()
    assert_exact(whole(matrix(40, 200, 0.3), 20, "bf16"), TILINGS[3], "bf16")


def test_values_in_fp16_are_summed_in_fp32() -> None:
    data = operands(matrix(64, 500, 0.2), 24).cast("f16")
    plan = make_plan(problem(data, "f16"), data, TILINGS[2])
    assert relative_error(execute(plan), reference(problem(data, "f16"), data)) < 5e-4


def test_empty_matrices_and_uneven_rows() -> None:
    for tiling in (TILINGS[0], TILINGS[1]):
        assert_exact(whole(CSR.from_dense(np.zeros((41, 190), np.float32)), 16), tiling)
    dense = np.zeros((70, 300), dtype=np.float32)
    dense[3] = dense[40] = 1  # two full rows among empty ones
    dense[::2, 17] = dense[::3, 250] = 1
    assert_exact(whole(CSR.from_dense(dense), 9), TILINGS[0])


@pytest.mark.parametrize(("build", "order"), [("asan", "forward"), ("tsan", "forward"), ("plain", "random:5")])
def test_clean_under_sanitizers_and_in_any_order(build: str, order: str) -> None:
    for tiling, n in ((TILINGS[0], 7), (TILINGS[1], 16), (TILINGS[2], 20), (TILINGS[3], 40)):
        data = whole(matrix(50, 300, 0.35, empty=(0, 49), full=20), n)
        assert_exact(data, tiling, "f16", build, order)
    data = whole(matrix(50, 520, 0.3, empty=(0, 49), full=20), 30)
    assert_exact(data, TILINGS[12], "f16", build, order)


@pytest.mark.parametrize("tiling", [*(TILINGS[at] for at in (0, 2, 3, 6, 8, 10))], ids=str)
def test_inf_and_nan_touch_only_the_rows_that_use_them(tiling: Tiling) -> None:
    data = operands(matrix(45, 290, 0.3, empty=(4,), full=9), 11).cast("f16")
    b = data.dense["b"].copy()
    b[7, 3], b[130, 3], b[131, 5], b[289, 10] = np.inf, -np.inf, np.nan, np.inf
    spoilt = Operands(data.sparse, {"b": b}, "")
    found = execute(make_plan(problem(data, "f16"), spoilt, tiling)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        expected = data.sparse.to_scipy() @ b.astype(np.float64)
    usual = np.isfinite(expected)
    assert 0 < (~usual).sum() < 4 * 45
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    assert np.array_equal(found[np.isinf(expected)], expected[np.isinf(expected)])
    assert np.abs(found[usual] - expected[usual]).max() < 0.05
    assert (found[4] == 0).all()


@pytest.mark.parametrize("at", range(0, 11, 2))
def test_the_uneven_rows_of_figure_7(at: int) -> None:
    """Its coefficients of variation, on smaller matrices."""
    one = replace(tables.load("sputnik_figure7")[at], m=64, k=256, n=16)
    assert_exact(whole(load_sparse(one), 16), TILINGS[1])


def test_negative_zeros_and_overflow() -> None:
    sparse = matrix(33, 128, 0.3)
    data = operands(sparse, 8).cast("f16")
    zeros = Operands(data.sparse, {"b": np.full((128, 8), -0.0, np.float16)}, "")
    assert not execute(make_plan(problem(zeros, "f16"), zeros, TILINGS[0])).any()
    large = Operands(
        data.sparse.with_values(np.full(sparse.nnz, 6e4, np.float16)), {"b": np.full((128, 8), 1e3, np.float16)}, ""
    )
    assert np.isposinf(
        execute(make_plan(problem(large, "f16"), large, TILINGS[0]))
    ).all()  # behind fp16, not behind fp32


def test_results_are_the_same_in_any_order() -> None:
    data = operands(matrix(40, 700, 0.3), 16).cast("f16")
    tiling = Tiling(16, 4, 1, 2, 128, 2, 1, 6)
    first = execute(make_plan(problem(data, "f16"), data, tiling)).tobytes()
    for other in (tiling, replace(tiling, early=True, spread=True)):
        plan = make_plan(problem(data, "f16"), data, other)
        for order in ("forward", "backward", "random:1", "random:2"):
            assert execute(plan, "plain", order).tobytes() == first, (other, order)


@pytest.mark.parametrize("tiling", [TILINGS[0], TILINGS[10]], ids=str)
def test_counters_are_ready_for_the_next_launch(tiling: Tiling) -> None:
    data = whole(matrix(40, 390, 0.3), 8)
    prepared = CpuDevice().prepare(make_plan(problem(data, "f16"), data, tiling))
    for _ in range(3):
        prepared.poison()
        prepared.run()
        assert np.array_equal(prepared.read(), reference(problem(data, "f16"), data).value)
    prepared.close()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bool found = before == slices - 1;", "bool found = before == slices - 2;"),
        ("!found; ++i) found = arrivals(counters + lane) == slices - 1;", "!found; ++i) found = true;"),
        ("if (found) counters[lane] = 0;", ""),
    ],
    ids=("added before all arrived", "not waited for", "left counted"),
)
def test_a_mistake_in_sharing_sums_is_noticed(old: str, new: str) -> None:
    data = whole(matrix(40, 390, 0.3), 8)
    plan = mutated(make_plan(problem(data, "f16"), data, TILINGS[10]), old, new, "tensor_spmm_sums.cuh")
    prepared = CpuDevice().prepare(plan)
    found = []
    for _ in range(2):  # a launch finds the counters that the last one left
        prepared.poison()
        prepared.run()
        found.append(prepared.read())
    prepared.close()
    right = reference(problem(data, "f16"), data).value
    assert not all(np.array_equal(one, right) for one in found)


def test_first_chunks_need_no_looking_up() -> None:
    sparse = whole(matrix(70, 900, 0.2), 1).sparse
    packed = pack(sparse, 1, 128)
    heads = first_chunks(packed, 3)
    assert heads.shape == (3, 3, packed.slot_bytes // 16, 4)
    for strip in range(3):
        for at in range(3):
            chunk = packed.panel_chunks[strip * packed.panels + packed.panels * at // 3]
            begin, end = packed.offsets[chunk], packed.offsets[chunk + 1]
            assert np.array_equal(heads[strip, at, : end - begin], packed.stream[begin:end])
    data = whole(matrix(40, 100, 0.3), 8)
    with pytest.raises(Unsupported, match="3 slices for 1 panels"):
        make_plan(problem(data, "f16"), data, TILINGS[10])


def test_unmeasured_tilings_come_behind_all_others() -> None:
    for n in (1, 8, 16, 32, 64, 128):
        data = operands(matrix(2048, 1024, 0.02), n).cast("f16")
        found = tilings(problem(data, "f16"), data.sparse, "sm_90")
        late = [tiling.early for tiling in found]
        assert late == sorted(late)
        assert 0 < sum(late) <= 3
        for tiling in (one for one in found if one.early):
            assert tiling.spread == (n >= 32)
            assert tiling.dealt == (tiling.form == "words")
            assert not tiling.separate
            assert tiling.slices * -(-2048 // (32 * tiling.warps)) * -(-n // tiling.block_n) <= 132 * tiling.blocks


@pytest.mark.parametrize(
    ("old", "new", "header"),
    [
        ("nnz::cp_async_wait<kStages - 2>();", "nnz::cp_async_wait<kStages - 1>();", "tensor_spmm_copies.cuh"),
        ("nnz::barrier_wait(filled + slot, parity);", "", "tensor_spmm_copies.cuh"),
        ("packed.start(begin, active);", "packed.start(begin, active); packed.copy();", ""),
    ],
    ids=("late chunk", "bulk copy not waited for", "slot overwritten"),
)
def test_a_mistake_in_the_ring_is_noticed(old: str, new: str, header: str) -> None:
    data = whole(matrix(70, 500, 0.3), 8)
    plan = make_plan(problem(data, "f16"), data, Tiling(8, 4, 1, 3, 128, 2, 1, 1, bulk="barrier" in old))
    broken = mutated(plan, old, new, header)
    try:
        found = execute(broken)
    except LaunchError:  # a selection that no tensor core takes
        return
    assert not np.array_equal(found, reference(problem(data, "f16"), data).value)


def unpacked(strips: Strips, map_words: int, panel: int, m: int, k: int, form: Form) -> NDArray[np.float64]:
    """The matrix that the packed words hold, read as the header of `tensor_spmm.cu` tells."""
    dense = np.zeros((strips.strips * STRIP_ROWS, strips.panels * panel))
    words = strips.stream.ravel()
    chunk_steps = (2 if form == "halves" else 4) * map_words
    bytes_each, per_register = (4, 1) if form == "words" else (2, 2)
    head = 0 if form == "bitmap" else 32 * map_words
    plain = -(-k // (STEP_COLUMNS * chunk_steps))
    for unit in range(strips.strips * strips.panels):
        strip, of_strip = divmod(unit, strips.panels)
        here = max(
            0, min(panel // (STEP_COLUMNS * chunk_steps), plain - of_strip * panel // (STEP_COLUMNS * chunk_steps))
        )
        for nth, chunk in enumerate(range(strips.panel_chunks[unit], strips.panel_chunks[unit + 1])):
            held: Any = words[4 * strips.offsets[chunk] : 4 * strips.offsets[chunk + 1]]
            bits, rest = held[:head].reshape(32, -1), held[head:]
            starts = rest[:16].view(np.uint16) // bytes_each
            entries = held.view(np.float16).reshape(-1, bytes_each // 2)
            gathered = nth >= here
            steps = int(rest[16]) if gathered else chunk_steps
            columns = rest[20 : 20 + 16 * steps if gathered else 20].view(np.uint16)
            selected = rest[20 + 16 * steps if gathered else 16 :]
            narrow = int(rest[17]) if gathered else 0
            for lane in range(32):
                at = int(starts[lane])
                for bit in range(32 * steps if form == "bitmap" else 0):
                    step, half, tile = bit // 32, bit // 16 % 2, bit // 8 % 2
                    if not selected[32 * step + lane] >> np.uint32(bit % 32) & 1:
                        continue
                    place = bit // 4 % 2 * 16 + lane % 4 * 4 + bit % 4
                    assert place < 16 or not narrow >> step & 1
                    column = columns[32 * step + place] if gathered else (nth * chunk_steps + step) * 32 + place
                    row = strip * 32 + tile * 16 + half * 8 + lane // 4
                    dense[row, of_strip * panel + column] += entries[at, 0]
                    at += 1
                if form == "bitmap":
                    continue
                for bit in range(8 * per_register * steps):
                    if not bits[lane, bit // 32] >> np.uint32(bit % 32) & 1:
                        continue
                    register, upper = divmod(bit, per_register)
                    step, tile, half = register // 8, register // 4 % 2, register % 2
                    group = register // 2 % 2 * 4 + lane % 4
                    assert group < 4 or not narrow >> step & 1
                    select = int(selected[32 * step + lane // 4 * 4 + 2 * tile + group // 4]) >> (
                        16 * half + 4 * (lane % 4)
                    )
                    for nth_half, value in enumerate(entries[at]):
                        place = 4 * group + (select >> 2 * (nth_half + upper) & 3)
                        column = columns[32 * step + place] if gathered else (nth * chunk_steps + step) * 32 + place
                        dense[strip * 32 + tile * 16 + half * 8 + lane // 4, of_strip * panel + column] += value
                    at += 1
    return dense[:m, :k]


def turns_taken(packed: Strips, map_words: int) -> NDArray[np.bool_]:
    """Of chunks of `words`: whether a lane takes a word in each of its turns, (chunks, lanes, turns)."""
    words = packed.stream.ravel()
    bits = np.stack([words[4 * at : 4 * at + 32 * map_words] for at in packed.offsets[:-1]])
    by_lane = np.ascontiguousarray(bits.reshape(-1, 32, map_words)).view(np.uint8)
    return np.unpackbits(by_lane, axis=2, bitorder="little").astype(bool)


@pytest.mark.parametrize(("density", "map_words", "most"), [(0.1, 1, 1.4), (0.1, 2, 1.6), (0.3, 1, 2.3)])
def test_dealt_words_lie_in_other_banks(density: float, map_words: int, most: float) -> None:
    """Wavefronts of a turn: how many different words the fullest bank has to give."""
    sparse = generate.uniform(256, 512, 1 - density, 0)
    values = sparse.with_values(np.ones(sparse.nnz, np.uint16))

    def wavefronts(dealt: bool) -> float:
        packed = pack(values, map_words, 512, dealt=dealt)
        turns = turns_taken(packed, map_words)
        words = packed.stream.ravel()
        at = 4 * packed.offsets[:-1, None] + 32 * map_words
        starts = words[at + np.arange(16)].view(np.uint16) // 4
        rank = np.cumsum(turns, axis=2) - turns
        used = np.zeros((len(turns), turns.shape[2], 32), dtype=int)
        chunk, lane, turn = np.nonzero(turns)
        np.add.at(used, (chunk, turn, (starts[chunk, lane] + rank[chunk, lane, turn]) % 32), 1)
        full = turns.sum(axis=(1, 2)) > turns.sum(axis=(1, 2)).max() / 2  # not those of gathered columns
        return float(used[full].max(axis=2).mean())

    assert wavefronts(dealt=True) < most < wavefronts(dealt=False) - 0.2
    plain, dealt = pack(values, map_words, 512), pack(values, map_words, 512, dealt=True)
    assert np.array_equal(plain.offsets, dealt.offsets)
    found = unpacked(dealt, map_words, 512, 256, 512, "words")
    assert np.array_equal(found, unpacked(plain, map_words, 512, 256, 512, "words"))


def test_banks_are_dealt_alike_without_a_new_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = np.random.default_rng(0).integers(0, 1 << 20, (5, 32), dtype=np.uint32)
    usual = dealt_starts(turns)
    monkeypatch.delattr(np, "bitwise_count", raising=False)
    assert np.array_equal(dealt_starts(turns), usual)
    assert np.array_equal(dealt_starts(turns.astype(np.uint64)), usual)
    assert dealt_starts(turns[:0]).shape == (0, 32)
    assert not dealt_starts(np.zeros((1, 32), np.uint32)).any()


@pytest.mark.parametrize("form", get_args(Form))
@pytest.mark.parametrize(
    ("density", "map_words", "panel"), [(0.1, 1, 128), (0.5, 2, 512), (1.0, 1, 384), (0.0, 2, 256), (0.2, 4, 512)]
)
def test_packed_strips_hold_the_matrix(density: float, map_words: int, panel: int, form: Form) -> None:
    sparse = whole(matrix(45, 600, density, full=3 if density else -1), 1).sparse
    packed = pack(sparse, map_words, panel, multiple=4, form=form)
    assert packed.strips == 4
    assert packed.offsets.size == packed.panel_chunks[-1] + 1
    assert np.diff(packed.offsets).max() * 16 == packed.slot_bytes
    found = unpacked(packed, map_words, panel, 45, 600, form)
    assert np.array_equal(found, sparse.to_dense().astype(np.float64))


def test_gathered_columns_of_the_same_banks_are_loaded_apart() -> None:
    """Four columns of a group in one row leave two over: sixteen columns whose rows of B start in two banks."""
    dense = np.zeros((32, 512), dtype=np.float16)
    groups = np.arange(0, 512, 64)
    for row, group in enumerate(groups):
        dense[row, group : group + 4] = 1
    packed = pack(CSR.from_dense(dense), 1, 512)
    held = packed.stream[packed.offsets[4] :].ravel()
    head = 32 + 16
    assert held[head : head + 2].tolist() == [1, 1]  # steps, and that the step is narrow
    slots = held[head + 4 : head + 20].view(np.uint16)
    assert sorted(slots[:16]) == sorted([*(groups + 2), *(groups + 3)])
    assert [set(slots[at : at + 8] % 8) for at in (0, 8)] == [{2, 3}] * 2


def test_packing_in_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sparse = whole(matrix(200, 300, 0.4), 1).sparse
    one = pack(sparse, 1, 128)
    monkeypatch.setattr("nnzbench.kernels.tensor.strips._BLOCK_ELEMENTS", 1)
    some = pack(sparse, 1, 128)
    for name in ("stream", "offsets", "panel_chunks", "steps"):
        assert np.array_equal(getattr(one, name), getattr(some, name)), name


def test_values_that_are_zero_count_as_absent() -> None:
    sparse = CSR(
        1, 4, np.array([0, 3], np.int32), np.array([0, 1, 3], np.int32), np.array([0.0, -0.0, 2.0], np.float16)
    )
    packed = pack(sparse, 1, 128)
    assert np.count_nonzero(packed.stream.ravel()[:32]) == 1  # bits of one pair


@pytest.mark.parametrize("n", [1, 7, 8, 49, 64, 128, 256])
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90", "sm_120"])
def test_plans_fit_their_architecture(arch: str, n: int) -> None:
    data = operands(matrix(300, 1000, 0.3), n).cast("f16")
    plans = list(TensorSpmm().plans(problem(data, "f16"), data, arch))
    assert len({plan.variant for plan in plans}) == len(plans) > 0
    for plan in plans:
        assert plan.launches[0].shared_bytes * int(plan.defines["BLOCKS"]) <= block_shared_bytes(arch)
        assert plan.defines["BULK"] == int(arch in ("sm_90", "sm_120"))
        assert Job.of(plan, arch).arch == (arch + "a" if plan.defines["WIDE"] else arch)
        assert arch == "sm_90" or not plan.defines["WIDE"]


def test_wide_tiles_are_compiled_for_their_architecture_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(gpu, "build", lambda program: seen.append(program.arch) or 1 / 0)
    data = operands(matrix(32, 64, 0.3), 8).cast("f16")
    for tiling in TILINGS[:2]:
        with pytest.raises(ZeroDivisionError):
            gpu.build_plan(make_plan(problem(data, "f16"), data, tiling), "sm_90")
    assert seen == ["sm_90", "sm_90a"]


def test_older_tensor_cores_are_refused() -> None:
    data = operands(matrix(32, 64, 0.3), 8).cast("f16")
    with pytest.raises(Unsupported, match="2:4"):
        next(TensorSpmm().plans(problem(data, "f16"), data, "sm_75"))


def test_large_layers_fill_one_wave_or_several_better() -> None:
    def chosen(m: int, k: int) -> list[int]:
        sparse = CSR(m, k, np.zeros(m + 1, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float16))
        some = Problem("t", "t", "spmm", m, k, 16, 0.9, "uniform:0", "f16")
        return sorted({tiling.slices for tiling in tilings(some, sparse, "sm_90") if tiling.blocks == 2})

    assert chosen(8192, 8192) == [8]
    assert chosen(28672, 8192) == [2, 7]


@pytest.mark.parametrize("density", [0.01, 0.1, 0.3, 0.5, 0.7, 1.0])
def test_the_expected_bytes_are_those_of_a_packed_uniform_matrix(density: float) -> None:
    sparse = generate.uniform(512, 2048, 1 - density, 0)
    forms = []
    for form in get_args(Form):
        values = sparse.with_values(np.ones(sparse.nnz, np.uint16))
        packed = pack(values, 4 if form == "halves" else 2, 1024, form=form)
        expected = work.bytes_per_weight(density, form) * 512 * 2048
        assert 0.95 * packed.stream.nbytes < expected < 1.02 * packed.stream.nbytes
        forms.append(expected)
    shape = Problem("test", "test", "spmm", 512, 2048, 8, 1 - density, "uniform:0", "f16")
    # abs: the density is rounded
    assert work.structure_bytes(shape, sparse.nnz) + 2 * sparse.nnz == pytest.approx(min(forms), abs=64)


def test_registers_of_the_packed_matrix_are_the_words_expected() -> None:
    sparse = generate.uniform(512, 2048, 0.8, 0)
    packed = pack(sparse.with_values(np.ones(sparse.nnz, np.uint16)), 2, 1024)
    words = packed.stream.ravel()
    bits = [words[4 * at : 4 * at + 64] for at in packed.offsets[:-1]]  # two words of each lane
    held = int(np.unpackbits(np.concatenate(bits).view(np.uint8)).sum())
    assert work.words_per_weight(0.2) * 512 * 2048 == pytest.approx(held, rel=0.01)
    assert work.words_per_weight(0.0) == 0
