"""The GPU through CuPy: its pool of memory, its modules and its launches. Compiling is ours (`nnzbench.build.cache`),
because CuPy's own compiler always flushes subnormals to zero."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nnzbench.devices.gpu import GpuDevice
from nnzbench.devices.gpu_backend import Backend, BoundLaunch, DriverError, bindings
from nnzbench.plans.plan import Unsupported


def open_device() -> GpuDevice:
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
