"""CuPy made of Python: what the backend calls, each call noted. Not a test file."""

import contextlib
from types import SimpleNamespace


class CudaError(Exception):
    pass


class FakeGraph:
    def __init__(self, calls):
        self.calls = calls

    def upload(self, stream):
        self.calls.append("graph upload")

    def launch(self, stream):
        self.calls.append("graph launch")


class FakeCupy:
    __version__ = "14.2.0"

    def __init__(self):
        self.calls = []
        calls = self.calls

        class Stream:
            ptr = 77

            def __init__(self, non_blocking):
                assert non_blocking

            def synchronize(self):
                calls.append("synchronise")

            def begin_capture(self):
                calls.append("begin")

            def end_capture(self):
                calls.append("end")
                if calls.count("invalidated"):
                    raise CudaError("capture invalidated")
                return FakeGraph(calls)

        def launch(function, *where):
            *sizes, stream, params, extra = where
            assert (function, stream, extra) == (900, 77, 0)
            calls.append(("launch", tuple(sizes), params))

        self.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=lambda: calls.append("release"))
        self.cuda = SimpleNamespace(
            Stream=Stream,
            Device=lambda index: SimpleNamespace(compute_capability="90"),
            Module=lambda: SimpleNamespace(
                load=lambda cubin: calls.append(("load", cubin)), get_function=lambda name: SimpleNamespace(ptr=900)
            ),
            memory=SimpleNamespace(OutOfMemoryError=MemoryError),
            MemoryPool=lambda: SimpleNamespace(malloc="malloc", free_all_blocks=lambda: calls.append("release own")),
            using_allocator=lambda allocator: contextlib.nullcontext(calls.append(("allocator", allocator))),
            is_available=lambda: True,
            runtime=SimpleNamespace(
                CUDARuntimeError=CudaError,
                getDevice=lambda: 0,
                runtimeGetVersion=lambda: 13000,
                deviceGetAttribute=lambda attribute, device: attribute,
                cudaDevAttrMultiProcessorCount=132,
                cudaDevAttrL2CacheSize=60 << 20,
                cudaDevAttrMaxSharedMemoryPerBlockOptin=232448,
                getDeviceProperties=lambda device: {"name": b"NVIDIA H200"},
                memGetInfo=lambda: (1 << 30, 140 << 30),
                deviceSynchronize=lambda: calls.append("synchronise"),
                deviceGetPCIBusId=lambda device: "0000:1B:00.0",
            ),
            driver=SimpleNamespace(
                CUDADriverError=KeyError,
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
                funcSetAttribute=lambda function, attribute, value: calls.append(("attribute", attribute, value)),
                launchKernel=launch,
            ),
        )
