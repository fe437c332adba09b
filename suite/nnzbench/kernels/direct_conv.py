"""Direct sparse convolution: the published kernel and one of our own, which reads and writes plain NCHW images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nnzbench.kernel import Plan, Unsupported, register
from nnzbench.kernels import direct_conv_paper
from nnzbench.operands import Operands
from nnzbench.problem import Problem


@dataclass(frozen=True)
class DirectConv:
    """Sparse filters of any size, padding and stride; fp32, or fp16 summed in fp32."""

    name: str = "direct_conv"
    paper: str = "Direct sparse convolution"
    ops: frozenset[str] = frozenset({"conv2d", "conv1d"})
    dtypes: frozenset[str] = frozenset({"f32", "f16"})

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """The published variants."""
        c = problem.conv
        if c is None or not c.batch * c.filters * c.out_height * c.out_width:
            raise Unsupported("the output is empty")
        yield from direct_conv_paper.plans(problem, operands)


register(DirectConv())
