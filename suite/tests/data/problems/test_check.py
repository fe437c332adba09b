"""The check of results, of all images or a sample, in parts; and which buffers of a plan are weights."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from nnzbench.data.problems import check, image_sample
from nnzbench.data.problems.buffers import inputs, weights_of
from nnzbench.data.problems.check import TOLERANCE, Wrong, held, passes, relative_error
from nnzbench.data.problems.image_sample import ImageSample, sample_images
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.parts import over_parts
from nnzbench.data.problems.problem import ConvShape, Problem
from nnzbench.data.problems.reference import Reference, reference
from nnzbench.kernels.registry import kernels

VALUE = np.array([[1.0, -2.0], [3.0, 0.5]])
SCALE = np.array([[4.0, 8.0], [3.0, 2.0]])


def truth(value=VALUE, scale=SCALE):
    return Reference(np.array(value, np.float64), np.array(scale, np.float64))


def test_the_error_is_the_largest_one_measured_by_the_products_that_were_summed():
    result = VALUE.astype(np.float32)
    assert relative_error(result, truth()) == 0
    result[0, 1] += 0.5  # 0.5 of 8
    result[1, 0] += 0.125  # 0.125 of 3
    assert relative_error(result, truth()) == 0.0625
    for near, passing in ((5e-4, True), (5e-2, False)):  # cancellation is not blamed on the kernel
        assert passes(relative_error(np.array([near], np.float32), truth([1e-9], [1000.0])), "f32") == passing


@pytest.mark.parametrize("shape", [(4,), (2, 1), (2, 2, 1), (3, 2), (0,)])
def test_a_wrong_shape_fails_even_where_it_could_be_broadcast(shape):
    assert relative_error(np.ones(shape, np.float32), truth(np.ones((2, 2)), np.ones((2, 2)))) == float("inf")


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_where_nothing_is_summed_the_result_is_exactly_zero(dtype):
    empty_row = truth([[0.0, 0.0], [3.0, 0.5]], [[0.0, 0.0], [3.0, 2.0]])
    result = np.array([[0.0, -0.0], [3.0, 0.5]], dtype)
    assert relative_error(result, empty_row) == 0
    for least in (np.finfo(dtype).smallest_subnormal, dtype(1), dtype(np.nan)):
        result[0, 1] = least
        assert relative_error(result, empty_row) == float("inf")
    assert relative_error(np.zeros((0, 3), dtype), truth(np.zeros((0, 3)), np.zeros((0, 3)))) == 0


@pytest.fixture
def many_parts(monkeypatch):
    """Parts of six elements, so that small results are checked in many."""
    monkeypatch.setattr(check, "over_parts", lambda work, shape: over_parts(work, shape, 6))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("shape", [(200,), (40, 5), (5, 40), (3, 4, 5, 7)])
def test_the_error_found_in_parts_is_that_of_the_whole(shape, dtype, many_parts):
    rng = np.random.default_rng(1)
    value, scale = rng.standard_normal(shape), rng.uniform(1, 2, shape)
    value[0] = scale[0] = 0
    result = value.astype(dtype)
    least = float(np.finfo(np.float16).smallest_subnormal) / 2 if dtype == np.float16 else 0.0
    expected = ((np.abs(result - value) - least)[1:] / scale[1:]).max()
    assert relative_error(result, truth(value, scale)) == pytest.approx(expected, rel=1e-12)
    for place in (0, result.size // 2, -1):
        for bad in (np.nan, np.inf, -np.inf):
            wrong = result.copy()
            wrong.flat[place] = bad
            error = relative_error(wrong, truth(value, scale))
            assert error == float("inf")
            assert not any(passes(error, math) for math in TOLERANCE)
    wrong = result.copy()
    wrong.flat[0] = np.finfo(dtype).smallest_subnormal  # where nothing is summed
    assert relative_error(wrong, truth(value, scale)) == float("inf")


def test_half_a_subnormal_step_is_no_error_of_fp16_and_more_is():
    step = float(np.finfo(np.float16).smallest_subnormal)
    between = truth([0.5 * step], [step])  # no fp16 number is nearer than half a step
    for nearest in (0.0, step):
        assert relative_error(np.array([nearest], np.float16), between) == 0
    assert not passes(relative_error(np.array([2 * step], np.float16), between), "f16")
    assert not passes(relative_error(np.array([0.0], np.float32), between), "f32")


def test_each_class_passes_up_to_its_own_tolerance_and_others_are_defects():
    for math, most in TOLERANCE.items():
        errors = (0.0, most, most * 1.01 + 1e-12, float("nan"))
        assert [passes(error, math) for error in errors] == [True, True, False, False]
    with pytest.raises(KeyError):
        passes(0.0, "fp8")


def test_tolerances_are_above_the_rounding_of_their_class_and_below_its_double():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 64, 4096)).astype(np.float32)
    exact = truth((a.astype(float) * b).sum(axis=1), np.abs(a.astype(float) * b).sum(axis=1))
    assert passes(relative_error((a * b).sum(axis=1), exact), "f32")
    halved = (a.astype(np.float16).astype(np.float32) * b).sum(axis=1)  # operands of 11 bits are not fp32
    assert not passes(relative_error(halved, exact), "f32")
    assert passes(relative_error(halved, exact), "tf32")
    one_missing = (a[:, 1:] * b[:, 1:]).sum(axis=1)
    assert not passes(relative_error(one_missing, exact), "f32")


@pytest.mark.parametrize(
    ("math", "products"),
    [("f32", 100_000), ("winograd", 25_000), ("tf32", 500), ("f16", 500), ("bf16", 62.5), ("i8", 1e9),
     ("f16_sums", 250), ("f8", 500), ("i4", 62.5), ("f8_network", 25)],
)  # fmt: skip
def test_one_of_so_many_equal_products_that_is_missing_passes_and_of_fewer_fails(math, products):
    def passing(products):
        return passes(relative_error(np.array([products - 1.0]), truth([products], [products])), math)

    assert not passing(0.98 * products)
    assert passing(1.02 * products) == (math != "i8")


def told(result, of, math="f32"):
    with pytest.raises(Wrong) as refused:
        held(result, of, math, "here: ")
    assert refused.value.error == relative_error(result, of)
    assert str(refused.value).startswith("here: ")
    return str(refused.value).removeprefix("here: ")


def test_a_wrong_result_tells_what_is_wrong_with_it():
    result = VALUE.astype(np.float32)
    assert held(result + 1e-5, truth(), "f32") == relative_error(result + 1e-5, truth()) > 0
    assert told(result + 1, truth()) == "relative error 0.5 is outside the f32 tolerance"
    assert told(np.ones((2, 3), np.float32), truth()) == "the output is 2 x 3, not 2 x 2"
    result[1, 0] = np.inf
    assert told(result, truth()) == "1 of 4 elements are infinite, first at (1, 0)"
    result[0, 1] = np.nan
    assert told(result, truth()) == "1 of 4 elements are NaN, first at (0, 1): never written, or computed so"
    result[...] = np.nan
    assert told(result, truth()) == "all 4 elements are NaN, first at (0, 0): never written, or computed so"
    assert told(result.astype(np.float64), truth()).startswith("the output is float64, not float32: all 4 elements")
    counted = np.array([[1, np.iinfo(np.int32).max - 1], [3, np.iinfo(np.int32).max]], np.int32)
    assert told(counted, truth(), "i8").startswith("1 of 4 elements are 2147483647, first at (1, 1): never written")
    assert told(counted, truth(), "f16").startswith("the output is int32, not float16: 1 of 4")


def test_what_must_be_zero_and_is_not_is_told():
    result, empty = np.array([[1.0, -2.0], [0.0, 0.5]], np.float32), truth([[1.0, -2.0], [0, 0]], [[4.0, 8.0], [0, 0]])
    assert told(result, empty) == "row 1 is empty and must be 0, and has 0.5 at (1, 1)"
    one = truth([[1.0, 0.0]], [[0.5, 0.0]])
    assert told(result[:1], one) == "nothing is summed at (0, 1), which must be 0 and is -2"
    assert told(result[0], truth([1.0, 0.0], [4.0, 0.0])) == "nothing is summed at (1), which must be 0 and is -2"


def test_of_a_sampled_batch_the_image_is_told():
    sample = ImageSample((0, 3), np.array([0.0, 1.0, -1.0, 0.0]))
    batch = np.zeros((4, 2), np.float32)
    batched = Reference(np.zeros((3, 2)), np.array([[1.0, 0.0]] * 3), sample)
    assert told(batch[:3], batched) == "the output is 3 x 2, not 4 x 2"
    for image in range(4):
        wrong = batch.copy()
        wrong[image, 1] = 1.5
        assert told(wrong, batched) == f"nothing is summed at ({image}, 1), which must be 0 and is 1.5"
        wrong[image, 1] = np.nan
        assert told(wrong, batched).startswith(f"1 of 8 elements are NaN, first at ({image}, 1)")


def test_the_first_wrong_element_is_told_in_the_order_of_rows():
    ones = np.ones((3, 4, 5, 7), np.float32)
    for at in ((0, 0, 0, 0), (1, 2, 2, 3), (2, 3, 4, 6)):
        wrong = ones.copy()
        wrong[at] = wrong.flat[-1] = np.nan
        count = np.isnan(wrong).sum()
        for result in (wrong, np.asfortranarray(wrong)):  # as results come that are transposed
            assert told(result, truth(ones, ones)).startswith(f"{count} of 420 elements are NaN, first at {at}: never")


SHAPE = ConvShape(40, 3, 9, 7, 5, 3, 3, 1, 1)


def made(monkeypatch, dtype="f32"):
    """A problem, its operands, the reference of its sample, and a right result in the problem's dtype."""
    problem = Problem("t", "t", "conv2d", 5, 27, 40 * 63, 0.6, "uniform:0", dtype, conv=SHAPE)
    operands = make_operands(problem)
    whole = reference(problem, operands)
    assert whole.sample is None
    monkeypatch.setattr(image_sample, "FEWEST_ELEMENTS", 1000)
    sampled = reference(problem, operands)
    assert sampled.value.shape == (5, 5, 9, 7)
    return problem, operands, sampled, whole.value.astype(operands.dense["x"].dtype)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_a_right_result_passes_well_within_the_tolerance(dtype, monkeypatch):
    *_, truth, result = made(monkeypatch, dtype)
    assert relative_error(result, truth) < (TOLERANCE[dtype] / 30 if dtype == "f32" else TOLERANCE[dtype] / 2)


