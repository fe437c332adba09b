"""Direct sparse convolution as published: its Algorithm 4, repaired where the listing can't compute a convolution.

The method keeps one offset per stored weight, shifted beforehand for the padded input; every output channel is
filled up to the same number of entries; a block computes one channel of a sub-batch of images, a thread one output
position. In half precision the stored weights are halves too (section 6.1: "16b/16b"). Weights that share the values of
a codebook (section 4: k-means, 4 bits) also come as indices into it: stored so in the paper, and never timed there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.plan import Array, Int32s, Int64s, Launch, Plan, Uint32s, Unsupported
from nnzbench.core.tiles import MOST_GRID_Y
from nnzbench.data.matrices.encodings import Coded
from nnzbench.data.matrices.formats import CSR, MatrixError
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import ConvShape, DType, Problem

SUB_BATCHES = (2, 4, 8)
"""Images per block that the paper tunes over."""
THREADS = 256
"""Most threads of a block."""
CHUNK = 512
"""Most entries staged at a time; as in the kernel."""
STAGED_BYTES = 8
"""Shared memory of a staged entry, of either type."""
_PLACES = 1 << 16
"""Places that 16 bits tell apart."""

ENTRIES: dict[DType, np.dtype[Any]] = {
    "f32": np.dtype([("weight", np.float32), ("place", np.int32)]),
    "f16": np.dtype([("weight", np.float16), ("place", np.uint16)]),
}
"""A stored weight by the layer's type: 8 or 4 bytes."""
_CODED = np.dtype([("weight", np.uint8), ("place", np.int32)])


def column_offsets(shape: ConvShape) -> Int32s:
    """The pre-shifted offset of each column of the weights, in elements, shape (channels * r * s,)."""
    channel, row, column = np.indices((shape.channels, shape.r, shape.s)).reshape(3, -1)
    offsets = (channel * (shape.height + 2 * shape.pad_h) + row) * (shape.width + 2 * shape.pad_w) + column
    return offsets.astype(np.int32)


def needs_table(shape: ConvShape, dtype: DType) -> bool:
    """Whether 16 bits can't hold the layer's offsets, so that its entries name columns of the weights instead."""
    return dtype == "f16" and int(column_offsets(shape)[-1]) >= _PLACES


def entries(matrix: CSR, shape: ConvShape, dtype: DType) -> NDArray[Any]:
    """The weights as `ENTRIES[dtype]`, shape (nnz,), sorted by output channel and column.

    Raises `Unsupported` where a half weight's 16-bit place can't name every column.
    """
    places = matrix.indices
    if not needs_table(shape, dtype):
        places = column_offsets(shape)[places]
    elif matrix.k > _PLACES:
        raise Unsupported(f"a filter has more than {_PLACES} weights, too many for entries of 4 bytes")
    stored = np.empty(matrix.nnz, ENTRIES[dtype])
    stored["weight"], stored["place"] = matrix.values, places
    return stored


def unified(stored: NDArray[Any], lengths: Int64s) -> NDArray[Any]:
    """Rows of equally many entries, shape (filters, most entries of a channel, at least 1).

    Shorter rows are filled up with the weight zero at their own last place, which the cache holds already.
    """
    most = max(1, int(lengths.max(initial=0)))
    rows = np.zeros((lengths.size, most), stored.dtype)
    filled = np.arange(most) < lengths[:, None]
    rows[filled] = stored
    last = rows["place"][np.arange(lengths.size), np.maximum(lengths - 1, 0)]
    rows["place"] = np.where(filled, rows["place"], last[:, None])
    return rows


def coded_entries(coded: Coded, shape: ConvShape) -> Uint32s:
    """Rows of equally many words, shape (filters, most entries of a channel): an offset and a codebook index each.

    What fills a row up has index 0, whose weight is zero. Raises `Unsupported` where 28 bits can't hold the offsets.
    """
    offsets = column_offsets(shape)
    if int(offsets[-1]) >= 1 << 28:
        raise Unsupported("offsets beside a codebook index have 28 bits, too few for this image")
    stored = np.empty(coded.codes.size, _CODED)
    stored["weight"], stored["place"] = coded.codes, offsets[coded.pattern.indices]
    rows = unified(stored, coded.pattern.row_lengths)
    words: Uint32s = rows["place"].astype(np.uint32) << 4 | rows["weight"]
    return words


