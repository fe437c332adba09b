"""PatDNN's storage against what it stores, and its kernel against float64 on the processor."""

from dataclasses import replace

import numpy as np
import pytest
from on_cpu import check, conv_layer, execute

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.encodings import Kernels
from nnzbench.data.matrices.formats import CSR, MatrixError
from nnzbench.data.matrices.prune import patterns
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import ConvShape
from nnzbench.kernels.pattern_conv import STEPS, PatternTiling, make_plan

# odd sizes, a tile wider than the image, stride, no padding, one channel, more filters than a block has, one filter
SHAPES = (
    ConvShape(2, 5, 9, 7, 11, 3, 3, 1, 1),
    ConvShape(1, 20, 14, 14, 9, 3, 3, 1, 1),
    ConvShape(1, 7, 17, 36, 6, 3, 3, 1, 1, 2),
    ConvShape(3, 1, 6, 40, 1, 3, 3),
    ConvShape(1, 9, 3, 3, 34, 3, 3, 1, 1),
)


def layer(shape, dtype="f32", chosen="top8", mode="uneven", sparsity=0.8, seed=0):
    problem, data = conv_layer(shape, dtype)
    weights = patterns(shape.filters, 9 * shape.channels, sparsity, chosen, mode, seed)
    return problem, Operands(weights, data.dense, weights.pattern_hash()).cast(dtype)


def kernels(filters=24, channels=16, chosen="top8", mode="uneven"):
    return Kernels.of(patterns(filters, 9 * channels, 0.8, chosen, mode, 0))


@pytest.mark.parametrize(("width", "words"), [(20, "do not fit rows of 20"), (18, "has 3 weights, a pattern 4")])
def test_what_is_no_pattern_is_refused(width, words):
    dense = np.zeros((2, width), np.float32)
    dense[0, :3] = 1
    with pytest.raises(MatrixError, match=words):
        Kernels.of(CSR.from_dense(dense))


def test_more_patterns_than_have_code_are_refused():
    weights = np.random.default_rng(0).standard_normal((64, 9))
    weights[np.argsort(np.argsort(np.abs(weights), axis=1), axis=1) < 5] = 0
    problem, data = conv_layer(ConvShape(1, 1, 8, 8, 64, 3, 3, 1, 1))
    with pytest.raises(Unsupported, match="more than 16"):
        make_plan(problem, replace(data, sparse=CSR.from_dense(weights)), PatternTiling(), "sm_90")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_step_convolves_awkward_sizes_under_sanitizers(shape):
    problem, data = layer(shape)
    for build, (name, tiling) in zip(("asan", "plain", "plain", "tsan"), STEPS.items(), strict=True):
        plan = make_plan(problem, data, replace(tiling, warps=2, channels=4), "sm_90", name)
        check(plan, problem, data, build, "random:2")


@pytest.mark.parametrize(
    ("shape", "tiling", "dtype", "chosen"),
    [
        (SHAPES[0], PatternTiling(8, 7, 2, 2, 4, 1), "f16", "top12"),
        (SHAPES[1], PatternTiling(16, 7, 4, 2, 16), "f16", "top6"),
        (SHAPES[1], PatternTiling(16, 4, 4, 1, 32, 1), "f32", "centre8"),
        (SHAPES[2], PatternTiling(8, 2, 1, 2, 4), "f16", "pr8"),
        (SHAPES[4], PatternTiling(8, 14, 16, 2, 8), "f32", "top12"),
    ],
)
def test_tilings_types_and_libraries(shape, tiling, dtype, chosen):
    problem, data = layer(shape, dtype, chosen)
    for build in ("asan", "tsan") if tiling.stages == 1 else ("asan",):
        check(make_plan(problem, data, tiling, "sm_90"), problem, data, build)


def test_a_layer_without_kernels_gives_zeros():
    shape = SHAPES[0]
    problem, data = conv_layer(shape)
    nothing = CSR.from_dense(np.zeros((shape.filters, 9 * shape.channels), np.float32))
    data = replace(data, sparse=nothing)
    assert not execute(make_plan(problem, data, PatternTiling(filters=2), "sm_90")).any()
