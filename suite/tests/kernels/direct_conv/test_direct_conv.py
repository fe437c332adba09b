"""Direct sparse convolution against float64 on the processor."""

from dataclasses import replace

import numpy as np
import ptx_interpreter
import pytest
from on_cpu import check, error_of
from on_cpu import conv_layer as layer
from sparsert_programs import assembled

from nnzbench.core.plan import Unsupported
from nnzbench.data.problems.check import relative_error
from nnzbench.data.problems.problem import ConvShape
from nnzbench.data.problems.reference import reference
from nnzbench.kernels.direct_conv import convolution as direct_conv
from nnzbench.kernels.direct_conv.program import ConvTile, ConvTiling

# 7 x 9 images in two launches; parts of rows; stride 2 without padding; 1x1 in whole images; 1-D with more filters than
# lanes hold
OWN = (
    (ConvShape(5, 7, 7, 9, 6, 3, 3, 1, 1), ConvTiling(2, 2, 7, 9, 3, launches=2)),
    (ConvShape(2, 5, 12, 16, 9, 3, 3, 1, 1), ConvTiling(9, 1, 4, 16, 2)),
    (ConvShape(1, 5, 6, 40, 5, 3, 5, 1, 2), ConvTiling(3, 1, 2, 24, 2)),
    (ConvShape(3, 5, 18, 34, 4, 3, 3, 0, 0, 2), ConvTiling(3, 1, 4, 16, 2, stages=2)),
    (ConvShape(32, 9, 4, 8, 5, 1, 1), ConvTiling(5, 5, 4, 8, 4)),
    (ConvShape(9, 12, 1, 40, 7, 1, 3, 0, 1), ConvTiling(4, 3, 1, 40, 5)),
)
# blocks by channels, in one launch and two; channels that do not fill the last chunk; fewer chunks than stages
ORDERED = (
    (ConvShape(1, 9, 6, 40, 5, 3, 5, 1, 2), ConvTiling(3, 1, 2, 40, 2, stages=5, grouped=True)),
    (ConvShape(3, 3, 18, 34, 4, 3, 3, 0, 0, 2), ConvTiling(2, 1, 8, 16, 2, stages=4, grouped=True, launches=2)),
    (ConvShape(9, 20, 1, 40, 7, 1, 3, 0, 1), ConvTiling(4, 3, 1, 40, 3, grouped=True)),
)


def copied_late(parts, operands, registers, active, memory, shared):
    """Asynchronous copies of any size that land group by group, at the latest wait that covers them."""
    groups = registers.setdefault("groups of copies", [[]])
    if parts[2] == "commit_group":
        groups.append([])
    elif parts[2] == "wait_group":
        while len(groups) - 1 > int(operands[0]):
            for to, data in groups.pop(0):
                cells, offsets = shared.cells(to, data.shape[1], True)
                cells[offsets[:, None] + np.arange(data.shape[1])] = data
    elif active.any():
        to, come = (ptx_interpreter._address(place, registers)[active] for place in operands[:2])
        data, offsets = memory.cells(come, int(operands[2]), False)
        groups[-1].append((to, data[offsets[:, None] + np.arange(int(operands[2]))]))


def interpret(plan, backward):
    """The output of the plan's PTX text."""
    buffers = {name: array.copy() for name, array in plan.buffers.items()}
    buffers["y"].fill(np.nan)
    for launch in plan.launches:
        kernel = ptx_interpreter.Kernel(launch.source or plan.source)
        kernel.launch(launch.grid, launch.block[0], buffers, launch.shared_bytes, backward)
    return buffers["y"]


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize(("shape", "tiling"), OWN + ORDERED, ids=str)
def test_the_generated_text_convolves(shape, tiling, dtype, monkeypatch):
    monkeypatch.setattr(ptx_interpreter, "_copy", copied_late)
    problem, operands = layer(shape, dtype, empty=(1,), full=0)
    truth = reference(problem, operands)
    limit = 1e-6 if dtype == "f32" else 1e-3
    for arch, backward in (("sm_90", True), ("sm_70", False)):
        plan = direct_conv.make_plan(problem, operands, tiling, arch)
        assert relative_error(interpret(plan, backward), truth) < limit, arch


