"""Direct sparse convolution against float64 on the processor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from on_cpu import execute, fresh_cache, matrix

from nnzbench.check import passes, relative_error
from nnzbench.kernels import direct_conv_paper
from nnzbench.operands import Operands, reference
from nnzbench.problem import ConvShape, DType, Problem

__all__ = ["fresh_cache"]


def layer(shape: ConvShape, dtype: DType = "f32", density: float = 0.3, **rows: Any) -> tuple[Problem, Operands]:
    """A problem of `shape` and its operands; `rows` empties or fills some output channels."""
    weights = matrix(shape.filters, shape.channels * shape.r * shape.s, density, **rows)
    x = np.random.default_rng(5).standard_normal((shape.batch, shape.channels, shape.height, shape.width))
    n = shape.batch * shape.out_height * shape.out_width
    op = "conv1d" if shape.height == shape.r == 1 else "conv2d"
    problem = Problem("t", "t", op, weights.m, weights.k, n, 1 - density, "uniform:0", dtype, conv=shape)  # type: ignore[arg-type]
    operands = Operands(weights, {"x": x.astype(np.float32)}, weights.pattern_hash()).cast(dtype)
    return problem, operands


PAPER = (
    ConvShape(5, 3, 7, 9, 6, 3, 3, 1, 1),
    ConvShape(3, 5, 18, 34, 4, 3, 3, 0, 0, 2),
    ConvShape(1, 40, 4, 4, 3, 5, 5, 2, 2),
    ConvShape(4, 9, 8, 8, 5, 1, 1),
    ConvShape(9, 12, 1, 40, 7, 1, 3, 0, 1),
)


@pytest.mark.parametrize("shape", PAPER, ids=str)
def test_the_published_variants_convolve(shape: ConvShape) -> None:
    problem, operands = layer(shape, empty=(1,), full=0)
    plans = {plan.variant: plan for plan in direct_conv_paper.plans(problem, operands)}
    assert {"paper_sbs2", "paper_sbs4", "paper_sbs8", "paper_sbs1", "paper_whole"} <= set(plans)
    truth = reference(problem, operands)
    chosen = ("paper_sbs4_padding_timed", "paper_sbs2") if shape.pad_w else ("paper_sbs8", "paper_whole")
    for variant in chosen:
        assert relative_error(execute(plans[variant]), truth) < 1e-6, variant


def test_the_published_kernel_sums_fp16_inputs_in_fp32() -> None:
    problem, operands = layer(PAPER[0], "f16")
    for plan in direct_conv_paper.plans(problem, operands):
        if plan.variant == "paper_sbs4_padding_timed":
            assert passes(relative_error(execute(plan), reference(problem, operands)), "f16")


@pytest.mark.parametrize("build", ["asan", "tsan"])
def test_the_published_kernel_is_clean_under_sanitizers(build: str) -> None:
    problem, operands = layer(ConvShape(3, 6, 5, 9, 4, 3, 3, 1, 1), empty=(3,))
    plan = next(direct_conv_paper.plans(problem, operands))
    assert relative_error(execute(plan, build, "random:3"), reference(problem, operands)) < 1e-6


def test_rows_are_filled_up_to_the_longest_with_offsets_of_their_own() -> None:
    shape = PAPER[0]
    weights = layer(shape, empty=(1,), full=0)[1].sparse
    unified = direct_conv_paper.entries(weights, shape)
    assert unified.shape == (6, 27)
    assert (np.count_nonzero(unified["value"], axis=1) == weights.row_lengths).all()
    assert unified["offset"].max() == (2 * 9 + 2) * 11 + 2  # channel 2, row 2, column 2 of a 9 x 11 padded image
    assert not unified["value"][1].any()
    assert not unified["offset"][1].any()
