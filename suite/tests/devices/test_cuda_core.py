"""The cuda.core backend over a stand-in of the module, and launch attributes on the devices that lack them."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_gpu import FakeBackend

from nnzbench.devices import open_device
from nnzbench.devices.cpu_device import CpuDevice
from nnzbench.devices.cuda_core_device import CudaCoreBackend
from nnzbench.devices.gpu import GpuDevice, LaunchError
from nnzbench.devices.gpu_backend import BoundLaunch, DriverError
from nnzbench.plans.plan import Launch, Plan, Unsupported


class CoreError(Exception):
    pass


class FakeCore:
    """`cuda.core` and `cuda.bindings.driver` in one: everything called is kept."""

    __version__ = "1.2.2"

    def __init__(self):
        self.calls: list[Any] = []
        calls = self.calls
        graph = SimpleNamespace(
            upload=lambda stream: calls.append("upload"), launch=lambda stream: calls.append("replay")
        )
        builder = SimpleNamespace(close=lambda: None, complete=lambda: graph)
        builder.begin_building = lambda mode: (calls.append(("begin", mode)), builder)[1]
        builder.end_building = lambda: (calls.append("end"), builder)[1]
        self.stream = SimpleNamespace(
            handle=77,
            sync=lambda: calls.append("sync"),
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
            raise CoreError("an illegal memory access was encountered")

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


@pytest.fixture
def core():
    return FakeCore()


@pytest.fixture
def backend(core):
    return CudaCoreBackend(core, core, core.device, (CoreError,))


def test_it_tells_the_gpu(backend):
    facts = backend.facts
    assert (facts.name, facts.compute_capability, facts.sms) == ("NVIDIA H200", (9, 0), 132)
    assert (facts.library, facts.runtime, facts.memory_bytes) == ("cuda-core 1.2.2", "13.0", 4 << 30)
    assert backend.used_bytes() == 3 << 30
    assert backend.stream == 77


def test_a_launch_opts_in_to_shared_memory_and_passes_its_attributes(core, backend):
    args = [np.uint64(4096), np.int32(3), np.float32(0.5)]
    module = backend.load(b"cubin")
    core.calls.clear()
    backend.launcher(module, BoundLaunch("k", (4, 2, 1), (64, 1, 1), args, 70000, True))()
    assert ("cuKernelSetAttribute", 8, 70000, 900, 0) in core.calls
    plain = {"grid": (4, 2, 1), "block": (64, 1, 1), "shmem_size": 70000}
    assert core.calls[-1] == ("launch", plain, tuple(args))
    backend.launcher(module, BoundLaunch("k", (4, 2, 1), (64, 1, 1), args, 0, False, (2, 1, 1), True))()
    clusters = {"grid": (2, 2, 1), "cluster": (2, 1, 1), "programmatic_stream_serialization": True}
    assert core.calls[-1] == ("launch", {**plain, "shmem_size": 0, **clusters}, tuple(args))


def test_memory_is_the_drivers_and_freed_with_its_last_reference(core, backend):
    memory = backend.allocate(100)
    assert backend.pointer(memory) == 4096
    array = np.arange(4, dtype=np.float32)
    backend.upload(4096, array)
    backend.fill(4096, 0xFF, 16)
    backend.download(4096, array)
    names = [call[0] for call in core.calls if isinstance(call, tuple)]
    assert names[-3:] == ["cuMemcpyHtoDAsync", "cuMemsetD8Async", "cuMemcpyDtoHAsync"]
    del memory
    assert core.calls[-1] == ("cuMemFree", 4096)
    core.status = 2
    with pytest.raises(DriverError, match="out of memory"):
        backend.allocate(1 << 60)


def test_graphs_are_captured_on_the_stream_and_ended_where_the_body_fails(core, backend):
    core.calls.clear()
    backend.capture(lambda: core.calls.append("body"))()
    assert core.calls == [("begin", "relaxed"), "body", "end", "upload", "replay"]
    core.calls.clear()
    with pytest.raises(ZeroDivisionError):
        backend.capture(lambda: 1 // 0)
    assert core.calls == [("begin", "relaxed"), "end"]


def test_errors_of_the_library_become_the_devices(core, backend):
    device = GpuDevice(backend)
    assert device.name == "cuda-core"
    launch = backend.launcher(backend.load(b""), BoundLaunch("k", (1, 1, 1), (1, 1, 1), [], 0, False))
    core.status = 2
    with pytest.raises(LaunchError, match="out of memory"):
        device.empty((4,), np.float32)
    with pytest.raises(Exception, match="an illegal memory access"):
        device.guarded(launch)


def clustered():
    source = 'extern "C" __global__ void k(int* y) { y[blockIdx.x] = 1; }\n'
    launch = Launch("k", (2, 1, 1), (32, 1, 1), ("y",), cluster=(2, 1, 1))
    return Plan("c", "cuda", source, {}, {"y": np.zeros(2, np.int32)}, "y", (launch,))


def test_devices_without_launch_attributes_say_which_has_them(cache_dir):
    with pytest.raises(Unsupported, match="which cupy does not pass on: --device cuda-core"):
        GpuDevice(FakeBackend({"k": lambda *call: None})).prepare(clustered())
    with pytest.raises(Unsupported, match="clusters of blocks, which the cpu device does not run"):
        CpuDevice().prepare(clustered())


def test_without_the_library_the_device_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(Unsupported, match=r"cuda\.core is missing .*pip install 'nnzbench\[cuda-core\]'"):
        open_device("cuda-core")
