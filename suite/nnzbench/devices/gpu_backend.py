"""What a GPU device needs of a GPU library: the driver calls, and what the driver says of the GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

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


class Backend(Protocol):
    """The driver calls a GPU device is made of. Pointers and handles are plain integers."""

    @property
    def name(self) -> str:
        """`cupy`, `pycuda` or `cuda-core`."""
        ...

    @property
    def facts(self) -> GpuFacts: ...

    @property
    def stream(self) -> int:
        """Handle of the one non-default stream everything is enqueued on."""
        ...

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What the library raises when the driver reports an error."""
        ...

    def allocate(self, size: int) -> Any:
        """Device memory of at least `size` bytes, aligned to 256; freed with the last reference to the result."""
        ...

    def pointer(self, memory: Any) -> int: ...

    def used_bytes(self) -> int:
        """Bytes of the GPU's memory that are not free, as the driver says: by all programs, and what is pooled."""
        ...

    def release(self) -> None:
        """Gives memory that is pooled for later back to the driver."""
        ...

    def separate(self) -> AbstractContextManager[Any]:
        """While it is open, memory comes from the driver and never from what an earlier, larger piece left over."""
        ...

    def upload(self, pointer: int, array: Array) -> None:
        """Copies a contiguous array to the device and waits."""
        ...

    def download(self, pointer: int, array: Array) -> None:
        """Waits for the stream, then fills a contiguous array from the device."""
        ...

    def fill(self, pointer: int, byte: int, size: int) -> None:
        """Enqueues a memset of `size` bytes."""
        ...

    def load(self, cubin: bytes) -> Any:
        """A module, unloaded with the last reference to it and its launchers."""
        ...

    def launcher(
        self, module: Any, entry: str, grid: Dim3, block: Dim3, args: Sequence[Scalar], shared_bytes: int, opt_in: bool
    ) -> Callable[[], None]:
        """A callable that enqueues one launch; `opt_in` raises the entry's limit to `shared_bytes` first."""
        ...

    def synchronise(self) -> None: ...

    def event(self) -> Any: ...

    def record(self, event: Any) -> None: ...

    def reached(self, event: Any) -> bool:
        """Whether the GPU has come to a recorded event; does not wait."""
        ...

    def elapsed_ms(self, start: Any, stop: Any) -> float:
        """Waits for `stop`; milliseconds between two recorded events."""
        ...

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        """Captures what `body` enqueues into a graph, uploads it; the result enqueues one replay."""
        ...

    def close(self) -> None: ...
