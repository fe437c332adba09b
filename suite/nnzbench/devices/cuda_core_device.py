"""The GPU through cuda.core, NVIDIA's own Python interface, on the primary context that CuPy, PyCUDA and the CUDA
libraries share."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from nnzbench.devices.gpu import GpuDevice
from nnzbench.devices.gpu_backend import Backend, BoundLaunch, DriverError, bindings
from nnzbench.plans.plan import Unsupported, one_line


def open_device() -> GpuDevice:
    """The default CUDA device. Raises `Unsupported` without cuda.core 1.0, cuda.bindings or a GPU."""
    try:
        core = importlib.import_module("cuda.core")
        error_type = importlib.import_module("cuda.core._utils.cuda_utils").CUDAError
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
    return GpuDevice(CudaCoreBackend(core, device, error_type, bindings("driver"), bindings("runtime")))


class CudaCoreBackend(Backend):
    """The module `cuda.core`, and `cuda.bindings.driver` for the one attribute of kernels that it does not set."""

    name = "cuda-core"
    attributes = True

    def __init__(self, core: Any, device: Any, error: type[Exception], driver: Any, runtime: Any) -> None:
        self._core, self._driver = core, driver
        self._own = device.create_stream(options=core.StreamOptions(nonblocking=True))
        _, cuda = runtime.cudaDriverGetVersion()
        super().__init__(runtime, self._own.handle, (error,), core.__version__, int(cuda))

    def load(self, cubin: bytes) -> Any:
        return self._core.ObjectCode.from_cubin(cubin)

    def launcher(self, module: Any, launch: BoundLaunch) -> Callable[..., None]:
        kernel = module.get_kernel(launch.entry)
        if launch.limit:
            which = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            handle = self._driver.CUkernel(int(kernel.handle))
            (status,) = self._driver.cuKernelSetAttribute(which, launch.limit, handle, self.facts.number)
            if int(status) != 0:
                raise DriverError(f"{launch.entry} can't have {launch.limit} bytes of shared memory")
        sizes: dict[str, Any] = {"grid": launch.grid, "block": launch.block, "shmem_size": launch.shared_bytes}
        if launch.cluster != (1, 1, 1):  # cuda.core counts clusters, not blocks, where there are some
            sizes["grid"] = tuple(blocks // per for blocks, per in zip(launch.grid, launch.cluster, strict=True))
            sizes["cluster"] = launch.cluster
        if launch.overlaps:
            sizes["programmatic_stream_serialization"] = True
        config, args = self._core.LaunchConfig(**sizes), launch.args
        enqueue_kernel, stream = self._core.launch, self._own

        def enqueue(keep: Any = module) -> None:
            enqueue_kernel(stream, config, kernel, *args)

        return enqueue
