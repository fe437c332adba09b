"""3x3 depthwise convolution with fused bias and ReLU (`kernels_cu/depthwise_conv.cu`), for MobileNetV1's chain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nnzbench.kernels.registry import register
from nnzbench.kernels.roles import About
from nnzbench.plans.plan import Launch, Plan, Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem


def depthwise_plan(problem: Problem, operands: Operands, outputs: int, threads: int) -> Plan:
    """The plan of one configuration: `outputs` neighbouring outputs per thread.

    Raises `Unsupported` for other filters than 3x3 with padding 1 and stride 1 or 2.
    """
    c = problem.conv
    if c is None or c.groups != c.channels or (c.r, c.s, c.pad_h, c.pad_w) != (3, 3, 1, 1) or c.stride not in (1, 2):
        raise Unsupported(f"{problem.shape} is not a 3x3 depthwise convolution with padding 1 and stride 1 or 2")
    planes = c.batch * c.channels
    work = planes * c.out_height * -(-c.out_width // outputs)
    if work + threads >= 2**31:
        raise Unsupported("the image is too large for 32-bit indices")
    sizes = (planes, c.channels, c.height, c.width, c.out_height, c.out_width)
    args = (*sizes, "x", "weights", "bias", "y")
    return Plan(
        variant=f"o{outputs}_t{threads}",
        language="cuda",
        source="depthwise_conv.cu",
        defines={"STRIDE": c.stride, "OUTPUTS": outputs, "THREADS": threads},
        buffers={
            "x": operands.dense["x"],
            "weights": np.ascontiguousarray(operands.sparse.to_dense()),
            "bias": operands.dense["bias"],
            "y": np.zeros((c.batch, c.channels, c.out_height, c.out_width), np.float32),
        },
        output="y",
        launches=(Launch("depthwise_conv", (-(-work // threads), 1, 1), (threads, 1, 1), args),),
    )


@dataclass(frozen=True)
class DepthwiseConv:
    """Each channel convolved with its own filter, bias and ReLU fused."""

    name: str = "depthwise_conv"
    paper: str = "Gale, Zaharia, Young, Elsen: Sparse GPU Kernels for Deep Learning, SC 2020, section VII-D"
    ops: frozenset[str] = frozenset({"depthwise"})
    dtypes: frozenset[str] = frozenset({"f32"})

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """Several outputs per thread share loads, one fills the GPU for small images."""
        for outputs, threads in ((1, 128), (2, 128), (4, 128), (4, 64)):
            yield depthwise_plan(problem, operands, outputs, threads)


register(DepthwiseConv(), About("paper"))