def block_of(shape: ConvShape) -> tuple[int, int]:
    """Threads of a block along a row and across rows.

    An output of one row or one column (1-D) is shared out evenly to as few blocks as hold it, so that fewer threads
    than blocks are idle: a row of 63 takes 63 threads. Images take tiles of 256 positions.
    """
    if 1 in (shape.out_height, shape.out_width):
        outputs = shape.out_height * shape.out_width
        threads = -(-outputs // -(-outputs // THREADS))
        return (threads, 1) if shape.out_height == 1 else (1, threads)
    return (32, 8) if shape.out_width > 16 else (16, 16)


def plans(problem: Problem, operands: Operands) -> Iterator[Plan]:
    """Every sub-batch with the padded input given, the same with the padding in its time, table 9's two extremes, and
    every sub-batch, and one image, without the unified count of entries (section 5): from CSR.

    `paper_sbs1` uses batch * filters blocks (no sub-batch), `paper_whole` one block per channel for the whole batch;
    in `paper_counts_sbs<n>` channels keep their own counts, and in `paper_half2_sbs<n>` multiply-adds are of two
    halves at a time. Where a codebook holds all weights, `codebook_sbs<n>` read
    indices into it and come first. Raises `Unsupported` for an input too large for 32-bit
    offsets, or filters too large for 16-bit places.
    """
    layer = PaperLayer(problem, operands)
    try:
        coded = Coded.of(operands.sparse)
        codebook = coded.codebook, coded_entries(coded, layer.shape)
    except (MatrixError, Unsupported):
        pass  # weights of their own, as the other variants have them
    else:
        yield from (layer.plan(f"codebook_sbs{size}", size, size, codebook=codebook) for size in SUB_BATCHES)
    yield from (layer.plan(f"paper_sbs{size}", size, size) for size in SUB_BATCHES)
    if layer.shape.pad_h or layer.shape.pad_w:
        for size in SUB_BATCHES:
            yield layer.plan(f"paper_sbs{size}_padding_timed", size, size, time_padding=True)
    if problem.dtype == "f16":
        yield from (layer.plan(f"paper_half2_sbs{size}", size, size, half2=True) for size in SUB_BATCHES)
    yield layer.plan("paper_sbs1", 1, 1)
    yield layer.plan("paper_whole", 8, layer.shape.batch)
    for size in (1, *SUB_BATCHES):
        yield layer.plan(f"paper_counts_sbs{size}", size, size, unify=False)


class PaperLayer:
    """What all variants of one problem share; an input may take gigabytes, so its plans hold the same arrays."""

    def __init__(self, problem: Problem, operands: Operands) -> None:
        """Pads the input and stores the weights. Raises `Unsupported` where offsets or places don't reach."""
        start = time.perf_counter()
        s = problem.conv
        assert s is not None
        if s.channels * (s.height + 2 * s.pad_h) * (s.width + 2 * s.pad_w) >= 2**31:
            raise Unsupported("one padded image has 2**31 elements or more")
        self.shape, self.dtype = s, problem.dtype
        counted = entries(operands.sparse, s, problem.dtype)
        self.x = np.ascontiguousarray(operands.dense["x"])
        self.padded = np.pad(self.x, ((0, 0), (0, 0), (s.pad_h, s.pad_h), (s.pad_w, s.pad_w)))
        self.counted = counted if counted.size else np.zeros(1, counted.dtype)  # a buffer is never empty
        """Entries of channels that keep their own counts, shape (nnz,)."""
        self.unified = unified(counted, operands.sparse.row_lengths)
        self.starts = operands.sparse.offsets
        """First of the `counted` entries of each channel, and their number."""
        self.offsets = column_offsets(s)
        self.y = np.zeros(s.output, self.x.dtype)
        self.generate_ms = (time.perf_counter() - start) * 1e3

    def plan(
        self,
        variant: str,
        sub_batch: int,
        images_per_block: int,
        time_padding: bool = False,
        unify: bool = True,
        codebook: tuple[Array, Array] | None = None,
        half2: bool = False,
    ) -> Plan:
        """One variant; `images_per_block` images are computed `sub_batch` at a time.

        `codebook` holds its 16 weights, and the unified rows of indices into them.
        """
        s = self.shape
        _, channels, height, width = self.padded.shape
        block = (*block_of(s), 1)
        weights, stored = codebook or (np.zeros(1, np.float32), self.unified if unify else self.counted)
        buffers = {"x": self.padded, "entries": stored.reshape(-1).view(np.int32), "codebook": weights}
        buffers |= {"starts": self.starts, "offsets": self.offsets, "y": self.y}
        launches = []
        if time_padding:
            buffers |= {"image": self.x, "x": np.zeros(self.padded.shape, self.padded.dtype)}
            sizes = (s.height, s.width, s.pad_h, s.pad_w, height, width)
            launches.append(Launch("pad_images", (s.batch * channels * height, 1, 1), block, ("image", "x", *sizes)))
        blocks = -(-s.batch // images_per_block) * s.filters
        image = channels * height * width
        most = self.unified.shape[1]
        for first in range(0, blocks, MOST_GRID_Y):
            grid = (-(-s.out_width // block[0]), -(-s.out_height // block[1]), min(MOST_GRID_Y, blocks - first))
            counts = (most, s.filters, s.batch, images_per_block)
            sizes = (image, width, s.stride, s.out_height, s.out_width, first)
            args = ("x", "entries", "starts", "offsets", "codebook", "y", *counts, *sizes)
            launches.append(Launch("direct_conv_paper", grid, block, args, STAGED_BYTES * min(CHUNK, most)))
        half = int(self.dtype == "f16")
        return Plan(
            variant=variant,
            language="cuda",
            source="direct_conv_paper.cu",
            defines={
                "SUB_BATCH": sub_batch,
                "BLOCK_X": block[0],
                "BLOCK_Y": block[1],
                "F16": half,
                "INDEX16": half,
                "OFFSET_TABLE": int(codebook is None and needs_table(s, self.dtype)),
                "CHANNEL_COUNTS": int(not unify),
                "CODEBOOK": int(codebook is not None),
                "HALF2": int(half2),
            },
            buffers=buffers,
            output="y",
            launches=tuple(launches),
            math=self.dtype,
            tolerance="f16_sums" if half2 else "",
            generate_ms=self.generate_ms,
        )
