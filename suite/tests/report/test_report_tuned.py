"""Kernels whose tuning a run did not finish are named and not drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_records import failed, record, table1, write

from nnzbench.records.record import RecordError, append
from nnzbench.report.data import tuned
from nnzbench.report.data.frames import load
from nnzbench.report.text import tables

HEADER = "problem,dtype,kernel,device,policies,candidates,ok,seconds\n"


def folder(path: Path, tuning: str | None) -> Path:
    place = path / "nvidia-h200" / "sparsert_table1"
    place.mkdir(parents=True)
    rows = [
        record(kernel="sputnik", policy="hot"),
        record(kernel="sputnik", policy="cold"),
        record(kernel="cublas", variant="f32_row", policy="hot", median_us=40.0),
        failed(record(kernel="row_stream", policy="hot"), "unsupported", "none"),
    ]
    append(place / "records.csv", rows)
    if tuning is not None:
        (place / "tuning.csv").write_text(tuning, encoding="utf-8")
    return place


def test_without_a_tuning_table_every_row_counts(tmp_path: Path) -> None:
    assert len(load(folder(tmp_path, None)).frame) == 4


def test_an_unfinished_kernel_is_left_out_and_named(tmp_path: Path) -> None:
    results = load(folder(tmp_path, HEADER + "p,f32,sputnik,cupy,hot,9,9,1.5\n"))
    assert set(zip(results.frame["kernel"], results.frame["policy"], strict=True)) == {
        ("sputnik", "hot"),
        ("row_stream", "hot"),
    }
    assert results.left_out == (
        "`sputnik` is not drawn on `p` (f32, cold): the run ended before its last candidate.",
        "`cublas` is not drawn on `p` (f32, hot): the run ended before its last candidate.",
    )
    assert results.tuning_seconds == {"sputnik": 1.5}


def test_both_policies_finished_together(tmp_path: Path) -> None:
    text = HEADER + "p,f32,sputnik,cupy,hot+cold,9,9,1.5\np,f32,cublas,cupy,hot+cold,2,2,0.5\n"
    results = load(folder(tmp_path, text))
    assert (len(results.frame), results.left_out) == (4, ())


@pytest.mark.parametrize("text", ["", "kernel,seconds\nsputnik,1\n"])
def test_a_broken_table_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tuning.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecordError, match="not a tuning table"):
        tuned.seconds(path, "cupy")


def test_records_are_read_again_only_where_they_changed(tmp_path: Path) -> None:
    place = folder(tmp_path, None)
    first = load(place)
    assert load(place) is first
    append(place / "records.csv", [record(kernel="ring")])
    assert [row.kernel for row in load(place).records] == [*(row.kernel for row in first.records), "ring"]


def test_a_page_says_which_kernels_a_time_limit_left_untuned(tmp_path):
    rows = table1(policies=("hot",))
    line = "{p},f32,{k},cupy,hot,1,1,0.5,{s}\n"
    text = "problem,dtype,kernel,device,policies,candidates,ok,seconds,scope\n"
    for problem, kernel in dict.fromkeys((row.problem, row.kernel) for row in rows):
        text += line.format(p=problem, k=kernel, s="first")
        text += line.format(p=problem, k=kernel, s="all") if kernel != "sputnik" or problem == rows[0].problem else ""
    place = write(tmp_path, rows)
    (place / "tuning.csv").write_text(text, encoding="utf-8")
    (sentence,) = (one for one in load(place).left_out if "not tuned" in one)
    assert sentence.startswith("`sputnik` is not tuned on 30 problems: what its rule")
    (place / "tuning.csv").write_text(text.replace(",first", ",some"), encoding="utf-8")
    (sentence,) = (one for one in load(place).left_out if "not tuned" in one)
    assert sentence == (
        "`sputnik` is not tuned on 30 problems: the run tried few candidates, as `--quick` or `--candidates` asks."
    )


def test_what_tuning_brought_is_told_where_the_table_names_what_runs_untuned(tmp_path: Path) -> None:
    place = tmp_path / "nvidia-h200" / "sparsert_table1"
    place.mkdir(parents=True)
    times = {"rule": (10.0, 30.0), "found": (5.0, 20.0), "slower": (12.0, 40.0)}
    append(
        place / "records.csv",
        [
            record(kernel="sputnik", variant=variant, policy=policy, median_us=us, q1_us=us, q3_us=us)
            for variant, both in times.items()
            for policy, us in zip(("hot", "cold"), both, strict=True)
        ],
    )
    line = "p,f32,sputnik,cupy,hot+cold,3,3,1.5,all,0.5,"
    header = HEADER.strip() + ",scope,gpu_seconds,untuned\n"
    (place / "tuning.csv").write_text(header + line + "rule\n", encoding="utf-8")
    frame = load(place).frame
    assert set(frame[frame["untuned"]]["variant"]) == {"rule"}
    text = tables.tuning(frame, {"sputnik": 1.5})
    assert "tuned over untuned, hot | tuned over untuned, cold" in text
    assert text.splitlines()[-1].endswith("| 2.00 | 1.50 |")
    (place / "tuning.csv").write_text(header + line + "\n", encoding="utf-8")  # as files of before it was named
    assert "untuned" not in tables.tuning(load(place).frame, {})
