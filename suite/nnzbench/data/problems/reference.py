"""The float64 result of a problem, and what errors of it are measured by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts are loaded when they are first used
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems import decoder
from nnzbench.data.problems.image_sample import ImageSample, sample_images
from nnzbench.data.problems.networks import EPSILON, HEADS, LAYERS, MobileNet, blocks_of
from nnzbench.data.problems.operands import Array, Operands
from nnzbench.data.problems.parts import PART_ELEMENTS, Part, float64, over_parts, threads
from nnzbench.data.problems.problem import ConvShape, Problem

DENSE_REFERENCE = 4
"""Nonzeros times columns per weight from which the reference multiplies by every weight."""
DENSE_SDDMM = 24
"""Elements per nonzero up to which every element of a sampled product is computed.

Measured on two cores both ways take as long at 16 (64 features or more); BLAS gains the more from further cores.
"""
BLAS_SPEED = 8
"""Products of BLAS in the time of one of SciPy's, on one core."""
BLOCK = 1 << 24
"""Elements of a float64 block that is made whole and dropped again, 128 MB."""
SUMS = 1 << 22
"""Elements of a sampled product that are computed at a time, 32 MB."""
FEWEST = 256
"""Columns of a block that stays in cache: with fewer BLAS is slow."""


@dataclass(frozen=True)
class Reference:
    """Float64 result and, for each element, the sum of the products' magnitudes that errors are measured by.

    Where that is 0 nothing is summed, and the result must be exactly zero.
    """

    value: NDArray[np.float64]
    scale: NDArray[np.float64]
    sample: ImageSample | None = None
    """Where set, `value` and `scale` are of what it takes of the whole result."""


def reference(problem: Problem, operands: Operands) -> Reference:
    """The float64 result: (m, n) for products, (nnz,) for sddmm and softmax, NCHW for convolutions."""
    if problem.op == "transformer":
        return _transformer(operands)
    if problem.op == "mobilenet":
        return _mobilenet(problem, operands)
    if problem.op == "decoder":
        head, last = decoder.forward(problem, operands.sparse, operands.dense)
        return Reference(head @ last, np.abs(head) @ np.abs(last))
    if problem.op == "attention":
        return attention(operands)
    if problem.op == "depthwise":
        return _depthwise(problem, operands)
    if problem.op == "sddmm":
        return _sddmm(operands)
    if problem.op == "sparse_softmax":
        return _softmax(operands.sparse)
    if problem.conv is not None:
        return _convolution(problem, operands)
    a, b = operands.sparse, operands.dense["b"]
    product = _product(lambda at, end: _left(a.band(at, end), b.shape[1]), a.m, b)
    return product if problem.op != "pointwise" else _bias_relu(product, operands.dense["bias"][:, None])


def dense_reference(a: Array, b: Array) -> Reference:
    """Of A (m, k) B (k, n), some rows of A at a time."""
    return _product(lambda at, end: float64(a[at:end]), len(a), b)


