"""What the vendor kernels share: the GPU they need, the libraries they load, and inputs and results on it.

GPU libraries have types of their own for what they store: bf16 and FP8 as bits, zeros, swapped axes. Converting and
uploading inputs takes seconds where the GPU needs milliseconds, so each form of a problem's constant inputs is made
once for all candidates that take it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from nnzbench.core.architectures import ARCHITECTURES, architecture
from nnzbench.core.plan import (
    Array,
    Candidate,
    Ends,
    Made,
    Prepared,
    SharedWork,
    Unsupported,
    bf16_bits,
    from_bf16,
    one_line,
)
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands, to_e4m3
from nnzbench.data.problems.parts import PART_ELEMENTS, Part, over_parts
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import Reference, dense_reference
from nnzbench.devices import Device, DeviceLost
from nnzbench.devices.gpu import PAUSES_S, DeviceArray, GpuDevice, LaunchError, short_of_memory
from nnzbench.kernels.registry import About, FoundKernel, register

CUDA_TYPE = {"f32": 0, "f16": 2, "bf16": 14, "i8": 3, "f8": 28}
"""cudaDataType of the operands, by problem dtype."""
RESULT_TYPE = {**CUDA_TYPE, "i8": 10, "f8": 2}
"""Of the result: sums of 8-bit products are 32-bit integers, or fp16."""

STORAGE = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16, "i8": np.int32, "f8": np.float16}
"""How results lie in device memory, by problem dtype."""
STRIP = 16
"""Rows copied at a time where two axes are swapped: what they write are whole cache lines, what they read stays."""


def to_storage(array: Array, dtype: str) -> Array:
    """`array` as the GPU stores it: rounded float32 of bf16 as 16 bits, of f8 as 8 of `F8_SCALE` times it."""
    if dtype == "f8":
        return np.ascontiguousarray(to_e4m3(array)).view(np.uint8)
    return bf16_bits(array) if dtype == "bf16" else np.ascontiguousarray(array)


def swapped(array: Array) -> Array:
    """A C-contiguous copy with the last two axes swapped, many times as fast as NumPy's own on large arrays."""
    *batch, rows, columns = array.shape
    result = np.empty((*batch, columns, rows), array.dtype)

    def strips(part: Part) -> None:
        for at in range(part[0].start * STRIP, min(part[0].stop * STRIP, rows), STRIP):
            result[..., at : at + STRIP] = np.swapaxes(array[..., at : at + STRIP, :], -1, -2)

    over_parts(strips, (-(-rows // STRIP),), max(1, PART_ELEMENTS // (STRIP * max(1, columns))))
    return result


def before_pruning(matrix: CSR) -> Array:
    """A matrix (m, k) that pruning may have made this one of: where it has zeros, its values over again.

    Who does not prune multiplies by such a one: the power that tensor cores take, and so their clock, depends on the
    zeros. The values that were pruned in fact are nowhere recorded.
    """
    dense = matrix.to_dense()
    zeros = dense == 0
    if matrix.nnz:
        dense[zeros] = np.resize(matrix.values, np.count_nonzero(zeros))
    return dense


def dense_weights(matrix: CSR, dtype: str, transposed: bool = False, pruned: bool = True) -> Array:
    """The matrix as the GPU stores it with its zeros, or with the values before pruning; (m, k) or (k, m) row-major."""
    if pruned:
        dense = matrix.with_values(to_storage(matrix.values, dtype)).to_dense()
    else:
        dense = to_storage(before_pruning(matrix), dtype)
    return swapped(dense) if transposed else dense


SHARE = 8
"""Inputs kept between candidates take at most one part in this many of the GPU's memory."""

Form = tuple[str | int | bool, ...]
WEIGHTS = "weights"
"""First word of the forms that hold the matrix with its zeros."""


class Weights:
    """A matrix with its zeros in device memory, for all dense libraries and all problems in a row that have it."""

    def __init__(self) -> None:
        self._held: Made = {}
        self._matrix: Callable[[], CSR | None] = lambda: None

    def of(self, matrix: CSR) -> Made:
        """What is held of that matrix; of any other one nothing is any more."""
        if self._matrix() is not matrix:
            self.close()
            held: Made = {}
            self._held, self._matrix = held, weakref.ref(matrix, lambda _: held.clear())
        return self._held

    def close(self) -> None:
        self._held.clear()


class UnprunedTruth:
    """The float64 result over the matrix as it was before pruning; kept for the last matrix and dense operand."""

    def __init__(self) -> None:
        self._kept: tuple[CSR, Array, Reference] | None = None

    def __call__(self, matrix: CSR, b: Array) -> Reference:
        if self._kept is None or self._kept[0] is not matrix or self._kept[1] is not b:
            self._kept = matrix, b, dense_reference(before_pruning(matrix), b)
        return self._kept[2]

    def close(self) -> None:
        self._kept = None


class Inputs(SharedWork):
    """Inputs of one problem by form, shared by the candidates of one kernel and freed with the last of them.

    Given the `matrix`, what is held under `WEIGHTS` is shared more widely; see `Weights`.

    Libraries take inputs as const, and what prepares a call writes to workspaces alone. One that wrote to an input all
    the same would not pass unnoticed: every later result is checked against a reference made from the host's arrays.
    """

    def __init__(self, device: GpuDevice, matrix: CSR | None = None) -> None:
        super().__init__()
        self.device = device
        self._ahead: dict[Form, tuple[Sequence[Array], float]] = {}
        self._weights: Made = {} if matrix is None else device.library("matrix_weights", Weights).of(matrix)

    def ahead(self, form: Form, make: Callable[[], Array]) -> None:
        """Makes the one array of a form on the host where it is not held: other processes use the GPU meanwhile."""
        if form not in self._of(form) and form not in self._ahead:
            elapsed = self.timer()
            self._ahead[form] = (make(),), elapsed() / 1e3

    def _of(self, form: Form) -> Made:
        return self._weights if form[0] == WEIGHTS else self._made

    def take(self, form: Form, make: Callable[[], Sequence[Array]]) -> tuple[DeviceArray, ...]:
        """The arrays of a form, made at its first use. Raises `LaunchError` where there is no memory."""

        def uploaded() -> tuple[DeviceArray, ...]:
            made, earlier = self._ahead.pop(form) if form in self._ahead else (make(), 0.0)
            self._saved += earlier
            every = (*self._made.values(), *self._weights.values())
            held = sum(array.size_bytes for arrays, _ in every for array in arrays)
            if held + sum(array.nbytes for array in made) > self.device.facts.memory_bytes // SHARE:
                self.drop()
            return tuple(self.device.upload(array) for array in made)

        return self._once(self._of(form), form, uploaded)

    def drop(self) -> None:
        """Keeps nothing for later candidates; whoever runs on an array still holds it."""
        self._made.clear()
        self._weights.clear()


class Preparing:
    """The preparation of one candidate: the inputs that it takes, and its duration had it made all of them itself.

    Raises `Unsupported` where the GPU has no such arithmetic as `math`: a library would quietly run another instead.
    """

    def __init__(self, inputs: Inputs, math: str = "f32") -> None:
        require_math(inputs.device, math)
        self.inputs, self.device = inputs, inputs.device
        self.arrays = inputs.take
        self.milliseconds = inputs.timer()
        """Time since the start, and what others spent on forms that this one takes: it does not depend on the order."""

    def array(self, form: Form, make: Callable[[], Array]) -> DeviceArray:
        """The one array of a form, as `arrays`."""
        return self.arrays(form, lambda: (make(),))[0]

    def dense(self, b: Array, dtype: str, turned: bool = False) -> DeviceArray:
        """The dense operand `b` as it is, or with its axes swapped."""
        return self.array(("b", turned), lambda: swapped(to_storage(b, dtype)) if turned else to_storage(b, dtype))


T = TypeVar("T")
H = TypeVar("H", bound="Handle")

WORKSPACE_BYTES = 32 << 20
"""Fixed workspace of a dense library's handle: what cuBLAS itself takes on the largest GPUs."""

INSTALL_VENDOR = "pip install 'nnzbench[vendor13]' (vendor12 for V100)"
"""What brings cuDNN and cuSPARSELt."""


class Closable(Protocol):
    """Anything that frees device memory or a handle."""

    def close(self) -> None: ...


class Result(Closable, Protocol):
    """The result of a library call in device memory."""

    def read(self) -> Array: ...
    def poison(self) -> None: ...


def require_gpu(device: Device, library: str) -> GpuDevice:
    """The device as a GPU. Raises `Unsupported` on any other."""
    if not isinstance(device, GpuDevice):
        raise Unsupported(f"{library} needs a CUDA GPU, not the {device.name} device")
    return device


Found = Callable[[Problem, Operands, GpuDevice], Iterator[Candidate]]
"""A library's candidates for a problem on a GPU."""


def library(paper: str, ops: str, dtypes: str, about: About) -> Callable[[Found], FoundKernel]:
    """Registers a function that yields candidates as the kernel of its name; as `registry.kernel` does for plans.

    The kernel raises `Unsupported` without a GPU, or without the library.
    """

    def made(found: Found) -> FoundKernel:
        name = found.__name__

        def candidates(problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
            return found(problem, operands, require_gpu(device, name))

        one = FoundKernel(name, paper, frozenset(ops.split()), frozenset(dtypes.split()), candidates)
        register(one, about)
        return one

    return made


def require_math(device: GpuDevice, math: str) -> None:
    """Raises `Unsupported` where the GPU has no such arithmetic."""
    needed = {"tf32": "mma_tf32", "bf16": "mma_bf16", "f8": "mma_fp8"}.get(math, "")
    if needed and not architecture(device.arch).has(needed):
        first = next(one.name for one in ARCHITECTURES.values() if one.has(needed))
        raise Unsupported(f"{math} needs {first} or later, this GPU is {device.arch}")


@contextlib.contextmanager
def needing(sentence: str, *errors: type[Exception]) -> Iterator[None]:
    """Raises `Unsupported` with the sentence, of which {} is the reason, where a library is missing: for these errors.

    What the GPU says when a library is there passes as it is.
    """
    try:
        yield
    except (LaunchError, DeviceLost):
        raise
    except errors as error:
        raise Unsupported(sentence.format(one_line(error))) from None


def load_bindings(name: str) -> Any:
    """The module `nvmath.bindings.<name>`. Raises `Unsupported` saying what to install."""
    with needing(f"{name} needs nvmath-python ({{}}): pip install 'nnzbench[cuda13]' (cuda12 for V100)", ImportError):
        return importlib.import_module(f"nvmath.bindings.{name}")


class Handle:
    """A library's handle; its own module puts it on the device's stream."""

    library: ClassVar[str]
    """Name of its bindings, and in lower case in reasons."""

    def __init__(self, device: GpuDevice) -> None:
        self.device, self.lib = device, self._load()
        self.value: Any = self._create()

    @classmethod
    def of(cls: type[H], device: GpuDevice) -> H:
        """The device's one. Raises `Unsupported` where the library or its bindings can't be loaded."""
        name = cls.library.lower()
        with needing(f"{name} can't be loaded ({{}})", RuntimeError, OSError):
            return device.library(name, lambda: cls(device))

    def _load(self) -> Any:
        return load_bindings(self.library)

    def _create(self) -> Any:
        return self.lib.create()

    def close(self) -> None:
        self.lib.destroy(self.value)


def with_memory(device: GpuDevice, call: Callable[[], T]) -> T:
    """Calls again, a little later, what fails for want of memory that other processes may have had."""
    for pause in PAUSES_S if device.shared else ():
        try:
            return call()
        except DeviceLost:
            raise
        except RuntimeError as error:
            if not short_of_memory(error):
                raise
        time.sleep(pause)
    return call()


CUSPARSELT_STATUS = {
    2: "ALLOC_FAILED", 3: "INVALID_VALUE", 4: "ARCH_MISMATCH", 7: "INTERNAL_ERROR", 10: "NOT_SUPPORTED",
    11: "INSUFFICIENT_RESOURCES",
}  # fmt: skip
"""Statuses of cuSPARSELt, whose messages may have the number alone (`cusparseStatus_t`); 3, 4 and 10 refuse a problem.
"""


def refusing(what: str, call: Callable[[], T]) -> T:
    """Calls the library. Raises `Unsupported` where it refuses the problem, `LaunchError` where it fails otherwise."""
    try:
        return call()
    except Exception as error:
        if type(error).__name__ not in ("cuBLASError", "cuBLASLtError", "cuSPARSEError", "cuSPARSELtError"):
            raise
        text = one_line(error)
        for status, name in CUSPARSELT_STATUS.items():
            text = text.replace(f"cuSPARSELtError ({status})", f"cuSPARSELtError ({status}, {name})")
        if any(reason in text for reason in ("NOT_SUPPORTED", "INVALID_VALUE", "ARCH_MISMATCH")):
            raise Unsupported(f"{what}: {text}") from None
        raise LaunchError(f"{what}: {text}") from None


def refusal(variant: str, math: str, reason: str) -> Candidate:
    """A candidate that can't be prepared, so that the reason becomes a row."""

    def prepare() -> Prepared:
        raise Unsupported(reason)

    return Candidate(variant, math, prepare)


class Output:
    """The result of a library call in device memory, in the `shape` of the problem.

    Row-major, or with the axis `innermost` as the one whose elements lie side by side.
    """

    def __init__(self, device: GpuDevice, shape: Sequence[int], dtype: str, innermost: int = -1) -> None:
        self._dtype, self._innermost = dtype, innermost
        stored = list(shape)
        stored.append(stored.pop(innermost))
        self.array: DeviceArray = device.empty(tuple(stored), STORAGE[dtype])
        self.poison, self.close = self.array.poison, self.array.close

    def read(self) -> Array:
        """Waits, then copies to the host in the problem's shape."""
        stored = self.array.read()
        return np.moveaxis(from_bf16(stored) if self._dtype == "bf16" else stored, -1, self._innermost)


def finish(
    preparing: Preparing,
    run: Callable[[], None],
    output: Result,
    resources: Sequence[Closable] = (),
    weights: Sequence[DeviceArray] = (),
    over: Callable[[Sequence[DeviceArray]], Callable[[], None]] | None = None,
    ends: Ends | None = None,
) -> Prepared:
    """A `Prepared` of a library call: run once (libraries load modules at first use) and tried in a graph.

    `resources` are the candidate's own, closed in order after the stream is idle; also where the first run fails.
    `over` gives the call over other arrays in the place of the `weights`.
    """
    device, arrays = preparing.device, {f"weights{place}": array for place, array in enumerate(weights)}

    def close() -> None:
        device.synchronise()
        for resource in (*resources, output):
            resource.close()

    try:
        device.synchronise()
        prepare_ms = preparing.milliseconds()
        run()
        device.synchronise()
        capturable = device.capturable(run)
    except BaseException as error:
        for resource in (*resources, output):
            resource.close()
        if not isinstance(error, Unsupported):  # it was for want of memory, or wrote where it must not
            preparing.inputs.drop()
        raise
    return Prepared(
        run, output.read, output.poison, close, prepare_ms=prepare_ms, capturable=capturable, arrays=arrays,
        ends=ends, copied=functools.partial(_copied, arrays, over) if over else None,
    )  # fmt: skip


def _copied(
    arrays: Mapping[str, DeviceArray],
    over: Callable[[Sequence[DeviceArray]], Callable[[], None]],
    names: Collection[str],
) -> Callable[[], None]:
    run = over([array.copy() if name in names else array for name, array in arrays.items()])
    run()  # as the first one, outside any graph
    return run
