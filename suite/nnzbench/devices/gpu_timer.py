"""Times enqueued work with events, graphs and an L2 flush: the `Timer` of a GPU device.

The host enqueues a kernel in microseconds, as long as many of them run. Before each timed interval the GPU is
therefore given something to do (a delay kernel, or the flush), so that start event, work and stop event are all
queued before the first of them is reached; otherwise the interval would hold the host's own time. Some library calls
take the host longer than that: an interval whose start was reached too early is taken again, behind more delays.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from functools import partial
from typing import Any

from nnzbench.devices.gpu_backend import Backend
from nnzbench.devices.nvml import Clocks

LEAST_FLUSH_BYTES = 64 << 20
DELAYS = (0, 1, 2, 4, 8, 16, 32, 64)
"""Before an interval, until there are enough: the most take 3 ms, in which a host that nobody else uses enqueues
hundreds of launches."""


@functools.cache
def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def forget_persisting_l2() -> None:
    """Lines of L2 that a kernel marked to persist are ordinary ones again: an overwrite of the cache would spare them.

    For kernels from outside alone. Called before the cold batches of all kernels, with a limit of 0 set on such lines,
    it made 240 candidates on an H100 4 % slower hot and 1 % cold. Older GPUs have no such lines: the driver refuses.
    """
    driver = _driver()
    if driver is not None:
        driver.cuCtxResetPersistingL2Cache()


class GpuTimer:
    """Implements `nnzbench.devices.Timer`. `delay` enqueues a kernel that keeps the GPU busy for some 50 us.

    `guarded` calls and turns the GPU library's errors into those of this package.
    """

    def __init__(
        self,
        events: Backend,
        guarded: Callable[[Callable[[], Any]], Any],
        delay: Callable[[], None],
        l2_bytes: int,
        clocks: Clocks | None,
    ) -> None:
        self._events, self._guarded, self._delay, self._clocks = events, guarded, delay, clocks
        self.flush_bytes: int = max(LEAST_FLUSH_BYTES, 4 * l2_bytes)
        self._flush: Any = None
        self._pairs: list[tuple[Any, Any]] = []
        self._delays = 0
        """Beside what precedes an interval anyway: those that the last intervals needed."""

    def capture(self, run: Callable[[], None], launches: int) -> Callable[[], None]:
        def body() -> None:
            for _ in range(launches):
                run()

        replay: Callable[[], None] = self._guarded(lambda: self._events.capture(body))
        return replay

    def elapsed_us(self, body: Callable[[], None]) -> float:
        """`body` is called again where the GPU had to wait for the host."""

        def timed() -> float:
            self._delays //= 2
            self._enqueue(0, self._delay, body)
            return self._events.elapsed_ms(*self._pair(0)) * 1e3

        return float(self._guarded(timed))

    def cold_us(self, run: Callable[[], None], samples: int) -> list[float]:
        """A run is called again where the GPU had to wait for the host."""

        def timed() -> list[float]:
            if self._flush is None:
                self._flush = self._events.allocate(self.flush_bytes)
            target = self._events.pointer(self._flush)
            self._delays //= 2  # another run, or the host is less busy
            for sample in range(samples):
                self._enqueue(sample, partial(self._events.fill, target, sample & 0xFF, self.flush_bytes), run)
            self._events.synchronise()
            return [self._events.elapsed_ms(*self._pair(sample)) * 1e3 for sample in range(samples)]

        times: list[float] = self._guarded(timed)
        return times

    def enqueue(self, body: Callable[[], None]) -> Callable[[], bool]:
        event = self._guarded(self._events.event)

        def enqueued() -> None:
            body()
            self._events.record(event)

        self._guarded(enqueued)
        return lambda: bool(self._guarded(lambda: self._events.reached(event)))

    def _enqueue(self, index: int, before: Callable[[], None], body: Callable[[], None]) -> None:
        """`before` and an interval of `body`, all before the GPU comes to its start, behind the delays needed."""
        start, stop = self._pair(index)
        for self._delays in [one for one in DELAYS if one >= self._delays]:
            for _ in range(self._delays):
                self._delay()
            before()
            self._events.record(start)
            body()
            self._events.record(stop)
            if not self._events.reached(start):
                return

    def sm_clock_mhz(self) -> float | None:
        return self._clocks.sm_mhz() if self._clocks else None

    def throttle_reasons(self) -> tuple[str, ...]:
        return self._clocks.throttle_reasons() if self._clocks else ()

    def close(self) -> None:
        self._flush = None
        self._pairs.clear()

    def _pair(self, index: int) -> tuple[Any, Any]:
        while len(self._pairs) <= index:
            self._pairs.append((self._events.event(), self._events.event()))
        return self._pairs[index]
