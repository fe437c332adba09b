"""What the pages of EIE and ESE show of queues before processing elements (`nnzbench fit queues`)."""

from __future__ import annotations

import pandas as pd

from nnzbench import paths


def table(experiment: str) -> pd.DataFrame:
    """An experiment's layers: padding, imbalance and the share of clocks that elements work, by depth."""
    found = pd.read_csv(paths.datasets() / "queues.csv")
    found = found[found["experiment"] == experiment]
    of = ["label", "elements", "padding", "imbalance"]
    shares = found.pivot_table(index=of, columns="depth", values="utilisation", sort=False).map("{:.0%}".format)
    shares.columns = [f"depth {depth}" for depth in shares.columns]
    told = shares.reset_index()
    told["padding"] = told["padding"].map("{:.1%}".format)
    return told.rename(columns={"label": "layer", "padding": "padding zeros", "imbalance": "most over mean"})
