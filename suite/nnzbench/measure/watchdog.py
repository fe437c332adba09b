"""Ends a process that a library does not come back from: such a call can't be interrupted, only recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

HANG_S = 300.0
"""Longest a candidate may take in all: checking the largest convolutions and some searches take tens of seconds."""


@contextmanager
def watch(give_up: Callable[[], None], seconds: float = HANG_S) -> Iterator[None]:
    """Calls `give_up` on a thread of its own where the block takes longer than `seconds`."""
    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
