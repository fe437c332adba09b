"""3x3 depthwise convolution with fused bias and ReLU (`kernels_cu/depthwise_conv.cu`), for MobileNetV1's chain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nnzbench.kernels.registry import kernel
from nnzbench.kernels.roles import About
from nnzbench.kernels.sputnik import PAPER
from nnzbench.plans.plan import Plan, Unsupported
from nnzbench.plans.tiles import TileConfiguration
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem


@dataclass(frozen=True)
class Outputs(TileConfiguration):
    """`outputs` neighbouring outputs per thread."""

    stride: int
    outputs: int
    threads: int

    @property
    def name(self) -> str:
        return f"o{self.outputs}_t{self.threads}"


def depthwise_plan(problem: Problem, operands: Operands, outputs: int, threads: int) -> Plan:
    """The plan of one configuration, `Outputs`.

    Raises `Unsupported` for other filters than 3x3 with padding 1 and stride 1 or 2.
    """
    c = problem.conv
    if c is None or c.groups != c.channels or (c.r, c.s, c.pad_h, c.pad_w) != (3, 3, 1, 1) or c.stride not in (1, 2):
        raise Unsupported(f"{problem.shape} is not a 3x3 depthwise convolution with padding 1 and stride 1 or 2")
    planes = c.batch * c.channels
    work = planes * c.out_height * -(-c.out_width // outputs)
    if work + threads >= 2**31:
        raise Unsupported("the image is too large for 32-bit indices")
    buffers = {
        "x": operands.dense["x"],
        "weights": np.ascontiguousarray(operands.sparse.to_dense()),
        "bias": operands.dense["bias"],
        "y": np.zeros((c.batch, c.channels, c.out_height, c.out_width), np.float32),
    }
    sizes = (planes, c.channels, c.height, c.width, c.out_height, c.out_width)
    return Outputs(c.stride, outputs, threads).plan("depthwise_conv", (-(-work // threads), 1, 1), sizes, buffers)


@kernel(f"{PAPER}, section VII-D", "depthwise", "f32", About("paper"))
def depthwise_conv(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Each channel convolved with its own filter, bias and ReLU fused.

    Several outputs per thread share loads, one fills the GPU for small images.
    """
    for outputs, threads in ((1, 128), (2, 128), (4, 128), (4, 64)):
        yield depthwise_plan(problem, operands, outputs, threads)
