"""Rows of several sessions are named as such."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from fake_records import record

from nnzbench.facts import host_time
from nnzbench.records.record import frame_of
from nnzbench.report.data import clocks, context, sessions, spread


def frame(*rows: tuple[str, str, float | None, bool, str]) -> pd.DataFrame:
    names = ["problem", "policy", "median_us", "selected", "environment"]
    found = pd.DataFrame(rows, columns=names).astype({"median_us": "float64"})
    return found.assign(dtype=["f16" if name.endswith("_f16") else "f32" for name in found["problem"]])


def snapshots(**of: tuple[str, str | None]) -> list[tuple[str, int, dict[str, Any]]]:
    """By file name without its ending: commit and worker."""
    return [
        (f"{name}.json", 1, {"source": {"commit": commit}, **({"worker": worker} if worker else {})})
        for name, (commit, worker) in of.items()
    ]


TWICE = frame(
    ("a", "hot", 1.0, True, "e.json"),
    ("a", "hot", 2.0, True, "f.json"),
    ("b", "hot", 1.0, True, "e.json"),
    ("b", "hot", 2.0, False, "f.json"),
    ("c", "hot", 1.0, True, "e.json"),
    ("c", "hot", None, True, "f.json"),
    ("d", "hot", 1.0, True, "e.json"),
    ("d", "cold", 1.0, True, "f.json"),
)
"""One problem of four compares rows of two sessions."""


def test_one_session_for_each_problem_needs_no_note() -> None:
    rows = frame(("a", "hot", 1.0, True, "e.json"), ("b", "hot", 1.0, True, "f.json"))
    found = snapshots(e=("1", "x"), f=("2", "y"))
    assert sessions.note([rows], found) == sessions.sentence(rows, found) == ""


def test_rows_without_a_time_are_of_no_session() -> None:
    rows = frame(("a", "hot", None, True, "e.json"))
    assert sessions.note([rows], snapshots(e=("1", "x"))) == sessions.sentence(rows, snapshots(e=("1", "x"))) == ""


def test_sessions_of_one_commit_on_one_gpu_are_told_once_and_linked_at_the_figure() -> None:
    found = snapshots(e=("1", "x"), f=("1", "x"))
    assert sessions.note([TWICE], found) == "Rows of [several sessions](#sessions)."
    assert sessions.sentence(TWICE, found) == (
        '<a id="sessions"></a>On 1 of 4 problems the rows compared are of several sessions (2 in all), each problem\'s '
        "of one commit on one GPU: ratios carry the few percent by which sessions differ."
    )


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (("1", "x"), ("2", "x"), "commits"),
        (("1", "x"), ("1", "y"), "GPUs"),
        (("1", "x"), ("2", "y"), "commits and GPUs"),
        (("1", None), ("1", None), "unnamed GPUs"),
        (("1", "x"), ("1", None), "unnamed GPUs"),
    ],
)
def test_several_commits_or_gpus_within_a_problem_are_told_at_the_figure(
    one: tuple[str, str | None], other: tuple[str, str | None], words: str
) -> None:
    found = snapshots(e=one, f=other)
    assert sessions.note([TWICE], found) == (
        f"On 1 of 4 problems the rows compared here are of several {words} ([sessions](#sessions))."
    )
    assert f"(2 in all), on 1 of several {words}: ratios carry" in sessions.sentence(TWICE, found)


NAMES = ("q_64x256x3136_90_uniform", "q_64x256x3136_90_uniform_f16")
BY_TYPE = frame(*((name, "hot", 1.0, True, file) for name, file in zip(NAMES, ("e.json", "f.json"), strict=True)))
"""The types of one problem, each on a GPU of its own."""
TWO_GPUS = snapshots(e=("1", "x"), f=("1", "y"))


def test_the_types_of_a_problem_are_compared_where_a_figure_shows_both() -> None:
    """Dense fp16 is set beside sparse fp32, whose problems have other names."""
    assert sessions.note([BY_TYPE], TWO_GPUS).startswith("On 1 of 1 problems")


def test_types_that_a_figure_shows_apart_or_not_at_all_are_not() -> None:
    parts = [rows for _, rows in BY_TYPE.groupby("dtype")]
    assert sessions.note(parts, TWO_GPUS) == sessions.note(parts[:1], TWO_GPUS) == ""


def test_the_page_s_sentence_says_what_is_left_within_one_type() -> None:
    assert "on 1 of several GPUs, on none within one type: ratios" in sessions.sentence(BY_TYPE, TWO_GPUS)
    both = pd.concat([BY_TYPE, TWICE])
    assert "on 2 of several GPUs, on 1 within one type: ratios" in sessions.sentence(both, TWO_GPUS)


def test_parts_of_a_sum_are_compared_as_one() -> None:
    """`b` is of one session and `d` of another under a policy of its own, but both are parts of one step."""
    rows = frame(("b", "hot", 1.0, True, "e.json"), ("d", "hot", 1.0, True, "f.json"))
    assert sessions.note([rows], TWO_GPUS) == ""
    whole = rows.assign(**{sessions.WHOLE: "a step"})
    assert sessions.note([whole], TWO_GPUS, "steps") == (
        "On 1 of 1 steps the rows compared here are of several GPUs ([sessions](#sessions))."
    )


def test_cold_times_of_long_calls_are_named_where_samples_were_not_taken_again() -> None:
    kinds = [("cudnn", "cold"), ("cudnn", "hot"), ("sputnik", "cold")]
    rows = frame_of([record(kernel=kernel, policy=policy, environment="e.json") for kernel, policy in kinds])
    assert list(host_time.may_hold(rows, {"e.json": {"schema": "1"}})) == [True, False, False]
    assert not host_time.may_hold(rows, {"e.json": {"late_starts": "taken again"}}).any()
    shown = pd.DataFrame({"kernel": ["cudnn", "cudnn", "sputnik"], "host_time": [True, False, False]})
    assert host_time.note(shown).startswith("Cold times of cuDNN may hold time of the host")
    assert host_time.note(shown.iloc[1:]) == host_time.note(shown[["kernel"]]) == ""


def test_times_whose_quartiles_lie_far_apart_are_named() -> None:
    times = [(f"p{at}", 10.0, 10.0 + at) for at in range(7)]  # 1 to 1.6 times
    rows = pd.DataFrame(times, columns=["problem", "q1_us", "q3_us"])
    rows = rows.assign(policy="cold", kernel="cublas", math="f32")
    assert spread.note(rows.iloc[:2]) == ""
    text = spread.note(rows)
    assert text.startswith(
        "Of 5 of 7 times the third quartile is more than 1.1× the first: cuBLAS on p6 (cold, 1.60×), "
    )
    assert text.endswith("cuBLAS on p3 (cold, 1.30×) and 1 more.")


def wide(*times: tuple[str, str, float]) -> pd.DataFrame:
    rows = pd.DataFrame(times, columns=["problem", "math", "q3_us"])
    return rows.assign(kernel="cublas", policy="hot", q1_us=10.0)


def test_problems_of_one_label_are_told_apart() -> None:
    rows = wide(("06_8x8x8_90_dlmc", "f32", 12.0), ("06_8x8x8_95_dlmc", "f32", 13.0), ("7_9x9x9_95_dlmc", "f16", 14.0))
    named = "cuBLAS fp16 on 7 (hot, 1.40×)", "cuBLAS on 06 8×8×8 at 95 % (hot, 1.30×)"
    assert spread.note(rows).endswith(f"{', '.join(named)}, cuBLAS on 06 8×8×8 at 90 % (hot, 1.20×).")


def test_times_of_what_has_one_name_in_the_figure_are_named_once() -> None:
    rows = wide(*((f"p{at}", "f32", 12.0 + at) for at in range(3)), ("p3", "f16", 11.5), ("p3", "f32", 10.0))
    text = spread.note(rows, {**{f"p{at}": "ResNet-50" for at in range(3)}, "p3": "BERT, fp16"})
    assert text == (
        "Of 4 of 5 times the third quartile is more than 1.1× the first: cuBLAS on ResNet-50 (hot, 3 times, up to "
        "1.40×), cuBLAS on BERT, fp16 (hot, 1.15×)."
    )


def clocked(*rows: tuple[float | None, bool, str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["sm_clock_mhz", "selected", "reason"]).astype({"sm_clock_mhz": "float64"})


USUAL = (1980.0, True, "")


def test_times_that_met_a_limit_at_the_usual_clock_are_told_apart_from_slower_ones() -> None:
    limit = "throttled (sw_power_cap); ended early, clearly behind a faster candidate"
    found = clocks.note(clocked(USUAL, USUAL, (1980.0, True, limit), (1400.0, True, limit), (1860.0, False, limit)))
    assert found == (
        "3 met a limit on the clock, as their `reason` says: 2 ran more than 5 % below the usual 1980 MHz, 1 of them "
        "the fastest of a kernel"
    )
    assert clocks.note(clocked(USUAL, (1900.0, True, limit))) == (
        "1 met a limit on the clock, as their `reason` says, none of them more than 5 % below the usual 1940 MHz"
    )


def test_times_of_no_limit_need_no_note_even_below_the_usual_clock() -> None:
    assert clocks.note(clocked(USUAL, (1400.0, True, "clearly behind"), (None, False, "unsupported"))) == ""


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ({"commit": "ab" * 20, "dirty": False}, "commit abababababab"),
        ({"commit": "ab" * 20, "dirty": True}, "commit abababababab with changes"),
        ({"dirty": True}, "an unnamed version"),
        (None, "an unnamed version"),
    ],
)
def test_a_commit_that_was_changed_says_so(source: object, named: str) -> None:
    assert context.commit({"source": source}) == named
