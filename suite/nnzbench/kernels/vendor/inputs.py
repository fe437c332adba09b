"""A problem's constant inputs in device memory, each form made and uploaded once for all candidates that take it.

On large problems converting and uploading take seconds where the GPU needs milliseconds.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from nnzbench.devices.gpu import DeviceArray, GpuDevice
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Array
from nnzbench.problems.operands import to_e4m3

SHARE = 8
"""Inputs kept between candidates take at most one part in this many of the GPU's memory."""
STRIP = 16
"""Rows copied at a time where two axes are swapped: what they write are whole cache lines, what they read stays."""

Form = tuple[str | int | bool, ...]
Held = dict[Form, tuple[tuple[DeviceArray, ...], float]]
WEIGHTS = "weights"
"""First word of the forms that hold the matrix with its zeros."""


class Weights:
    """A matrix with its zeros in device memory, for all dense libraries and all problems in a row that have it."""

    def __init__(self) -> None:
        self._held: Held = {}
        self._matrix: Callable[[], CSR | None] = lambda: None

    def of(self, matrix: CSR) -> Held:
        """What is held of that matrix; of any other one nothing is any more."""
        if self._matrix() is not matrix:
            self.close()
            held: Held = {}
            self._held, self._matrix = held, weakref.ref(matrix, lambda _: held.clear())
        return self._held

    def close(self) -> None:
        """Holds nothing."""
        self._held.clear()


class Inputs:
    """Inputs of one problem by form, shared by the candidates of one kernel and freed with the last of them.

    Given the `matrix`, what is held under `WEIGHTS` is shared more widely; see `Weights`.

    Libraries take inputs as const, and what prepares a call writes to workspaces alone. One that wrote to an input all
    the same would not pass unnoticed: every later result is checked against a reference made from the host's arrays.
    """

    def __init__(self, device: GpuDevice, matrix: CSR | None = None) -> None:
        self.device = device
        self._held: Held = {}
        self._weights: Held = {} if matrix is None else device.library("matrix_weights", Weights).of(matrix)

    def take(self, form: Form, make: Callable[[], Sequence[Array]]) -> tuple[tuple[DeviceArray, ...], float]:
        """The arrays of a form, and the seconds that it took earlier to make them: 0 where they are made now.

        Raises `LaunchError` where there is no memory.
        """
        mine = self._weights if form[0] == WEIGHTS else self._held
        if form in mine:
            return mine[form]
        started = time.perf_counter()
        made = make()
        every = (*self._held.values(), *self._weights.values())
        held = sum(array.size_bytes for arrays, _ in every for array in arrays)
        if held + sum(array.nbytes for array in made) > self.device.facts.memory_bytes // SHARE:
            self.drop()
        arrays = tuple(self.device.upload(array) for array in made)
        mine[form] = (arrays, time.perf_counter() - started)
        return arrays, 0.0

    def drop(self) -> None:
        """Keeps nothing for later candidates; whoever runs on an array still holds it."""
        self._held.clear()
        self._weights.clear()


class Preparing:
    """The preparation of one candidate: the inputs that it takes, and its duration had it made all of them itself."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._started = time.perf_counter()
        self._earlier = 0.0

    def arrays(self, form: Form, make: Callable[[], Sequence[Array]]) -> tuple[DeviceArray, ...]:
        """The arrays of a form, made at its first use. Raises `LaunchError` where there is no memory."""
        arrays, seconds = self._inputs.take(form, make)
        self._earlier += seconds
        return arrays

    def array(self, form: Form, make: Callable[[], Array]) -> DeviceArray:
        """The one array of a form, as `arrays`."""
        return self.arrays(form, lambda: (make(),))[0]

    def milliseconds(self) -> float:
        """Time since the start, and what others spent on forms that this one takes: it does not depend on the order."""
        return (time.perf_counter() - self._started + self._earlier) * 1e3

    def failed(self) -> None:
        """Drops the inputs: what failed may have been for want of memory, or have written where it must not."""
        self._inputs.drop()


def to_storage(array: Array, dtype: str) -> Array:
    """`array` as the GPU stores it: rounded float32 of bf16 as 16 bits, of f8 as 8 of `F8_SCALE` times it."""
    if dtype == "f8":
        return np.ascontiguousarray(to_e4m3(array)).view(np.uint8)
    if dtype != "bf16":
        return np.ascontiguousarray(array)
    return (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def swapped(array: Array) -> Array:
    """A C-contiguous copy with the last two axes swapped, several times as fast as NumPy's own on large arrays."""
    *batch, rows, columns = array.shape
    result = np.empty((*batch, columns, rows), array.dtype)
    for at in range(0, rows, STRIP):
        result[..., at : at + STRIP] = np.swapaxes(array[..., at : at + STRIP, :], -1, -2)
    return result


def dense_weights(matrix: CSR, dtype: str, transposed: bool = False) -> Array:
    """The matrix as the GPU stores it with its zeros, (m, k) or (k, m) row-major."""
    dense = matrix.with_values(to_storage(matrix.values, dtype)).to_dense()
    return swapped(dense) if transposed else dense


def dense_operand(preparing: Preparing, b: Array, dtype: str, turned: bool = False) -> DeviceArray:
    """The dense operand `b` in device memory as it is, or with its axes swapped."""

    def make() -> Array:
        stored = to_storage(b, dtype)
        return swapped(stored) if turned else stored

    return preparing.array(("b", turned), make)
