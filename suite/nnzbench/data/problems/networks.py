"""Whole networks as problems: their sizes, weights and operations (Sputnik, sections VII-C and VII-D).

`transformer`: a problem of m = k tokens with heads of n features; the rest of its sizes are those of table III below.
`mobilenet`: MobileNetV1 on one image. Its problem's sparse operand holds the weights of all 1x1 convolutions, one after
another along the diagonal, and its source, `mobilenet:<width>:<image height>:<seed>`, says how wide the layers are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.data.matrices import generate, standin
from nnzbench.data.matrices.formats import CSR, MatrixError
from nnzbench.data.problems import decoder
from nnzbench.data.problems.problem import ConvShape, Problem

Array = NDArray[np.float32]

LAYERS, HEADS, WIDER = 3, 8, 4
"""Of the Transformer: layers, attention heads in each, and how many times wider the feed-forward part is inside."""
EPSILON = 1e-5
"""Of the layer norm, as `kernels_cu/network_steps.cu` has it."""
CLASSES = 1000
_BLOCKS = (
    (1, 64), (2, 128), (1, 128), (2, 256), (1, 256), (2, 512), (1, 512), (1, 512), (1, 512), (1, 512), (1, 512),
    (2, 1024), (1, 1024),
)  # fmt: skip
"""Stride of the depthwise convolution and channels after the 1x1 one at width 1 (MobileNetV1)."""


@dataclass(frozen=True)
class Block:
    """A depthwise and a 1x1 convolution of MobileNetV1."""

    depthwise: ConvShape
    filters: int

    @property
    def positions(self) -> int:
        """Outputs of the depthwise convolution in each channel: columns of the 1x1 one."""
        return self.depthwise.out_height * self.depthwise.out_width


@dataclass(frozen=True)
class MobileNet:
    """The layers of one MobileNetV1."""

    width: float
    height: int
    """Of the square image, pixels."""
    seed: int

    @staticmethod
    def of(source: str) -> MobileNet:
        """Raises `MatrixError` for another source than `mobilenet:<width>:<image height>:<seed>`."""
        try:
            kind, width, height, seed = source.split(":")
            made = MobileNet(float(width), int(height), int(seed))
        except ValueError:
            kind = ""
        if kind != "mobilenet" or not 0 < made.width <= 4 or not 32 <= made.height <= 4096:
            raise MatrixError(f"source '{source}' is not mobilenet:<width>:<image height>:<seed>.")
        return made

    def channels(self, at_width_1: int) -> int:
        """Channels at this width: a multiple of 8, but for those after the first 1x1 convolution, which stays dense."""
        exact = at_width_1 * self.width
        return max(1, int(exact + 1e-9)) if at_width_1 == 64 else max(8, round(exact / 8) * 8)

    @property
    def first(self) -> ConvShape:
        """The convolution of the image's three channels."""
        return ConvShape(1, 3, self.height, self.height, self.channels(32), 3, 3, 1, 1, 2)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The 13 pairs of depthwise and 1x1 convolution."""
        out = []
        channels, height = self.channels(32), self.first.out_height
        for stride, filters in _BLOCKS:
            shape = ConvShape(1, channels, height, height, channels, 3, 3, 1, 1, stride, channels)
            out.append(Block(shape, self.channels(filters)))
            channels, height = self.channels(filters), shape.out_height
        return tuple(out)

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows and columns of all 1x1 convolutions' weights together."""
        return sum(one.filters for one in self.blocks), sum(one.depthwise.channels for one in self.blocks)


def pointwise_weights(problem: Problem) -> CSR:
    """The weights of all 1x1 convolutions along the diagonal, pruned to synthetic patterns (calibrated).

    The first stays dense, and all do where the problem's sparsity is 0. Values are normal, scaled by the nonzeros of
    their row so that activations keep their size through the network.
    """
    net = MobileNet.of(problem.source)
    rng = np.random.default_rng([net.seed, 0xC])
    bands, column, (_, columns) = [], 0, net.sizes
    for number, block in enumerate(net.blocks):
        m, k = block.filters, block.depthwise.channels
        dense = number == 0 or problem.sparsity == 0
        one = (
            generate.uniform(m, k, 0.0, net.seed)
            if dense
            else standin.for_weights(f"mbv1_pw{number:02}_weight", m, k, problem.sparsity)
        )
        scale = np.sqrt(2.0 / np.maximum(1, one.row_lengths)).astype(np.float32)
        values = rng.standard_normal(one.nnz, dtype=np.float32) * np.repeat(scale, one.row_lengths)
        bands.append(CSR(m, columns, one.offsets, one.indices + np.int32(column), values))
        column += k
    return CSR.stacked(bands)


