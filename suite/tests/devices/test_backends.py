"""The backends of CuPy, PyCUDA and cuda.core over stand-ins of their modules, and what the installed ones must have."""

import ctypes
import importlib
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from fake_gpu import FakeBackend
from fake_gpu_libraries import FakeCore, FakeCupy, FakeGraphs, FakePycuda, LibraryError

from nnzbench.build.cache import CompileError
from nnzbench.devices import cupy_device, open_device, pycuda_device
from nnzbench.devices.cpu_device import CpuDevice
from nnzbench.devices.cuda_core_device import CudaCoreBackend
from nnzbench.devices.cupy_device import CupyBackend
from nnzbench.devices.gpu import GpuDevice, LaunchError
from nnzbench.devices.gpu_backend import BoundLaunch, DriverError
from nnzbench.devices.pycuda_device import PycudaBackend
from nnzbench.plans.plan import Launch, Plan, Unsupported

ARGS = [np.uint64(2**40 + 3), np.int32(-7), np.float32(0.5)]
LARGE = BoundLaunch("k", (2, 3, 4), (32, 2, 1), ARGS, 60_000, True)


def made(name):
    """The library and the backend over it."""
    if name == "cupy":
        library = FakeCupy()
        return library, CupyBackend(library)
    if name == "pycuda":
        library = FakePycuda()
        return library, PycudaBackend(library, library.graphs, library.device)
    library = FakeCore()
    return library, CudaCoreBackend(library, library, library.device, (LibraryError,))


