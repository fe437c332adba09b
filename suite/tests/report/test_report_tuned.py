"""Kernels whose tuning a run did not finish are named and not drawn."""

from __future__ import annotations

from pathlib import Path

import fake_records
import pytest
from fake_records import failed, record, table1, timed, write

from nnzbench.facts import tuned
from nnzbench.facts.results import load
from nnzbench.records.record import RecordError, append
from nnzbench.records.selection import select
from nnzbench.report.text import lead, tables
from nnzbench.report.text.lead import Lead, side

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


def test_seconds_are_of_the_device_whose_rows_are_drawn(tmp_path: Path) -> None:
    lines = ("sputnik,cupy,hot,9,9,1.5", "sputnik,cupy,cold,9,9,2.0", "sputnik,pycuda,hot,9,9,40.0")
    results = load(folder(tmp_path, HEADER + "".join(f"p,f32,{line}\n" for line in lines)))
    assert results.tuning_seconds == {"sputnik": 3.5}


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
    assert [*load(place).frame["kernel"]] == [*first.frame["kernel"], "ring"]


def test_a_page_says_which_kernels_a_time_limit_left_untuned(tmp_path):
    rows = table1(policies=("hot",))
    line = "{p},f32,{k},cupy,hot,1,1,0.5,{s}\n"
    text = "problem,dtype,kernel,device,policies,candidates,ok,seconds,scope\n"
    for problem, kernel in dict.fromkeys((row.problem, row.kernel) for row in rows):
        text += line.format(p=problem, k=kernel, s="first")
        text += line.format(p=problem, k=kernel, s="all") if kernel != "sputnik" or problem == rows[0].problem else ""
    place = write(tmp_path, rows)
    (place / "tuning.csv").write_text(text, encoding="utf-8")
    table = "| kernel | problems |\n| :-- | --: |\n| `sputnik` | 30 |"
    told = tables.untuned(load(place).frame)
    assert told.startswith("Not tuned on so many problems, as the run's time was over")
    assert told.endswith(f"is drawn.\n\n{table}")
    (place / "tuning.csv").write_text(text.replace(",first", ",some"), encoding="utf-8")
    assert tables.untuned(load(place).frame) == (
        f"Of few candidates on so many problems, as `--quick` or `--candidates` asks.\n\n{table}"
    )
    (place / "tuning.csv").write_text(text.replace(",first", ",all"), encoding="utf-8")
    assert tables.untuned(load(place).frame) == ""


def test_a_page_counts_a_problem_once_for_all_its_types_as_its_first_screen_does(tmp_path: Path) -> None:
    cut = {("sputnik", "f32", 0), ("sputnik", "f16", 0), ("sputnik", "f16", 1), ("cublas", "f16", 2)}
    rows = [
        record(
            problem=f"{at}_64x256x3136_90_uniform{'_f16' * (dtype == 'f16')}", dtype=dtype, kernel=kernel, variant=math
        )
        for at in range(3)
        for dtype in ("f32", "f16")
        for kernel, math in (("sputnik", f"{dtype}_x64"), ("cublas", f"{dtype}_default_nn"))
    ]
    place = write(tmp_path / "nvidia-h200" / "sparsert_ablation", select(rows))
    fake_records.tuned(
        place, lambda row: ("first",) if (row.kernel, row.dtype, int(row.problem[0])) in cut else ("all",)
    )
    asked = Lead("?", sides=(side("sputnik"), side("sputnik", "f16")), rivals=(lead.CUBLAS, lead.FP16))
    results = load(place)
    screen = lead.screen(asked, lead.cells_of(asked, results.frame, ["hot"]), ["hot"])
    assert "of `sputnik` on 2 of 3 problems, of `cublas` on 1" in screen.mark
    assert tables.untuned(results.frame).splitlines()[2:] == [
        "| kernel | problems | in fp32 | in fp16 |",
        "| :-- | --: | --: | --: |",
        "| `sputnik` | 2 | 1 | 2 |",
        "| `cublas` | 1 | 0 | 1 |",
    ]
    assert "A problem counts once for all its types." in tables.untuned(results.frame)


def test_the_page_has_that_table_where_it_says_what_is_missing(tmp_path: Path) -> None:
    place = write(tmp_path / "nvidia-h200" / "sparsert_table1", table1())
    fake_records.tuned(place, lambda row: ("first",) if row.kernel == "sputnik" else ("all",))
    page = fake_records.written(place)
    assert "| sputnik | only first choices tried | 31 |" in page.read_text().partition("## What is missing")[2]


def test_what_tuning_brought_is_told_where_the_table_names_what_runs_untuned(tmp_path: Path) -> None:
    place = tmp_path / "nvidia-h200" / "sparsert_table1"
    place.mkdir(parents=True)
    times = {"rule": (10.0, 30.0), "found": (5.0, 20.0), "slower": (12.0, 40.0)}
    append(
        place / "records.csv",
        [
            timed("sputnik", us, variant, policy=policy)
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