def blocks_of(net: MobileNet, weights: CSR) -> Iterator[CSR]:
    """Each 1x1 convolution's weights out of all of them."""
    row = column = 0
    for block in net.blocks:
        m, k = block.filters, block.depthwise.channels
        one = weights.band(row, row + m)
        yield CSR(m, k, one.offsets, one.indices - np.int32(column), one.values)
        row, column = row + m, column + k


def dense_operands(problem: Problem, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Everything dense of a network: inputs, weights and biases, by the names that its kernels use."""
    if problem.op == "decoder":
        return decoder.dense_operands(problem, rng)
    return dict(_transformer(problem, rng) if problem.op == "transformer" else _mobilenet(problem, rng))


def _transformer(problem: Problem, rng: np.random.Generator) -> dict[str, Array]:
    """`x` (tokens, hidden); per layer `q`, `k`, `v` (heads, hidden, features), `o` (heads, features, hidden) and more.

    The scores' factor 1/sqrt(features) is part of `q`.
    """
    features = problem.n
    hidden = HEADS * features
    inside = WIDER * hidden

    def normal(*shape: int, by: float) -> Array:
        return rng.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(by))

    out = {"x": normal(problem.m, hidden, by=1)}
    for layer in range(LAYERS):
        out |= {
            f"{layer}.q": normal(HEADS, hidden, features, by=hidden * features),
            f"{layer}.k": normal(HEADS, hidden, features, by=hidden),
            f"{layer}.v": normal(HEADS, hidden, features, by=hidden),
            f"{layer}.o": normal(HEADS, features, hidden, by=hidden),
            f"{layer}.up": normal(hidden, inside, by=hidden),
            f"{layer}.bias": normal(inside, by=1),
            f"{layer}.down": normal(inside, hidden, by=inside),
        }
        for part in ("attention", "feedforward"):
            out[f"{layer}.{part}.gain"] = 1 + normal(hidden, by=100)
            out[f"{layer}.{part}.shift"] = normal(hidden, by=100)
    return out


def _mobilenet(problem: Problem, rng: np.random.Generator) -> dict[str, Array]:
    """`image` (3, height, width), and every bias and weight but those of the 1x1 convolutions."""
    net = MobileNet.of(problem.source)

    def normal(*shape: int, by: float) -> Array:
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(np.sqrt(by))

    first = net.first
    out = {"image": normal(3, net.height, net.height, by=1)}
    out |= {"first": normal(first.filters, 27, by=2 / 27), "first.bias": normal(first.filters, by=0.01)}
    for number, block in enumerate(net.blocks):
        channels = block.depthwise.channels
        out |= {f"{number}.depthwise": normal(channels, 9, by=2 / 9)}
        out |= {f"{number}.depthwise.bias": normal(channels, by=0.01)}
        out |= {f"{number}.bias": normal(block.filters, by=0.01)}
    last = net.blocks[-1].filters
    return out | {"classes": normal(CLASSES, last, by=1 / last), "classes.bias": normal(CLASSES, by=0.01)}


def flops(problem: Problem, matrix: CSR, dense: bool) -> float:
    """Operations of the whole network: 2 per weight that is multiplied and column, 4 per score of a softmax.

    With `dense` every weight and every score up to a token's own counts, else those that are there.
    """
    if problem.op == "transformer":
        hidden = HEADS * problem.n
        scores = problem.m * (problem.m + 1) / 2 if dense else float(matrix.nnz)
        weights = 2.0 * problem.m * hidden * hidden * (4 + 2 * WIDER)
        return LAYERS * (weights + HEADS * 4.0 * scores * (problem.n + 1))
    net = MobileNet.of(problem.source)
    total = 2.0 * 27 * net.first.filters * net.first.out_height * net.first.out_width
    for block, weights_of in zip(net.blocks, blocks_of(net, matrix), strict=True):
        many = weights_of.m * weights_of.k if dense else weights_of.nnz
        total += 2.0 * (9 * block.depthwise.channels + many) * block.positions
    return total + 2.0 * CLASSES * net.blocks[-1].filters


def outputs(problem: Problem) -> int:
    """Numbers that the network ends with."""
    return problem.m * HEADS * problem.n if problem.op == "transformer" else CLASSES
