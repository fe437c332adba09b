import dataclasses

import numpy as np
import pytest
from kernel_problems import TRANSFORMER, mobilenet
from scipy.sparse import issparse

from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems import reference as module
from nnzbench.data.problems.operands import Maker, Operands, make_operands, round_to, storage_dtype
from nnzbench.data.problems.problem import ConvShape, Problem
from nnzbench.data.problems.reference import reference


def problem(op="spmm", m=7, k=9, n=5, conv=None, **changes):
    return Problem("t", "p", op, m, k, n, 0.5, "uniform:0", conv=conv, **changes)


def with_empty_rows(operands):
    dense = operands.sparse.to_dense()
    dense[[0, -1]] = 0
    return dataclasses.replace(operands, sparse=CSR.from_dense(dense))


def agree(found, value, scale, rtol=0.0):
    np.testing.assert_allclose(found.value, value, rtol=rtol, atol=1e-13)
    np.testing.assert_allclose(found.scale, scale, rtol=rtol, atol=1e-13)


@pytest.mark.parametrize(("op", "n"), [("spmm", 5), ("spmv", 1), ("gemm", 4)])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_products_agree_with_loops(op, n, dtype):
    asked = problem(op, n=n, dtype=dtype)
    operands = with_empty_rows(make_operands(asked))
    products = operands.sparse.to_dense().astype(float)[:, :, None] * operands.dense["b"]
    found = reference(asked, operands)
    assert found.value.dtype == np.float64
    agree(found, products.sum(axis=1), np.abs(products).sum(axis=1))
    assert (found.scale[[0, -1]] == 0).all()
    assert (found.scale[1:-1] > 0).all()


def test_sampled_products_agree_with_loops_in_the_order_of_the_pattern():
    asked = problem("sddmm", m=6, k=4, n=8)
    operands = with_empty_rows(make_operands(asked))
    a, b, pattern = operands.dense["a"].astype(float), operands.dense["b"].astype(float), operands.sparse
    expected = [
        (a[i] @ b[j], np.abs(a[i]) @ np.abs(b[j]))
        for i in range(pattern.m)
        for j in pattern.indices[pattern.offsets[i] : pattern.offsets[i + 1]]
    ]
    found = reference(asked, operands)
    np.testing.assert_allclose(np.stack([found.value, found.scale], axis=1), expected, rtol=1e-13)
    none = dataclasses.replace(operands, sparse=CSR.from_dense(np.zeros((6, 8), np.float32)))
    assert reference(asked, none).value.shape == (0,)


def test_softmax_agrees_with_loops_for_rows_empty_short_and_huge():
    dense = np.array([[0, 0, 0], [5, 0, 0], [1000, -1000, 999], [0, 0, 0]], np.float32)
    asked = problem("sparse_softmax", m=4, k=3, n=3)
    found = reference(asked, Operands(CSR.from_dense(dense), {}, ""))
    e = np.exp([0.0, -2000.0, -1.0])
    np.testing.assert_allclose(found.value, [1.0, *(e / e.sum())], rtol=1e-15)
    assert (found.scale == 1).all()


def convolution_loops(c, weights, x):
    """Cross-correlation, element by element: sums of products and of their magnitudes."""
    sums = np.zeros((2, *c.output))
    w = weights.reshape(c.filters, c.channels, c.r, c.s).astype(float)
    for image, filter_, y, z in np.ndindex(c.output):
        for channel, i, j in np.ndindex(c.channels, c.r, c.s):
            row, column = y * c.stride + i - c.pad_h, z * c.stride + j - c.pad_w
            if 0 <= row < c.height and 0 <= column < c.width:
                product = w[filter_, channel, i, j] * float(x[image, channel, row, column])
                sums[:, image, filter_, y, z] += product, abs(product)
    return sums


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        ("conv2d", ConvShape(2, 3, 5, 6, 4, 3, 3, 1, 1)),
        ("conv2d", ConvShape(1, 2, 7, 8, 3, 3, 2, 0, 1, stride=2)),
        ("conv2d", ConvShape(2, 4, 4, 4, 3, 1, 1, stride=3)),
        ("conv2d", ConvShape(1, 1, 3, 3, 2, 5, 5, 2, 2)),
        ("conv1d", ConvShape(2, 3, 1, 11, 4, 1, 5, 0, 2)),
        ("conv1d", ConvShape(1, 2, 1, 10, 3, 1, 4, 0, 0, stride=3)),
    ],
)
def test_convolutions_agree_with_loops(op, shape):
    k = shape.channels * shape.r * shape.s
    asked = problem(op, shape.filters, k, shape.batch * shape.out_height * shape.out_width, conv=shape)
    operands = make_operands(asked)
    agree(reference(asked, operands), *convolution_loops(shape, operands.sparse.to_dense(), operands.dense["x"]))


