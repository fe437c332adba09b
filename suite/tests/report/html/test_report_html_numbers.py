"""The numbers in reports/index.html: rows, speed-ups, means and the answer are those of the records."""

from __future__ import annotations

import dataclasses
import math
import re

import fake_records
import numpy as np
import pandas as pd
import pytest
import sputnik_records
from html_reports import H200, OTHER, data_of_page, no_claims, page_of_reports, put, rendered, reports_folder, visible  # noqa: F401

from nnzbench.facts.results import load
from nnzbench.records.record import read_records
from nnzbench.records.selection import math_class
from nnzbench.report.data.series import least
from nnzbench.report.text import baselines
from nnzbench.site.index import answer as html_answer
from nnzbench.site.index import data as html_data


def test_rows_are_the_records(reports, data):
    rows, problems = data["rows"], data["problems"]
    assert len({len(column) for column in rows.values()}) == 1
    recorded = {
        (record.gpu, record.problem, record.policy, record.kernel, record.variant): record
        for gpu in (H200, OTHER)
        for record in read_records(reports / gpu / "sparsert_table1" / "records.csv")
    }
    seen = set()
    for i, problem in enumerate(rows["problem"]):
        series = data["series"][rows["series"][i]]
        gpu = data["gpus"][data["sets"][problems["set"][problem]]["gpu"]]["slug"]
        variant, policy = data["variants"][rows["variant"][i]], data["policies"][rows["policy"][i]]
        record = recorded[gpu, problems["name"][problem], policy, series["kernel"], variant]
        assert rows["us"][i] == record.median_us
        assert (rows["q1"][i], rows["q3"][i]) == (record.q1_us, record.q3_us)
        assert rows["share"][i] == pytest.approx(record.limit_us / record.median_us, rel=1e-3)
        assert rows["gflops"][i] == pytest.approx(record.flops / record.median_us / 1e3, rel=1e-3)
        assert rows["intensity"][i] == pytest.approx(record.flops / record.bytes, rel=1e-3)
        if not series["hollow"]:  # hollow are defaults, beside the selected
            seen.add((gpu, problems["name"][problem], policy, series["kernel"], series["math"]))
    assert seen == {(r.gpu, r.problem, r.policy, r.kernel, math_class(r)) for r in recorded.values() if r.selected}


def test_speedups_divide_the_rivals_time_of_the_same_gpu_problem_and_policy(reports, data):
    rows, problems = data["rows"], data["problems"]
    times: dict = {}
    for gpu in (H200, OTHER):
        for r in read_records(reports / gpu / "sparsert_table1" / "records.csv"):
            math_mode = r.variant.split("_")[0] if r.kernel.startswith("cublas") else "f32"
            times.setdefault((gpu, r.problem, r.policy), {}).setdefault((r.kernel, math_mode), []).append(r.median_us)
    rivals = [
        [("cublas", "f32")],
        [("cublaslt", "f32")],
        [("cublas", "tf32"), ("cublaslt", "tf32")],
        [("cublas", "f16"), ("cublaslt", "f16")],
        [("cusparse", "f32")],
    ]
    for i in range(0, len(rows["problem"]), 7):
        problem = rows["problem"][i]
        gpu = data["gpus"][data["sets"][problems["set"][problem]]["gpu"]]["slug"]
        mine = times[gpu, problems["name"][problem], data["policies"][rows["policy"][i]]]
        for number, names in enumerate(rivals):
            least = min(time for name in names for time in mine[name])
            assert rows[f"over{number}"][i] == pytest.approx(least / rows["us"][i], rel=1e-3)


def test_means_are_those_of_the_page(reports, data):
    table = html_data.tabulate(load(reports / H200 / "sparsert_table1"))
    expected = {
        (row.policy, row.level, row.series_label): (row.geometric_mean, row.count, row.faster)
        for row in table.means.itertuples()
    }
    means = data["means"]
    found = {
        (data["policies"][p], level, data["series"][s]["label"]): (mean, count, wins)
        for st, p, level, s, rival, mean, count, wins in zip(
            *(means[n] for n in ("set", "policy", "level", "series", "rival", "mean", "count", "wins")), strict=True
        )
        if rival == 0 and data["gpus"][data["sets"][st]["gpu"]]["slug"] == H200
    }
    assert set(found) == set(expected)
    for key, (mean, count, wins) in expected.items():
        assert found[key] == (pytest.approx(mean, rel=1e-3), count, wins)


