"""The GPU through cuda.core, NVIDIA's own Python interface, on the primary context that CuPy, PyCUDA and the CUDA
libraries share.

Memory, copies and memsets are the driver's own calls of `cuda.bindings`, so that nothing is pooled.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from nnzbench.devices.gpu import GpuDevice
from nnzbench.devices.gpu_backend import Backend, BoundLaunch, DriverError, GpuFacts, checked
from nnzbench.plans.plan import Array, Unsupported, one_line


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


class CudaCoreBackend(Backend):
    """The driver calls with the modules `cuda.core` and `cuda.bindings.driver`."""

    name = "cuda-core"
    attributes = True

    def __init__(self, core: Any, driver: Any, device: Any, errors: tuple[type[Exception], ...]) -> None:
        self._core, self._driver, self._device = core, driver, device
        self._checked = partial(checked, driver)
        stream = device.create_stream(options=core.StreamOptions(nonblocking=True))
        super().__init__(stream, stream.handle, (*errors, DriverError))
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
            memory_bytes=self.free_and_total()[1],
            shared_optin_bytes=int(properties.max_shared_memory_per_block_optin),
            pci_bus_id=str(self._device.pci_bus_id),
            library=f"cuda-core {self._core.__version__}",
            runtime=f"{version // 1000}.{version % 1000 // 10}",
        )

    def allocate(self, size: int) -> Any:
        return _Memory(self._driver, size)

    def pointer(self, memory: Any) -> int:
        return int(memory.pointer)

    def free_and_total(self) -> tuple[int, int]:
        free, total = self._checked(self._driver.cuMemGetInfo())
        return int(free), int(total)

    def _to_device(self, pointer: int, array: Array) -> None:
        self._checked(self._driver.cuMemcpyHtoDAsync(pointer, array.ctypes.data, array.nbytes, self.stream))

    def _to_host(self, array: Array, pointer: int) -> None:
        self._checked(self._driver.cuMemcpyDtoHAsync(array.ctypes.data, pointer, array.nbytes, self.stream))

    def copy(self, target: int, source: int, size: int) -> None:
        self._checked(self._driver.cuMemcpyDtoDAsync(target, source, size, self.stream))

    def fill(self, pointer: int, byte: int, size: int) -> None:
        self._checked(self._driver.cuMemsetD8Async(pointer, byte, size, self.stream))

    def load(self, cubin: bytes) -> Any:
        return self._core.ObjectCode.from_cubin(cubin)

    def launcher(self, module: Any, launch: BoundLaunch) -> Callable[[], None]:
        kernel = module.get_kernel(launch.entry)
        if launch.opt_in:
            which = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            handle = self._driver.CUkernel(int(kernel.handle))
            device = self._checked(self._driver.cuCtxGetDevice())
            self._checked(self._driver.cuKernelSetAttribute(which, launch.shared_bytes, handle, device))
        sizes: dict[str, Any] = {"grid": launch.grid, "block": launch.block, "shmem_size": launch.shared_bytes}
        if launch.cluster != (1, 1, 1):  # cuda.core counts clusters, not blocks, where there are some
            sizes["grid"] = tuple(blocks // per for blocks, per in zip(launch.grid, launch.cluster, strict=True))
            sizes["cluster"] = launch.cluster
        if launch.overlaps:
            sizes["programmatic_stream_serialization"] = True
        config, args = self._core.LaunchConfig(**sizes), launch.args
        enqueue_kernel, stream = self._core.launch, self._stream

        def enqueue(keep: Any = module) -> None:
            enqueue_kernel(stream, config, kernel, *args)

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

    def _begin_capture(self) -> Any:
        # on the stream itself: vendor libraries enqueue on its handle
        return self._stream.create_graph_builder().begin_building("relaxed")

    def _end_capture(self, capture: Any) -> Any:
        graph = capture.end_building().complete()
        capture.close()
        return graph


class _Memory:
    """Device memory, freed with its last reference."""

    def __init__(self, driver: Any, size: int) -> None:
        self._driver = driver
        self.pointer = int(checked(driver, driver.cuMemAlloc(size)))

    def __del__(self) -> None:
        if hasattr(self, "pointer"):
            self._driver.cuMemFree(self.pointer)
