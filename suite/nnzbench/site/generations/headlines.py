"""What the titles of the generations' figures state, each counted from what the figure draws."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from nnzbench.facts.results import each, geometric_mean
from nnzbench.report.text.marks import WORDS
from nnzbench.site.generations.figures import GpuKey, share_rows


def speedup(points: pd.DataFrame, names: Mapping[GpuKey, str]) -> str:
    """In how many groups each measured GPU's mean is above the older one's, measured or printed. Rows of one policy."""
    best = points[points["compared"] & points["alike"]]
    means = {
        (str(group), (str(gpu), str(kind))): geometric_mean(rows["speedup"].dropna())
        for (group, gpu, kind), rows in best.groupby(["group", "gpu", "kind"], sort=False)
        if rows["speedup"].notna().any()
    }
    newest = next((key for key in reversed(list(names)) if key[1] == "measured"), None)
    pairs = [
        (mine, theirs)
        for (group, key), mine in means.items()
        for other, theirs in ((other[1], value) for other, value in means.items() if other[0] == group)
        if key == newest and other != key
    ]
    if newest is None or not pairs:
        return "Speed-up of sparse over dense, by GPU"
    won = sum(mine > theirs for mine, theirs in pairs)
    groups = {group for group, key in means if key != newest}
    cut = best["speedup_untuned"] & best["group"].isin(groups)
    words = f"Sparsity is worth more on {names[newest]} than on an older GPU in {won} of {len(pairs)} comparisons"
    return words + _before(bool(cut.any()))


def gain(gains: pd.DataFrame) -> str:
    """In how many groups the sparse kernel gained more than the dense product. Rows of one policy."""
    both = gains.dropna(subset=["sparse_gain", "dense_gain"])
    if both.empty:
        return "What each kernel gained from one GPU to the next"
    won = int((both["sparse_gain"] > both["dense_gain"]).sum())
    words = (
        f"From the older GPU to the newer, sparse kernels gained more than dense ones in {won} of {len(both)} groups"
    )
    return words + _before(bool((both[["untuned_dense", "untuned_sparse"]] > 0).any(axis=None)))


def shares(found: pd.DataFrame, names: Mapping[GpuKey, str]) -> str:
    """The highest shares of a measured GPU's peaks that a sparse kernel drawn has. Rows of one policy."""
    sparse = found[(found["role"] == "best") & (found["kind"] == "measured") & found["group"].isin(share_rows(found))]
    said = []
    for column, words in (("share_of_bandwidth", "bandwidth"), ("share_of_flops", "FLOP/s")):
        known = sparse.dropna(subset=[column])
        if len(known):
            (top,) = each(known.nlargest(1, column))
            share = f"{100 * float(getattr(top, column)):.0f} % of {names[top.gpu, 'measured']}'s {words}"
            said.append(f"{share} {WORDS}" if top.untuned else share)
    return f"Sparse kernels reach up to {' and '.join(said)}" if said else "Share of each GPU's peaks"


def _before(untuned: bool) -> str:
    """Behind what stands on kernels that a run did not tune."""
    return f", {WORDS}" if untuned else ""
