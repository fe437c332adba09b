"""What a GPU device needs of a GPU library: the driver calls, and what the driver says of the GPU.

One base for all of them (CuPy, PyCUDA, cuda.core): what they do alike is here, a library's module has what differs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nnzbench.plans.plan import Array, Dim3

Scalar = np.generic
"""A kernel argument, with its C type."""


@dataclass(frozen=True)
class GpuFacts:
    """What the driver says of the GPU."""

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
    args: Sequence[Scalar]
    shared_bytes: int
    opt_in: bool
    """Whether the entry's limit is raised to `shared_bytes` first."""
    cluster: Dim3 = (1, 1, 1)
    overlaps: bool = False
    """Whether it may begin before the launch that precedes it ends."""


class DriverError(RuntimeError):
    """The driver refused a call of `cuda.bindings`."""


def checked(driver: Any, answer: tuple[Any, ...]) -> Any:
    """The value of a call of `cuda.bindings.driver`, several as a tuple. Raises `DriverError` with its words."""
    status, *values = answer
    if int(status) != 0:
        _, text = driver.cuGetErrorString(status)
        raise DriverError(text.decode() if isinstance(text, bytes) else str(status))
    return values[0] if len(values) == 1 else tuple(values)


class Backend(ABC):
    """The driver calls a GPU device is made of. Pointers and handles are plain integers.

    `_stream` is the library's own object for the one non-default stream that everything is enqueued on; its methods
    and those of events are called as CuPy and PyCUDA name them, unless a library overrides it.
    """

    name: str
    """`cupy`, `pycuda` or `cuda-core`."""
    facts: GpuFacts
    attributes = False
    """Whether it passes on `cluster` and `overlaps` of a launch."""

    def __init__(self, stream: Any, handle: Any, errors: tuple[type[Exception], ...]) -> None:
        self._stream = stream
        self.stream = int(handle)
        """Handle of the stream."""
        self.errors = errors
        """What the library raises when the driver reports an error."""

    @abstractmethod
    def allocate(self, size: int) -> Any:
        """Device memory of at least `size` bytes, aligned to 256; freed with the last reference to the result."""

    @abstractmethod
    def pointer(self, memory: Any) -> int: ...

    @abstractmethod
    def free_and_total(self) -> tuple[int, int]:
        """Bytes of the GPU's memory as the driver says: what all programs and pools leave, and all of it."""

    def used_bytes(self) -> int:
        """Bytes of the GPU's memory that are not free: what all programs hold, and what is pooled."""
        free, total = self.free_and_total()
        return int(total - free)

    def release(self) -> None:  # noqa: B027 - only CuPy pools
        """Gives memory that is pooled for later back to the driver."""

    def separate(self) -> AbstractContextManager[Any]:
        """While it is open, memory comes from the driver and never from what an earlier, larger piece left over."""
        return nullcontext()

    def upload(self, pointer: int, array: Array) -> None:
        """Copies a contiguous array to the device and waits."""
        self._to_device(pointer, array)
        self.synchronise()

    def download(self, pointer: int, array: Array) -> None:
        """Waits for the stream, then fills a contiguous array from the device."""
        self._to_host(array, pointer)
        self.synchronise()

    @abstractmethod
    def _to_device(self, pointer: int, array: Array) -> None: ...

    @abstractmethod
    def _to_host(self, array: Array, pointer: int) -> None: ...

    @abstractmethod
    def copy(self, target: int, source: int, size: int) -> None:
        """Enqueues a copy of `size` bytes within device memory."""

    @abstractmethod
    def fill(self, pointer: int, byte: int, size: int) -> None:
        """Enqueues a memset of `size` bytes."""

    @abstractmethod
    def load(self, cubin: bytes) -> Any:
        """A module, unloaded with the last reference to it and its launchers."""

    @abstractmethod
    def launcher(self, module: Any, launch: BoundLaunch) -> Callable[[], None]:
        """A callable that enqueues the launch."""

    def synchronise(self) -> None:
        self._stream.synchronize()

    @abstractmethod
    def event(self) -> Any: ...

    def record(self, event: Any) -> None:
        event.record(self._stream)

    @abstractmethod
    def reached(self, event: Any) -> bool:
        """Whether the GPU has come to a recorded event; does not wait."""

    @abstractmethod
    def elapsed_ms(self, start: Any, stop: Any) -> float:
        """Waits for `stop`; milliseconds between two recorded events."""

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        """Captures what `body` enqueues on the stream into a graph, uploads it; the result enqueues one replay."""
        stream, capture = self._stream, self._begin_capture()
        try:
            body()
        except BaseException:
            with suppress(*self.errors, RuntimeError):  # an invalidated capture must be ended all the same
                self._end_capture(capture)
            raise
        graph = self._end_capture(capture)
        graph.upload(stream)
        return lambda: graph.launch(stream)

    def _begin_capture(self) -> Any:
        """Begins a capture; what it returns ends it."""
        return self._stream.begin_capture()

    def _end_capture(self, capture: Any) -> Any:
        """The captured graph, with CuPy's `upload` and `launch`."""
        return self._stream.end_capture()

    def close(self) -> None:
        self.synchronise()
