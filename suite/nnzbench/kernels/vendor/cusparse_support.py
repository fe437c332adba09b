"""cuSPARSE handle, descriptors and the life of one call: describe, size the workspace, preprocess, run.

Conversion, workspace and preprocessing are untimed and counted in `prepare_ms`. Accumulation is fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from nnzbench.devices.gpu import DeviceArray, GpuDevice
from nnzbench.kernels.vendor.support import (
    CUDA_TYPE,
    Closable,
    Freed,
    Output,
    Preparing,
    finish,
    load_bindings,
    open_library,
    refusing,
    to_storage,
)
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Prepared, Unsupported

T = TypeVar("T")

REFUSES_F16 = (
    "the cuSPARSE of CUDA 13.1 and 13.2 refuses 16-bit SpMM with fp32 sums: take that of CUDA 12.9, 13.0 or 13.3"
)
"""Told beside a refusal of 16-bit operands. Seen by the authors of CUDA.jl (JuliaGPU/CUDA.jl, pull request 3253)."""


class Handle:
    """A cuSPARSE handle on the device's stream, with the scalars of every product: alpha is 1, beta is 0."""

    def __init__(self, device: GpuDevice) -> None:
        self.cusparse: Any = load_bindings("cusparse")
        self.value: int = self.cusparse.create()
        self.cusparse.set_stream(self.value, device.backend.stream)
        self._scalars = np.array([1.0, 0.0], np.float32)  # read by the host at each call
        self.alpha = self._scalars.ctypes.data
        self.beta = self.alpha + self._scalars.itemsize

    def version(self) -> str:
        """Of the library, in words; what it does may depend on it."""
        try:
            return "cuSPARSE " + ".".join(str(self.cusparse.get_property(part)) for part in range(3))
        except Exception:  # a version that can't be told must not hide what it is told for
            return "cuSPARSE of unknown version"

    def close(self) -> None:
        """Destroys the handle."""
        self.cusparse.destroy(self.value)


def open_handle(device: GpuDevice) -> Handle:
    """The device's one handle. Raises `Unsupported` without cuSPARSE."""
    return open_library(device, "cusparse", lambda: Handle(device))


class Descriptors:
    """The matrix and vector descriptors of one product; 32-bit zero-based indices."""

    def __init__(self, cusparse: Any, kind: int) -> None:
        self._lib, self._kind = cusparse, kind
        self._index, self._base = int(cusparse.IndexType.INDEX_32I), int(cusparse.IndexBase.ZERO)
        self._undo: list[Callable[[], None]] = []

    def _sparse(self, descriptor: int) -> int:
        self._undo.append(lambda: self._lib.destroy_sp_mat(descriptor))
        return descriptor

    def csr(self, shape: tuple[int, int, int], pointers: tuple[int, int, int]) -> int:
        """Rows, columns and nonzeros at (offsets, indices, values)."""
        types = (self._index, self._index, self._base, self._kind)
        return self._sparse(self._lib.create_csr(*shape, *pointers, *types))

    def coo(self, shape: tuple[int, int, int], pointers: tuple[int, int, int]) -> int:
        """Rows, columns and nonzeros at (row indices, column indices, values), sorted by row."""
        return self._sparse(self._lib.create_coo(*shape, *pointers, self._index, self._base, self._kind))

    def sliced_ell(
        self, shape: tuple[int, int, int], size: int, slice_rows: int, pointers: tuple[int, int, int]
    ) -> int:
        """Slices of `slice_rows` rows, `size` padded values in all, at (slice offsets, columns, values)."""
        types = (self._index, self._index, self._base, self._kind)
        return self._sparse(self._lib.create_sliced_ell(*shape, size, slice_rows, *pointers, *types))

    def bsr(self, shape: tuple[int, int, int], block: int, pointers: tuple[int, int, int]) -> int:
        """Block rows, block columns and blocks, each row-major, at (offsets, indices, values)."""
        types = (self._index, self._index, self._base, self._kind, int(self._lib.Order.ROW))
        return self._sparse(self._lib.create_bsr(*shape, block, block, *pointers, *types))

    def blocked_ell(self, shape: tuple[int, int], block: int, width: int, pointers: tuple[int, int]) -> int:
        """Rows and columns with `width` stored columns per row, at (block columns, values row-major)."""
        types = (self._index, self._base, self._kind)
        return self._sparse(self._lib.create_blocked_ell(*shape, block, width, *pointers, *types))

    def dense(self, rows: int, columns: int, pointer: int, column_major: bool = False) -> int:
        """A dense matrix without padding."""
        lib = self._lib
        order = lib.Order.COL if column_major else lib.Order.ROW
        leading = max(1, rows if column_major else columns)
        descriptor: int = lib.create_dn_mat(rows, columns, leading, pointer, self._kind, int(order))
        self._undo.append(lambda: lib.destroy_dn_mat(descriptor))
        return descriptor

    def vector(self, size: int, pointer: int) -> int:
        """A dense vector."""
        lib = self._lib
        descriptor: int = lib.create_dn_vec(size, pointer, self._kind)
        self._undo.append(lambda: lib.destroy_dn_vec(descriptor))
        return descriptor

    def close(self) -> None:
        """Destroys them, last first."""
        while self._undo:
            self._undo.pop()()


