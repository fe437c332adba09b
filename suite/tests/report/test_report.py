"""Pages from records: what is computed, what is refused, and that nothing depends on when it is drawn."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from pathlib import Path

import fake_records
import pandas as pd
import pytest
from click.testing import CliRunner
from draft_figures import pages_alone
from fake_records import to_frame

from nnzbench.cli import main
from nnzbench.facts.results import ResultSet, geometric_mean, load, size_of
from nnzbench.papers.sparsert import ablation
from nnzbench.papers.sparsert import table1 as sparsert
from nnzbench.papers.sparsert import table3 as sparsert_conv
from nnzbench.problems import tables as problem_tables
from nnzbench.records.record import append
from nnzbench.records.selection import select
from nnzbench.report.data.series import BEST, pick, speedups
from nnzbench.report.text import tables
from nnzbench.site import readme

CUBLAS = sparsert.BASELINE


def folder_of(tmp_path: Path, experiment: str = "sparsert_table1") -> Path:
    return tmp_path / "nvidia-h200" / experiment


def write(tmp_path: Path, records: list, experiment: str = "sparsert_table1") -> Path:
    folder = folder_of(tmp_path, experiment)
    append(folder / "records.csv", records)
    environment = {
        "gpu": {"name": "NVIDIA H200"},
        "recorded_at": "2026-01-02T03:04:05",
        "source": {"commit": "ab" * 20},
    }
    (folder / "environment.json").write_text(json.dumps(environment))
    return folder


def report(tmp_path: Path, *arguments: str) -> str:
    with pages_alone():
        result = CliRunner().invoke(main, ["report", "--reports", str(tmp_path), *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def refused(tmp_path: Path) -> str:
    result = CliRunner().invoke(main, ["report", "sparsert_table1", "--reports", str(tmp_path)])
    assert result.exit_code == 2
    return result.output


def row(kernel: str, variant: str, us: float, **changes):
    return fake_records.timed(kernel, us, variant, **changes)


def test_geometric_mean_by_hand():
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([1.0, 2.0, 4.0]) == pytest.approx(2.0)
    assert math.isnan(geometric_mean([]))


def test_speedups_use_the_selected_rows_and_the_better_layout():
    records = select(
        [
            row("cublas", "f32_rowmajor", 9.0),
            row("cublas", "f32_colmajor", 8.0),
            row("sputnik", "heuristic_x", 5.0),
            row("sputnik", "y", 4.0),
            row("sparsert", "z", 2.0),
        ]
    )
    frame = to_frame(records)
    found = speedups(frame, [CUBLAS, BEST], CUBLAS).set_index("series")["speedup"]
    assert found["best"] == pytest.approx(8.0 / 2.0)
    assert found[CUBLAS.key] == pytest.approx(1.0)


def test_wrong_rows_are_never_drawn_and_are_listed(tmp_path):
    records = fake_records.table1()
    first = next(r for r in records if r.kernel == "sparsert" and r.policy == "hot")
    broken = [
        fake_records.failed(r, "wrong", "relative error 1 is outside the f32 tolerance")
        if (r.problem, r.kernel) == (first.problem, "sparsert")
        else r
        for r in records
    ]
    folder = write(tmp_path, select(broken))
    report(tmp_path, "sparsert_table1")
    page = (folder / "README.md").read_text()
    assert "outside the f32 tolerance" in page
    assert (folder / "speedup.png").is_file()
    assert (folder / "speedup_cold.png").is_file()
    frame = load(folder).frame
    assert first.problem not in set(frame.loc[(frame["kernel"] == "sparsert") & frame["median_us"].notna(), "problem"])


def test_reasons_that_differ_by_numbers_stand_together():
    blocks = [f"at least {share} % of f16 blocks" for share in ("9", "90.5", "10")]
    frame = pd.DataFrame({"problem": ["p1", "p2", "p3", "p4"], "reason": [*blocks, "no"]})
    frame = frame.assign(kernel="k", variant="", status="unsupported", policy="hot")
    spans, alone = tables.failures(frame, {}).splitlines()[2:]
    assert "| at least 9-90.5 % of f16 blocks | p1, p2, p3 | hot | 3 |" in spans
    assert "| no | p4 | hot | 1 |" in alone
    frame["reason"] = ["error 1.2e+03", "error 34.2", "error 34.2 in 16x32", "error 34.2 in 16x64"]
    assert [line.split(" | ")[3] for line in tables.failures(frame, {}).splitlines()[2:]] == [
        "error 34.2-1.2e+03",
        "error 34.2 in 16x32",
        "error 34.2 in 16x64",
    ]


def test_a_cut_off_run_gets_its_selection_here(tmp_path):
    folder = write(tmp_path, [dataclasses.replace(r, selected=False) for r in fake_records.table1()])
    assert load(folder).frame["selected"].any()


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda text: text.replace(",hot,ok,,", ",hot,ok,,nan", 1), "line 2"),
        (lambda text: text[:-30], "cut off"),
        (lambda text: text.replace("nnzbench/1", "nnzbench/0", 1), "line 2: column 'schema'"),
        (lambda text: text.replace("median_us", "median", 1), "column list"),
        (lambda text: text.replace("\n", ",extra\n", 2), "column list"),
    ],
)
def test_a_file_that_breaks_the_schema_is_refused_with_its_place(tmp_path, damage, named):
    folder = write(tmp_path, fake_records.table1())
    path = folder / "records.csv"
    path.write_text(damage(path.read_text()))
    output = refused(tmp_path)
    assert named in output
    assert "records.csv" in output


@pytest.mark.figures
def test_drawing_twice_gives_the_same_bytes_and_names_how_to_repeat_it(tmp_path):
    rows = fake_records.table1(policies=("hot",))
    method = [dataclasses.replace(row, kernel="sparsert_paper") for row in rows if row.kernel == "sparsert"]
    folder = write(tmp_path, select([*rows, *method]))
    report(tmp_path, "sparsert_table1")
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    report(tmp_path, "sparsert_table1")
    assert first == {path.name: path.read_bytes() for path in folder.iterdir()}
    stems = ("speedup", "figure4", "figure5", "figure6")
    figures = {f"{stem}.{kind}" for stem in stems for kind in ("png", "svg")}
    assert {"summary.csv", "summary.md"} | figures <= set(first)
    assert "SparseRT paper, T4" in first["summary.md"].decode()
    page = first["README.md"].decode()
    assert "nnzbench run sparsert_table1" in page
    assert "commit abababababab" in page
    assert page.count("(figure4.png)") == 1


def test_a_missing_baseline_is_a_named_gap_not_a_crash(tmp_path):
    folder = write(tmp_path, select([r for r in fake_records.table1(policies=("hot",)) if r.kernel != "cublas"]))
    report(tmp_path, "sparsert_table1")
    page = "".join((folder / name).read_text() for name in ("README.md", "summary.md"))
    assert "No cuBLAS fp32 time (hot)" in page
    assert "the baseline has no checked time" in page
    assert "**–**" not in page


def convolutions() -> list:
    """Problem 4 of Table 3 at both levels; at 90 % our kernel refuses it."""
    shape = "n1_c512_h7_w7_d512_r3_s3_p1"
    conv = {"experiment": "sparsert_table3", "op": "conv2d", "m": 512, "k": 4608, "n": 49, "shape": shape}
    at = {level: {**conv, "problem": f"04_{shape}_{level}_dlmc", "sparsity": (level + 1) / 100} for level in (90, 95)}
    return [
        row("cudnn", "f32_nchw_default", 64.0, **at[90]),
        row("cudnn", "f32_nchw_default", 64.0, **at[95]),
        row("sparsert_conv", "r8", 7.4, **at[95]),
        fake_records.failed(row("sparsert_conv", "r8", 1.0, **at[90]), "unsupported", "too many nonzeros"),
    ]


def test_a_gap_says_at_which_level(tmp_path):
    folder = write(tmp_path, select(convolutions()), "sparsert_table3")
    report(tmp_path, "sparsert_table3")
    page = (folder / "README.md").read_text()
    assert "No time of best of this project's kernels (hot) for problem 4 (7×7, 512→512, 3×3) at 90 %." in page
    assert "7×7, 512→512, 3×3) at 95 %" not in page
    assert "**8.65** sparsert_conv" in page


def test_convolutions_get_the_paper_numbers_of_their_shape_whatever_they_are_called(tmp_path):
    renamed = [dataclasses.replace(r, problem=f"mine_{r.sparsity}") for r in convolutions()]
    table = sparsert_conv.table3(load(write(tmp_path, select(renamed), "sparsert_table3")))
    assert dict(zip(table.problems["level"], table.problems["paper_speedup"], strict=True)) == {0.9: 2.4, 0.95: 8.5}


def test_times_that_are_no_numbers_are_refused_with_their_line(tmp_path):
    path = write(tmp_path, fake_records.table1()) / "records.csv"
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    rows[3][rows[0].index("median_us")] = "nan"
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    assert "line 4: column 'median_us': 'nan' is not a finite number" in " ".join(refused(tmp_path).split())


def test_a_run_on_stand_ins_is_compared_in_one_paragraph(tmp_path):
    folder = write(tmp_path, fake_records.table1(policies=("hot",)))
    standins = [
        dataclasses.replace(r, source=r.source.replace("dlmc:", "standin:"), median_us=r.median_us and 2 * r.median_us)
        for r in fake_records.table1(policies=("hot",))
    ]
    append(folder / "standin" / "records.csv", select(standins))
    report(tmp_path, "sparsert_table1")
    assert "takes 2.00 times as long as the real pattern" in (folder / "README.md").read_text()


def test_experiments_without_records_say_so(tmp_path):
    rows = fake_records.table1(policies=("hot",))
    write(tmp_path, [row for row in rows if row.problem == rows[0].problem])
    assert "sputnik_rnn: not recorded yet" in report(tmp_path)


def test_the_paper_numbers_stand_at_their_problem_and_level(tmp_path):
    table = sparsert.table1(load(write(tmp_path, fake_records.table1())))
    printed = table.problems.set_index(["label", "level"])["paper_speedup"]
    assert printed[(11, 0.95)] == 9.0
    assert printed[(12, 0.9)] == 1.4
    assert len(printed) == 31


def test_problems_stand_in_the_tables_order_whatever_order_they_were_recorded_in(tmp_path):
    rows = [
        fake_records.record(experiment="sparsert_table3", problem=one.name, op=one.op, m=one.m, k=one.k, n=one.n,
                            sparsity=one.sparsity, source=one.source, kernel="cudnn", variant="f32_e1")
        for one in problem_tables.load("sparsert_table3", real=False)
    ]  # fmt: skip
    labels = [
        list(sparsert_conv.table3(load(write(tmp_path / name, order))).problems["label"])
        for name, order in (("one", rows), ("two", rows[::-1]))
    ]
    assert labels == [["1", "2", "3", "4"] * 2] * 2


def test_the_headline_is_replaced_between_its_markers_only(tmp_path):
    reports = tmp_path / "reports"
    write(reports, fake_records.table1())
    page = tmp_path / "README.md"
    page.write_text("top\n<!-- nnzbench:headline -->\nof last year\n<!-- /nnzbench:headline -->\nbottom\n")
    assert readme.write_headline(reports)
    once = page.read_text()
    assert once.startswith("top\n<!-- nnzbench:headline -->\n")
    assert once.endswith("\n<!-- /nnzbench:headline -->\nbottom\n")
    assert "of last year" not in once
    assert "cuBLAS fp32" in once
    assert not readme.write_headline(reports)
    page.write_text("no markers\n")
    assert not readme.write_headline(reports)
    assert page.read_text() == "no markers\n"


def test_ablation_divides_by_the_complete_system_of_the_same_run():
    records = select(
        [
            row("sparsert_paper", "mb4", 2.0),
            row("sparsert_paper", "mb8", 3.0),
            row("sparsert_rolled", "mb4", 12.0),
            row("sparsert_rolled", "mb8", 5.0),  # faster, at another tiling
            row("sparsert_fixed", "mb8", 3.0),
        ]
    )
    (gain,) = ablation.gains(to_frame(records), "hot").to_dict("records")
    assert gain["unrolling"] == pytest.approx(6.0)
    assert gain["autotuning"] == pytest.approx(1.5)
    assert math.isnan(gain["load balancing"])


def test_a_convolution_is_named_by_its_image_and_channels():
    shape = "n128_c64_h56_w56_d256_r3_s3_p1"
    assert size_of(fake_records.record(shape=shape)) == "128×56×56, 64→256, 3×3"
    assert size_of(fake_records.record(m=1, k=2, n=3)) == "1×2×3"


def test_a_best_row_needs_a_checked_time():
    frame = to_frame(select([row("sputnik", "a", 3.0), fake_records.failed(row("sparsert", "b", 1.0), "wrong", "no")]))
    assert list(pick(frame, BEST)["kernel"]) == ["sputnik"]


def test_result_sets_know_every_environment_they_were_recorded_under(tmp_path):
    half = [
        dataclasses.replace(r, environment="environment-2.json") if r.kernel == "sparsert" else r
        for r in fake_records.table1()
    ]
    results: ResultSet = load(write(tmp_path, half))
    assert [name for name, _, _ in results.environments] == ["environment.json", "environment-2.json"]
    assert sum(count for _, count, _ in results.environments) == len(half)
