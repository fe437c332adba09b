"""Numbers as tables show them."""

from __future__ import annotations

import pandas as pd

from nnzbench.report.text import tables


def test_no_time_is_a_dash() -> None:
    assert [tables.number(value) for value in (1.005, float("nan"), None, pd.NA)] == ["1.00", "–", "–", "–"]
