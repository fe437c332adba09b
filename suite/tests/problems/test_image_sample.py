"""Checking a sample of a large batch: as strict as checking all of it, for what goes wrong in kernels."""

from dataclasses import replace

import numpy as np
import pytest

from nnzbench.problems import image_sample
from nnzbench.problems.check import TOLERANCE, passes, relative_error
from nnzbench.problems.image_sample import ImageSample, sample_images
from nnzbench.problems.operands import make_operands
from nnzbench.problems.problem import ConvShape, Problem
from nnzbench.problems.reference import reference

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


def test_one_wrong_element_anywhere_fails(monkeypatch):
    *_, truth, result = made(monkeypatch)
    for image in range(40):
        wrong = result.copy()
        wrong[image, 2, 4, 3] += 1e-3 * truth.scale[0, 2, 4, 3]
        assert not passes(relative_error(wrong, truth), "f32"), image
    wrong = result.copy()
    wrong[17, 0, 0, 0] = np.nan
    assert relative_error(wrong, truth) == float("inf")


def test_images_in_each_others_place_or_shifted_fail(monkeypatch):
    *_, truth, result = made(monkeypatch)
    assert truth.sample is not None
    kept = set(truth.sample.images)
    first, second = [image for image in range(40) if image not in kept][3:5]
    swapped = result.copy()
    swapped[[first, second]] = result[[second, first]]
    assert not passes(relative_error(swapped, truth), "f32")
    assert not passes(relative_error(np.roll(result, 1, axis=3), truth), "f32")
    assert relative_error(result[:-1], truth) == float("inf")


def test_a_dropped_weight_fails(monkeypatch):
    problem, operands, truth, _ = made(monkeypatch)
    values = operands.sparse.values.copy()
    values[np.argmin(np.abs(values))] = 0.0
    monkeypatch.setattr(image_sample, "FEWEST_ELEMENTS", 1 << 30)
    less = reference(problem, replace(operands, sparse=operands.sparse.with_values(values)))
    assert not passes(relative_error(less.value.astype(np.float32), truth), "f32")


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
    assert one is not None
    assert two is not None
    assert (one.weights == two.weights).all()
    assert np.count_nonzero(one.weights) == 124
    assert sample_images(replace(large, batch=15)) is None
    assert sample_images(SHAPE) is None