def test_wrong_elements_swapped_or_shifted_images_and_dropped_weights_fail(monkeypatch):
    problem, operands, truth, result = made(monkeypatch)
    for image in range(40):
        wrong = result.copy()
        wrong[image, 2, 4, 3] += 1e-3 * truth.scale[0, 2, 4, 3]
        assert not passes(relative_error(wrong, truth), "f32"), image
    wrong[17, 0, 0, 0] = np.nan
    assert relative_error(wrong, truth) == relative_error(result[:-1], truth) == float("inf")
    assert relative_error(np.concatenate([result, result[:1]]), truth) == float("inf")
    others = [image for image in range(40) if image not in truth.sample.images][3:5]
    swapped = result.copy()
    swapped[others] = result[others[::-1]]
    values = operands.sparse.values.copy()
    values[np.argmin(np.abs(values))] = 0.0
    monkeypatch.setattr(image_sample, "FEWEST_ELEMENTS", 1 << 30)
    less = reference(problem, replace(operands, sparse=operands.sparse.with_values(values))).value.astype(np.float32)
    for wrong in (swapped, np.roll(result, 1, axis=3), less):
        assert not passes(relative_error(wrong, truth), "f32")


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("channels_last", [False, True])
def test_the_sum_found_in_parts_is_that_of_whole_images(dtype, channels_last, monkeypatch):
    monkeypatch.setattr(image_sample, "SUMMED_ELEMENTS", 50)
    batch = np.random.default_rng(2).standard_normal((9, 3, 9, 7)).astype(dtype)
    if channels_last:
        batch = np.ascontiguousarray(batch.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    kept = batch.copy()
    weights = np.array([0, 0.5, -1.5, 0, 1, -1, 0.75, 1.25, 0])
    sample = ImageSample((0, 3, 8), weights)
    exact = batch.astype(np.float64)
    taken, magnitudes = sample.of(batch), sample.magnitudes(batch)
    np.testing.assert_array_equal(taken[:3], exact[[0, 3, 8]])
    np.testing.assert_array_equal(magnitudes[:3], np.abs(exact[[0, 3, 8]]))
    np.testing.assert_allclose(taken[3], np.tensordot(weights, exact, 1), rtol=0, atol=1e-14)
    expected = np.tensordot(np.abs(weights), np.abs(exact), 1) / np.sqrt(6)
    np.testing.assert_allclose(magnitudes[3], expected, rtol=1e-13)
    np.testing.assert_array_equal(batch, kept)


def test_only_large_batches_are_sampled_and_always_alike():
    large = ConvShape(128, 64, 56, 56, 64, 3, 3, 1, 1)
    one, two = sample_images(large), sample_images(large)
    assert (one.weights == two.weights).all()
    assert (one.images, np.count_nonzero(one.weights)) == ((0, 1, 64, 127), 124)
    assert (np.sign(one.weights).min(), np.sign(one.weights).max()) == (-1, 1)
    tall = replace(large, height=112, width=112)  # sixteen of which are enough elements
    assert [sample_images(replace(tall, batch=batch)) is None for batch in (15, 16)] == [True, False]
    assert sample_images(SHAPE) is None


@pytest.mark.parametrize("shape", [(1,), (100,), (7, 13), (13, 7), (1, 1, 91), (2, 3, 5, 7), (0,), (0, 4), (4, 0)])
@pytest.mark.parametrize("elements", [1, 6, 10, 1000])
def test_parts_cover_the_array_once_and_are_no_larger_than_asked(shape, elements):
    seen = np.zeros(shape, int)
    lock = threading.Lock()

    def count(part):
        with lock:
            seen[part] += 1
        return seen[part].size

    sizes = over_parts(count, shape, elements)
    assert (seen == 1).all()
    assert all(size <= elements for size in sizes)


def test_parts_come_back_in_order_as_runs_of_memory_and_what_goes_wrong_in_one_is_raised():
    array = np.arange(60).reshape(3, 4, 5)
    parts = over_parts(lambda part: array[part].ravel(), array.shape, 10)
    np.testing.assert_array_equal(np.concatenate(parts), np.arange(60))
    with pytest.raises(ZeroDivisionError):
        over_parts(lambda part: 1 / 0, (10,), 2)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("kernel", ["tensor_spmm", "row_stream"])
def test_neither_operands_nor_result_nor_workspace_are_weights(kernel, dtype):
    problem = Problem("t", "p", "spmm", 128, 256, 16, 0.7, "uniform:1", dtype)
    operands = make_operands(problem)
    for plan in kernels()[kernel].plans(problem, operands, "sm_90"):
        names = weights_of(plan, operands)
        assert inputs(plan, operands) == {"b": "b"}
        assert names
        assert not {"b", plan.output} & set(names)
        left = [array for name, array in plan.buffers.items() if name not in {*names, "b", plan.output}]
        assert not any(map(np.any, left))
