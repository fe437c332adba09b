"""Rows of several sessions are named as such."""

from __future__ import annotations

import pandas as pd

from nnzbench.report.data import sessions


def frame(*rows: tuple[str, str, float | None, bool, str]) -> pd.DataFrame:
    names = ["problem", "policy", "median_us", "selected", "environment"]
    return pd.DataFrame(rows, columns=names).astype({"median_us": "float64"})


def test_one_session_needs_no_note() -> None:
    assert sessions.note(frame(("a", "hot", 1.0, True, "e.json"), ("b", "hot", 1.0, True, "f.json"))) == ""


def test_problems_whose_selected_rows_mix_sessions_are_counted() -> None:
    text = sessions.note(
        frame(
            ("a", "hot", 1.0, True, "e.json"),
            ("a", "hot", 2.0, True, "e-2.json"),
            ("b", "hot", 1.0, True, "e.json"),
            ("b", "hot", 2.0, False, "e-2.json"),
            ("c", "hot", 1.0, True, "e.json"),
            ("c", "hot", None, True, "e-2.json"),
        )
    )
    assert text.startswith("On 1 of 3 problems the rows compared here are of several sessions (2 in all)")