def test_a_row_is_normed_to_deviation_one_but_for_a_hundred_thousandth_in_its_square():
    x, gain, shift = np.array([[3.0, 3.0], [5e-3, -5e-3], [40.0, -40.0]]), np.array([2.0, 1.0]), np.array([0.5, -0.5])
    by = np.sqrt(np.array([1.0, 25e-6, 1600.0]) + 1e-5)
    wanted = (x - [[3.0], [0.0], [0.0]]) / by[:, None] * gain + shift
    np.testing.assert_allclose(module._norm(x, gain, shift), wanted)


def test_taps_are_the_inputs_below_each_output():
    c = ConvShape(2, 1, 7, 8, 1, 3, 2, 0, 1, stride=2)
    x = np.random.default_rng(0).standard_normal((2, 1, 7, 8))
    sums = sum((tap + 1) * plane for tap, plane in module.taps(c, x))
    np.testing.assert_allclose(sums, convolution_loops(c, np.arange(1, 7)[None], x)[0], rtol=0, atol=1e-13)


def test_bf16_rounds_to_nearest_even():
    """1, ties to the even neighbour below and above, beside a tie, signs, carry, overflow, zeros and subnormals."""
    bits = [0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0xBF808001, 0x3FFFFFFF, 0x7F7FFFFF, 0, 1 << 31]
    even = [0x3F800000, 0x3F800000, 0x3F820000, 0x3F810000, 0x3F800000, 0xBF810000, 0x40000000, 0x7F800000, 0, 1 << 31]
    found = round_to(np.array([*bits, 0x00018000], np.uint32).view(np.float32), "bf16")
    assert found.dtype == np.float32
    assert found.view(np.uint32).tolist() == [*even, 0x00020000]


def test_integers_are_thirty_seconds_and_never_overflow():
    found = round_to(np.array([0.0, 1.0, -0.5, 3.97, 9.0, -9.0, 0.6 / 32, -1.6 / 32], np.float32), "i8")
    assert found.dtype == np.int8
    assert found.tolist() == [0, 32, -16, 127, 127, -127, 1, -2]
    assert round_to(found, "i8").tolist() == found.tolist()
    some = problem("spmm", m=5, k=64, n=3, dtype="i8")
    expected = reference(some, make_operands(some)).value
    assert np.array_equal(expected, np.rint(expected))


def test_e4m3_keeps_four_bits_of_every_value_from_a_4096th_to_seven():
    found = round_to(np.array([0.0, 1.0, 1.06, 1.07, -9.0, 1 / 4096, 1e-6], np.float32), "f8")
    assert found.tolist() == [0.0, 1.0, 1.0, 1.125, -7.0, 1 / 4096, 0.0]
    normal = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    held = round_to(normal, "f8")
    assert np.array_equal(round_to(held, "f8"), held)
    ordinary = np.abs(normal) > 1 / 4096
    assert np.max(np.abs(held - normal)[ordinary] / np.abs(normal)[ordinary]) <= 1 / 16