@dataclass(frozen=True)
class Routine:
    """One routine of cuSPARSE: all three take the same arguments, the last two the workspace as well."""

    name: str
    """What an error is reported under, such as `cusparse csr_alg2_row`."""
    buffer_size: Callable[..., int]
    run: Callable[..., None]
    preprocess: Callable[..., None] | None = None


def prepare_call(
    device: GpuDevice,
    routine: Routine,
    describe: Callable[[Descriptors, Sequence[DeviceArray]], tuple[int, ...]],
    dtype: str,
    output: Output,
    weights: Sequence[DeviceArray],
    others: Sequence[DeviceArray],
    preparing: Preparing,
) -> Prepared:
    """The routine on what `describe` makes of fresh descriptors and `weights`; `others` are its other inputs.

    Raises `Unsupported` where cuSPARSE refuses it.
    """
    handle = open_handle(device)
    held: list[Closable] = []

    def call(library: Callable[[], T]) -> T:
        try:
            return refusing(routine.name, library)
        except Unsupported as refused:
            if dtype == "f32" or "NOT_SUPPORTED" not in str(refused):
                raise
            raise Unsupported(f"{refused} ({handle.version()}; {REFUSES_F16})") from None

    def over(arrays: Sequence[DeviceArray]) -> Callable[[], None]:
        descriptors = Descriptors(handle.cusparse, CUDA_TYPE[dtype])
        try:
            arguments = call(lambda: describe(descriptors, arrays))
            size = call(lambda: routine.buffer_size(*arguments))
            workspace = device.empty((max(1, size),), np.uint8)
            if routine.preprocess is not None:
                preprocess = routine.preprocess
                call(lambda: preprocess(*arguments, workspace.pointer))
        except BaseException:
            descriptors.close()
            raise
        held.extend((descriptors, Freed(workspace)))

        def run(keep: Any = (handle, arrays, others, workspace, output)) -> None:
            call(lambda: routine.run(*arguments, workspace.pointer))

        return run

    return finish(device, over(weights), output, held, preparing, weights, over)


def csr_parts(preparing: Preparing, matrix: CSR, dtype: str, coordinates: bool) -> tuple[DeviceArray, ...]:
    """Row offsets, or each nonzero's row for `coordinates` (COO), then columns and values, in device memory."""
    if coordinates:
        rows = preparing.array(("rows",), lambda: row_indices(matrix))
    else:
        rows = preparing.array(("offsets",), lambda: matrix.offsets)
    return rows, *preparing.arrays(("nonzeros",), lambda: (matrix.indices, to_storage(matrix.values, dtype)))


def row_indices(matrix: CSR) -> Any:
    """The row of every nonzero, int32, as COO has it."""
    return np.repeat(np.arange(matrix.m, dtype=np.int32), matrix.row_lengths)
