"""What of its host this process may use."""

from __future__ import annotations

import os


def processors() -> int:
    """Processors: those that its affinity allows, or all where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
