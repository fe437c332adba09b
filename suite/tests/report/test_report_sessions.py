"""Rows of several sessions are named as such."""

from __future__ import annotations

import pandas as pd

from nnzbench.report.data import sessions, spread


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


def test_times_whose_quartiles_lie_far_apart_are_named() -> None:
    times = [(f"p{at}", 10.0, 10.0 + at) for at in range(7)]  # 1 to 1.6 times
    rows = pd.DataFrame(times, columns=["problem", "q1_us", "q3_us"])
    rows = rows.assign(policy="cold", kernel="cublas", selected=True, median_us=10.0)
    assert spread.note(rows.iloc[:2]) == ""
    text = spread.note(rows)
    assert text.startswith(
        "Of 5 of 7 times the third quartile is more than 1.1× the first: cuBLAS on p6 (cold, 1.60×), "
    )
    assert text.endswith("cuBLAS on p3 (cold, 1.30×) and 1 more.")
