"""The pycuda backend over stand-ins of its modules, its compiler, and what the installed ones must have."""

import importlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from fake_cupy import CudaError, FakeCupy

from nnzbench.build.cache import CompileError
from nnzbench.devices import open_device, pycuda_device
from nnzbench.devices.cupy_device import CupyBackend
from nnzbench.devices.gpu_backend import BoundLaunch, DriverError
from nnzbench.devices.pycuda_device import PycudaBackend
from nnzbench.plans.plan import Plan, Unsupported


class FakeGraphs:
    """`cuda.bindings.driver`: every call answers a tuple that starts with a status."""

    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)

    def __init__(self):
        self.calls, self.fail = [], None

    def CUstream(self, handle):  # noqa: N802 - the library's own name
        return ("stream", handle)

    def cuGetErrorString(self, status):  # noqa: N802
        return 0, b"operation failed due to a previous error during capture"

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append(name)
            return (901,) if self.fail == name else (0, f"{name} result")

        return call


class FakeFunction:
    def __init__(self, calls):
        self.calls = calls

    def set_attribute(self, attribute, value):
        self.calls.append(("attribute", attribute, value))

    def prepare(self, types):
        self.calls.append(("prepare", [dtype.char for dtype in types]))

    def prepared_async_call(self, grid, block, stream, *values, shared_size):
        self.calls.append(("launch", grid, block, values, shared_size))


class FakePycuda:
    Error = CudaError

    def __init__(self):
        self.calls = []
        self.device_attribute = SimpleNamespace(
            MULTIPROCESSOR_COUNT=132, L2_CACHE_SIZE=1 << 20, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=232448
        )
        self.function_attribute = SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic")

    def Stream(self, flags):  # noqa: N802 - the library's own name
        assert flags == 1  # non-blocking
        return SimpleNamespace(handle=77, synchronize=lambda: self.calls.append("synchronise"))

    def get_version(self):
        return (13, 0, 0)

    def mem_get_info(self):
        return (13 << 30, 16 << 30)

    def module_from_buffer(self, cubin):
        return SimpleNamespace(get_function=lambda name: FakeFunction(self.calls))


