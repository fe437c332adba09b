"""Whether cold times hold time of the host: those of long calls, before such samples were taken again.

`devices.gpu_timer` tells why; what it does about it stands in the environment's snapshot as `late_starts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from nnzbench.kernels.registry import about

LONG_CALLS = frozenset({"cudnn", "dense_mobilenet"})
"""Kernels one call of which may keep the host busy for longer than the flush keeps the GPU."""


def may_hold(frame: pd.DataFrame, environments: Mapping[str, Mapping[str, Any]]) -> pd.Series[bool]:
    """Of each row, by the snapshots of the environments that rows name."""
    before = [name for name, one in environments.items() if "late_starts" not in one]
    return (frame["policy"] == "cold") & frame["kernel"].isin(LONG_CALLS) & frame["environment"].isin(before)


def note(frame: pd.DataFrame) -> str:
    """One sentence that names the kernels whose times may be too long; empty for none."""
    if "host_time" not in frame:
        return ""
    found = sorted({about(str(name)).label for name in frame.loc[frame["host_time"].eq(True), "kernel"]})
    return f"Cold times of {' and '.join(found)} may hold time of the host, several times their own." if found else ""