def test_a_missing_barrier_or_wait_would_be_seen(monkeypatch):
    monkeypatch.setattr(ptx_interpreter, "_copy", copied_late)
    problem, operands = layer(OWN[0][0])
    plan = direct_conv.make_plan(problem, operands, OWN[0][1], "sm_90")
    truth = reference(problem, operands)
    early = replace(plan, source=plan.source.replace("cp.async.wait_group 1;", "cp.async.wait_group 2;"))
    assert relative_error(interpret(early, False), truth) > 1e-3
    head, _, tail = plan.source.partition("G0:")
    loose = replace(plan, source=head + "G0:" + tail.replace("bar.sync 0;", ""))
    assert max(relative_error(interpret(loose, backward), truth) for backward in (False, True)) > 1e-3


@pytest.mark.parametrize(
    ("index", "dtype", "build"),
    [
        (0, "f32", "plain"),
        (2, "f32", "asan"),
        (3, "f16", "asan"),
        (4, "f32", "tsan"),
        (5, "f16", "plain"),
        (7, "f32", "plain"),
    ],
)
def test_the_cpp_form_convolves(index, dtype, build):
    shape, tiling = (OWN + ORDERED)[index]
    problem, operands = layer(shape, dtype, empty=(1, 3))
    plan = direct_conv.make_plan(problem, operands, tiling, "sm_90")
    check(plan, problem, operands, build, "random:1")


def test_weights_without_nonzeros_give_zeros():
    problem, operands = layer(ConvShape(1, 3, 5, 5, 4, 3, 3, 1, 1), density=0.0)
    assert error_of(next(direct_conv.direct_conv.plans(problem, operands, "sm_90")), problem, operands) == 0


@pytest.mark.parametrize(("shape", "tiling"), OWN, ids=str)
def test_every_tap_of_every_lane_reads_its_own_input(shape, tiling):
    """Staged places of distinct input elements differ, and the last one lies within the stage."""
    tile = ConvTile(shape, tiling, 4)
    highest = (tiling.images - 1) * tile.image_pitch + tile.skew
    highest += (tiling.height - 1) * shape.stride * tile.pitch + (tiling.width - 1) * shape.stride
    last = tile.offset(tiling.chunk * shape.r * shape.s - 1)[1] // 4
    assert (highest + last) * 4 < tile.stage_bytes
    assert tile.pitch >= (tiling.width - 1) * shape.stride + shape.s + tile.skew
    assert tile.image_pitch >= tile.rows * tile.pitch


def test_the_assembler_keeps_all_sums_in_registers():
    problem, operands = layer(ConvShape(8, 32, 28, 28, 104, 3, 3, 1, 1), density=0.08)
    for tiling in (ConvTiling(52, 8, 4, 28, 6), ConvTiling(64, 1, 24, 28, 6, depth=3)):
        plan = direct_conv.make_plan(problem, operands, tiling, "sm_90")
        resources = assembled(plan.source, "sm_90", "direct_conv")
        assert resources.spill_bytes == 0
        assert resources.registers * tiling.allotted_threads <= 65536


def test_what_does_not_fit_is_refused_in_words():
    problem, operands = layer(ConvShape(2, 3, 9, 200, 3, 3, 3, 1, 1))
    for tiling, words in (
        (ConvTiling(3, 2, 9, 200, 1), "threads a block"),
        (ConvTiling(90, 1, 4, 200, 1), "do not fit"),
        (ConvTiling(3, 1, 4, 200, 3, stages=12), "shared memory"),
        (ConvTiling(3, 1, 4, 200, 1, stages=1), "at least 2"),
    ):
        with pytest.raises(Unsupported, match=words):
            direct_conv.make_plan(problem, operands, tiling, "sm_70")