def test_casting_rounds_every_array_and_keeps_the_pattern():
    exact = make_operands(problem("sddmm", m=6, k=4, n=8))
    for dtype in ("f32", "f16", "bf16", "i8", "f8"):
        cast = exact.cast(dtype)
        pairs = ((exact.dense[n], cast.dense[n]) for n in "ab")
        for before, after in [(exact.sparse.values, cast.sparse.values), *pairs]:
            assert after.dtype == storage_dtype(dtype)
            assert np.array_equal(after, round_to(before, dtype))
        assert cast.pattern == exact.pattern == cast.sparse.pattern_hash()
    assert np.array_equal(exact.cast("f16").dense["a"], exact.dense["a"].astype(np.float16))


def test_the_same_problem_gives_the_same_bits_and_another_seed_others():
    def bits(asked):
        made = make_operands(asked)
        return (made.pattern, made.sparse.values.tobytes(), *(array.tobytes() for array in made.dense.values()))

    first = bits(problem(seed=3))
    assert bits(problem(seed=3)) == first
    pattern, values, b = bits(problem(seed=4))
    assert pattern == first[0]  # drawn from the source's own seed
    assert values != first[1]
    assert b != first[2]
    other = dataclasses.replace(problem(seed=3), source="uniform:1")
    assert bits(other)[0] != first[0]


def test_problems_of_one_matrix_in_a_row_share_it():
    def one(n, **changed):
        given = {"op": "spmm", "sparsity": 0.5, "source": "uniform:0", "dtype": "f16", **changed}
        return Problem("test", f"n{n}", m=6, k=8, n=n, **given)

    maker = Maker()
    others = ({"dtype": "f32"}, {"sparsity": 0.25}, {"seed": 1}, {}, {"sparsity": 0.75})
    problems = [one(4), one(7), *(one(7, **changed) for changed in others)]
    made = [maker.operands(problem) for problem in problems]
    assert made[0].sparse is made[1].sparse
    assert len({id(operands.sparse) for operands in made}) == 6
    for problem, operands in zip(problems, made, strict=True):
        alone = make_operands(problem)
        assert operands.pattern == alone.pattern
        assert operands.sparse.values.dtype == alone.sparse.values.dtype
        np.testing.assert_array_equal(operands.sparse.to_dense(), alone.sparse.to_dense())
        np.testing.assert_array_equal(operands.dense["b"], alone.dense["b"])


@pytest.mark.parametrize(
    ("op", "shapes"), [("spmm", {"b": (9, 5)}), ("sddmm", {"a": (7, 9), "b": (5, 9)}), ("sparse_softmax", {})]
)
def test_dense_operands_have_the_documented_shapes_and_no_zeros(op, shapes):
    operands = make_operands(problem(op, n=5 if op != "sparse_softmax" else 9))
    assert {name: array.shape for name, array in operands.dense.items()} == shapes
    assert all(array.all() for array in operands.dense.values())


@pytest.mark.parametrize("op", ["spmm", "conv2d"])
def test_dense_and_sparse_references_agree_in_blocks_and_leave_their_operands_alone(op, monkeypatch):
    conv = ConvShape(2, 6, 7, 5, 8, 3, 3, 1, 1) if op == "conv2d" else None
    asked = problem(op, m=8, k=54, n=11, conv=conv)
    operands = with_empty_rows(make_operands(asked))
    before = [operands.sparse.values.copy(), *(array.copy() for array in operands.dense.values())]
    taken = []

    def left(matrix, columns, real=module._left):
        taken.append(real(matrix, columns))
        return taken[-1]

    monkeypatch.setattr(module, "_left", left)
    dense = reference(asked, operands)
    assert all(map(np.array_equal, before, [operands.sparse.values, *operands.dense.values()]))
    monkeypatch.setattr(module, "DENSE_REFERENCE", 99)
    sparse = reference(asked, operands)
    assert [issparse(matrix) for matrix in taken] == [False, True]  # half of the weights are zero
    monkeypatch.setattr(module, "BLOCK", 2 * 54 * 5)  # two rows of outputs at a time
    for found in (sparse, reference(asked, operands)):
        agree(found, dense.value, dense.scale, rtol=1e-13)
        np.testing.assert_array_equal(dense.scale == 0, found.scale == 0)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_picked_and_gathered_sampled_products_agree(dtype, monkeypatch):
    asked = problem("sddmm", m=23, k=12, n=17, dtype=dtype)
    operands = with_empty_rows(make_operands(asked))
    taken = []
    for name in ("_picked_products", "_gathered_products"):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, name=name, real=real: taken.append(name) or real(*given))
    for name, value in {"SUMS": 0, "PART_ELEMENTS": 0, "FEWEST": 5}.items():  # five rows and features at a time
        monkeypatch.setattr(module, name, value)
    before = {name: array.copy() for name, array in operands.dense.items()}
    picked = reference(asked, operands)
    monkeypatch.setattr(module, "DENSE_SDDMM", 1)
    gathered = reference(asked, operands)
    assert taken == ["_picked_products", "_gathered_products"]
    agree(picked, gathered.value, gathered.scale, rtol=1e-13)
    assert all(np.array_equal(before[name], operands.dense[name]) for name in before)


