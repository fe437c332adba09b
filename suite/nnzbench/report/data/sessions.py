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
    names = ", ".join(sorted(set(timed["environment"]), key=lambda name: (len(name), name)))
    of = timed["problem"].nunique()
    return (
        f"On {mixed} of {of} problems, rows of several sessions on this GPU model stand side by side ({names}): "
        "ratios between them carry the few percent by which sessions differ."
    )
