"""What a GPU device needs of a GPU library, and what CUDA says of the GPU.

A library (CuPy, PyCUDA, cuda.core) has the context and the stream, loads modules and launches their kernels. Memory,
copies, events and graphs are calls of the CUDA runtime (`cuda.bindings`) on that stream, the same for all of them.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nnzbench.core.plan import Array, Dim3, Unsupported

Scalar = np.generic
"""A kernel argument, with its C type."""


@dataclass(frozen=True)
class GpuFacts:
    """What CUDA says of the GPU."""

    name: str
    compute_capability: tuple[int, int]
    sms: int
    l2_bytes: int
    memory_bytes: int
    shared_optin_bytes: int
    """Most shared memory that one block can opt in to, static and dynamic together."""
    pci_bus_id: str
    """Finds the same GPU in NVML; never recorded."""
    library: str
    """The GPU library and its version, such as `cupy 14.2.0`."""
    runtime: str
    """CUDA version that the library runs on, such as `13.0`."""
    number: int = 0
    """Of the GPU among those of this process, as CUDA counts them; never recorded."""


class BoundLaunch(NamedTuple):
    """One launch of an entry of a loaded module, as a backend takes it."""

    entry: str
    grid: Dim3
    block: Dim3
    args: Sequence[Scalar | Array]
    """CuPy's take arrays without dimensions as they are: what they hold at a launch is what it is given."""
    shared_bytes: int
    limit: int = 0
    """Of the entry's shared memory, to which it is raised first; 0: it stays."""
    cluster: Dim3 = (1, 1, 1)
    overlaps: bool = False
    """Whether it may begin before the launch that precedes it ends."""


class DriverError(RuntimeError):
    """CUDA refused a call of `cuda.bindings`."""


def bindings(name: str) -> Any:
    """`cuda.bindings.runtime` or `.driver`. Raises `Unsupported` where they are missing."""
    try:
        return importlib.import_module(f"cuda.bindings.{name}")
    except ImportError:
        raise Unsupported("cuda.bindings is missing: pip install 'nnzbench[cuda13]' (cuda12 for V100)") from None


class Owned:
    """What the runtime has made, freed with its last reference."""

    def __init__(self, value: Any, free: Callable[[Any], Any]) -> None:
        self.value, self._free = value, free

    def __del__(self) -> None:
        self._free(self.value)


_NOT_READY = 600  # cudaErrorNotReady


