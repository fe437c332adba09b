"""The GPU through PyCUDA, on the primary context that CuPy and the CUDA libraries share."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from nnzbench.devices.gpu import GpuDevice
from nnzbench.devices.gpu_backend import Backend, BoundLaunch, bindings
from nnzbench.plans.plan import Unsupported

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: not ordered with the legacy default stream


def open_device() -> GpuDevice:
    """The default CUDA device. Raises `Unsupported` without PyCUDA, cuda.bindings or a GPU."""
    try:
        driver = importlib.import_module("pycuda.driver")
    except ImportError as error:
        reason = str(error).strip().split("\n")[0]
        raise Unsupported(f"PyCUDA is missing ({reason}): pip install 'nnzbench[pycuda]', which needs nvcc") from None
    runtime = bindings("runtime")
    try:
        # never autoinit: a context of its own would not see the other libraries' memory
        importlib.import_module("pycuda.autoprimaryctx")
    except (driver.Error, RuntimeError) as error:
        raise Unsupported(f"PyCUDA finds no usable CUDA GPU ({error})") from None
    return GpuDevice(PycudaBackend(driver, importlib.import_module("pycuda").VERSION_TEXT, runtime))


class PycudaBackend(Backend):
    """The module `pycuda.driver`."""

    name = "pycuda"

    def __init__(self, driver: Any, version: str, runtime: Any) -> None:
        self._driver = driver
        self._own = driver.Stream(_NON_BLOCKING)
        major, minor, *_ = driver.get_version()
        super().__init__(runtime, self._own.handle, (driver.Error,), version, 1000 * major + 10 * minor)

    def load(self, cubin: bytes) -> Any:
        return self._driver.module_from_buffer(cubin)

    def launcher(self, module: Any, launch: BoundLaunch) -> Callable[..., None]:
        function = module.get_function(launch.entry)
        if launch.limit:
            function.set_attribute(self._driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.limit)
        function.prepare([arg.dtype for arg in launch.args])
        values = [arg.item() for arg in launch.args]
        call, where = function.prepared_async_call, (launch.grid, launch.block, self._own)

        def enqueue(keep: Any = module) -> None:
            call(*where, *values, shared_size=launch.shared_bytes)

        return enqueue