def test_best_marks_one_own_row_per_problem_and_policy(data):
    rows = data["rows"]
    best = [i for i, flag in enumerate(rows["best"]) if flag]
    keys = {(rows["problem"][i], rows["policy"][i]) for i in best}
    assert len(best) == len(keys) == 2 * 31 * 2
    for i in best:
        series = data["series"][rows["series"][i]]
        assert series["own"]
        assert series["math"] == "f32"
        others = [
            rows["us"][j]
            for j, (problem, policy) in enumerate(zip(rows["problem"], rows["policy"], strict=True))
            if (problem, policy) == (rows["problem"][i], rows["policy"][i]) and data["series"][rows["series"][j]]["own"]
        ]
        assert rows["us"][i] == min(others)


def test_answer_names_every_rival_policy_and_gpu(reports, page):
    words = visible(page)
    for gpu, name in ((H200, "NVIDIA H200"), (OTHER, "NVIDIA L4")):
        results = load(reports / gpu / "sparsert_table1")
        table = html_data.tabulate(results)
        found = html_answer.answer(results, table)
        assert found.gpu == name
        assert [row.rival for row in found.rows] == [rival.label for rival in baselines.RIVALS]
        for row, rival in zip(found.rows, baselines.RIVALS, strict=True):
            assert row.rival in words
            for cell, (level, policy) in zip(row.cells, found.columns, strict=True):
                here = table.points[(table.points["policy"] == policy) & (table.points["level"] == level)]
                own = here[here["kernel"].isin(["sparsert", "row_stream"])]  # no paper's method itself
                values = (least(here, rival.series) / own.groupby("problem")["median_us"].min()).dropna()
                assert cell is not None
                assert cell.mean == pytest.approx(math.exp(np.log(values).mean()))
                assert f"{cell.mean:.2f}× {cell.wins} of {cell.count}" in words
    assert "90 % zeros, hot" in words
    assert "90 % zeros, cold" in words


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ([1.4, 1.2], "yes"), ([1.05], "yes"), ([0.9, 0.95], "no"), ([1.0, 1.04], "even"),
        ([1.4, 0.8], "it depends"), ([1.4, 1.0], "it depends"), ([], "not recorded"),
    ],
)  # fmt: skip
def test_verdict_of_the_answer(means, expected):
    assert html_answer.verdict(means) == expected


def test_sparse_kernels_that_lose_are_told_to_lose(tmp_path):
    put(tmp_path, rows=fake_records.table1(scale=20.0))
    words = visible(rendered(tmp_path))
    assert f"no against {baselines.RIVALS[0].label}" in words
    assert f"yes against {baselines.RIVALS[0].label}" not in words


def test_sizes_that_are_not_the_papers_are_in_no_answer(tmp_path):
    timed = (("ring", "n32", lambda _: 2.0), ("cublas", "f32_rowmajor", lambda p: 4.0 if p.op == "spmm" else None))
    put(tmp_path, rows=sputnik_records.records("sputnik_rnn", timed))
    results = load(tmp_path / H200 / "sputnik_rnn")
    assert results.frame["problem"].str.startswith("extra").any()
    found = html_answer.answer(results, html_data.tabulate(results))
    assert found.columns == ((0.9, "hot"),)
    (cell,) = found.rows[0].lines[0].cells
    assert cell is not None
    assert (cell.mean, cell.count) == (pytest.approx(2.0), 24)


def test_dense_fp16_is_compared_with_fp16_kernels_too(tmp_path):
    timed = (("ring", "n32", lambda _: 2.0), ("cublas", "f32_rowmajor", lambda p: 8.0 if p.op == "spmm" else None))
    half = (("ring", "n32", lambda _: 0.5), ("cublas", "f16_rowmajor", lambda p: 1.0 if p.op == "spmm" else None))
    rows = sputnik_records.records("sputnik_rnn", timed) + sputnik_records.records("sputnik_rnn", half, dtype="f16")
    put(tmp_path, rows=rows)
    results = load(tmp_path / H200 / "sputnik_rnn")
    first, *_, last = html_answer.answer(results, html_data.tabulate(results)).rows
    assert [line.words for line in first.lines] == [html_answer.TUNED.label, html_answer.UNTUNED.label]
    kinds = [html_answer.TUNED.label, html_answer.HALF.label, html_answer.UNTUNED.label]
    assert [line.words for line in last.lines] == kinds
    assert [cell.mean for line in last.lines for cell in line.cells if cell] == [pytest.approx(0.5), pytest.approx(2.0)]
    words = visible(rendered(tmp_path))
    assert f"no against {last.rival} (fp16 values: yes)" in words
    assert re.search(r"tuned, fp16 values ?: with sums in fp32", words)


