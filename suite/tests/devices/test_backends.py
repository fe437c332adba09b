"""The backends of CuPy, PyCUDA and cuda.core over stand-ins of their modules, and what the installed ones must have."""

import ctypes
import importlib
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from fake_gpu import FakeBackend
from fake_gpu_libraries import LibraryError, backend_of, fake_cupy, fake_pycuda

from nnzbench.core.plan import Launch, Plan, Unsupported
from nnzbench.devices import gpu_libraries, open_device
from nnzbench.devices.cpu_device import CpuDevice
from nnzbench.devices.gpu import GpuDevice, LaunchError
from nnzbench.devices.gpu_backend import BoundLaunch, DriverError

ARGS = [np.uint64(2**40 + 3), np.int32(-7), np.float32(0.5)]
LARGE = BoundLaunch("k", (2, 3, 4), (32, 2, 1), ARGS, 60_000, 60_000)


@pytest.fixture(params=["cupy", "pycuda", "cuda-core"])
def either(request):
    return backend_of(request.param)


def test_it_tells_the_gpu_and_its_memory(either):
    facts = either.backend.facts
    assert (facts.name, facts.compute_capability, facts.sms) == ("NVIDIA H200", (9, 0), 132)
    assert (facts.l2_bytes, facts.shared_optin_bytes, facts.pci_bus_id) == (60 << 20, 232448, "0000:1B:00.0")
    version = {"cupy": "14.2.0", "pycuda": "2026.1", "cuda-core": "1.2.2"}[either.name]
    assert (facts.library, facts.runtime) == (f"{either.name} {version}", "13.0")
    assert (facts.memory_bytes, either.backend.used_bytes(), either.backend.stream) == (4 << 30, 3 << 30, 77)


def test_memory_apart_is_never_from_the_pool(either):
    either.backend.release()
    with either.backend.separate():
        either.calls.append("inside")
    pooled = ["release", ("allocator", "malloc"), "inside", ("cudaDeviceSynchronize",), "release own"]
    assert either.calls == (pooled if either.name == "cupy" else ["inside"])


def test_a_launch_opts_in_to_shared_memory_and_passes_arguments_in_their_own_types(either):
    enqueue = either.backend.launcher(either.backend.load(b"cubin"), LARGE)
    enqueue()
    loaded, opted, *_, (_, *launched) = either.calls
    assert loaded == ("load", b"cubin")
    assert opted == (
        ("cuKernelSetAttribute", 8, 60_000, 900, 0) if either.name == "cuda-core" else ("attribute", 8, 60_000)
    )
    if either.name == "cupy":
        sizes, params, stream = launched
        assert stream == 77
        assert sizes == (2, 3, 4, 32, 2, 1, 60_000)
        kinds = (ctypes.c_uint64, ctypes.c_int32, ctypes.c_float)
        addresses = (ctypes.c_void_p * 3).from_address(params)
        packed = [kind.from_address(at).value for kind, at in zip(kinds, addresses, strict=True)]
        assert packed == [one.item() for one in ARGS]
    elif either.name == "pycuda":
        assert either.calls[2] == ("prepare", ["L", "i", "f"])
        assert launched == [(2, 3, 4), (32, 2, 1), tuple(one.item() for one in ARGS), 60_000]
    else:
        assert launched == [{"grid": (2, 3, 4), "block": (32, 2, 1), "shmem_size": 60_000}, tuple(ARGS)]


def test_it_opts_in_only_where_asked(either):
    either.backend.launcher(either.backend.load(b""), LARGE._replace(limit=0))()
    assert not [call for call in either.calls if call[0] in ("attribute", "cuKernelSetAttribute")]


def test_cupy_launches_with_what_a_callers_cells_hold_then_and_on_a_stream_of_theirs():
    cupy = backend_of("cupy")
    cell = np.array(5, np.int32)
    enqueue = cupy.backend.launcher(cupy.backend.load(b""), LARGE._replace(args=[cell]))
    cell[...] = 6
    enqueue(98)
    *_, params, stream = cupy.calls[-1]
    assert ctypes.c_int32.from_address(ctypes.c_void_p.from_address(params).value).value == 6
    assert stream == 98


def names(calls):
    return [call if isinstance(call, str) else call[0].removeprefix("cuda") for call in calls]


