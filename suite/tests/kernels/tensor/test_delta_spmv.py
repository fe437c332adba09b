"""`delta_spmv` against float64 on the processor, and its packed chunks against the matrix that they hold."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from kernel_problems import assert_exact as exact
from kernel_problems import assert_spoils_its_users_alone, whole
from on_cpu import execute, matrix
from on_cpu import spmm_operands as operands
from on_cpu import spmm_problem as problem

from nnzbench.advise.operators.tokens import BIAS, by_tokens, rows_at, turns
from nnzbench.core.architectures import block_shared_bytes
from nnzbench.core.plan import Unsupported, bf16_bits
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.check import relative_error
from nnzbench.data.problems.reference import reference
from nnzbench.kernels.tensor.spmv import Form, delta_spmv, gated, make_plan, pack
from nnzbench.kernels.tensor.strips import stored_weights


def assert_exact(sparse, lanes, dtype="f16", build="plain", order="forward", arch="sm_90"):
    data = whole(sparse, 1, dtype)
    exact(make_plan(problem(data, dtype), data, arch, lanes, 2), problem(data, dtype), data, build, order)


def test_blocks_go_through_many_rows():
    """More rows than all warps take at once: the next row's first chunk travels while one is multiplied."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 3, 132 * 2 * 16 * 32 + 1000)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    assert_exact(CSR(lengths.size, 5, offsets, columns.astype(np.int32), np.ones(offsets[-1], np.float32)), 1)


def test_values_are_summed_in_fp32():
    data = operands(matrix(64, 900, 0.4), 1).cast("f16")
    for lanes in (1, 32):
        plan = make_plan(problem(data), data, "sm_90", lanes, 2)
        assert relative_error(execute(plan), reference(problem(data), data)) < 5e-4


