"""What the vendor kernels share: the GPU they need, the libraries they load, and operands in a library's own types."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from nnzbench.devices import Device, DeviceLost
from nnzbench.devices.gpu import PAUSES_S, DeviceArray, GpuDevice, LaunchError, short_of_memory
from nnzbench.kernels.vendor.inputs import Preparing
from nnzbench.plans.architectures import architecture
from nnzbench.plans.plan import Array, Candidate, Prepared, Unsupported, one_line

T = TypeVar("T")

CUDA_TYPE = {"f32": 0, "f16": 2, "bf16": 14, "i8": 3, "f8": 28}
"""cudaDataType of the operands, by problem dtype."""
RESULT_TYPE = {**CUDA_TYPE, "i8": 10, "f8": 2}
"""Of the result: sums of 8-bit products are 32-bit integers, or fp16."""

STORAGE = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16, "i8": np.int32, "f8": np.float16}
"""How results lie in device memory, by problem dtype."""

WORKSPACE_BYTES = 32 << 20
"""Fixed workspace of a dense library's handle: what cuBLAS itself takes on the largest GPUs."""

INSTALL_VENDOR = "pip install 'nnzbench[vendor13]' (vendor12 for V100)"
"""What brings cuDNN and cuSPARSELt."""


class Result(Protocol):
    """The result of a library call in device memory."""

    array: DeviceArray

    def read(self) -> Array: ...
    def poison(self) -> None: ...


class Closable(Protocol):
    """Anything that frees device memory or a handle."""

    def close(self) -> None: ...


def require_gpu(device: Device, library: str) -> GpuDevice:
    """The device as a GPU. Raises `Unsupported` on any other."""
    if not isinstance(device, GpuDevice):
        raise Unsupported(f"{library} needs a CUDA GPU, not the {device.name} device")
    return device


def require_math(device: GpuDevice, math: str) -> None:
    """Raises `Unsupported` where the GPU has no such arithmetic: a library would quietly run another instead."""
    needed = {"tf32": ("mma_tf32", "sm_80"), "bf16": ("mma_bf16", "sm_80"), "f8": ("mma_fp8", "sm_89")}.get(math)
    if needed and not architecture(device.arch).has(needed[0]):
        raise Unsupported(f"{math} needs {needed[1]} or later, this GPU is {device.arch}")


def load_bindings(name: str) -> Any:
    """The module `nvmath.bindings.<name>`. Raises `Unsupported` saying what to install."""
    try:
        return importlib.import_module(f"nvmath.bindings.{name}")
    except ImportError as error:
        reason = str(error).strip().split("\n")[0]
        raise Unsupported(
            f"{name} needs nvmath-python ({reason}): pip install 'nnzbench[cuda13]' (cuda12 for V100)"
        ) from None


def open_library(device: GpuDevice, name: str, opened: Callable[[], T]) -> T:
    """The device's one handle of a library. Raises `Unsupported` where the shared library itself can't be loaded."""
    try:
        return device.library(name, opened)
    except (LaunchError, DeviceLost):
        raise
    except (RuntimeError, OSError) as error:
        raise Unsupported(f"{name} can't be loaded ({one_line(error)})") from None


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


CUSPARSELT_STATUS = {3: "INVALID_VALUE", 4: "ARCH_MISMATCH", 7: "INTERNAL_ERROR", 10: "NOT_SUPPORTED"}
"""Statuses of cuSPARSELt, whose messages may have the number alone (`cusparseStatus_t`); all but 7 refuse a problem."""


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


def from_storage(array: Array, dtype: str) -> Array:
    """The inverse of `vendor_inputs.to_storage`."""
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == "bf16" else array


class Output:
    """The (m, n) result of a library call in device memory, row-major or column-major."""

    def __init__(self, device: GpuDevice, m: int, n: int, dtype: str, column_major: bool = False) -> None:
        self._dtype, self._column_major = dtype, column_major
        self.array: DeviceArray = device.empty((n, m) if column_major else (m, n), STORAGE[dtype])

    def read(self) -> Array:
        """Waits, then copies to the host as an (m, n) array."""
        result = from_storage(self.array.read(), self._dtype)
        return result.T if self._column_major else result

    def poison(self) -> None:
        """Fills with NaN bits."""
        self.array.poison()


def finish(
    device: GpuDevice, run: Callable[[], None], output: Result, resources: Sequence[Closable], preparing: Preparing
) -> Prepared:
    """A `Prepared` of a library call: run once (libraries load modules at first use) and tried in a graph.

    `resources` are the candidate's own, closed in order after the stream is idle; also where the first run fails.
    """
    prepare_ms = 0.0

    def close() -> None:
        device.synchronise()
        for resource in resources:
            resource.close()
        output.array.free()

    try:
        device.synchronise()
        prepare_ms = preparing.milliseconds()
        run()
        device.synchronise()
        capturable = device.capturable(run)
    except BaseException as error:
        for resource in resources:
            resource.close()
        output.array.free()
        if not isinstance(error, Unsupported):
            preparing.failed()
        raise
    return Prepared(run, output.read, output.poison, close, prepare_ms=prepare_ms, capturable=capturable)


class Freed:
    """Device arrays that are freed together."""

    def __init__(self, *arrays: DeviceArray) -> None:
        self._arrays = arrays

    def close(self) -> None:
        """Frees them."""
        for array in self._arrays:
            array.free()
