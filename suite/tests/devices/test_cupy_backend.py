"""The cupy backend over a stand-in of CuPy, and what the installed one must have."""

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from fake_cupy import FakeCupy

from nnzbench.devices import cupy_device, open_device
from nnzbench.devices.cupy_device import CupyBackend
from nnzbench.devices.gpu_backend import BoundLaunch
from nnzbench.plans.plan import Unsupported


def test_cupy_tells_the_gpu():
    facts = CupyBackend(FakeCupy()).facts
    assert (facts.name, facts.compute_capability, facts.sms) == ("NVIDIA H200", (9, 0), 132)
    assert (facts.library, facts.runtime) == ("cupy 14.2.0", "13.0")


def test_cupy_compute_capabilities_of_two_digits():
    cupy = FakeCupy()
    cupy.cuda.Device = lambda index: SimpleNamespace(compute_capability="103")
    assert CupyBackend(cupy).facts.compute_capability == (10, 3)


def test_cupy_launches_with_packed_arguments_in_their_own_types():
    cupy = FakeCupy()
    backend = CupyBackend(cupy)
    module = backend.load(b"cubin")
    args = [np.uint64(2**40 + 3), np.int32(-7), np.float32(0.5)]
    enqueue = backend.launcher(module, BoundLaunch("k", (2, 3, 4), (32, 2, 1), args, 60_000, True))
    assert ("attribute", 8, 60_000) in cupy.calls
    enqueue()
    _, sizes, params = cupy.calls[-1]
    assert sizes == (2, 3, 4, 32, 2, 1, 60_000)
    addresses = (ctypes.c_void_p * 3).from_address(params)
    assert ctypes.c_uint64.from_address(addresses[0]).value == 2**40 + 3
    assert ctypes.c_int32.from_address(addresses[1]).value == -7
    assert ctypes.c_float.from_address(addresses[2]).value == 0.5


def test_cupy_opts_in_only_where_asked():
    cupy = FakeCupy()
    backend = CupyBackend(cupy)
    backend.launcher(backend.load(b""), BoundLaunch("k", (1, 1, 1), (1, 1, 1), [], 0, False))()
    assert not [call for call in cupy.calls if call[0] == "attribute"]


def test_a_cupy_capture_becomes_an_uploaded_graph():
    cupy = FakeCupy()
    replay = CupyBackend(cupy).capture(lambda: cupy.calls.append("body"))
    replay()
    assert cupy.calls == ["begin", "body", "end", "graph upload", "graph launch"]


def test_a_cupy_capture_that_fails_is_ended_and_keeps_the_first_error():
    cupy = FakeCupy()

    def body():
        cupy.calls.append("invalidated")
        raise ValueError("the library refused")

    with pytest.raises(ValueError, match="the library refused"):
        CupyBackend(cupy).capture(body)
    assert cupy.calls == ["begin", "invalidated", "end"]


def test_without_cupy_the_reason_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(Unsupported, match=r"CuPy is missing .*pip install 'nnzbench\[cuda13\]'"):
        open_device("cupy")


def test_without_a_gpu_cupy_says_so(monkeypatch):
    cupy = FakeCupy()
    cupy.cuda.is_available = lambda: False
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(Unsupported, match="CuPy finds no CUDA GPU"):
        cupy_device.open_device()


def test_the_installed_cupy_has_what_the_backend_calls():
    cupy = pytest.importorskip("cupy")
    runtime, driver = cupy.cuda.runtime, cupy.cuda.driver
    for module, names in {
        runtime: (
            "CUDARuntimeError memcpyHostToDevice memcpyDeviceToHost memcpyAsync memsetAsync getDevice memGetInfo "
            "deviceGetAttribute deviceGetPCIBusId getDeviceProperties runtimeGetVersion cudaDevAttrMultiProcessorCount "
            "cudaDevAttrL2CacheSize cudaDevAttrMaxSharedMemoryPerBlockOptin"
        ),
        driver: "CUDADriverError funcSetAttribute launchKernel CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
        cupy.cuda: "Stream Event Module Device MemoryPool alloc get_elapsed_time is_available using_allocator",
        cupy.cuda.Module: "load get_function",
        cupy.cuda.Stream: "begin_capture end_capture synchronize",
        cupy.cuda.graph.Graph: "launch upload",
        cupy.get_default_memory_pool(): "free_all_blocks",
    }.items():
        assert not [name for name in names.split() if not hasattr(module, name)]
    assert issubclass(cupy.cuda.memory.OutOfMemoryError, Exception)
    assert len(driver.launchKernel.__doc__.split(",")) == 11
