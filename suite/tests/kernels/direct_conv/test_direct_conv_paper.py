"""The published direct sparse convolution against float64 on the processor: its blocks, entries and variants."""

from dataclasses import replace

import numpy as np
import pytest
from on_cpu import conv_layer, error_of, execute

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices import encodings
from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.problem import ConvShape
from nnzbench.data.problems.reference import reference
from nnzbench.kernels.direct_conv import paper as direct_conv_paper
from nnzbench.kernels.direct_conv.paper import SUB_BATCHES, entries, unified

IMAGES = (
    ConvShape(5, 3, 7, 9, 6, 3, 3, 1, 1),
    ConvShape(3, 5, 18, 34, 4, 3, 3, 0, 0, 2),
    ConvShape(1, 40, 4, 4, 3, 5, 5, 2, 2),
    ConvShape(4, 9, 8, 8, 5, 1, 1),
)
# outputs of 1, 7, 49 and 51; padding, stride, batch 1; 599 in three blocks of 200 (one thread is idle); one column
SIGNALS = (
    ConvShape(1, 6, 1, 3, 5, 1, 3),
    ConvShape(3, 9, 1, 7, 4, 1, 1),
    ConvShape(9, 12, 1, 49, 7, 1, 3, 0, 1),
    ConvShape(2, 4, 1, 101, 3, 1, 5, 0, 2, 2),
    ConvShape(2, 3, 1, 600, 3, 1, 2),
    ConvShape(3, 5, 31, 1, 4, 3, 1, 1, 0),
)
WIDE = ConvShape(1, 70, 30, 30, 3, 3, 3, 1, 1)
"""Offsets of more than 16 bits."""


def plans(problem, operands):
    return {plan.variant: plan for plan in direct_conv_paper.plans(problem, operands)}


@pytest.mark.parametrize("shape", IMAGES + SIGNALS, ids=str)
def test_the_published_variants_convolve(shape):
    problem, operands = conv_layer(shape, empty=(1,), full=0)
    found = plans(problem, operands)
    truth = reference(problem, operands)
    padded = bool(shape.pad_h or shape.pad_w)
    assert len(found) >= (12 if padded else 9)  # a few weights are a codebook too
    assert {"paper_sbs2", "paper_sbs4", "paper_sbs8", "paper_sbs1", "paper_whole"} <= set(found)
    first, second = ("paper_sbs4_padding_timed", "paper_sbs2") if padded else ("paper_sbs8", "paper_whole")
    for variant in (first, second if shape in IMAGES else "paper_counts_sbs4"):
        build = "asan" if variant == first else "plain"
        assert relative_error(execute(found[variant], build, "backward"), truth) < 1e-6, variant


@pytest.mark.parametrize("shape", [IMAGES[0], SIGNALS[2], WIDE], ids=str)
def test_half_weights_are_summed_in_fp32(shape):
    problem, operands = conv_layer(shape, "f16", empty=(2,), full=0)
    found = plans(problem, operands)
    truth = reference(problem, operands)
    assert found["paper_sbs2"].defines["OFFSET_TABLE"] == int(shape == WIDE)
    for variant in ("paper_sbs2", "paper_counts_sbs8"):
        result = execute(found[variant], "asan" if variant == "paper_sbs2" else "plain")
        error = relative_error(result, truth)
        assert found[variant].math == "f16"
        assert passes(error, "f16")
        assert error < 5e-4, "more than rounding the result once"


@pytest.mark.parametrize(
    ("shape", "build"), [(IMAGES[0], "asan"), (IMAGES[0], "tsan"), (SIGNALS[2], "tsan"), (WIDE, "asan")], ids=str
)
def test_two_images_share_the_halves_of_a_register(shape, build):
    """Batches of any size; runs of sums in fp16."""
    problem, operands = conv_layer(shape, "f16", empty=(2,), full=0)
    found = plans(problem, operands)
    assert [name for name in found if "half2" in name] == [f"paper_half2_sbs{images}" for images in SUB_BATCHES]
    one = found["paper_half2_sbs4"]
    assert one.defines["OFFSET_TABLE"] == int(shape == WIDE)
    assert passes(relative_error(execute(one, build, "backward"), reference(problem, operands)), "f16")
    assert not any("half2" in name for name in plans(*conv_layer(shape, "f32")))


def test_sums_of_two_halves_stay_near_float64_in_long_filters():
    """Of filters of 368 nonzeros, a whole sum in fp16 is off by more than the tolerance."""
    problem, operands = conv_layer(ConvShape(2, 512, 5, 5, 3, 3, 3, 1, 1), "f16", 0.08)
    found = plans(problem, operands)
    truth = reference(problem, operands)
    assert relative_error(execute(found["paper_half2_sbs2"]), truth) < 1e-3


def test_rows_are_filled_up_to_the_longest_with_places_of_their_own():
    shape = IMAGES[0]
    weights = conv_layer(shape, empty=(1,), full=0)[1].sparse
    rows = unified(entries(weights, shape, "f32"), weights.row_lengths)
    assert rows.shape == (6, 27)
    assert (np.count_nonzero(rows["weight"], axis=1) == weights.row_lengths).all()
    assert rows["place"].max() == (2 * 9 + 2) * 11 + 2  # channel 2, row 2, column 2 of a 9 x 11 padded image
    assert not rows["weight"][1].any()
    assert not rows["place"][1].any()
    for row, length in zip(rows[2:], weights.row_lengths[2:], strict=True):
        assert (row["place"][length:] == row["place"][length - 1]).all()


def test_weights_without_nonzeros_give_zeros():
    problem, operands = conv_layer(SIGNALS[2], "f16", density=0.0)
    found = plans(problem, operands)
    for variant in ("paper_sbs2", "paper_counts_sbs8"):
        assert error_of(found[variant], problem, operands, "asan") == 0


@pytest.mark.parametrize(("shape", "dtype"), [(IMAGES[0], "f32"), (WIDE, "f16")], ids=str)
def test_weights_of_a_codebook_are_read_by_their_index(shape, dtype):
    problem, operands = conv_layer(shape, dtype, empty=(1,), full=0)
    assert not any(variant.startswith("codebook") for variant in plans(problem, operands))
    operands = replace(operands, sparse=encodings.shared(operands.sparse)).cast(dtype)
    found = plans(problem, operands)
    assert {f"codebook_sbs{images}" for images in SUB_BATCHES} <= set(found)
    one = found["codebook_sbs2"]
    most = int(operands.sparse.row_lengths.max())
    assert one.buffers["entries"].nbytes == 4 * shape.filters * most
    assert one.defines["OFFSET_TABLE"] == 0
    assert passes(relative_error(execute(one, "asan", "backward"), reference(problem, operands)), dtype)


def test_what_16_bits_cannot_name_is_refused():
    problem, operands = conv_layer(ConvShape(1, 7300, 3, 3, 1, 3, 3), "f16", 0.001)
    with pytest.raises(Unsupported, match="65536 weights"):
        plans(problem, operands)
    assert plans(*conv_layer(ConvShape(1, 7300, 3, 3, 1, 3, 3), "f32", 0.001))


@pytest.mark.parametrize("shape", [ConvShape(3, 6, 5, 9, 4, 3, 3, 1, 1), SIGNALS[2]], ids=str)
def test_no_thread_races_with_another(shape):
    problem, operands = conv_layer(shape, empty=(3,), full=0)
    found = plans(problem, operands)
    for variant in ("paper_sbs2", "paper_counts_sbs2", "paper_whole"):  # the last stages over what it read before
        assert error_of(found[variant], problem, operands, "tsan", "random:3") < 1e-6
