"""The GPU through PyCUDA, on the primary context that CuPy and the CUDA libraries share. PyCUDA has no stream
capture, so graphs go through `cuda.bindings` on the same stream."""

from __future__ import annotations

import contextlib
import importlib
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nnzbench import paths
from nnzbench.build import cubin
from nnzbench.build.cache import CompileError, Job
from nnzbench.build.toolchain import CUDA_OPTIONS
from nnzbench.devices.gpu import Built, GpuDevice, build_plan
from nnzbench.devices.gpu_backend import GpuFacts
from nnzbench.plans.plan import Dim3, Plan, Unsupported

Array = NDArray[Any]
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
    return Built(image, cubin.resources(log, image), elapsed_ms)


class PycudaBackend:
    """Implements `nnzbench.devices.gpu.Backend` with `pycuda.driver` and, for graphs, `cuda.bindings.driver`."""

    name = "pycuda"

    def __init__(self, driver: Any, graphs: Any, device: Any) -> None:
        self._driver, self._graphs = driver, graphs
        self.errors: tuple[type[Exception], ...] = (driver.Error, GraphError)
        self._stream = driver.Stream(_NON_BLOCKING)
        self.stream = int(self._stream.handle)
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

    def used_bytes(self) -> int:
        free, total = self._driver.mem_get_info()
        return int(total - free)

    def release(self) -> None:
        return  # nothing is pooled

    def separate(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def upload(self, pointer: int, array: Array) -> None:
        self._driver.memcpy_htod_async(pointer, array, self._stream)
        self._stream.synchronize()

    def download(self, pointer: int, array: Array) -> None:
        self._driver.memcpy_dtoh_async(array, pointer, self._stream)
        self._stream.synchronize()

    def fill(self, pointer: int, byte: int, size: int) -> None:
        self._driver.memset_d8_async(pointer, byte, size, self._stream)

    def load(self, cubin: bytes) -> Any:
        return self._driver.module_from_buffer(cubin)

    def launcher(
        self,
        module: Any,
        entry: str,
        grid: Dim3,
        block: Dim3,
        args: Sequence[np.generic],
        shared_bytes: int,
        opt_in: bool,
    ) -> Callable[[], None]:
        function = module.get_function(entry)
        if opt_in:
            function.set_attribute(self._driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)
        function.prepare([arg.dtype for arg in args])
        values = [arg.item() for arg in args]
        call, stream = function.prepared_async_call, self._stream

        def enqueue(keep: Any = module) -> None:
            call(grid, block, stream, *values, shared_size=shared_bytes)

        return enqueue

    def synchronise(self) -> None:
        self._stream.synchronize()

    def event(self) -> Any:
        return self._driver.Event()

    def record(self, event: Any) -> None:
        event.record(self._stream)

    def reached(self, event: Any) -> bool:
        return bool(event.query())

    def elapsed_ms(self, start: Any, stop: Any) -> float:
        stop.synchronize()
        return float(start.time_till(stop))

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        graphs, stream = self._graphs, self._graphs.CUstream(self.stream)
        mode = graphs.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._checked(graphs.cuStreamBeginCapture(stream, mode))
        try:
            body()
        except BaseException:
            with contextlib.suppress(GraphError):  # an invalidated capture must be ended all the same
                self._checked(graphs.cuStreamEndCapture(stream))
            raise
        graph = self._checked(graphs.cuStreamEndCapture(stream))
        try:
            replay = _Replay(self._checked, graphs, self._checked(graphs.cuGraphInstantiate(graph, 0)), stream)
        finally:
            self._checked(graphs.cuGraphDestroy(graph))
        return replay

    def _checked(self, answer: tuple[Any, ...]) -> Any:
        """The value of a cuda.bindings call. Raises `GraphError` with the driver's words."""
        status = answer[0]
        if int(status) != 0:
            _, text = self._graphs.cuGetErrorString(status)
            raise GraphError(text.decode() if isinstance(text, bytes) else str(status))
        return answer[1] if len(answer) > 1 else None

    def close(self) -> None:
        self._stream.synchronize()


class GraphError(RuntimeError):
    """The driver refused a graph operation."""


class _Replay:
    """An instantiated graph, destroyed with its last reference."""

    def __init__(self, checked: Callable[[Any], Any], graphs: Any, executable: Any, stream: Any) -> None:
        self._checked, self._graphs, self._executable, self._stream = checked, graphs, executable, stream
        checked(graphs.cuGraphUpload(executable, stream))

    def __call__(self) -> None:
        self._checked(self._graphs.cuGraphLaunch(self._executable, self._stream))

    def __del__(self) -> None:
        self._graphs.cuGraphExecDestroy(self._executable)
