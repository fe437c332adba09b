"""Passes over large arrays in parts that stay in cache, on all cores: NumPy's loops release the interpreter's lock."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnzbench.core import host

T = TypeVar("T")
Part = tuple[slice, ...]

PART_ELEMENTS = 1 << 18
"""Of one part: 2 MB of float64. In smaller ones the time between NumPy's loops, when the lock is held, shows."""
MOST_THREADS = 16
_own = threading.local()


def limit(most: int) -> None:
    """What this thread calls runs in so many threads at most, as others of its kind work beside it."""
    _own.most = most


def threads() -> int:
    """As many as NumPy's own products are told to take, else one per processor that this process may use."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    wanted = int(told) if told.isdecimal() else 0
    return min(getattr(_own, "most", MOST_THREADS), wanted or host.processors())


def over_parts(work: Callable[[Part], T], shape: tuple[int, ...], elements: int = PART_ELEMENTS) -> list[T]:
    """What `work` returns for each index of a list that covers an array of `shape` once, in row-major order.

    No part has more than `elements`. Where there are several, `work` runs in several threads at once.
    """
    parts = list(_parts(shape, elements))
    if len(parts) < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(threads()) as pool:
        return list(pool.map(work, parts))


def float64(array: NDArray[Any]) -> NDArray[np.float64]:
    """A copy in float64."""
    converted = np.empty(array.shape)
    over_parts(lambda part: np.copyto(converted[part], array[part]), array.shape)
    return converted


def _parts(shape: tuple[int, ...], elements: int) -> Iterator[Part]:
    """Parts of consecutive elements: the fewest leading axes are split, so that NumPy's inner loops stay long."""
    axis = 0
    while axis < len(shape) - 1 and math.prod(shape[axis + 1 :]) >= elements:
        axis += 1
    step = max(1, elements // max(1, math.prod(shape[axis + 1 :])))
    for leading in np.ndindex(shape[:axis]):
        for at in range(0, shape[axis], step):
            yield (*(slice(i, i + 1) for i in leading), slice(at, at + step))