def decoded(packed, form):
    """Each row's columns and values, by the words that the device reads."""
    words = np.concatenate([packed["near"], packed["far"].reshape(len(packed["near"]), -1)], axis=1)
    each = 30 // form.bits
    bits = [(0, 16 + form.bits * at) for at in range(each // 2)] + [
        (word, form.bits * at) for word in range(1, words.shape[1]) for at in range(each)
    ]
    steps = np.stack([words[:, word] >> np.uint32(bit) & np.uint32(2**form.bits - 1) for word, bit in bits], axis=1)
    steps = np.concatenate([words[:, :1] & 0xFFFF, steps + form.dealt], axis=1, dtype=np.int64)
    values = np.concatenate([packed["low"], packed["high"]], axis=1)
    rows = [slice(*ends) for ends in pairwise(packed["offsets"])]
    found = [(np.cumsum(steps[row], axis=1).ravel(), values[row].ravel()) for row in rows]
    return [(column[value != 0], value[value != 0]) for column, value in found]


@pytest.mark.parametrize("form", [Form(), Form(3), Form(5, 8), Form(3, 2), Form(5, 32)], ids=str)
def test_packed_chunks_hold_what_is_not_zero(form):
    """Steps of all lengths, the longest possible one, and zeros of either sign, which take no place."""
    rng = np.random.default_rng(form.bits)
    lengths = [0, 1, 16, 17, 129, 900, 2000, 6]
    among = [9, 9, 16, 300, 65536, 1000, 65536, 9]
    columns = [np.sort(rng.choice(*one, replace=False)) for one in zip(among, lengths, strict=True)]
    columns[-1] = np.array([0, 1, 34, 35, 600, 65535])
    values = rng.integers(-3, 4, sum(lengths)).astype(np.float16) * np.float16(-1)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    held = CSR(len(lengths), 65536, offsets, np.concatenate(columns).astype(np.int32), values)
    packed = pack(held, form)
    for row, (column, value) in enumerate(decoded(packed, form)):
        given = slice(offsets[row], offsets[row + 1])
        there = values[given] != 0
        order = np.argsort(column)
        np.testing.assert_array_equal(column[order], held.indices[given][there])
        np.testing.assert_array_equal(value[order].view(np.float16), values[given][there])


@pytest.mark.parametrize(
    ("m", "k", "n", "reason"), [(8, 8, 5, "4 columns"), (1, 70000, 1, "16 bits"), (0, 8, 1, "empty")]
)
def test_what_it_does_not_compute(m, k, n, reason):
    empty = CSR(m, k, np.zeros(m + 1, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))
    data = operands(empty, n).cast("f16")
    with pytest.raises(Unsupported, match=reason):
        next(delta_spmv.plans(problem(data), data, "sm_90"))


@pytest.mark.parametrize(("k", "n"), [(60000, 1), (30000, 2), (15000, 3)])
def test_vectors_that_do_not_fit_in_shared_memory(k, n):
    data = operands(matrix(4, k, 0.001), n).cast("f16")
    with pytest.raises(Unsupported, match="shared memory"):
        next(delta_spmv.plans(problem(data), data, "sm_86"))
    assert next(delta_spmv.plans(problem(data), data, "sm_90")).launches[0].shared_bytes <= block_shared_bytes("sm_90")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("n", "k", "build", "form"),
    [(2, 336, "plain", Form(3)), (3, 328, "asan", Form(5, 8)), (4, 335, "plain", Form()), (4, 344, "tsan", Form())],
)
def test_rows_of_tokens_and_fewer_of_them(n, k, build, form, dtype):
    """By the form of its own where k is a multiple of 8, and else between two turns; a bias is added to each."""
    data = whole(matrix(70, k, 0.3, empty=(4,), full=9), n, dtype)
    plan = by_tokens(make_plan(problem(data, dtype), data, "sm_90", 4, 2, form=form), data)
    expected = reference(problem(data, dtype), data).value
    assert np.array_equal(execute(plan, build), expected)
    assert turns(plan) == (k % 8 > 0)
    if turns(plan):
        return
    bias = np.arange(70) % 5
    plan.buffers[BIAS][:] = bf16_bits(bias.astype(np.float32)) if dtype == "bf16" else bias
    ((at, place),) = rows_at(plan)
    args = list(plan.launches[at].args)
    assert args[place] == n
    args[place] = n - 1
    fewer = execute(replace(plan, launches=(replace(plan.launches[at], args=tuple(args)),)), build)
    assert np.array_equal(fewer[:, : n - 1], expected[:, : n - 1] + bias[:, None])
    assert np.isnan(fewer[:, n - 1]).all()  # as poisoned


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_inf_and_nan_touch_only_the_rows_and_columns_that_use_them(n):
    data = whole(matrix(60, 700, 0.05, empty=(4,), full=9), n)
    data.dense["b"][7, n - 1], data.dense["b"][699, 0] = np.inf, np.nan
    others = [make_plan(problem(data), data, "sm_90", 8, 2, form=form) for form in (Form(3), Form(5, 8))]
    for plan in [*delta_spmv.plans(problem(data), data, "sm_90"), *others]:
        assert_spoils_its_users_alone(plan, data, 30 * n, 0)


def test_gates_let_their_rows_through():
    """A warp has both of 16 lanes; of more columns than one there is no such plan."""
    data = operands(matrix(50, 1100, 0.3), 1).cast("f16")
    gate, other = np.split(0.5 * reference(problem(data), data).value, 2)
    plans = list(gated(problem(data), data, "sm_90", "", 0.5))
    assert [plan.variant.split("_")[0] for plan in plans] == ["l16", "l16"]
    for plan in plans:
        np.testing.assert_allclose(execute(plan), gate / (1 + np.exp(-gate)) * other, rtol=2e-3, atol=2e-3)
    pair = operands(data.sparse, 2).cast("f16")
    assert not list(gated(problem(pair), pair, "sm_90", "", 0.5))


def test_weights_that_e4m3_has_no_number_for_are_zeros_whatever_their_sign():
    bits = stored_weights(np.array([1e-9, -1e-9, 0.0, -0.0, 1.0, -1.0], np.float32), "f8")
    assert not bits[:4].any()
    assert bits[5] == bits[4] | 0x80
