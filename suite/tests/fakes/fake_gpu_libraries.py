"""CuPy, PyCUDA, cuda.core and cuda.bindings made of Python: what the backends call, each call noted."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

from nnzbench.devices.gpu_libraries import CudaCoreBackend, CupyBackend, PycudaBackend


class LibraryError(Exception):
    """What each of them raises where the driver reports an error."""


class FakeBindings:
    """`cuda.bindings.runtime` and `.driver`: every call answers a tuple that starts with a status."""

    cudaMemcpyKind = SimpleNamespace(cudaMemcpyDefault=4)  # noqa: N815 - CUDA's own names
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeRelaxed=2)  # noqa: N815
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
    CUkernel = int

    def __init__(self, calls):
        self.calls, self.fails, self.status = calls, "", 901
        told = SimpleNamespace(
            name=b"NVIDIA H200\0\0", major=9, minor=0, multiProcessorCount=132, l2CacheSize=60 << 20,
            sharedMemPerBlockOptin=232448,
        )  # fmt: skip
        self.told = told
        self.answers = {
            "cudaGetDevice": (0,), "cudaGetDeviceProperties": (told,), "cudaMemGetInfo": (1 << 30, 4 << 30),
            "cudaDeviceGetPCIBusId": (b"0000:1B:00.0\0  ",), "cudaDriverGetVersion": (13000,), "cudaMalloc": (4096,),
            "cudaEventCreate": ("event",), "cudaEventElapsedTime": (0.5,), "cudaStreamEndCapture": ("captured",),
            "cudaGraphInstantiate": ("graph",),
        }  # fmt: skip

    def cudaGetErrorString(self, status):  # noqa: N802
        return 0, b"out of memory" if status == 2 else b"operation failed due to a previous error during capture"

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments):
            self.calls.append((name, *arguments))
            return (self.status,) if self.fails == name else (0, *self.answers.get(name, ()))

        return call


def fake_cupy(calls):
    def launch(function, *where):
        *sizes, stream, params, extra = where
        assert (function, extra) == (900, 0)
        calls.append(("launch", tuple(sizes), params, stream))

    def stream(non_blocking):
        assert non_blocking
        return SimpleNamespace(ptr=77)

    def noted(name):
        return lambda: calls.append(name)

    return SimpleNamespace(
        __version__="14.2.0",
        get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=noted("release")),
        cuda=SimpleNamespace(
            Stream=stream,
            Module=lambda: SimpleNamespace(
                load=lambda cubin: calls.append(("load", cubin)), get_function=lambda name: SimpleNamespace(ptr=900)
            ),
            alloc=lambda size: SimpleNamespace(ptr=4096),
            memory=SimpleNamespace(OutOfMemoryError=MemoryError),
            MemoryPool=lambda: SimpleNamespace(malloc="malloc", free_all_blocks=noted("release own")),
            using_allocator=lambda allocator: contextlib.nullcontext(calls.append(("allocator", allocator))),
            is_available=lambda: True,
            runtime=SimpleNamespace(CUDARuntimeError=LibraryError, runtimeGetVersion=lambda: 13000),
            driver=SimpleNamespace(
                CUDADriverError=KeyError,
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
                funcSetAttribute=lambda function, attribute, value: calls.append(("attribute", attribute, value)),
                launchKernel=launch,
            ),
        ),
    )


def fake_pycuda(calls):
    function = SimpleNamespace(
        set_attribute=lambda attribute, value: calls.append(("attribute", attribute, value)),
        prepare=lambda types: calls.append(("prepare", [dtype.char for dtype in types])),
        prepared_async_call=lambda grid, block, stream, *values, shared_size: calls.append(
            ("launch", grid, block, values, shared_size)
        ),
    )

    def load(cubin):
        calls.append(("load", cubin))
        return SimpleNamespace(get_function=lambda name: function)

    def stream(flags):
        assert flags == 1  # non-blocking
        return SimpleNamespace(handle=77)

    return SimpleNamespace(
        Error=LibraryError,
        function_attribute=SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES=8),
        module_from_buffer=load,
        get_version=lambda: (13, 0, 0),
        Stream=stream,
    )


def fake_core(calls):
    def load(cubin):
        calls.append(("load", cubin))
        return SimpleNamespace(get_kernel=lambda name: SimpleNamespace(handle=900))

    return SimpleNamespace(
        __version__="1.2.2",
        StreamOptions=lambda **options: options,
        LaunchConfig=lambda **options: options,
        ObjectCode=SimpleNamespace(from_cubin=load),
        launch=lambda stream, config, kernel, *args: calls.append(("launch", config, args)),
    )


def backend_of(name):
    """The backend of a library over its fake, with `calls`; what its bindings answer is `runtime`'s to say."""
    calls = []
    runtime = FakeBindings(calls)
    if name == "cupy":
        backend = CupyBackend(fake_cupy(calls), runtime)
    elif name == "pycuda":
        backend = PycudaBackend(fake_pycuda(calls), "2026.1", runtime)
    else:
        device = SimpleNamespace(create_stream=lambda options: SimpleNamespace(handle=77))
        backend = CudaCoreBackend(fake_core(calls), device, LibraryError, runtime, runtime)
    calls.clear()
    return SimpleNamespace(name=name, backend=backend, calls=calls, runtime=runtime)
