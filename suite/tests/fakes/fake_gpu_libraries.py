"""CuPy, PyCUDA and cuda.core made of Python: what their backends call, each call noted. Not a test file."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace


class LibraryError(Exception):
    """What each of them raises where the driver reports an error."""


def told(calls, name, result=None):
    """A function that notes its name."""
    return lambda *_: (calls.append(name), result)[1]


def graph(calls):
    return SimpleNamespace(upload=told(calls, "upload"), launch=told(calls, "replay"))


class FakeCupy:
    __version__ = "14.2.0"

    def __init__(self):
        self.calls = calls = []

        class Stream:
            ptr = 77

            def __init__(self, non_blocking):
                assert non_blocking

            synchronize = staticmethod(told(calls, "synchronise"))
            begin_capture = staticmethod(told(calls, "begin"))

            def end_capture(self):
                calls.append("end")
                if "invalidated" in calls:
                    raise LibraryError("capture invalidated")
                return graph(calls)

        def launch(function, *where):
            *sizes, stream, params, extra = where
            assert (function, stream, extra) == (900, 77, 0)
            calls.append(("launch", tuple(sizes), params))

        self.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=told(calls, "release"))
        self.cuda = SimpleNamespace(
            Stream=Stream,
            Device=lambda index: SimpleNamespace(compute_capability="90"),
            Module=lambda: SimpleNamespace(
                load=lambda cubin: calls.append(("load", cubin)), get_function=lambda name: SimpleNamespace(ptr=900)
            ),
            memory=SimpleNamespace(OutOfMemoryError=MemoryError),
            MemoryPool=lambda: SimpleNamespace(malloc="malloc", free_all_blocks=told(calls, "release own")),
            using_allocator=lambda allocator: contextlib.nullcontext(calls.append(("allocator", allocator))),
            is_available=lambda: True,
            runtime=SimpleNamespace(
                CUDARuntimeError=LibraryError,
                getDevice=lambda: 0,
                runtimeGetVersion=lambda: 13000,
                deviceGetAttribute=lambda attribute, device: attribute,
                cudaDevAttrMultiProcessorCount=132,
                cudaDevAttrL2CacheSize=60 << 20,
                cudaDevAttrMaxSharedMemoryPerBlockOptin=232448,
                getDeviceProperties=lambda device: {"name": b"NVIDIA H200"},
                memGetInfo=lambda: (1 << 30, 4 << 30),
                deviceSynchronize=told(calls, "synchronise"),
                deviceGetPCIBusId=lambda device: "0000:1B:00.0",
            ),
            driver=SimpleNamespace(
                CUDADriverError=KeyError,
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
                funcSetAttribute=lambda function, attribute, value: calls.append(("attribute", attribute, value)),
                launchKernel=launch,
            ),
        )


class FakeGraphs:
    """`cuda.bindings.driver`: every call answers a tuple that starts with a status."""

    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)

    def __init__(self, calls):
        self.calls, self.fail = calls, None

    def CUstream(self, handle):  # noqa: N802 - the library's own name
        return ("stream", handle)

    def cuGetErrorString(self, status):  # noqa: N802
        return 0, b"operation failed due to a previous error during capture"

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append(name)
            return (901,) if self.fail == name else (0, f"{name} result")

        return call


class FakePycuda:
    Error = LibraryError
    device_attribute = SimpleNamespace(
        MULTIPROCESSOR_COUNT=132, L2_CACHE_SIZE=1 << 20, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=232448
    )
    function_attribute = SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic")
    device = SimpleNamespace(
        name=lambda: "NVIDIA H200",
        compute_capability=lambda: (9, 0),
        get_attribute=lambda attribute: attribute,
        total_memory=lambda: 4 << 30,
        pci_bus_id=lambda: "0000:1B:00.0",
    )

    def __init__(self):
        self.calls = calls = []
        self.graphs = FakeGraphs(calls)
        function = SimpleNamespace(
            set_attribute=lambda attribute, value: calls.append(("attribute", attribute, value)),
            prepare=lambda types: calls.append(("prepare", [dtype.char for dtype in types])),
            prepared_async_call=lambda grid, block, stream, *values, shared_size: calls.append(
                ("launch", grid, block, values, shared_size)
            ),
        )
        self.module_from_buffer = lambda cubin: SimpleNamespace(get_function=lambda name: function)
        self.get_version = lambda: (13, 0, 0)
        self.mem_get_info = lambda: (1 << 30, 4 << 30)

    def Stream(self, flags):  # noqa: N802 - the library's own name
        assert flags == 1  # non-blocking
        return SimpleNamespace(handle=77, synchronize=told(self.calls, "synchronise"))


class FakeCore:
    """`cuda.core` and `cuda.bindings.driver` in one."""

    __version__ = "1.2.2"

    def __init__(self):
        self.calls = calls = []
        builder = SimpleNamespace(close=lambda: None, complete=lambda: graph(calls))
        builder.begin_building = lambda mode: (calls.append(("begin", mode)), builder)[1]
        builder.end_building = told(calls, "end", builder)
        self.stream = SimpleNamespace(
            handle=77,
            sync=told(calls, "sync"),
            record=lambda event: calls.append(("record", event)),
            create_graph_builder=lambda: builder,
        )
        self.StreamOptions = self.EventOptions = self.LaunchConfig = lambda **options: options
        kernel = SimpleNamespace(handle=900)
        self.ObjectCode = SimpleNamespace(from_cubin=lambda cubin: SimpleNamespace(get_kernel=lambda name: kernel))
        self.CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
        self.device = SimpleNamespace(
            name="NVIDIA H200",
            pci_bus_id="0000:1B:00.0",
            compute_capability=SimpleNamespace(major=9, minor=0),
            properties=SimpleNamespace(
                multiprocessor_count=132, l2_cache_size=60 << 20, max_shared_memory_per_block_optin=232448
            ),
            create_stream=lambda options: self.stream,
            create_event=lambda options: 5.0,
        )
        self.status = 0

    def launch(self, stream, config, kernel, *args):
        self.calls.append(("launch", config, args))
        if self.status:
            raise LibraryError("an illegal memory access was encountered")

    def __getattr__(self, name):
        if not name.startswith("cu") and name != "CUkernel":
            raise AttributeError(name)
        values = {"cuDriverGetVersion": (13000,), "cuMemGetInfo": (1 << 30, 4 << 30), "cuMemAlloc": (4096,)}

        def call(*arguments):
            self.calls.append((name, *arguments))
            if name in ("CUkernel", "cuGetErrorString"):
                return arguments[0] if name == "CUkernel" else (0, b"out of memory")
            return (self.status, *values.get(name, (0,) if name == "cuCtxGetDevice" else ()))

        return call
