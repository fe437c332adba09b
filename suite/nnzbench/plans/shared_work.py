"""Work that the plans of one problem share: done once, and counted in the time of every plan that needs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class SharedWork:
    """What some plans have in common, by key, with the seconds that it took."""

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[Any, float]] = {}
        self._saved = 0.0

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` returned the first time for this `key`, which names the kind of thing made."""
        if key in self._made:
            value, seconds = self._made[key]
            self._saved += seconds
        else:
            timed = self.timer()
            value = make()
            self._made[key] = value, timed() / 1e3
        return value  # type: ignore[no-any-return]

    def forget(self, key: Hashable) -> None:
        """Drops what was made for `key`, which may take much memory."""
        self._made.pop(key, None)

    def timer(self) -> Callable[[], float]:
        """A function that tells the milliseconds since now, as they would be if nothing had been made before."""
        start, saved = time.perf_counter(), self._saved
        return lambda: 1e3 * (time.perf_counter() - start + self._saved - saved)
