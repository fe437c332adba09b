"""cuSPARSE handle, descriptors and formats, and the life of one call: describe, size the workspace, preprocess, run.

Conversion, workspace and preprocessing are untimed and counted in `prepare_ms`. Accumulation is fp32.
The block formats hold the matrix as the blocks that have a nonzero, zeros inside them stored and multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import numpy as np
import scipy.sparse

from nnzbench.devices.gpu import DeviceArray, GpuDevice
from nnzbench.kernels.vendor import support
from nnzbench.kernels.vendor.storage import CUDA_TYPE, to_storage
from nnzbench.kernels.vendor.support import Closable, Preparing, Result
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Array, Prepared, Unsupported

T = TypeVar("T")

REFUSES_F16 = (
    "the cuSPARSE of CUDA 13.1 and 13.2 refuses 16-bit SpMM with fp32 sums: take that of CUDA 12.9, 13.0 or 13.3"
)
"""Told beside a refusal of 16-bit operands. Seen by the authors of CUDA.jl (JuliaGPU/CUDA.jl, pull request 3253)."""


class Handle(support.Handle):
    """A cuSPARSE handle on the device's stream, with the scalars of every product: alpha is 1, beta is 0."""

    library = "cusparse"

    def __init__(self, device: GpuDevice) -> None:
        super().__init__(device)
        self.lib.set_stream(self.value, device.backend.stream)
        self._scalars = np.array([1.0, 0.0], np.float32)  # read by the host at each call
        self.alpha = self._scalars.ctypes.data
        self.beta = self.alpha + self._scalars.itemsize

    def version(self) -> str:
        """Of the library, in words; what it does may depend on it."""
        try:
            return "cuSPARSE " + ".".join(str(self.lib.get_property(part)) for part in range(3))
        except Exception:  # a version that can't be told must not hide what it is told for
            return "cuSPARSE of unknown version"


