"""The small steps of whole networks as plans (`kernels_cu/network_steps.cu`), dense products among them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nnzbench.plans.chain import Step
from nnzbench.plans.plan import Arg, Array, Dim3, Launch, Plan
from nnzbench.problems.problem import ConvShape

SOURCE = "network_steps.cu"
PRODUCT = "dense_product"
"""Entry that a library's product takes the place of on a GPU; its arguments are (m, k, n, transposed, accumulate, a,
b, c)."""


Named = tuple[str, Array]
"""An operand and its name in the chain, empty for one of the step's own."""


def _step(entry: str, grid: Dim3, sizes: tuple[Arg, ...], operands: Mapping[str, Named]) -> Step:
    """`operands` follow the `sizes`; the last is the result."""
    names = {name: chained for name, (chained, _) in operands.items() if chained}
    buffers = {name: array for name, (_, array) in operands.items()}
    launch = Launch(entry, grid, (128, 1, 1), (*sizes, *operands))
    return Step(Plan(entry, "cuda", SOURCE, {}, buffers, list(operands)[-1], (launch,)), names)


def scratch(*shape: int) -> Array:
    """Room for what a step computes: zeros, which take no memory on the host until they are touched."""
    return np.zeros(shape, np.float32)


def product(
    sizes: tuple[int, int, int], a: Named, b: Named, c: str, transposed: bool = False, accumulate: bool = False
) -> Step:
    """C (m, n) = A (m, k) B (k, n), or A B^T for `transposed` b (n, k), added to C with `accumulate`.

    `sizes` is (m, k, n).
    """
    m, _, n = sizes
    flags = (int(transposed), int(accumulate))
    return _step(PRODUCT, (-(-n // 128), m, 1), (*sizes, *flags), {"a": a, "b": b, "c": (c, scratch(m, n))})


def copy(x: Named, y: str) -> Step:
    """y = x: what later steps change in place starts anew with every run."""
    size = x[1].size
    return _step("copy", (-(-size // 128), 1, 1), (size,), {"x": x, "y": (y, scratch(*x[1].shape))})


def layer_norm(x: Named, gain: Named, shift: Named, y: str) -> Step:
    """Rows of x (m, n) normed into y."""
    m, n = x[1].shape
    operands = {"x": x, "gain": gain, "shift": shift, "y": (y, scratch(m, n))}
    return _step("layer_norm", (-(-m // 4), 1, 1), (m, n), operands)


def bias_relu_columns(x: Named, bias: Named) -> Step:
    """max(x + bias, 0) in place, x (m, n) and bias (n,)."""
    size, n = x[1].size, x[1].shape[1]
    return _step("bias_relu_columns", (-(-size // 128), 1, 1), (size, n), {"bias": bias, "x": x})


def first_convolution(shape: ConvShape, image: Array, weights: Array, bias: Array, y: str) -> Step:
    """The convolution of an image (channels, height, width) with stride 2, bias and ReLU; y (filters, positions)."""
    positions = shape.out_height * shape.out_width
    sizes = (shape.channels, shape.height, shape.width, shape.filters)
    out = (y, scratch(shape.filters, positions))
    operands = {"x": ("", image), "weights": ("", weights), "bias": ("", bias), "y": out}
    return _step("first_convolution", (-(-positions // 128), -(-shape.filters // 8), 1), sizes, operands)


def average_pool(x: Named, y: str) -> Step:
    """The mean of each row of x (channels, positions)."""
    channels, positions = x[1].shape
    return _step(
        "average_pool", (-(-channels // 4), 1, 1), (channels, positions), {"x": x, "y": (y, scratch(channels))}
    )


def classify(x: Named, weights: Array, bias: Array, y: str) -> Step:
    """weights (classes, features) times x (features,), plus bias; y (classes, 1)."""
    classes, features = weights.shape
    operands = {"x": x, "weights": ("", weights), "bias": ("", bias), "y": (y, scratch(classes, 1))}
    return _step("classify", (-(-classes // 4), 1, 1), (classes, features), operands)
