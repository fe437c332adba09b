"""The GPU through CuPy, PyCUDA and cuda.core, NVIDIA's own Python interface, all on the primary context that they share
with the CUDA libraries.

Compiling is ours (`nnzbench.devices.build.cache`), because CuPy's own compiler always flushes subnormals to zero.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nnzbench.core.plan import Unsupported, one_line
from nnzbench.devices.gpu import GpuDevice
from nnzbench.devices.gpu_backend import Backend, BoundLaunch, DriverError, bindings


def open_cupy() -> GpuDevice:
    """The current CUDA device. Raises `Unsupported` without CuPy or a GPU it can use."""
    try:
        import cupy
    except ImportError as error:
        reason = str(error).strip().split("\n")[0]
        raise Unsupported(f"CuPy is missing ({reason}): pip install 'nnzbench[cuda13]' (cuda12 for V100)") from None
    if not cupy.cuda.is_available():
        raise Unsupported("CuPy finds no CUDA GPU, or the driver is older than its CUDA version")
    return GpuDevice(CupyBackend(cupy, bindings("runtime")))


class CupyBackend(Backend):
    """The `cupy` module that it is given."""

    name = "cupy"
    attributes = True

    def __init__(self, cupy: Any, runtime: Any) -> None:
        self._cuda = cupy.cuda
        self._pool = cupy.get_default_memory_pool()
        self._driver = cupy.cuda.driver
        self._own = cupy.cuda.Stream(non_blocking=True)
        of = cupy.cuda.runtime
        errors = (of.CUDARuntimeError, self._driver.CUDADriverError, cupy.cuda.memory.OutOfMemoryError)
        super().__init__(runtime, self._own.ptr, errors, cupy.__version__, of.runtimeGetVersion())

    def allocate(self, size: int) -> Any:
        return self._cuda.alloc(size)  # from CuPy's pool: aligned to 512 bytes

    def pointer(self, memory: Any) -> int:
        return int(memory.ptr)

    def release(self) -> None:
        self._pool.free_all_blocks()

    @contextlib.contextmanager
    def separate(self) -> Iterator[None]:
        pool = self._cuda.MemoryPool()
        with self._cuda.using_allocator(pool.malloc):
            yield
        self._call("DeviceSynchronize")
        pool.free_all_blocks()

    def load(self, cubin: bytes) -> Any:
        # a RawModule would stay in CuPy's memo for good; a plain Module unloads with its last function
        module = self._cuda.Module()
        module.load(cubin)
        return module

    def launcher(self, module: Any, launch: BoundLaunch) -> Callable[..., None]:
        function = module.get_function(launch.entry)
        if launch.limit:
            attribute = self._driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._driver.funcSetAttribute(function.ptr, attribute, launch.limit)
        # packed once, so that the host is not in the way of launches of a few microseconds
        held = [np.asarray(arg) for arg in launch.args]
        pointers = (ctypes.c_void_p * max(1, len(held)))(*[value.ctypes.data for value in held])
        if launch.overlaps or launch.cluster != (1, 1, 1):
            return _with_attributes(function.ptr, launch, self.stream, pointers, (function, held))
        enqueue_kernel, address = self._driver.launchKernel, ctypes.addressof(pointers)
        where = (*launch.grid, *launch.block, launch.shared_bytes)

        def enqueue(
            stream: int = self.stream, handle: int = function.ptr, keep: Any = (function, held, pointers)
        ) -> None:
            enqueue_kernel(handle, *where, stream, address, 0)

        return enqueue


class _Attribute(ctypes.Structure):
    """`CUlaunchAttribute`: what it is, and a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16))


class _Config(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


_CLUSTER_DIMENSION, _PROGRAMMATIC_SERIALIZATION = 4, 6
"""Of `CUlaunchAttributeID`."""


def _with_attributes(function: int, launch: BoundLaunch, stream: int, pointers: Any, held: Any) -> Callable[..., None]:
    """What enqueues a launch with attributes, by the driver's own call: CuPy has none that takes them."""
    wanted = []
    if launch.cluster != (1, 1, 1):
        wanted.append(_Attribute(_CLUSTER_DIMENSION, 0, launch.cluster))
    if launch.overlaps:
        wanted.append(_Attribute(_PROGRAMMATIC_SERIALIZATION, 0, (1,)))
    attributes = (_Attribute * len(wanted))(*wanted)
    config = _Config(launch.grid, launch.block, launch.shared_bytes, stream, attributes, len(wanted))
    call = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    where = (ctypes.byref(config), ctypes.c_void_p(function), pointers, None)

    def enqueue(stream: int = stream, keep: Any = (held, attributes)) -> None:
        config.stream = stream
        if status := call(*where):
            raise DriverError(f"cuLaunchKernelEx of {launch.entry} returns CUDA error {status}")

    return enqueue


_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: not ordered with the legacy default stream


def open_pycuda() -> GpuDevice:
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


def open_cuda_core() -> GpuDevice:
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