@pytest.mark.parametrize(("m", "sparsity"), [(23, 0.0), (23, 0.99), (21, 0.5), (1, 0.5), (20, 0.5)])
def test_products_in_blocks_agree_with_whole_ones(m, sparsity, monkeypatch):
    asked = dataclasses.replace(problem("spmm", m=m, k=40, n=17), sparsity=sparsity)
    operands = make_operands(asked)
    a, b = operands.sparse.to_dense().astype(float), operands.dense["b"].astype(float)
    for name, value in {"BLOCK": 5 * 40, "PART_ELEMENTS": 0, "FEWEST": 3}.items():
        monkeypatch.setattr(module, name, value)
    agree(reference(asked, operands), a @ b, np.abs(a) @ np.abs(b), rtol=1e-13)


def test_an_empty_row_of_a_step_with_bias_is_measured_by_its_bias():
    asked = problem("pointwise", n=5)
    operands = with_empty_rows(make_operands(asked))
    found, bias = reference(asked, operands), operands.dense["bias"].astype(float)
    empty = operands.sparse.row_lengths == 0
    assert empty.any()
    np.testing.assert_allclose(found.scale[empty], np.repeat(np.abs(bias[empty])[:, None], 5, axis=1))
    np.testing.assert_allclose(found.value[empty], np.repeat(np.maximum(bias[empty], 0)[:, None], 5, axis=1))


def test_scores_of_attention_have_deviation_one_by_their_queries():
    dense = make_operands(problem("attention", m=90, k=300, n=25)).dense
    assert [dense[name].std() for name in "qkv"] == pytest.approx([0.2, 1.0, 1.0], rel=0.05)


def test_a_transformer_is_measured_by_all_that_its_residual_stream_adds_up():
    """Without attention, and where all that is added is positive, the sums are the results themselves."""
    given = make_operands(TRANSFORMER)
    changed = {"o": np.zeros_like, "down": np.abs}
    dense = {name: changed.get(name.rpartition(".")[2], np.asarray)(array) for name, array in given.dense.items()}
    found = reference(TRANSFORMER, dataclasses.replace(given, dense=dense))
    x = dense["x"].astype(float)
    np.testing.assert_allclose(found.scale - np.abs(x), found.value - x, atol=1e-12)
    assert (found.value > x).any()


def test_attention_is_measured_by_the_magnitudes_of_what_it_adds_up():
    asked = problem("attention", m=9)
    given = make_operands(asked)
    positive = dataclasses.replace(given, dense={**given.dense, "v": np.abs(given.dense["v"])})
    np.testing.assert_allclose(reference(asked, positive).value, reference(asked, given).scale)


def test_no_sum_is_larger_than_those_of_its_magnitudes():
    conv = ConvShape(1, 3, 5, 5, 4, 3, 3, 1, 1)
    products = [problem(), problem("sddmm"), problem("pointwise"), problem("conv2d", 4, 27, 25, conv)]
    for asked in (*products, problem("attention", m=9), TRANSFORMER, mobilenet(0.5)):
        found = reference(asked, make_operands(asked))
        assert (np.abs(found.value) <= found.scale * (1 + 1e-12)).all(), asked.op
        assert found.value.any()
