"""Whether ratios divide rows of one session: a run that was resumed later, or elsewhere, mixes several."""

from __future__ import annotations

import pandas as pd

from nnzbench.report.data.series import standing


def note(frame: pd.DataFrame) -> str:
    """One sentence where rows that are compared come from several snapshots of the environment, else empty."""
    timed = standing(frame)
    found = timed.groupby(["problem", "policy"])["environment"].nunique()
    mixed = int((found > 1).groupby(level="problem").any().sum())
    if not mixed:
        return ""
    return (
        f"On {mixed} of {timed['problem'].nunique()} problems the rows compared here are of several sessions "
        f"({timed['environment'].nunique()} in all): ratios carry the few percent by which sessions differ."
    )