def test_memory_is_copied_and_filled_on_the_stream_and_freed_with_its_last_reference(either):
    backend, array = either.backend, np.arange(4, dtype=np.float32)
    memory = backend.allocate(100)
    assert backend.pointer(memory) == 4096
    either.calls.clear()
    backend.upload(4096, array)
    backend.fill(4096, 0xFF, 16)
    backend.download(4096, array)
    assert either.calls == [
        ("cudaMemcpyAsync", 4096, array.ctypes.data, 16, 4, 77), ("cudaStreamSynchronize", 77),
        ("cudaMemsetAsync", 4096, 0xFF, 16, 77),
        ("cudaMemcpyAsync", array.ctypes.data, 4096, 16, 4, 77), ("cudaStreamSynchronize", 77),
    ]  # fmt: skip
    del memory
    assert names(either.calls)[-1:] == (["StreamSynchronize"] if either.name == "cupy" else ["Free"])


def test_events_are_recorded_on_the_stream_and_tell_whether_they_are_reached(either):
    backend, runtime = either.backend, either.runtime
    start, stop = backend.event(), backend.event()
    backend.record(start)
    assert backend.elapsed_ms(start, stop) == 0.5
    assert names(either.calls) == ["EventCreate", "EventCreate", "EventRecord", "EventSynchronize", "EventElapsedTime"]
    assert backend.reached(start)
    runtime.fails, runtime.status = "cudaEventQuery", 600
    assert not backend.reached(start)
    runtime.status = 700
    with pytest.raises(DriverError):
        backend.reached(start)
    del start
    assert names(either.calls)[-1] == "EventDestroy"


def test_a_capture_becomes_an_uploaded_graph_that_goes_with_its_last_reference(either):
    replay = either.backend.capture(lambda: either.calls.append("body"))
    replay()
    del replay
    assert names(either.calls) == [
        "StreamBeginCapture", "body", "StreamEndCapture", "GraphInstantiate", "GraphDestroy", "GraphUpload",
        "GraphLaunch", "GraphExecDestroy",
    ]  # fmt: skip


def test_a_capture_that_fails_is_ended_and_keeps_the_first_error(either):
    either.runtime.fails = "cudaStreamEndCapture"

    def body():
        raise ValueError("the library refused")

    with pytest.raises(ValueError, match="the library refused"):
        either.backend.capture(body)
    assert names(either.calls) == ["StreamBeginCapture", "StreamEndCapture"]


def test_errors_of_the_runtime_carry_its_words_and_count_as_the_librarys_own(either):
    either.runtime.fails = "cudaGraphInstantiate"
    with pytest.raises(DriverError, match="previous error during capture"):
        either.backend.capture(lambda: None)
    assert names(either.calls)[-1] == "GraphDestroy"
    if either.name != "cupy":
        either.runtime.fails, either.runtime.status = "cudaMalloc", 2
        with pytest.raises(LaunchError, match="out of memory"):
            GpuDevice(either.backend).empty((4,), np.float32)


def test_cupys_launches_with_attributes_are_the_drivers_own(monkeypatch):
    told, status = [], 0

    def launch(config, function, params, extra):
        config = config._obj
        attributes = [(one.id, list(one.value[:3])) for one in config.attributes[: config.count]]
        args = [ctypes.c_int32.from_address(params[0]).value, ctypes.c_float.from_address(params[1]).value]
        sizes = [*config.grid, *config.block, config.shared_bytes, config.stream]
        told.append((function.value, sizes, attributes, args, extra))
        return status

    monkeypatch.setattr(gpu_libraries.ctypes, "CDLL", lambda name: SimpleNamespace(cuLaunchKernelEx=launch))
    backend = backend_of("cupy").backend
    args = [np.int32(-7), np.float32(0.5)]
    enqueue = backend.launcher(backend.load(b""), BoundLaunch("k", (4, 2, 1), (64, 1, 1), args, 96, 0, (2, 1, 1), True))
    enqueue()
    sizes = [4, 2, 1, 64, 1, 1, 96, 77]
    assert told == [(900, sizes, [(4, [2, 1, 1]), (6, [1, 0, 0])], [-7, 0.5], None)]
    status = 719
    with pytest.raises(LaunchError, match="k returns CUDA error 719"):
        GpuDevice(backend).guarded(enqueue)


def test_cuda_core_counts_clusters_and_passes_their_attributes():
    core = backend_of("cuda-core")
    launch = BoundLaunch("k", (4, 2, 1), (64, 1, 1), [], 0, 0, (2, 1, 1), True)
    core.backend.launcher(core.backend.load(b""), launch)()
    clusters = {"grid": (2, 2, 1), "cluster": (2, 1, 1), "programmatic_stream_serialization": True}
    assert core.calls[-1] == ("launch", {"block": (64, 1, 1), "shmem_size": 0, **clusters}, ())


