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


def _step(
    entry: str, grid: Dim3, args: tuple[Arg, ...], buffers: Mapping[str, Array], names: Mapping[str, str]
) -> Step:
    """`names` gives the chain's name of each buffer; the last argument is the result."""
    launch = Launch(entry, grid, (128, 1, 1), args)
    return Step(Plan(entry, "cuda", SOURCE, {}, buffers, str(args[-1]), (launch,)), names)


def scratch(*shape: int) -> Array:
    """Room for what a step computes: zeros, which take no memory on the host until they are touched."""
    return np.zeros(shape, np.float32)


def product(
    sizes: tuple[int, int, int],
    a: tuple[str, Array],
    b: tuple[str, Array],
    c: str,
    transposed: bool = False,
    accumulate: bool = False,
) -> Step:
    """C (m, n) = A (m, k) B (k, n), or A B^T for `transposed` b (n, k), added to C with `accumulate`.

    `sizes` is (m, k, n); operands come with their names in the chain.
    """
    m, k, n = sizes
    arguments = (m, k, n, int(transposed), int(accumulate), "a", "b", "c")
    buffers = {"a": a[1], "b": b[1], "c": scratch(m, n)}
    return _step(PRODUCT, (-(-n // 128), m, 1), arguments, buffers, {"a": a[0], "b": b[0], "c": c})


def copy(x: tuple[str, Array], y: str) -> Step:
    """y = x: what later steps change in place starts anew with every run."""
    size = x[1].size
    names, buffers = {"x": x[0], "y": y}, {"x": x[1], "y": scratch(*x[1].shape)}
    return _step("copy", (-(-size // 128), 1, 1), (size, "x", "y"), buffers, names)


def layer_norm(x: tuple[str, Array], gain: tuple[str, Array], shift: tuple[str, Array], y: str) -> Step:
    """Rows of x (m, n) normed into y."""
    m, n = x[1].shape
    names = {"x": x[0], "gain": gain[0], "shift": shift[0], "y": y}
    buffers = {"x": x[1], "gain": gain[1], "shift": shift[1], "y": scratch(m, n)}
    return _step("layer_norm", (-(-m // 4), 1, 1), (m, n, "x", "gain", "shift", "y"), buffers, names)


def bias_relu_columns(x: tuple[str, Array], bias: tuple[str, Array]) -> Step:
    """max(x + bias, 0) in place, x (m, n) and bias (n,)."""
    buffers, names = {"bias": bias[1], "x": x[1]}, {"bias": bias[0], "x": x[0]}
    size, n = x[1].size, x[1].shape[1]
    return _step("bias_relu_columns", (-(-size // 128), 1, 1), (size, n, "bias", "x"), buffers, names)


def first_convolution(shape: ConvShape, image: Array, weights: Array, bias: Array, y: str) -> Step:
    """The convolution of an image (channels, height, width) with stride 2, bias and ReLU; y (filters, positions)."""
    positions = shape.out_height * shape.out_width
    arguments = (shape.channels, shape.height, shape.width, shape.filters, "x", "weights", "bias", "y")
    buffers = {"x": image, "weights": weights, "bias": bias, "y": scratch(shape.filters, positions)}
    return _step("first_convolution", (-(-positions // 128), -(-shape.filters // 8), 1), arguments, buffers, {"y": y})


def average_pool(x: tuple[str, Array], y: str) -> Step:
    """The mean of each row of x (channels, positions)."""
    channels, positions = x[1].shape
    arguments = (channels, positions, "x", "y")
    buffers = {"x": x[1], "y": scratch(channels)}
    return _step("average_pool", (-(-channels // 4), 1, 1), arguments, buffers, {"x": x[0], "y": y})


def classify(x: tuple[str, Array], weights: Array, bias: Array, y: str) -> Step:
    """weights (classes, features) times x (features,), plus bias; y (classes, 1)."""
    classes, features = weights.shape
    arguments = (classes, features, "x", "weights", "bias", "y")
    buffers = {"x": x[1], "weights": weights, "bias": bias, "y": scratch(classes, 1)}
    return _step("classify", (-(-classes // 4), 1, 1), arguments, buffers, {"x": x[0], "y": y})
