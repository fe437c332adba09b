"""Direct sparse convolution as published: its Algorithm 4, repaired where the listing can't compute a convolution.

The method keeps one offset per stored weight, shifted beforehand for the padded input; every output channel is
filled up to the same number of entries; a block computes one channel of a sub-batch of images.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.kernel import Array, Launch, Plan, Unsupported
from nnzbench.matrices.formats import CSR
from nnzbench.operands import Operands, storage_dtype
from nnzbench.problem import ConvShape, DType, Problem

SUB_BATCHES = (2, 4, 8)
"""Images per block that the paper tunes over."""
CHUNK_BYTES = 512 * 8
"""Entries staged at a time; as in the kernel."""
_GRID_Z = 65535

ENTRY = np.dtype([("value", np.float32), ("offset", np.int32)])


def entries(matrix: CSR, shape: ConvShape) -> NDArray[Any]:
    """The unified rows, shape (filters, most nonzeros of a row), of (value, pre-shifted offset) pairs.

    Shorter rows are filled with the value zero at their own last offset, which the cache holds already.
    """
    taps = shape.r * shape.s
    channel, tap = np.divmod(matrix.indices, taps)
    shifted = (channel * padded_height(shape) + tap // shape.s) * padded_width(shape) + tap % shape.s
    lengths = matrix.row_lengths
    most = max(1, int(lengths.max(initial=0)))
    unified = np.zeros((matrix.m, most), dtype=ENTRY)
    filled = np.arange(most) < lengths[:, None]
    unified["value"][filled] = matrix.values
    unified["offset"][filled] = shifted
    last = unified["offset"][np.arange(matrix.m), np.maximum(lengths - 1, 0)]
    unified["offset"] = np.where(filled, unified["offset"], last[:, None])
    return unified


def padded_height(shape: ConvShape) -> int:
    """Rows of a padded channel."""
    return shape.height + 2 * shape.pad_h


def padded_width(shape: ConvShape) -> int:
    """Elements of a padded row."""
    return shape.width + 2 * shape.pad_w


def plans(problem: Problem, operands: Operands) -> Iterator[Plan]:
    """Every sub-batch with the padded input given, each again with the padding in its time, and table 9's two extremes.

    `paper_sbs1` uses batch * filters blocks (no sub-batch), `paper_whole` one block per channel for the whole batch.
    Raises `Unsupported` for an input too large for 32-bit offsets.
    """
    layer = Layer.of(problem, operands)
    for sub_batch in SUB_BATCHES:
        yield layer.plan(f"paper_sbs{sub_batch}", sub_batch, sub_batch)
    if layer.shape.pad_h or layer.shape.pad_w:
        for sub_batch in SUB_BATCHES:
            yield layer.plan(f"paper_sbs{sub_batch}_padding_timed", sub_batch, sub_batch, time_padding=True)
    yield layer.plan("paper_sbs1", 1, 1)
    yield layer.plan("paper_whole", 8, layer.shape.batch)


@dataclass(frozen=True)
class Layer:
    """What all variants of one problem share; an input may take gigabytes, so its plans hold the same arrays."""

    shape: ConvShape
    dtype: DType
    x: Array
    padded: Array
    unified: Array
    y: Array
    generate_ms: float

    @staticmethod
    def of(problem: Problem, operands: Operands) -> Layer:
        """Pads the input and unifies the weights. Raises `Unsupported` where 32-bit offsets don't reach."""
        start = time.perf_counter()
        shape = problem.conv
        assert shape is not None
        if shape.channels * padded_height(shape) * padded_width(shape) >= 2**31:
            raise Unsupported("one padded image has 2**31 elements or more")
        x = np.ascontiguousarray(operands.dense["x"], dtype=storage_dtype(problem.dtype))
        pads = ((0, 0), (0, 0), (shape.pad_h, shape.pad_h), (shape.pad_w, shape.pad_w))
        y = np.zeros((shape.batch, shape.filters, shape.out_height, shape.out_width), x.dtype)
        unified = entries(operands.sparse, shape)
        elapsed = (time.perf_counter() - start) * 1e3
        return Layer(shape, problem.dtype, x, np.pad(x, pads), unified, y, elapsed)

    def plan(self, variant: str, sub_batch: int, images_per_block: int, time_padding: bool = False) -> Plan:
        """One variant; `images_per_block` images are computed `sub_batch` at a time."""
        s = self.shape
        _, channels, height, width = self.padded.shape
        block_x, block_y = (32, 8) if s.out_width > 16 else (16, 16)
        block = (block_x, block_y, 1)
        buffers = {"x": self.padded, "entries": self.unified.reshape(-1).view(np.int32), "y": self.y}
        launches = []
        if time_padding:
            buffers |= {"image": self.x, "x": np.zeros(self.padded.shape, self.padded.dtype)}
            sizes = (s.height, s.width, s.pad_h, s.pad_w, height, width)
            launches.append(Launch("pad_images", (s.batch * channels * height, 1, 1), block, ("image", "x", *sizes)))
        blocks = -(-s.batch // images_per_block) * s.filters
        image = channels * height * width
        for first in range(0, blocks, _GRID_Z):
            grid = (-(-s.out_width // block_x), -(-s.out_height // block_y), min(_GRID_Z, blocks - first))
            counts = (self.unified.shape[1], s.filters, s.batch, images_per_block)
            args = ("x", "entries", "y", *counts, image, width, s.stride, s.out_height, s.out_width, first)
            launches.append(Launch("direct_conv_paper", grid, block, args, CHUNK_BYTES))
        return Plan(
            variant=variant,
            language="cuda",
            source="direct_conv_paper.cu",
            defines={"SUB_BATCH": sub_batch, "BLOCK_X": block_x, "BLOCK_Y": block_y, "F16": int(self.dtype == "f16")},
            buffers=buffers,
            output="y",
            launches=tuple(launches),
            math=self.dtype,
            generate_ms=self.generate_ms,
        )
