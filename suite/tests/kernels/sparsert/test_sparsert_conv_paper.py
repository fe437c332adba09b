import pytest
from on_cpu import conv_layer, execute
from sparsert_programs import assembled, interpret, right

from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import ConvShape
from nnzbench.data.problems.reference import reference
from nnzbench.kernels.sparsert.paper import (
    ENTRY,
    PaperProduct,
    sparsert_conv_padded,
    sparsert_conv_paper,
    unrolled_plan,
)
from nnzbench.kernels.sparsert.paper_schedule import CheckedIm2col, PaperTiling, VirtualIm2col

WHOLE_WARPS = [
    ConvShape(1, 5, 8, 8, 12, 3, 3, 1, 1),
    ConvShape(2, 3, 4, 8, 9, 3, 3, 1, 1),
    ConvShape(1, 4, 10, 10, 10, 3, 3, 0, 0),
    ConvShape(1, 4, 15, 15, 10, 3, 3, 1, 1, stride=2),
    ConvShape(1, 4, 16, 8, 10, 3, 3, 1, 1, stride=2),
    ConvShape(1, 3, 1, 32, 6, 1, 5, 0, 2),
    ConvShape(2, 6, 4, 8, 5, 1, 1),
]
ODD = [
    ConvShape(1, 5, 7, 7, 13, 3, 3, 1, 1),
    ConvShape(3, 2, 5, 3, 1, 3, 3, 1, 1),
    ConvShape(1, 4, 1, 1, 5, 3, 3, 1, 1),
    ConvShape(1, 2, 11, 9, 7, 5, 5, 2, 2, stride=2),
]


def work_of(shape, arch="sm_90", density=0.3, dense=VirtualIm2col):
    problem, operands = conv_layer(shape, density=density, empty=tuple(range(shape.filters // 2, shape.filters, 5)))
    work = PaperProduct(operands.sparse, operands.dense["x"], dense(shape), shape.output, arch)
    return work, reference(problem, operands), problem


def checked(shape):
    """As the paper tests for padding, in blocks of 32 pixels."""
    return CheckedIm2col(shape, 32)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("dense", [VirtualIm2col, checked])
@pytest.mark.parametrize("shape", WHOLE_WARPS, ids=str)
def test_emitted_ptx_convolves_and_reads_nothing_outside_the_image(shape, dense, groups):
    work, expected, problem = work_of(shape, dense=dense)
    plan = unrolled_plan(work, PaperTiling(2, problem.n // 32, groups))
    assert right(interpret(plan), expected)


@pytest.mark.parametrize("shape", ODD, ids=str)
def test_on_the_processor(shape):
    work, expected, problem = work_of(shape, "sm_80")
    plans = list(sparsert_conv_paper.plans(problem, Operands(work.matrix, {"x": work.b}, "p"), "sm_80"))
    assert len({plan.variant for plan in plans}) == len(plans)
    untested = next(iter(sparsert_conv_padded.plans(problem, Operands(work.matrix, {"x": work.b}, "p"), "sm_80")))
    assert "tap" not in untested.source
    for plan in (plans[0], plans[-1], untested):
        assert right(execute(plan), expected)


def test_filters_without_nonzeros_give_zeros_on_the_processor():
    work, expected, _ = work_of(ConvShape(1, 2, 7, 7, 9, 3, 3, 1, 1), "sm_80", density=0.0)
    assert work.matrix.nnz == 0
    result = execute(unrolled_plan(work, PaperTiling(3, 7, 2)))
    assert right(result, expected)
    assert not result.any()


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_assembles(arch):
    work, _, _ = work_of(ConvShape(1, 5, 7, 7, 13, 3, 3, 1, 1), arch)
    for groups in (1, 4):
        assert assembled(unrolled_plan(work, PaperTiling(2, 1, groups)).source, arch, ENTRY).code_bytes


@pytest.mark.parametrize("build", ["asan", "tsan"])
def test_clean_under_sanitizers_and_any_schedule(build):
    work, expected, _ = work_of(ConvShape(1, 3, 7, 7, 11, 3, 3, 1, 1), "sm_80")
    plan = unrolled_plan(work, PaperTiling(3, 7, 3))
    for order in ("backward", "random:3"):
        assert right(execute(plan, build, order), expected)
