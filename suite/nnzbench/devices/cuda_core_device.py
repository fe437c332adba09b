"""The GPU through cuda.core, NVIDIA's own Python interface: the one that passes launch attributes (clusters of blocks,
programmatic dependent launch). On the primary context that CuPy, PyCUDA and the CUDA libraries share.

Memory, copies and memsets are the driver's own calls of `cuda.bindings`, so that nothing is pooled.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnzbench.devices.gpu import GpuDevice
from nnzbench.devices.gpu_backend import GpuFacts
from nnzbench.plans.plan import Array, Dim3, Unsupported, one_line

_ONE: Dim3 = (1, 1, 1)


def open_device() -> GpuDevice:
    """The default CUDA device. Raises `Unsupported` without cuda.core 1.0, cuda.bindings or a GPU."""
    try:
        core = importlib.import_module("cuda.core")
        driver = importlib.import_module("cuda.bindings.driver")
        errors = (importlib.import_module("cuda.core._utils.cuda_utils").CUDAError,)
    except (ImportError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise Unsupported(f"cuda.core is missing ({reason}): pip install 'nnzbench[cuda-core]'") from None
    if not hasattr(core, "LaunchConfig"):
        raise Unsupported(f"cuda.core {core.__version__} is too old: pip install 'cuda-core>=1.0'")
    try:
        device = core.Device()
        device.set_current()
    except Exception as error:  # each version has its own class for a machine without a GPU or driver
        raise Unsupported(f"cuda.core finds no usable CUDA GPU ({one_line(error)})") from None
    return GpuDevice(CudaCoreBackend(core, driver, device, errors))


class CudaCoreBackend:
    """Implements `nnzbench.devices.gpu.Backend` with the modules `cuda.core` and `cuda.bindings.driver`."""

    name = "cuda-core"

    def __init__(self, core: Any, driver: Any, device: Any, errors: tuple[type[Exception], ...]) -> None:
        self._core, self._driver, self._device = core, driver, device
        self.errors: tuple[type[Exception], ...] = (*errors, DriverError)
        self._stream = device.create_stream(options=core.StreamOptions(nonblocking=True))
        self.stream = int(self._stream.handle)
        self.facts = self._facts()

    def _facts(self) -> GpuFacts:
        properties = self._device.properties
        capability = self._device.compute_capability
        version = int(self._checked(self._driver.cuDriverGetVersion()))
        return GpuFacts(
            name=str(self._device.name),
            compute_capability=(int(capability.major), int(capability.minor)),
            sms=int(properties.multiprocessor_count),
            l2_bytes=int(properties.l2_cache_size),
            memory_bytes=int(self._checked(self._driver.cuMemGetInfo())[1]),
            shared_optin_bytes=int(properties.max_shared_memory_per_block_optin),
            pci_bus_id=str(self._device.pci_bus_id),
            library=f"cuda-core {self._core.__version__}",
            runtime=f"{version // 1000}.{version % 1000 // 10}",
        )

    def allocate(self, size: int) -> Any:
        return _Memory(self._checked, self._driver, size)

    def pointer(self, memory: Any) -> int:
        return int(memory.pointer)

    def used_bytes(self) -> int:
        free, total = self._checked(self._driver.cuMemGetInfo())
        return int(total - free)

    def release(self) -> None:
        return  # nothing is pooled

    def separate(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def upload(self, pointer: int, array: Array) -> None:
        self._checked(self._driver.cuMemcpyHtoDAsync(pointer, array.ctypes.data, array.nbytes, self.stream))
        self._stream.sync()

    def download(self, pointer: int, array: Array) -> None:
        self._checked(self._driver.cuMemcpyDtoHAsync(array.ctypes.data, pointer, array.nbytes, self.stream))
        self._stream.sync()

    def fill(self, pointer: int, byte: int, size: int) -> None:
        self._checked(self._driver.cuMemsetD8Async(pointer, byte, size, self.stream))

    def load(self, cubin: bytes) -> Any:
        return self._core.ObjectCode.from_cubin(cubin)

    def launcher(
        self,
        module: Any,
        entry: str,
        grid: Dim3,
        block: Dim3,
        args: Sequence[np.generic],
        shared_bytes: int,
        opt_in: bool,
    ) -> Callable[[], None]:
        return self.attributed_launcher(module, entry, grid, block, args, shared_bytes, opt_in, _ONE, False)

    def attributed_launcher(
        self,
        module: Any,
        entry: str,
        grid: Dim3,
        block: Dim3,
        args: Sequence[np.generic],
        shared_bytes: int,
        opt_in: bool,
        cluster: Dim3,
        overlaps: bool,
    ) -> Callable[[], None]:
        """The same with the launch's attributes: blocks of a cluster, and whether it may overlap the one before it."""
        kernel = module.get_kernel(entry)
        if opt_in:
            which = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            handle = self._driver.CUkernel(int(kernel.handle))
            device = self._checked(self._driver.cuCtxGetDevice())
            self._checked(self._driver.cuKernelSetAttribute(which, shared_bytes, handle, device))
        sizes: dict[str, Any] = {"grid": grid, "block": block, "shmem_size": shared_bytes}
        if cluster != _ONE:  # cuda.core counts clusters, not blocks, where there are some
            sizes["grid"] = tuple(blocks // per for blocks, per in zip(grid, cluster, strict=True))
            sizes["cluster"] = cluster
        if overlaps:
            sizes["programmatic_stream_serialization"] = True
        config = self._core.LaunchConfig(**sizes)
        launch, stream = self._core.launch, self._stream

        def enqueue(keep: Any = module) -> None:
            launch(stream, config, kernel, *args)

        return enqueue

    def synchronise(self) -> None:
        self._stream.sync()

    def event(self) -> Any:
        return self._device.create_event(options=self._core.EventOptions(timing_enabled=True))

    def record(self, event: Any) -> None:
        self._stream.record(event)

    def reached(self, event: Any) -> bool:
        return bool(event.is_done)

    def elapsed_ms(self, start: Any, stop: Any) -> float:
        stop.sync()
        return float(stop - start)

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        # captured on the stream itself: vendor libraries enqueue on its handle
        builder = self._stream.create_graph_builder().begin_building("relaxed")
        try:
            body()
        except BaseException:
            with contextlib.suppress(*self.errors, RuntimeError):  # an invalidated capture must be ended all the same
                builder.end_building()
            raise
        graph = builder.end_building().complete()
        builder.close()
        graph.upload(self._stream)
        stream = self._stream
        return lambda: graph.launch(stream)

    def _checked(self, answer: tuple[Any, ...]) -> Any:
        """The value of a cuda.bindings call, several as a tuple. Raises `DriverError` with the driver's words."""
        status, *values = answer
        if int(status) != 0:
            _, text = self._driver.cuGetErrorString(status)
            raise DriverError(text.decode() if isinstance(text, bytes) else str(status))
        return values[0] if len(values) == 1 else tuple(values)

    def close(self) -> None:
        self._stream.sync()


class DriverError(RuntimeError):
    """The driver refused a call."""


class _Memory:
    """Device memory, freed with its last reference."""

    def __init__(self, checked: Callable[[Any], Any], driver: Any, size: int) -> None:
        self._driver = driver
        self.pointer = int(checked(driver.cuMemAlloc(size)))

    def __del__(self) -> None:
        if hasattr(self, "pointer"):
            self._driver.cuMemFree(self.pointer)
