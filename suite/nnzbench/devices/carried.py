"""Launches of compiled programs over a caller's own arrays, on the caller's own stream, through CuPy's driver calls."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.plan import Arg, Array, Launch, Unsupported
from nnzbench.devices.gpu import DEFAULT_SHARED_BYTES, DeviceArray, GpuDevice, as_scalar, translate
from nnzbench.devices.gpu_backend import BoundLaunch, Scalar


@dataclass(eq=False)
class _Held:
    """An array of the host's with its copy in device memory, which goes with it."""

    host: Array
    array: DeviceArray


_held: weakref.WeakValueDictionary[tuple[int, int], _Held] = weakref.WeakValueDictionary()
"""By device and identity of the host's array: operators of one layer often share packed weights."""


def _uploaded(device: GpuDevice, host: Array) -> _Held:
    found = _held.get((id(device), id(host)))
    if found is None:
        found = _held[id(device), id(host)] = _Held(host, device.upload(host))
    return found


@dataclass
class _Call:
    """One launch: its packed arguments, and which of them are the caller's pointers."""

    enqueue: Callable[..., None]
    cells: list[NDArray[Any]]
    callers: list[tuple[int, str]]
    rows: list[int]
    """Which of them tell the caller's rows."""


class Carried:
    """Programs in a GPU's memory with their buffers, ready to be launched on any stream of that GPU.

    Arguments are packed once; only the caller's pointers change between calls, under a lock. Workspace belongs to the
    object, so that two calls may not overlap on different streams.
    """

    def __init__(
        self,
        device: GpuDevice,
        cubins: Sequence[bytes],
        launches: Sequence[tuple[int, Launch]],
        buffers: Mapping[str, Array],
        callers: Sequence[str],
        rows_at: Sequence[tuple[int, int]] = (),
    ) -> None:
        """`launches` have the numbers of their programs; `callers` are the buffers that each call brings, and `rows_at`
        tells launch and argument of the number that each call may bring.

        Raises `Unsupported` for a GPU library other than CuPy, `LaunchError` where a program does not load.
        """
        if device.name != "cupy":
            raise Unsupported(f"operators run through CuPy, not {device.name}")
        self.device = device
        self.number = device.number
        """Of its GPU, as CUDA counts them."""
        self._lock = threading.Lock()
        self._arrays = {name: _uploaded(device, np.asarray(one)) for name, one in buffers.items()}
        modules = [device.guarded(functools.partial(device.backend.load, cubin)) for cubin in cubins]
        most: dict[tuple[int, str], int] = {}
        for program, one in launches:
            most[program, one.entry] = max(one.shared_bytes, most.get((program, one.entry), 0))
        self._calls: list[_Call] = []
        for at, (program, one) in enumerate(launches):
            if all(one.grid) and all(one.block):
                rows = [place for launch, place in rows_at if launch == at]
                bind = functools.partial(self._bind, modules[program], one, callers, most[program, one.entry], rows)
                self._calls.append(device.guarded(bind))

    def _bind(self, module: Any, launch: Launch, callers: Sequence[str], dynamic: int, rows: list[int]) -> _Call:
        """`dynamic` is the most shared memory that any launch of the entry asks for."""
        most = self.device.facts.shared_optin_bytes
        if dynamic > most:
            raise Unsupported(f"{launch.entry} needs {dynamic} bytes of shared memory, there are {most}")
        # what a program has of its own isn't known here, and may take both together over what needs no asking
        limit = max(dynamic, DEFAULT_SHARED_BYTES + 16) if dynamic > DEFAULT_SHARED_BYTES // 2 else dynamic
        at = [(place, arg) for place, arg in enumerate(launch.args) if isinstance(arg, str) and arg in callers]
        cells = [np.array(self._argument(arg, callers)) for arg in launch.args]
        bound = BoundLaunch(launch.entry, launch.grid, launch.block, cells, launch.shared_bytes, limit)
        return _Call(self.device.backend.launcher(module, bound), cells, at, rows)

    def _argument(self, arg: Arg, callers: Sequence[str]) -> Scalar:
        if not isinstance(arg, str):
            return as_scalar(arg)
        return np.uint64(0 if arg in callers else self._arrays[arg].array.pointer)

    def run(self, pointers: Mapping[str, int], stream: int, rows: int = 0) -> None:
        """Enqueues all launches on the stream: no allocation, no synchronisation, so that a graph can capture it."""
        try:
            with self._lock:
                for call in self._calls:
                    for place, name in call.callers:
                        call.cells[place][...] = pointers[name]
                    for place in call.rows:
                        call.cells[place][...] = rows
                    call.enqueue(stream)
        except self.device.backend.errors as error:
            raise translate(error) from error

    def close(self) -> None:
        """Frees the packed weights that no other object uses, once the GPU is idle."""
        self.device.synchronise()
        self._arrays.clear()
        self._calls.clear()