def clustered():
    source = 'extern "C" __global__ void k(int* y) { y[blockIdx.x] = 1; }\n'
    launch = Launch("k", (2, 1, 1), (32, 1, 1), ("y",), cluster=(2, 1, 1))
    return Plan("c", "cuda", source, {}, {"y": np.zeros(2, np.int32)}, "y", (launch,))


def test_devices_without_launch_attributes_say_which_has_them(cache_dir):
    backend = FakeBackend({"k": lambda *call: None})
    backend.name = "pycuda"
    with pytest.raises(Unsupported, match="which pycuda does not pass on: --device cupy"):
        GpuDevice(backend).prepare(clustered())
    with pytest.raises(Unsupported, match="clusters of blocks, which the cpu device does not run"):
        CpuDevice().prepare(clustered())


# ---------------------------------------------------------------- opening, and the installed libraries


@pytest.mark.parametrize(
    ("name", "hidden", "says"),
    [
        ("cupy", ("cupy",), r"CuPy is missing .*pip install 'nnzbench\[cuda13\]'"),
        ("pycuda", ("pycuda", "pycuda.driver"), r"PyCUDA is missing .*pip install 'nnzbench\[pycuda\]'"),
        ("cuda-core", ("cuda.core",), r"cuda\.core is missing .*pip install 'nnzbench\[cuda-core\]'"),
    ],
)
def test_without_the_library_the_reason_says_what_to_install(name, hidden, says, monkeypatch):
    for module in hidden:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Unsupported, match=says):
        open_device(name)


def test_without_a_gpu_they_say_so(monkeypatch):
    cupy = fake_cupy([])
    cupy.cuda.is_available = lambda: False
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(Unsupported, match="CuPy finds no CUDA GPU"):
        gpu_libraries.open_cupy()
    real = importlib.import_module

    def load(name):
        if name == "pycuda.autoprimaryctx":
            raise LibraryError("cuInit failed: no CUDA-capable device is detected")
        return {"pycuda.driver": fake_pycuda([]), "cuda.bindings.runtime": SimpleNamespace()}.get(name) or real(name)

    monkeypatch.setattr(gpu_libraries.importlib, "import_module", load)
    with pytest.raises(Unsupported, match="no CUDA-capable device is detected"):
        gpu_libraries.open_pycuda()


def test_the_installed_cupy_has_what_the_backend_calls():
    cupy = pytest.importorskip("cupy")
    driver = cupy.cuda.driver
    for module, words in {
        cupy.cuda.runtime: "CUDARuntimeError runtimeGetVersion",
        driver: "CUDADriverError funcSetAttribute launchKernel CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
        cupy.cuda: "Stream Module MemoryPool alloc is_available using_allocator",
        cupy.cuda.Module: "load get_function",
        cupy.get_default_memory_pool(): "free_all_blocks",
    }.items():
        assert not [name for name in words.split() if not hasattr(module, name)]
    assert issubclass(cupy.cuda.memory.OutOfMemoryError, Exception)
    assert len(driver.launchKernel.__doc__.split(",")) == 11


CALLS = (
    "GetDevice 0 GetDeviceProperties 1 DeviceGetPCIBusId 2 MemGetInfo 0 DriverGetVersion 0 GetErrorString 1 Malloc 1 "
    "Free 1 MemcpyAsync 5 MemsetAsync 4 StreamSynchronize 1 DeviceSynchronize 0 EventCreate 0 EventDestroy 1 "
    "EventRecord 2 EventQuery 1 EventSynchronize 1 EventElapsedTime 2 StreamBeginCapture 2 StreamEndCapture 1 "
    "GraphInstantiate 2 GraphUpload 2 GraphLaunch 2 GraphDestroy 1 GraphExecDestroy 1"
)
"""Functions of `cuda.bindings.runtime`, and how many arguments each takes."""


def test_the_installed_bindings_have_what_the_backends_call():
    runtime = pytest.importorskip("cuda.bindings.runtime")
    words = CALLS.split()
    for name, count in zip(words[::2], map(int, words[1::2]), strict=True):
        told = re.match(r"\w+\((.*?)\)", getattr(runtime, f"cuda{name}").__doc__)[1]
        assert len([one for one in told.split(",") if one]) == count, name
    assert runtime.cudaMemcpyKind.cudaMemcpyDefault == 4
    assert runtime.cudaStreamCaptureMode.cudaStreamCaptureModeRelaxed == 2
    assert runtime.cudaError_t.cudaErrorNotReady == 600
    assert vars(backend_of("cupy").runtime.told).keys() <= set(dir(runtime.cudaDeviceProp()))