def test_what_is_not_tuned_stands_beside_what_is(tmp_path):
    """`untuned` takes twice the time of cuBLAS, and generated code is the fastest."""
    rows = fake_records.table1()
    dense = [row for row in rows if row.kernel == "cublas" and row.variant.startswith("f32")]
    rows += [
        dataclasses.replace(one, kernel="untuned", variant="ring_t4", median_us=us, q1_us=us, q3_us=us, selected=True)
        for one in {(one.problem, one.policy): one for one in dense}.values()
        for us in [2 * min(d.median_us for d in dense if (d.problem, d.policy) == (one.problem, one.policy))]
    ]
    put(tmp_path, rows=rows)
    results = load(tmp_path / H200 / "sparsert_table1")
    first, *_ = html_answer.answer(results, html_data.tabulate(results)).rows
    assert [line.words.partition(":")[0] for line in first.lines] == ["tuned", "tuned, weights as data", "untuned"]
    tuned, as_data, untuned = first.lines
    assert [cell and cell.mean for cell in untuned.cells] == [pytest.approx(0.5, rel=1e-5)] * len(untuned.cells)
    assert (first.verdict, first.untuned) == ("yes", "no")
    assert tuned.cells[0] is not None
    assert as_data.cells[0] is not None
    assert tuned.cells[0].mean > as_data.cells[0].mean
    words = visible(rendered(tmp_path))
    assert f"yes against {first.rival} (untuned: no)" in words
    assert "not recorded yet);" not in words


def test_a_table_without_untuned_rows_says_so(page):
    assert "nothing is measured (not recorded yet)." in visible(page)


def test_the_verdict_is_of_the_level_that_is_asked_about(tmp_path):
    """Behind at 90 % zeros and ahead at 95 %: no, and not that it depends."""
    timed = (("ring", "n32", lambda p: 8.0 if p.sparsity == 0.9 else 1.0), ("cublas", "f32_rowmajor", lambda _: 4.0))
    put(tmp_path, rows=sputnik_records.records("sparsert_table1", timed))
    results = load(tmp_path / H200 / "sparsert_table1")
    found = html_answer.answer(results, html_data.tabulate(results))
    assert found.columns == ((0.9, "hot"), (0.95, "hot"))
    assert [cell and cell.mean for cell in found.rows[0].cells] == [pytest.approx(0.5), pytest.approx(4.0)]
    assert found.rows[0].verdict == "no"


def test_a_mean_says_how_many_problems_have_a_time_and_roofs_are_the_last_measured(tmp_path):
    timed = (("ring", "n32", lambda p: 2.0 if p.op == "spmm" else None), ("cublas", "f32_rowmajor", lambda _: 4.0))
    rows = [row for row in sputnik_records.records("sparsert_table1", timed) if row.sparsity == 0.9]
    cusparse = [dataclasses.replace(row, kernel="cusparse", variant="csr_alg2") for row in rows if row.kernel == "ring"]
    sets = []
    for name, more, peak in (("a", cusparse[:1], 1.0), ("b", cusparse, 2.0)):
        folder = fake_records.write(
            tmp_path / name / H200 / "sparsert_table1", [*rows, *more], {"peaks": {"l2_gbs": peak}}
        )
        results = load(folder)
        sets.append(html_data.Recorded(results, html_data.tabulate(results)))
    data = html_data.collect(sets)
    assert data["gpus"][0]["roofs"]["l2_gbs"] == 2.0
    means = pd.DataFrame(data["means"])
    over = data["rivals"].index("cuSPARSE fp32, its best algorithm")
    ring = next(at for at, one in enumerate(data["series"]) if one["kernel"] == "ring")
    found = means[(means["rival"] == over) & (means["series"] == ring)].set_index("set")
    assert found["count"].to_dict() == {0: 1, 1: 20}
    assert set(found["of"]) == {20}