class Backend(ABC):
    """The calls a GPU device is made of, all on one stream that is not the default one. Pointers are plain integers."""

    name: str
    """`cupy`, `pycuda` or `cuda-core`."""
    attributes = False
    """Whether it passes on `cluster` and `overlaps` of a launch."""

    def __init__(self, runtime: Any, handle: Any, errors: tuple[type[Exception], ...], version: str, cuda: int) -> None:
        """`runtime` is `cuda.bindings.runtime`, `handle` the stream's; `cuda` as CUDA counts its versions: 13000."""
        self._runtime = runtime
        self.stream = int(handle)
        """Handle of the stream."""
        self.errors: tuple[type[Exception], ...] = (*errors, DriverError)
        """What is raised where the driver reports an error."""
        number = int(self._call("GetDevice"))
        told = self._call("GetDeviceProperties", number)
        self.facts = GpuFacts(
            name=_text(told.name),
            compute_capability=(int(told.major), int(told.minor)),
            sms=int(told.multiProcessorCount),
            l2_bytes=int(told.l2CacheSize),
            memory_bytes=int(self._call("MemGetInfo")[1]),
            shared_optin_bytes=int(told.sharedMemPerBlockOptin),
            pci_bus_id=_text(self._call("DeviceGetPCIBusId", 32, number)),
            library=f"{self.name} {version}",
            runtime=f"{cuda // 1000}.{cuda % 1000 // 10}",
            number=number,
        )

    def _call(self, name: str, *arguments: Any) -> Any:
        """The value of a call of the runtime, several as a tuple. Raises `DriverError` with CUDA's words."""
        status, *values = getattr(self._runtime, f"cuda{name}")(*arguments)
        if int(status) != 0:
            _, text = self._runtime.cudaGetErrorString(status)
            raise DriverError(_text(text))
        return values[0] if len(values) == 1 else tuple(values)

    def allocate(self, size: int) -> Any:
        """Device memory of at least `size` bytes, aligned to 256; freed with the last reference to the result."""
        return Owned(self._call("Malloc", size), self._runtime.cudaFree)

    def pointer(self, memory: Any) -> int:
        return int(memory.value)

    def used_bytes(self) -> int:
        """Bytes of the GPU's memory that are not free: what all programs hold, and what is pooled."""
        free, total = self._call("MemGetInfo")
        return int(total - free)

    def release(self) -> None:  # noqa: B027 - only CuPy pools
        """Gives memory that is pooled for later back to the driver."""

    def separate(self) -> AbstractContextManager[Any]:
        """While it is open, memory comes from the driver and never from what an earlier, larger piece left over."""
        return nullcontext()

    def upload(self, pointer: int, array: Array) -> None:
        """Copies a contiguous array to the device and waits."""
        self.copy(pointer, array.ctypes.data, array.nbytes)
        self.synchronise()

    def download(self, pointer: int, array: Array) -> None:
        """Waits for the stream, then fills a contiguous array from the device."""
        self.copy(array.ctypes.data, pointer, array.nbytes)
        self.synchronise()

    def copy(self, target: int, source: int, size: int) -> None:
        """Enqueues a copy of `size` bytes; CUDA tells by the pointers which memory is the host's."""
        self._call("MemcpyAsync", target, source, size, self._runtime.cudaMemcpyKind.cudaMemcpyDefault, self.stream)

    def fill(self, pointer: int, byte: int, size: int) -> None:
        """Enqueues a memset of `size` bytes."""
        self._call("MemsetAsync", pointer, byte, size, self.stream)

    @abstractmethod
    def load(self, cubin: bytes) -> Any:
        """A module, unloaded with the last reference to it and its launchers."""

    @abstractmethod
    def launcher(self, module: Any, launch: BoundLaunch) -> Callable[..., None]:
        """A callable that enqueues the launch; CuPy's on another stream too, whose handle is its `stream`."""

    def synchronise(self) -> None:
        self._call("StreamSynchronize", self.stream)

    def event(self) -> Any:
        return Owned(self._call("EventCreate"), self._runtime.cudaEventDestroy)

    def record(self, event: Any) -> None:
        self._call("EventRecord", event.value, self.stream)

    def reached(self, event: Any) -> bool:
        """Whether the GPU has come to a recorded event; does not wait."""
        if int(self._runtime.cudaEventQuery(event.value)[0]) == _NOT_READY:
            return False
        self._call("EventQuery", event.value)
        return True

    def elapsed_ms(self, start: Any, stop: Any) -> float:
        """Waits for `stop`; milliseconds between two recorded events."""
        self._call("EventSynchronize", stop.value)
        return float(self._call("EventElapsedTime", start.value, stop.value))

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        """Captures what `body` enqueues on the stream into a graph, uploads it; the result enqueues one replay."""
        mode = self._runtime.cudaStreamCaptureMode.cudaStreamCaptureModeRelaxed
        self._call("StreamBeginCapture", self.stream, mode)
        try:
            body()
        except BaseException:
            with suppress(DriverError):  # an invalidated capture must be ended all the same
                self._call("GraphDestroy", self._call("StreamEndCapture", self.stream))
            raise
        captured = self._call("StreamEndCapture", self.stream)
        try:
            graph = Owned(self._call("GraphInstantiate", captured, 0), self._runtime.cudaGraphExecDestroy)
        finally:
            self._call("GraphDestroy", captured)
        self._call("GraphUpload", graph.value, self.stream)
        return lambda: self._call("GraphLaunch", graph.value, self.stream)

    def close(self) -> None:
        self.synchronise()


def _text(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode()