def _product(rows_of: Callable[[int, int], Any], m: int, b: Array) -> Reference:
    """Of A (m, k), whose rows from one to another are given in float64 (NumPy's or SciPy's), and B (k, n)."""
    value, scale = np.empty((m, b.shape[1])), np.empty((m, b.shape[1]))
    step = max(1, BLOCK // max(1, len(b)))
    for at in range(0, m, step):
        end = min(at + step, m)
        rows = rows_of(at, end)
        sizes = np.abs(rows) if isinstance(rows, np.ndarray) else _with_data(rows, np.abs(rows.data))
        for part in _parts(b.shape[1], len(b)):
            columns = float64(b[:, part])
            value[at:end, part] = rows @ columns
            scale[at:end, part] = sizes @ np.abs(columns, out=columns)
    return Reference(value, scale)


def _with_data(matrix: Any, data: Array) -> Any:
    """A SciPy matrix of the same places, which are not copied."""
    return scipy.sparse.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _parts(length: int, width: int) -> Iterator[slice]:
    """Of an axis: blocks of so many elements across it stay in all cores' caches while they are passed over."""
    step = max(FEWEST, threads() * PART_ELEMENTS // max(1, width))
    yield from (slice(at, at + step) for at in range(0, length, step))


def _left(matrix: CSR, columns: int) -> Any:
    """The matrix in float64, dense where that is faster for that many columns: BLAS runs on all cores, SciPy on one."""
    size = matrix.m * matrix.k
    if matrix.nnz * columns > DENSE_REFERENCE * size and matrix.nnz * BLAS_SPEED * threads() > size:
        return float64(matrix.to_dense())
    return matrix.to_scipy()


def _bias_relu(product: Reference, bias: Array) -> Reference:
    """max(product + bias, 0); `bias` broadcasts to the product's shape."""
    return Reference(np.maximum(product.value + bias.astype(np.float64), 0), product.scale + np.abs(bias))


def attention(operands: Operands) -> Reference:
    """softmax(Q K^T) V at the mask's positions, some queries at a time with all their scores.

    Errors are measured by sum p |v|: scores' own are far smaller.
    """
    mask, dense = operands.sparse, operands.dense
    q, keys, v = (dense[name].astype(np.float64) for name in ("q", "k", "v"))
    value, scale = np.zeros(q.shape), np.zeros(q.shape)
    step = max(1, BLOCK // max(1, mask.k))
    for at in range(0, mask.m, step):
        end = min(at + step, mask.m)
        band = mask.band(at, end)
        places = band.rows, band.indices
        weights = np.zeros((end - at, mask.k))
        weights[places] = _softmax(band.with_values((q[at:end] @ keys.T)[places])).value
        value[at:end], scale[at:end] = weights @ v, weights @ np.abs(v)
    return Reference(value, scale)


def _depthwise(problem: Problem, operands: Operands) -> Reference:
    c = problem.conv
    assert c is not None
    weights = operands.sparse.to_dense().astype(np.float64)
    x = operands.dense["x"].astype(np.float64)
    shape = (c.batch, c.channels, c.out_height, c.out_width)
    value, scale = np.zeros(shape), np.zeros(shape)
    for tap, plane in taps(c, x):
        w = weights[:, tap, None, None]
        products = w * plane
        value += products
        scale += np.abs(products, out=products)
    return _bias_relu(Reference(value, scale), operands.dense["bias"][:, None, None])


def _sddmm(operands: Operands) -> Reference:
    pattern, a, b = operands.sparse, operands.dense["a"], operands.dense["b"]
    if DENSE_SDDMM * pattern.nnz <= pattern.m * pattern.k:
        return _gathered_products(pattern, a, b)
    return _picked_products(pattern, a, b)


def _picked_products(pattern: CSR, a: Array, b: Array) -> Reference:
    """The elements of A B^T at the pattern's places, from blocks of whole rows."""
    value, scale = np.empty(pattern.nnz), np.empty(pattern.nnz)
    step = max(FEWEST, SUMS // pattern.k)
    for at in range(0, pattern.m, step):
        end = min(at + step, pattern.m)
        products, sizes = np.zeros((2, end - at, pattern.k))
        for part in _parts(a.shape[1], end - at + pattern.k):
            rows, columns = float64(a[at:end, part]), float64(b[:, part])
            products += rows @ columns.T
            sizes += np.abs(rows, out=rows) @ np.abs(columns, out=columns).T
        band, held = pattern.band(at, end), slice(pattern.offsets[at], pattern.offsets[end])
        places = band.rows * pattern.k + band.indices
        products.take(places, out=value[held], mode="clip")  # the default mode copies `out`
        sizes.take(places, out=scale[held], mode="clip")
    return Reference(value, scale)


def _gathered_products(pattern: CSR, a: Array, b: Array) -> Reference:
    """Both operands' rows side by side for each nonzero, some that stay in cache at a time."""
    rows = pattern.rows
    value, scale = np.empty(pattern.nnz), np.empty(pattern.nnz)

    def multiply(part: Part) -> None:
        products = np.multiply(a[rows[part]], b[pattern.indices[part]], dtype=np.float64)
        products.sum(axis=1, out=value[part])
        np.abs(products, out=products).sum(axis=1, out=scale[part])

    over_parts(multiply, (pattern.nnz,), max(1, (1 << 17) // max(1, a.shape[1])))
    return Reference(value, scale)


def _softmax(matrix: CSR) -> Reference:
    value = np.zeros(matrix.nnz)
    lengths = matrix.row_lengths
    filled = lengths > 0
    if matrix.nnz:
        starts = matrix.offsets[:-1][filled]
        x = matrix.values.astype(np.float64)
        top = np.repeat(np.maximum.reduceat(x, starts), lengths[filled])
        e = np.exp(x - top)
        value = e / np.repeat(np.add.reduceat(e, starts), lengths[filled])
    return Reference(value, np.ones_like(value))


def _convolution(problem: Problem, operands: Operands) -> Reference:
    c = problem.conv
    assert c is not None
    x = operands.dense["x"]
    weights = _left(operands.sparse, problem.n)
    sample = sample_images(c)
    if sample is None:
        return Reference(_correlation(c, weights, x), _correlation(c, abs(weights), np.abs(x)))
    value = _correlation(c, weights, sample.of(x))
    return Reference(value, _correlation(c, abs(weights), sample.magnitudes(x)), sample)


def _correlation(c: ConvShape, weights: Any, x: Array) -> NDArray[np.float64]:
    """The weights times the patches below each output: cross-correlation as in cuDNN. `x` may have any batch."""
    sums = np.empty((x.shape[0], c.filters, c.out_height, c.out_width))
    windows = sliding_window_view(_padded(c, x.astype(np.float64, copy=False)), (c.r, c.s), axis=(2, 3))[
        :, :, :: c.stride, :: c.stride
    ]
    patches = windows.transpose(0, 1, 4, 5, 2, 3)  # a view: copied in blocks, r * s inputs in all
    step = max(1, BLOCK // (c.channels * c.r * c.s * c.out_width))
    for image in range(x.shape[0]):
        for y in range(0, c.out_height, step):
            columns = patches[image, ..., y : y + step, :].reshape(weights.shape[1], -1)
            sums[image, :, y : y + step] = (weights @ columns).reshape(c.filters, -1, c.out_width)
    return sums


def _padded(c: ConvShape, x: Array) -> Array:
    return np.pad(x, ((0, 0), (0, 0), (c.pad_h, c.pad_h), (c.pad_w, c.pad_w)))


def taps(c: ConvShape, x: Array) -> Iterator[tuple[int, Array]]:
    """Each filter tap and the padded input shifted by it, at the output's positions (NCHW)."""
    padded = _padded(c, x)
    for tap in range(c.r * c.s):
        i, j = divmod(tap, c.s)
        rows = slice(i, i + (c.out_height - 1) * c.stride + 1, c.stride)
        columns = slice(j, j + (c.out_width - 1) * c.stride + 1, c.stride)
        yield tap, padded[:, :, rows, columns]


def _transformer(operands: Operands) -> Reference:
    """Of shape (tokens, hidden); errors are measured by what the last sums add up: the residual stream's parts."""
    dense = {name: array.astype(np.float64) for name, array in operands.dense.items()}
    x = dense["x"]
    scale = np.abs(x)
    for layer in range(LAYERS):
        mine = {name.partition(".")[2]: array for name, array in dense.items() if name.startswith(f"{layer}.")}
        normed = _norm(x, mine["attention.gain"], mine["attention.shift"])
        for head in range(HEADS):
            qkv = {name: normed @ mine[name][head] for name in ("q", "k", "v")}
            context = attention(Operands(operands.sparse, qkv, "")).value
            x = x + context @ mine["o"][head]
            scale += np.abs(context) @ np.abs(mine["o"][head])
        normed = _norm(x, mine["feedforward.gain"], mine["feedforward.shift"])
        inside = np.maximum(normed @ mine["up"] + mine["bias"], 0)
        x = x + inside @ mine["down"]
        scale += inside @ np.abs(mine["down"])
    return Reference(x, scale)


def _norm(x: NDArray[np.float64], gain: NDArray[np.float64], shift: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = x - x.mean(axis=1, keepdims=True)
    scale = np.sqrt((centred**2).mean(axis=1, keepdims=True) + EPSILON)
    normed: NDArray[np.float64] = centred / scale * gain + shift
    return normed


def _mobilenet(problem: Problem, operands: Operands) -> Reference:
    """Of shape (classes, 1); errors are measured by the classifier's products."""
    net = MobileNet.of(problem.source)
    dense = {name: array.astype(np.float64) for name, array in operands.dense.items()}
    windows = np.stack([plane[0] for _, plane in taps(net.first, dense["image"][None])], axis=1)
    planes = np.tensordot(dense["first"], windows.reshape(27, *windows.shape[2:]), axes=1)
    x = np.maximum(planes + dense["first.bias"][:, None, None], 0)
    for number, (block, weights) in enumerate(zip(net.blocks, blocks_of(net, operands.sparse), strict=True)):
        filters = dense[f"{number}.depthwise"]
        y = np.zeros((block.depthwise.channels, block.depthwise.out_height, block.depthwise.out_width))
        for tap, plane in taps(block.depthwise, x[None]):
            y += filters[:, tap, None, None] * plane[0]
        y = np.maximum(y + dense[f"{number}.depthwise.bias"][:, None, None], 0)
        product = weights.to_scipy() @ y.reshape(weights.k, -1)
        x = np.maximum(product + dense[f"{number}.bias"][:, None], 0).reshape(weights.m, *y.shape[1:])
    pooled = x.mean(axis=(1, 2))
    value = dense["classes"] @ pooled + dense["classes.bias"]
    scale = np.abs(dense["classes"]) @ pooled + np.abs(dense["classes.bias"])
    return Reference(value[:, None], scale[:, None])