@pytest.fixture
def pycuda(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycuda", SimpleNamespace(VERSION_TEXT="2026.1"))
    driver, graphs = FakePycuda(), FakeGraphs()
    device = SimpleNamespace(
        name=lambda: "Tesla T4",
        compute_capability=lambda: (7, 5),
        get_attribute=lambda attribute: attribute,
        total_memory=lambda: 16 << 30,
        pci_bus_id=lambda: "0000:1B:00.0",
    )
    return SimpleNamespace(driver=driver, graphs=graphs, backend=PycudaBackend(driver, graphs, device))


def test_pycuda_tells_the_gpu(pycuda):
    facts = pycuda.backend.facts
    assert (facts.name, facts.compute_capability, facts.library) == ("Tesla T4", (7, 5), "pycuda 2026.1")
    assert facts.runtime == "13.0"


def test_both_tell_the_memory_in_use(pycuda):
    cupy = FakeCupy()
    backend = CupyBackend(cupy)
    assert backend.used_bytes() == 139 << 30
    backend.release()
    with backend.separate():
        cupy.calls.append("inside")
    assert cupy.calls == ["release", ("allocator", "malloc"), "inside", "synchronise", "release own"]
    with pycuda.backend.separate():
        pass
    assert pycuda.backend.used_bytes() == 3 << 30
    pycuda.backend.release()


def test_pycuda_launches_with_the_same_argument_types(pycuda):
    backend = pycuda.backend
    args = [np.uint64(4096), np.int32(-7), np.float32(0.5)]
    backend.launcher(backend.load(b""), BoundLaunch("k", (2, 3, 4), (32, 2, 1), args, 60_000, True))()
    assert pycuda.driver.calls == [
        ("attribute", "dynamic", 60_000),
        ("prepare", ["L", "i", "f"]),
        ("launch", (2, 3, 4), (32, 2, 1), (4096, -7, 0.5), 60_000),
    ]


def test_a_pycuda_capture_becomes_an_uploaded_graph_and_is_destroyed_with_its_last_reference(pycuda):
    replay = pycuda.backend.capture(lambda: pycuda.graphs.calls.append("body"))
    replay()
    del replay
    assert " ".join(pycuda.graphs.calls) == (
        "cuStreamBeginCapture body cuStreamEndCapture cuGraphInstantiate cuGraphDestroy cuGraphUpload cuGraphLaunch "
        "cuGraphExecDestroy"
    )


def test_a_pycuda_capture_that_fails_is_ended_and_keeps_the_first_error(pycuda):
    pycuda.graphs.fail = "cuStreamEndCapture"

    def body():
        raise ValueError("the library refused")

    with pytest.raises(ValueError, match="the library refused"):
        pycuda.backend.capture(body)
    assert pycuda.graphs.calls == ["cuStreamBeginCapture", "cuStreamEndCapture"]


def test_graph_errors_carry_the_drivers_words_and_count_as_the_librarys_own(pycuda):
    pycuda.graphs.fail = "cuGraphInstantiate"
    with pytest.raises(DriverError, match="previous error during capture") as caught:
        pycuda.backend.capture(lambda: None)
    assert isinstance(caught.value, pycuda.backend.errors)
    assert pycuda.graphs.calls[-1] == "cuGraphDestroy"


# ---------------------------------------------------------------- nvcc through pycuda.compiler

NVCC_LOG = """The CUDA compiler succeeded, but said the following:
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
    0 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 40 registers, 2048 bytes smem
"""


@pytest.fixture
def nvcc(monkeypatch):
    import warnings

    asked = {}

    class CompileFailure(Exception):
        pass

    def compile(source, **options):
        asked.update(options, source=source)
        if "broken" in source:
            raise CompileFailure("nvcc compilation failed: k.cu(1): error: expected a ;")
        warnings.warn(NVCC_LOG, stacklevel=1)
        return b"cubin"

    monkeypatch.setitem(sys.modules, "pycuda.compiler", SimpleNamespace(compile=compile))
    monkeypatch.setitem(sys.modules, "pycuda.driver", SimpleNamespace(CompileError=CompileFailure))
    monkeypatch.setattr(pycuda_device.toolchain, "code_bytes", lambda image: {"k": 640})
    return asked


def test_nvcc_compiles_with_the_options_of_the_nvrtc_build(nvcc):
    plan = Plan("v", "cuda", "// text\n", {"TILE": 4}, {}, "y", ())
    built = pycuda_device.build_with_nvcc(plan, "sm_90")
    assert built.cubin == b"cubin"
    used = built.resources["k"]
    assert (used.registers, used.shared_bytes, used.spill_bytes, used.code_bytes) == (40, 2048, 12, 640)
    assert nvcc["options"] == ["-std=c++17", "--ptxas-options=-v", "-DTILE=4"]
    assert (nvcc["arch"], nvcc["no_extern_c"], nvcc["source"]) == ("sm_90", True, "// text\n")


def test_nvccs_errors_become_compile_errors_with_the_log(nvcc):
    with pytest.raises(CompileError, match=r"plan\.cu: nvcc failed") as caught:
        pycuda_device.build_with_nvcc(Plan("v", "cuda", "broken\n", {}, {}, "y", ()), "sm_90")
    assert "expected a ;" in caught.value.log


# ---------------------------------------------------------------- opening, and the installed libraries


def hide(monkeypatch, *names):
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)


def test_without_pycuda_the_reason_says_what_to_install(monkeypatch):
    hide(monkeypatch, "pycuda", "pycuda.driver")
    with pytest.raises(Unsupported, match=r"PyCUDA is missing .*pip install 'nnzbench\[pycuda\]'"):
        open_device("pycuda")


def test_without_a_gpu_pycuda_says_so(monkeypatch):
    real = importlib.import_module

    def load(name):
        if name == "pycuda.autoprimaryctx":
            raise CudaError("cuInit failed: no CUDA-capable device is detected")
        return FakePycuda() if name == "pycuda.driver" else real(name) if "cuda.bindings" not in name else FakeGraphs()

    monkeypatch.setattr(pycuda_device.importlib, "import_module", load)
    with pytest.raises(Unsupported, match="no CUDA-capable device is detected"):
        pycuda_device.open_device()


def test_the_installed_cuda_bindings_have_the_graph_calls():
    driver = pytest.importorskip("cuda.bindings.driver")
    names = ["BeginCapture", "EndCapture"]
    assert all(hasattr(driver, f"cuStream{name}") for name in names)
    names = ["Instantiate", "Upload", "Launch", "Destroy", "ExecDestroy"]
    assert all(hasattr(driver, f"cuGraph{name}") for name in names)
    assert driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED == 2
    assert int(driver.CUstream(77)) == 77
