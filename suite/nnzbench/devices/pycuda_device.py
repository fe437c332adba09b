"""The GPU through PyCUDA, on the primary context that CuPy and the CUDA libraries share. PyCUDA has no stream
capture, so graphs go through `cuda.bindings` on the same stream."""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any, Literal

from nnzbench import paths
from nnzbench.build import toolchain
from nnzbench.build.cache import CompileError, Job
from nnzbench.build.toolchain import CUDA_OPTIONS
from nnzbench.devices.gpu import Built, GpuDevice, build_plan
from nnzbench.devices.gpu_backend import Backend, BoundLaunch, DriverError, GpuFacts, checked
from nnzbench.plans.plan import Array, Plan, Unsupported

Compiler = Literal["nvrtc", "nvcc"]

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: not ordered with the legacy default stream


def open_device(compiler: Compiler = "nvrtc") -> GpuDevice:
    """The default CUDA device. `nvrtc` runs the very cubin that the cupy device runs, `nvcc` compiles through
    `pycuda.compiler`. Raises `Unsupported` without PyCUDA, cuda.bindings or a GPU."""
    try:
        driver = importlib.import_module("pycuda.driver")
    except ImportError as error:
        reason = str(error).strip().split("\n")[0]
        raise Unsupported(f"PyCUDA is missing ({reason}): pip install 'nnzbench[pycuda]', which needs nvcc") from None
    try:
        graphs = importlib.import_module("cuda.bindings.driver")
    except ImportError:
        raise Unsupported("cuda.bindings is missing: pip install 'nnzbench[cuda13]' (cuda12 for V100)") from None
    try:
        # never autoinit: a context of its own would not see the other libraries' memory
        context = importlib.import_module("pycuda.autoprimaryctx")
    except (driver.Error, RuntimeError) as error:
        raise Unsupported(f"PyCUDA finds no usable CUDA GPU ({error})") from None
    backend = PycudaBackend(driver, graphs, context.device)
    return GpuDevice(backend, build_plan if compiler == "nvrtc" else build_with_nvcc)


def build_with_nvcc(plan: Plan, arch: str) -> Built:
    """Compiles a CUDA plan with `pycuda.compiler`, with the options of the NVRTC build; PTX goes the usual way.

    Raises `CompileError` with nvcc's output, `Unsupported` where nvcc is missing.
    """
    if plan.language == "ptx":
        return build_plan(plan, arch)
    compiler = importlib.import_module("pycuda.compiler")
    driver = importlib.import_module("pycuda.driver")
    program = Job.of(plan, arch).program()
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as said:  # PyCUDA passes on nvcc's output, resources too, as a warning
        warnings.simplefilter("always")
        try:
            image = compiler.compile(
                program.text,
                options=[*CUDA_OPTIONS, *program.options],
                no_extern_c=True,
                arch=program.arch,
                cache_dir=False,
                include_dirs=[str(paths.kernels_cu() / "include")],  # the headers that `program` was read with
            )
        except driver.CompileError as error:
            raise CompileError(f"{program.name}: nvcc failed", str(error)) from None
        except OSError as error:
            raise Unsupported(f"nvcc does not run ({error.strerror})") from None
    elapsed_ms = (time.perf_counter() - started) * 1e3
    log = "\n".join(str(warning.message) for warning in said)
    return Built(image, toolchain.resources(log, image), elapsed_ms)


class PycudaBackend(Backend):
    """The driver calls with `pycuda.driver` and, for graphs, `cuda.bindings.driver`."""

    name = "pycuda"

    def __init__(self, driver: Any, graphs: Any, device: Any) -> None:
        self._driver, self._graphs = driver, graphs
        stream = driver.Stream(_NON_BLOCKING)
        super().__init__(stream, stream.handle, (driver.Error, DriverError))
        self.facts = self._facts(device)

    def _facts(self, device: Any) -> GpuFacts:
        names = self._driver.device_attribute
        version = importlib.import_module("pycuda").VERSION_TEXT
        return GpuFacts(
            name=device.name(),
            compute_capability=device.compute_capability(),
            sms=int(device.get_attribute(names.MULTIPROCESSOR_COUNT)),
            l2_bytes=int(device.get_attribute(names.L2_CACHE_SIZE)),
            memory_bytes=int(device.total_memory()),
            shared_optin_bytes=int(device.get_attribute(names.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)),
            pci_bus_id=device.pci_bus_id(),
            library=f"pycuda {version}",
            runtime=".".join(str(part) for part in self._driver.get_version()[:2]),
        )

    def allocate(self, size: int) -> Any:
        return self._driver.mem_alloc(size)

    def pointer(self, memory: Any) -> int:
        return int(memory)

    def free_and_total(self) -> tuple[int, int]:
        free, total = self._driver.mem_get_info()
        return int(free), int(total)

    def _to_device(self, pointer: int, array: Array) -> None:
        self._driver.memcpy_htod_async(pointer, array, self._stream)

    def _to_host(self, array: Array, pointer: int) -> None:
        self._driver.memcpy_dtoh_async(array, pointer, self._stream)

    def copy(self, target: int, source: int, size: int) -> None:
        self._driver.memcpy_dtod_async(target, source, size, self._stream)

    def fill(self, pointer: int, byte: int, size: int) -> None:
        self._driver.memset_d8_async(pointer, byte, size, self._stream)

    def load(self, cubin: bytes) -> Any:
        return self._driver.module_from_buffer(toolchain)

    def launcher(self, module: Any, launch: BoundLaunch) -> Callable[[], None]:
        function = module.get_function(launch.entry)
        if launch.opt_in:
            function.set_attribute(self._driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared_bytes)
        function.prepare([arg.dtype for arg in launch.args])
        values = [arg.item() for arg in launch.args]
        call, where = function.prepared_async_call, (launch.grid, launch.block, self._stream)

        def enqueue(keep: Any = module) -> None:
            call(*where, *values, shared_size=launch.shared_bytes)

        return enqueue

    def event(self) -> Any:
        return self._driver.Event()

    def reached(self, event: Any) -> bool:
        return bool(event.query())

    def elapsed_ms(self, start: Any, stop: Any) -> float:
        stop.synchronize()
        return float(start.time_till(stop))

    def _begin_capture(self) -> Any:
        stream = self._graphs.CUstream(self.stream)
        mode = self._graphs.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        checked(self._graphs, self._graphs.cuStreamBeginCapture(stream, mode))
        return stream

    def _end_capture(self, capture: Any) -> Any:
        graph = checked(self._graphs, self._graphs.cuStreamEndCapture(capture))
        try:
            return _Graph(self._graphs, graph, capture)
        finally:
            checked(self._graphs, self._graphs.cuGraphDestroy(graph))


class _Graph:
    """An instantiated graph, destroyed with its last reference; on the driver's handle of the stream."""

    def __init__(self, graphs: Any, graph: Any, stream: Any) -> None:
        self._graphs, self._stream = graphs, stream
        self._executable = checked(graphs, graphs.cuGraphInstantiate(graph, 0))

    def upload(self, _: Any) -> None:
        checked(self._graphs, self._graphs.cuGraphUpload(self._executable, self._stream))

    def launch(self, _: Any) -> None:
        checked(self._graphs, self._graphs.cuGraphLaunch(self._executable, self._stream))

    def __del__(self) -> None:
        if hasattr(self, "_executable"):
            self._graphs.cuGraphExecDestroy(self._executable)
