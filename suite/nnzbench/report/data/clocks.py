"""How many times were measured below the GPU's usual clock."""

from __future__ import annotations

import pandas as pd

LOW = 0.95
"""Share of the usual clock below which a time is counted as measured at a lower one."""


def note(frame: pd.DataFrame) -> str:
    """How many rows met a limit on the clock, how many of them at a far lower clock; empty where none met any.

    A row whose GPU came to its power limit at one reading may have run at the usual clock for all that its times tell.
    """
    limited = frame[frame["reason"].fillna("").str.contains("throttled", regex=False)]
    if limited.empty:
        return ""
    usual = frame["sm_clock_mhz"].median()
    low = limited[limited["sm_clock_mhz"] < LOW * usual]
    below = f"more than {100 * (1 - LOW):.0f} % below the usual {usual:.0f} MHz"
    met = f"{len(limited):,} met a limit on the clock, as their `reason` says"
    if low.empty:
        return f"{met}, none of them {below}"
    return f"{met}: {len(low):,} ran {below}, {int(low['selected'].sum()):,} of them the fastest of a kernel"
