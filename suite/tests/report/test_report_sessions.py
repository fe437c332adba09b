"""Rows of several sessions are named as such."""

from __future__ import annotations

import pandas as pd
from fake_records import record

from nnzbench.report.data import host_time, sessions, spread


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


def test_cold_times_of_long_calls_are_named_where_samples_were_not_taken_again() -> None:
    kinds = [("cudnn", "cold"), ("cudnn", "hot"), ("sputnik", "cold")]
    rows = [record(kernel=kernel, policy=policy, environment="e.json") for kernel, policy in kinds]
    assert host_time.may_hold(rows, {"e.json": {"schema": "1"}}) == [True, False, False]
    assert host_time.may_hold(rows, {"e.json": {"late_starts": "taken again"}}) == [False] * 3
    shown = pd.DataFrame({"kernel": ["cudnn", "cudnn", "sputnik"], "host_time": [True, False, False]})
    assert host_time.note(shown).startswith("Cold times of cuDNN may hold time of the host")
    assert host_time.note(shown.iloc[1:]) == host_time.note(shown[["kernel"]]) == ""


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