class Descriptors(ExitStack):
    """The matrix and vector descriptors of one product, destroyed last first; 32-bit zero-based indices."""

    def __init__(self, cusparse: Any, kind: int) -> None:
        super().__init__()
        self._lib, self._kind = cusparse, kind
        self._index, self._base = int(cusparse.IndexType.INDEX_32I), int(cusparse.IndexBase.ZERO)

    def _kept(self, descriptor: int, destroy: Callable[[int], None]) -> int:
        self.callback(destroy, descriptor)
        return descriptor

    def sparse(
        self,
        algorithm: str,
        shape: tuple[int, int, int],
        parts: Sequence[DeviceArray],
        size: int = 0,
    ) -> int:
        """Rows, columns and nonzeros in the format of an algorithm (its name in cuSPARSE), as `stored` gives them."""
        lib, index, end = self._lib, self._index, (self._base, self._kind)
        pointers = [part.pointer for part in parts]
        if algorithm.startswith("SELL"):
            made = lib.create_sliced_ell(*shape, parts[2].shape[0], SLICE, *pointers, index, index, *end)
        elif algorithm.startswith("COO"):
            made = lib.create_coo(*shape, *pointers, index, *end)
        elif not size:
            made = lib.create_csr(*shape, *pointers, index, index, *end)
        elif algorithm == "BSR_ALG1":
            grid = (shape[0] // size, shape[1] // size, parts[1].shape[0], size, size)
            made = lib.create_bsr(*grid, *pointers, index, index, *end, int(lib.Order.ROW))
        else:
            made = lib.create_blocked_ell(*shape[:2], size, parts[1].shape[1], *pointers, index, *end)
        return self._kept(made, lib.destroy_sp_mat)

    def dense(self, rows: int, columns: int, pointer: int, column_major: bool = False) -> int:
        """A dense matrix without padding."""
        lib = self._lib
        order = lib.Order.COL if column_major else lib.Order.ROW
        leading = max(1, rows if column_major else columns)
        made = lib.create_dn_mat(rows, columns, leading, pointer, self._kind, int(order))
        return self._kept(made, lib.destroy_dn_mat)

    def vector(self, size: int, pointer: int) -> int:
        """A dense vector."""
        return self._kept(self._lib.create_dn_vec(size, pointer, self._kind), self._lib.destroy_dn_vec)


SLICE = 32
"""Rows per slice of sliced ELL: one warp's."""


def sliced_ell(matrix: CSR) -> tuple[Array, Array, Array]:
    """Slice offsets, columns and values: each slice as wide as its longest row, column-major, padded with -1 and 0."""
    slices = -(-matrix.m // SLICE)
    lengths = np.zeros(slices * SLICE, np.int64)
    lengths[: matrix.m] = matrix.row_lengths
    offsets = np.concatenate([[0], np.cumsum(lengths.reshape(slices, SLICE).max(axis=1) * SLICE)])
    columns = np.full(int(offsets[-1]), -1, np.int32)
    values = np.zeros(int(offsets[-1]), matrix.values.dtype)
    for first, at, end in zip(range(0, matrix.m, SLICE), offsets[:-1], offsets[1:], strict=True):
        held = slice(matrix.offsets[first], matrix.offsets[min(first + SLICE, matrix.m)])
        # (place in the row, row) as stored; its transpose, masked, has the nonzeros in the order of CSR
        filled = np.arange((end - at) // SLICE) < lengths[first : first + SLICE, None]
        columns[at:end].reshape(-1, SLICE).T[filled] = matrix.indices[held]
        values[at:end].reshape(-1, SLICE).T[filled] = matrix.values[held]
    return offsets.astype(np.int32), columns, values


def occupied(matrix: CSR, size: int) -> float:
    """Share of the blocks of `size` x `size`, which divides m and k, that hold a nonzero."""
    held = np.zeros((matrix.m // size, matrix.k // size), bool)
    held[matrix.rows // size, matrix.indices // size] = True
    return float(held.mean())


def block_rows(matrix: CSR, size: int) -> tuple[Array, Array, Array]:
    """Block row offsets, block columns, and values (blocks, size, size)."""
    bits = np.ascontiguousarray(matrix.values).view(f"u{matrix.values.itemsize}")  # SciPy knows no half precision
    shape = (matrix.m, matrix.k)
    found = scipy.sparse.csr_array((bits, matrix.indices, matrix.offsets), shape=shape).tobsr((size, size))
    found.sort_indices()
    return found.indptr, found.indices, found.data.view(matrix.values.dtype)


def blocked_ell(matrix: CSR, size: int) -> tuple[Array, Array]:
    """Block columns (block rows, width), -1 where a row has fewer blocks, and values (m, width * size)."""
    offsets, columns, blocks = block_rows(matrix, size)
    counts = np.diff(offsets)
    at = np.repeat(np.arange(counts.size), counts), np.arange(columns.size) - np.repeat(offsets[:-1], counts)
    places = np.full((counts.size, max(1, counts.max())), -1, np.int32)
    places[at] = columns
    values = np.zeros((*places.shape, size, size), blocks.dtype)
    values[at] = blocks
    return places, np.ascontiguousarray(values.swapaxes(1, 2)).reshape(matrix.m, -1)


def stored(preparing: Preparing, matrix: CSR, algorithm: str, dtype: str, size: int = 0) -> tuple[DeviceArray, ...]:
    """The matrix in device memory in the format of an algorithm (its name in cuSPARSE), values last.

    `size` is that of blocks, for `BSR_ALG1` and `BLOCKED_ELL_ALG1`.
    """
    if size or algorithm.startswith("SELL"):

        def make() -> tuple[Array, ...]:
            blocks = block_rows if algorithm == "BSR_ALG1" else blocked_ell
            *structure, values = blocks(matrix, size) if size else sliced_ell(matrix)
            return *structure, to_storage(values, dtype)

        return preparing.arrays((algorithm, size), make)
    if algorithm.startswith("COO"):
        first = preparing.array(("rows",), lambda: matrix.rows.astype(np.int32))
    else:
        first = preparing.array(("offsets",), lambda: matrix.offsets)
    return first, *preparing.arrays(("nonzeros",), lambda: (matrix.indices, to_storage(matrix.values, dtype)))


def prepare_call(
    handle: Handle,
    routine: str,
    variant: str,
    preprocess: bool,
    describe: Callable[[Descriptors, Sequence[DeviceArray]], tuple[int, ...]],
    dtype: str,
    output: Result,
    weights: Sequence[DeviceArray],
    others: Sequence[DeviceArray],
    preparing: Preparing,
) -> Prepared:
    """The `routine` of cuSPARSE (`sp_mm`) on what `describe` makes of fresh descriptors and `weights`.

    `others` are its other inputs. Raises `Unsupported` where cuSPARSE refuses it.
    """
    device, lib = handle.device, handle.lib
    execute = getattr(lib, routine)
    held: list[Closable] = []

    def call(library: Callable[[], T]) -> T:
        try:
            return support.refusing(f"cusparse {variant}", library)
        except Unsupported as refused:
            if dtype == "f32" or "NOT_SUPPORTED" not in str(refused):
                raise
            raise Unsupported(f"{refused} ({handle.version()}; {REFUSES_F16})") from None

    def buffer_size(arguments: tuple[int, ...]) -> int:
        ask = getattr(lib, f"{routine}_buffer_size")
        if routine != "sddmm":
            return int(ask(*arguments))
        size = np.zeros(1, np.uint64)
        ask(*arguments, size.ctypes.data)
        return int(size[0])

    def over(arrays: Sequence[DeviceArray]) -> Callable[[], None]:
        descriptors = Descriptors(lib, CUDA_TYPE[dtype])
        try:
            arguments = call(lambda: describe(descriptors, arrays))
            workspace = device.empty((max(1, call(lambda: buffer_size(arguments))),), np.uint8)
            if preprocess:
                call(lambda: getattr(lib, f"{routine}_preprocess")(*arguments, workspace.pointer))
        except BaseException:
            descriptors.close()
            raise
        held.extend((descriptors, workspace))

        def run(keep: Any = (handle, arrays, others, workspace, output)) -> None:
            call(lambda: execute(*arguments, workspace.pointer))

        return run

    return support.finish(preparing, over(weights), output, held, weights, over)
