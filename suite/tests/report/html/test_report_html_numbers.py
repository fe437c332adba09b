"""The numbers in reports/index.html: rows, speed-ups, means and the answer are those of the records."""

from __future__ import annotations

import fake_records
import pytest
import sputnik_records
from html_reports import H200, OTHER, data_of_page, page_of_reports, put, rendered, reports_folder, visible  # noqa: F401

from nnzbench.papers.catalogue import page_of
from nnzbench.report import render
from nnzbench.report.page import Page, View
from nnzbench.results.records.record import read_records
from nnzbench.results.result_set import load
from nnzbench.site.index import data as html_data
from nnzbench.site.index import headlines

OURS = ("sparsert", "row_stream", "sputnik")


def test_rows_are_the_records(reports, data):
    rows, problems = data["rows"], data["problems"]
    assert len({len(column) for column in rows.values()}) == 1
    recorded = {
        (record.gpu, record.problem, record.policy, record.kernel, record.variant): record
        for gpu in (H200, OTHER)
        for record in read_records(reports / gpu / "sparsert_table1" / "records.csv")
    }
    names = ["problem", "policy", "kernel", "variant", "limit_share"]
    shares = {
        (gpu, *key): share
        for gpu in (H200, OTHER)
        for *key, share in load(reports / gpu / "sparsert_table1").frame[names].to_numpy()
    }
    seen = set()
    for i, problem in enumerate(rows["problem"]):
        series = data["series"][rows["series"][i]]
        gpu = data["gpus"][data["sets"][problems["set"][problem]]["gpu"]]["slug"]
        variant, policy = data["variants"][rows["variant"][i]], data["policies"][rows["policy"][i]]
        key = (gpu, problems["name"][problem], policy, series["kernel"], variant)
        record = recorded[key]
        assert rows["us"][i] == pytest.approx(record.median_us, rel=1e-4)
        spread = rows["us"][i] - rows["below"][i], rows["us"][i] + rows["above"][i]
        assert spread == pytest.approx((record.q1_us, record.q3_us), rel=1e-3)
        assert rows["share"][i] == pytest.approx(shares[key], rel=1e-2)
        assert problems["flops"][problem] == record.flops
        assert rows["intensity"][i] == pytest.approx(record.flops / record.bytes, rel=1e-2)
        if not series["hollow"]:  # hollow are defaults, beside the selected
            seen.add((gpu, problems["name"][problem], policy, series["kernel"], series["math"]))
    assert seen == {(r.gpu, r.problem, r.policy, r.kernel, r.math) for r in recorded.values() if r.selected}


def test_speedups_divide_the_rivals_time_of_the_same_gpu_problem_and_policy(reports, data):
    rows, problems = data["rows"], data["problems"]
    times: dict = {}
    for gpu in (H200, OTHER):
        for r in read_records(reports / gpu / "sparsert_table1" / "records.csv"):
            math_mode = r.variant.split("_")[0] if r.kernel.startswith("cublas") else "f32"
            times.setdefault((gpu, r.problem, r.policy), {}).setdefault((r.kernel, math_mode), []).append(r.median_us)
    rivals = [
        [("cublas", "f32")],
        [("cublas", "f32"), ("cublaslt", "f32")],
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


def test_best_marks_one_own_row_per_problem_and_policy(data):
    rows = data["rows"]
    best = [i for i, flag in enumerate(rows["best"]) if flag]
    keys = {(rows["problem"][i], rows["policy"][i]) for i in best}
    assert len(best) == len(keys) == 2 * 31 * 2
    for i in best:
        series = data["series"][rows["series"][i]]
        assert series["kernel"] in OURS
        assert series["math"] == "f32"
        others = [
            rows["us"][j]
            for j, (problem, policy) in enumerate(zip(rows["problem"], rows["policy"], strict=True))
            if (problem, policy) == (rows["problem"][i], rows["policy"][i])
            and data["series"][rows["series"][j]]["kernel"] in OURS
        ]
        assert rows["us"][i] == min(others)


def test_the_first_screen_and_the_end_of_a_run_have_the_answers_of_the_pages(tmp_path):
    timed = (("sparsert_paper", "r8_g4", lambda _: 2.0), ("cublas", "f16_rowmajor", lambda _: 3.0))
    put(tmp_path, rows=sputnik_records.records("sparsert_table1", timed))
    view = View(load(tmp_path / H200 / "sparsert_table1"))
    page = page_of("sparsert_table1")
    assert isinstance(page, Page)
    (small,) = headlines.answers(tmp_path / H200)
    assert list(headlines.answers(tmp_path / OTHER)) == []
    first = next(render.answers(page, view))
    assert (small.layers, small.text) == ("Small pruned layers", first)
    assert "**1.50×**" in first
    assert f"Small pruned layers on NVIDIA H200 ( page ): {first.replace('**', '')}" in visible(rendered(tmp_path))


def test_roofs_are_the_last_measured(tmp_path):
    timed = (("ring", "n32", lambda _: 2.0), ("cublas", "f32_rowmajor", lambda _: 4.0))
    rows = sputnik_records.records("sparsert_table1", timed)
    sets = [
        load(fake_records.write(tmp_path / name / H200 / "sparsert_table1", rows, {"peaks": {"l2_gbs": peak}}))
        for name, peak in (("a", 1.0), ("b", 2.0))
    ]
    assert html_data.gpu_of(H200, [one.environment for one in sets])["roofs"]["l2_gbs"] == 2.0
