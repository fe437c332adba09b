"""PatDNN's storage against what it stores, and its kernel against float64 on the processor."""

from dataclasses import replace

import numpy as np
import pytest
from on_cpu import check, conv_layer, execute

from nnzbench.core.architectures import block_shared_bytes
from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.encodings import Kernels, reordered, structure_bytes
from nnzbench.data.matrices.formats import CSR, MatrixError
from nnzbench.data.matrices.prune import patterns
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import ConvShape
from nnzbench.kernels import pattern_conv
from nnzbench.kernels.pattern_conv import STEPS, PatternTiling, input_loads, make_plan, pack

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


def test_filters_are_reordered_by_length_and_fkw_keeps_two_bytes_a_kernel():
    found = kernels()
    order = reordered(found)
    assert sorted(order.tolist()) == list(range(24))
    assert (np.diff(found.lengths[order]) <= 0).all()
    count = found.lengths.sum()
    arrays = (
        (25, np.int32),
        (24, np.uint16),
        (count, np.uint16),
        ((24, 9), np.uint16),
    )  # offset, reorder, index, stride
    assert structure_bytes(24, int(count), 8) == sum(np.zeros(*array).nbytes for array in arrays)


def test_filters_of_one_length_stand_beside_the_most_similar():
    dense = np.zeros((4, 3, 9), np.float32)
    for filter, channels in enumerate(((0, 1), (1, 2), (0, 1), (1, 2))):
        dense[filter, list(channels), :4] = 1
    assert reordered(Kernels.of(CSR.from_dense(dense.reshape(4, 27)))).tolist() == [0, 2, 1, 3]


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


def test_kernels_that_two_filters_share_are_stored_side_by_side():
    found = kernels(mode="balanced")
    twice = replace(found, filter=np.concatenate([found.filter, found.filter + 24]), filters=48,
                    channel=np.tile(found.channel, 2), pattern=np.tile(found.pattern, 2),
                    values=np.concatenate([found.values, -found.values]))  # fmt: skip
    order = reordered(twice)
    packed = pack(twice, order, PatternTiling(filters=2))
    of_lists = np.diff(packed["starts"]).reshape(-1, 3)
    assert of_lists[:, 1:].sum() == 0
    assert np.array_equal(np.abs(packed["weights"][:-2:2]), np.abs(packed["weights"][1:-2:2]))
    assert input_loads(twice, PatternTiling(filters=2)) == input_loads(found, PatternTiling(filters=1))


def test_loads_by_hand():
    dense = np.zeros((1, 1, 9), np.float32)
    dense[0, 0, [1, 4, 7, 8]] = 1  # a column of three and one beside its foot
    one = Kernels.of(CSR.from_dense(dense.reshape(1, 9)))
    assert input_loads(one, PatternTiling(rows=4, reuse=False)) == 16
    assert input_loads(one, PatternTiling(rows=4)) == 6 + 4
    assert input_loads(one, PatternTiling(rows=4), stride=2) == 9 + 4


LARGE = (ConvShape(1, 512, 14, 14, 512, 3, 3, 1, 1), ConvShape(8, 3, 224, 224, 64, 3, 3, 1, 1))


@pytest.mark.parametrize("arch", ["sm_70", "sm_90"])
@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_tilings_fit_and_have_names_of_their_own(shape, arch):
    found = pattern_conv.tilings(shape, shape.filters * shape.channels // 4, 4, arch)
    assert len({one.name for one in found}) == len(found) == pattern_conv.CANDIDATES
    for one in found:
        plane = pattern_conv.Staged.of(shape, one, 4).plane
        assert one.stages * one.channels * plane * 4 <= block_shared_bytes(arch)
