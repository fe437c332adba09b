"""Work that the plans of one problem share: done once, and counted in the time of every plan that needs it."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")
Made = dict[Hashable, tuple[Any, float]]
"""What was made by key, and the seconds that it took."""

_owned: dict[int, Made] = {}
"""By the identity of what it was made of, which takes its entry along when it goes."""


def _made_for(owner: object) -> Made:
    if id(owner) not in _owned:
        _owned[id(owner)] = {}
        weakref.finalize(owner, _owned.pop, id(owner))
    return _owned[id(owner)]


class SharedWork:
    """What some plans have in common, by key, with the seconds that it took."""

    def __init__(self) -> None:
        self._made: Made = {}
        self._saved = 0.0

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` returned the first time for this `key`, which names the kind of thing made."""
        return self._once(self._made, key, make)

    def once_for(self, owner: object, key: Hashable, make: Callable[[], T]) -> T:
        """As `once`, for all who name this `owner` and as long as it lives: a matrix that several problems have.

        What is made must not refer to the owner, which would then never die.
        """
        return self._once(_made_for(owner), key, make)

    def _once(self, made: Made, key: Hashable, make: Callable[[], T]) -> T:
        if key in made:
            value, seconds = made[key]
            self._saved += seconds
        else:
            timed = self.timer()
            value = make()
            made[key] = value, timed() / 1e3
        return value  # type: ignore[no-any-return]

    def forget(self, key: Hashable) -> None:
        """Drops what was made for `key`, which may take much memory."""
        self._made.pop(key, None)

    def timer(self) -> Callable[[], float]:
        """A function that tells the milliseconds since now, as they would be if nothing had been made before."""
        start, saved = time.perf_counter(), self._saved
        return lambda: 1e3 * (time.perf_counter() - start + self._saved - saved)