@pytest.fixture(params=["cupy", "pycuda", "cuda-core"])
def either(request, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycuda", SimpleNamespace(VERSION_TEXT="2026.1"))
    library, backend = made(request.param)
    library.calls.clear()
    return SimpleNamespace(name=request.param, library=library, backend=backend, calls=library.calls)


def test_it_tells_the_gpu_and_its_memory(either):
    facts = either.backend.facts
    assert (facts.name, facts.compute_capability, facts.sms) == ("NVIDIA H200", (9, 0), 132)
    version = {"cupy": "14.2.0", "pycuda": "2026.1", "cuda-core": "1.2.2"}[either.name]
    assert (facts.library, facts.runtime) == (f"{either.name} {version}", "13.0")
    assert (facts.memory_bytes, either.backend.used_bytes(), either.backend.stream) == (4 << 30, 3 << 30, 77)


def test_memory_apart_is_never_from_the_pool(either):
    either.backend.release()
    with either.backend.separate():
        either.calls.append("inside")
    pooled = ["release", ("allocator", "malloc"), "inside", "synchronise", "release own"]
    assert either.calls == (pooled if either.name == "cupy" else ["inside"])


def test_compute_capabilities_of_two_digits():
    cupy = FakeCupy()
    cupy.cuda.Device = lambda index: SimpleNamespace(compute_capability="103")
    assert CupyBackend(cupy).facts.compute_capability == (10, 3)


def test_a_launch_opts_in_to_shared_memory_and_passes_arguments_in_their_own_types(either):
    enqueue = either.backend.launcher(either.backend.load(b"cubin"), LARGE)
    enqueue()
    calls = either.calls
    if either.name == "cupy":
        assert calls[:2] == [("load", b"cubin"), ("attribute", 8, 60_000)]
        _, sizes, params = calls[2]
        assert sizes == (2, 3, 4, 32, 2, 1, 60_000)
        kinds = (ctypes.c_uint64, ctypes.c_int32, ctypes.c_float)
        addresses = (ctypes.c_void_p * 3).from_address(params)
        packed = [kind.from_address(at).value for kind, at in zip(kinds, addresses, strict=True)]
        assert packed == [one.item() for one in ARGS]
    elif either.name == "pycuda":
        assert calls == [
            ("attribute", "dynamic", 60_000),
            ("prepare", ["L", "i", "f"]),
            ("launch", (2, 3, 4), (32, 2, 1), tuple(one.item() for one in ARGS), 60_000),
        ]
    else:
        assert ("cuKernelSetAttribute", 8, 60_000, 900, 0) in calls
        assert calls[-1] == ("launch", {"grid": (2, 3, 4), "block": (32, 2, 1), "shmem_size": 60_000}, tuple(ARGS))


def test_it_opts_in_only_where_asked(either):
    either.backend.launcher(either.backend.load(b""), LARGE._replace(opt_in=False))()
    assert not [call for call in either.calls if call[0] in ("attribute", "cuKernelSetAttribute")]


PYCUDA_CAPTURED = (
    "cuStreamBeginCapture body cuStreamEndCapture cuGraphInstantiate cuGraphDestroy cuGraphUpload cuGraphLaunch "
    "cuGraphExecDestroy"
)
CAPTURED = {
    "cupy": ["begin", "body", "end", "upload", "replay"],
    "pycuda": PYCUDA_CAPTURED.split(),
    "cuda-core": [("begin", "relaxed"), "body", "end", "upload", "replay"],
}


def test_a_capture_becomes_an_uploaded_graph_that_goes_with_its_last_reference(either):
    replay = either.backend.capture(lambda: either.calls.append("body"))
    replay()
    del replay
    assert either.calls == CAPTURED[either.name]


def test_a_capture_that_fails_is_ended_and_keeps_the_first_error(either):
    if either.name == "pycuda":
        either.library.graphs.fail = "cuStreamEndCapture"

    def body():
        either.calls.append("invalidated")
        raise ValueError("the library refused")

    with pytest.raises(ValueError, match="the library refused"):
        either.backend.capture(body)
    begin, _, end, *_ = CAPTURED[either.name]
    assert either.calls == [begin, "invalidated", end]


def test_graph_errors_carry_the_drivers_words_and_count_as_pycudas_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycuda", SimpleNamespace(VERSION_TEXT="2026.1"))
    library, backend = made("pycuda")
    library.graphs.fail = "cuGraphInstantiate"
    with pytest.raises(DriverError, match="previous error during capture") as caught:
        backend.capture(lambda: None)
    assert isinstance(caught.value, backend.errors)
    assert library.calls[-1] == "cuGraphDestroy"


# ---------------------------------------------------------------- launch attributes; cuda.core's own memory


def test_cupys_launches_with_attributes_are_the_drivers_own(monkeypatch):
    told, status = [], 0

    def launch(config, function, params, extra):
        config = config._obj
        attributes = [(one.id, list(one.value[:3])) for one in config.attributes[: config.count]]
        args = [ctypes.c_int32.from_address(params[0]).value, ctypes.c_float.from_address(params[1]).value]
        sizes = [*config.grid, *config.block, config.shared_bytes, config.stream]
        told.append((function.value, sizes, attributes, args, extra))
        return status

    monkeypatch.setattr(cupy_device.ctypes, "CDLL", lambda name: SimpleNamespace(cuLaunchKernelEx=launch))
    _, backend = made("cupy")
    args = [np.int32(-7), np.float32(0.5)]
    enqueue = backend.launcher(
        backend.load(b""), BoundLaunch("k", (4, 2, 1), (64, 1, 1), args, 96, False, (2, 1, 1), True)
    )
    enqueue()
    sizes = [4, 2, 1, 64, 1, 1, 96, 77]
    assert told == [(900, sizes, [(4, [2, 1, 1]), (6, [1, 0, 0])], [-7, 0.5], None)]
    status = 719
    with pytest.raises(LaunchError, match="k returns CUDA error 719"):
        GpuDevice(backend).guarded(enqueue)


def test_cuda_core_counts_clusters_and_passes_their_attributes():
    core, backend = made("cuda-core")
    backend.launcher(backend.load(b""), BoundLaunch("k", (4, 2, 1), (64, 1, 1), [], 0, False, (2, 1, 1), True))()
    clusters = {"grid": (2, 2, 1), "cluster": (2, 1, 1), "programmatic_stream_serialization": True}
    assert core.calls[-1] == ("launch", {"block": (64, 1, 1), "shmem_size": 0, **clusters}, ())


def test_memory_of_cuda_core_is_the_drivers_and_freed_with_its_last_reference():
    core, backend = made("cuda-core")
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
    device = GpuDevice(backend)
    launch = backend.launcher(backend.load(b""), LARGE)
    core.status = 2
    with pytest.raises(DriverError, match="out of memory"):
        backend.allocate(1 << 60)
    with pytest.raises(LaunchError, match="out of memory"):
        device.empty((4,), np.float32)
    with pytest.raises(Exception, match="an illegal memory access"):
        device.guarded(launch)


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


# ---------------------------------------------------------------- nvcc through pycuda.compiler

NVCC_LOG = """The CUDA compiler succeeded, but said the following:
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
    0 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 40 registers, 2048 bytes smem
"""


def test_nvcc_compiles_with_the_options_of_the_nvrtc_build_and_its_errors_come_with_the_log(monkeypatch):
    asked = {}

    def compile(source, **options):
        asked.update(options, source=source)
        if "broken" in source:
            raise LibraryError("nvcc compilation failed: k.cu(1): error: expected a ;")
        warnings.warn(NVCC_LOG, stacklevel=1)
        return b"cubin"

    monkeypatch.setitem(sys.modules, "pycuda.compiler", SimpleNamespace(compile=compile))
    monkeypatch.setitem(sys.modules, "pycuda.driver", SimpleNamespace(CompileError=LibraryError))
    monkeypatch.setattr(pycuda_device.toolchain, "code_bytes", lambda image: {"k": 640})
    built = pycuda_device.build_with_nvcc(Plan("v", "cuda", "// text\n", {"TILE": 4}, {}, "y", ()), "sm_90")
    assert built.cubin == b"cubin"
    used = built.resources["k"]
    assert (used.registers, used.shared_bytes, used.spill_bytes, used.code_bytes) == (40, 2048, 12, 640)
    assert asked["options"] == ["-std=c++17", "--ptxas-options=-v", "-DTILE=4"]
    assert (asked["arch"], asked["no_extern_c"], asked["source"]) == ("sm_90", True, "// text\n")
    with pytest.raises(CompileError, match=r"plan\.cu: nvcc failed") as caught:
        pycuda_device.build_with_nvcc(Plan("v", "cuda", "broken\n", {}, {}, "y", ()), "sm_90")
    assert "expected a ;" in caught.value.log


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
    cupy = FakeCupy()
    cupy.cuda.is_available = lambda: False
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(Unsupported, match="CuPy finds no CUDA GPU"):
        cupy_device.open_device()
    real = importlib.import_module

    def load(name):
        if name == "pycuda.autoprimaryctx":
            raise LibraryError("cuInit failed: no CUDA-capable device is detected")
        stand_ins = {"pycuda.driver": FakePycuda, "cuda.bindings.driver": lambda: FakeGraphs([])}
        return stand_ins[name]() if name in stand_ins else real(name)

    monkeypatch.setattr(pycuda_device.importlib, "import_module", load)
    with pytest.raises(Unsupported, match="no CUDA-capable device is detected"):
        pycuda_device.open_device()


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


def test_the_installed_cuda_bindings_have_the_graph_calls():
    driver = pytest.importorskip("cuda.bindings.driver")
    of = {"cuStream": "BeginCapture EndCapture", "cuGraph": "Instantiate Upload Launch Destroy ExecDestroy"}
    assert all(hasattr(driver, prefix + name) for prefix, names in of.items() for name in names.split())
    assert driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED == 2
    assert int(driver.CUstream(77)) == 77
