"""SparseRT's figures 4 to 8 on records whose rates and speed-ups are known."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import fake_records
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgba

from nnzbench.papers.sparsert import ablation
from nnzbench.papers.sparsert import figures as sparsert_figures
from nnzbench.papers.sparsert import table1 as sparsert
from nnzbench.papers.sparsert import table3 as sparsert_conv
from nnzbench.papers.sparsert import values as sparsert_values
from nnzbench.papers.sparsert.values import CUBLAS, CUSPARSE, HEURISTIC, MEAN, SPARSERT, SPUTNIK, Values
from nnzbench.records.record import append
from nnzbench.records.selection import select
from nnzbench.facts.results import geometric_mean, load
from nnzbench.report.data.published import match, sparsert_table1
from nnzbench.report.draw import grouped_bars, style
from nnzbench.report.text.fastest import missing
from nnzbench.report.text.pages import Page

TIMES = {
    ("cublas", "f32_default_nn"): 12.0,
    ("cusparse", "csr_alg2"): 18.0,
    ("sputnik", "x64_k32"): 5.0,
    ("sputnik", "heuristic_x32"): 6.0,
    ("sparsert_paper", "mb4_nb49_gy1"): 4.0,
}
"""Microseconds at 90 %; at 95 % the sparse kernels take three quarters of them."""
NNZ = 1000


def table1(gpu: str = "nvidia-h200", quicker: float = 1.0, sparsert_only: frozenset[int] = frozenset()) -> list:
    """Every problem with the same times but the method's, divided by `quicker`; absent on problems `sparsert_only`."""
    rows = []
    for row in sparsert_table1().itertuples():
        for (kernel, variant), us in TIMES.items():
            if kernel == "sparsert_paper" and row.label in sparsert_only:
                continue
            time = us * (0.75 if row.level == 0.95 and kernel != "cublas" else 1.0)
            time /= quicker if kernel == "sparsert_paper" else 1.0
            rows.append(
                fake_records.record(
                    problem=f"{row.label}_{row.level:g}", m=row.m, k=row.k, n=row.n, sparsity=row.level, nnz=NNZ,
                    gpu=gpu, kernel=kernel, variant=variant, median_us=time, q1_us=time, q3_us=time, policy="hot",
                )
            )  # fmt: skip
    return select(rows)


def folder(root: Path, records: list, experiment: str = "sparsert_table1", gpu: str = "nvidia-h200") -> Path:
    found = root / gpu / experiment
    append(found / "records.csv", records)
    name = {"nvidia-h200": "NVIDIA H200", "nvidia-a100": "NVIDIA A100"}[gpu]
    (found / "environment.json").write_text(json.dumps({"gpu": {"name": name}}))
    return found


def drawn(root: Path, records: list, others: tuple = ()) -> tuple[Values, sparsert_values.Measured]:
    here = sparsert_values.Measured("nvidia-h200", "NVIDIA H200", sparsert.table1(load(folder(root, records))))
    return Values(sparsert_values.drawn(here, others, ["hot"]), "hot"), here


@pytest.fixture
def figures(monkeypatch):
    """Takes figures by their stem instead of writing them."""
    taken: dict = {}
    monkeypatch.setattr("nnzbench.report.draw.style.save", lambda figure, stem: taken.setdefault(stem.name, figure))
    return taken


def ours(values: Values, figure: str, labels: tuple, column: str, level: float, series: str = SPARSERT, over: str = ""):
    return values.of(figure, labels, column, gpu="nvidia-h200", level=level, series=series, over=over)


def test_rates_count_the_operations_of_the_sparse_product_for_every_library(tmp_path):
    values, _ = drawn(tmp_path, table1())
    operations = 2 * NNZ * 3136  # problem 1
    for series, us in ((CUBLAS, 12.0), (CUSPARSE, 18.0), (SPARSERT, 4.0)):
        (rate,) = ours(values, "4a", ("1",), "tflops", 0.9, series)
        assert rate == pytest.approx(operations / (us * 1e-6) / 1e12)
    (sparser,) = ours(values, "4b", ("1",), "tflops", 0.95)
    assert sparser == pytest.approx(operations / 3e-6 / 1e12)
    assert math.isnan(ours(values, "4b", ("12",), "tflops", 0.95)[0]), "MobileNet has no 95 %"


def test_speedups_stand_beside_the_printed_ones(tmp_path):
    values, _ = drawn(tmp_path, table1())
    assert ours(values, "4c", ("7", MEAN), "speedup", 0.9, over=CUBLAS) == pytest.approx((3.0, 3.0))
    assert ours(values, "4c", ("7", MEAN), "speedup", 0.95, over=CUBLAS) == pytest.approx((4.0, 4.0))
    assert ours(values, "4d", ("7", MEAN), "speedup", 0.95, over=CUSPARSE) == pytest.approx((4.5, 4.5))
    paper = {"gpu": "T4", "series": "paper"}
    assert values.of("4c", ("7", "12", MEAN), "speedup", level=0.9, over=CUBLAS, **paper) == (2.7, 1.4, 3.4)
    assert values.of("4d", (MEAN,), "speedup", level=0.9, over=CUSPARSE, **paper) == (20.0,)
    assert math.isnan(values.of("4d", ("7",), "speedup", level=0.9, over=CUSPARSE, **paper)[0])
    (mean,) = values.of("5a", (MEAN,), "speedup", level=0.9, over=CUBLAS, **paper)
    assert mean == pytest.approx(geometric_mean([4.3, 2.5, 4.0, 3.7, 3.0, 3.1, 2.7, 4.8, 4.2, 4.2, 6.0]))
    assert values.of("5b", (MEAN,), "speedup", level=0.95, over=CUSPARSE, **paper) == (15.0,)
    assert math.isnan(values.of("5b", (MEAN,), "speedup", level=0.9, over=CUSPARSE, **paper)[0]), "other problems"


def test_figure_6_has_both_tilings_of_sputnik_on_mobilenet_alone(tmp_path):
    values, _ = drawn(tmp_path, table1())
    assert ours(values, "6b", ("12", MEAN), "speedup", 0.9, over=SPUTNIK) == pytest.approx((1.25, 1.25))
    assert ours(values, "6b", ("12", MEAN), "speedup", 0.9, over=HEURISTIC) == pytest.approx((1.5, 1.5))
    assert math.isnan(ours(values, "6b", ("11",), "speedup", 0.9, over=SPUTNIK)[0])


def test_a_missing_time_leaves_a_gap_that_is_named_and_a_mean_that_says_so(tmp_path, figures):
    values, here = drawn(tmp_path / "a", table1(sparsert_only=frozenset({7})))
    found = ours(values, "4c", ("6", "7", MEAN), "speedup", 0.9, over=CUBLAS)
    assert found[0] == pytest.approx(3.0)
    assert math.isnan(found[1])
    assert found[2] == pytest.approx(3.0)
    gaps = " ".join(missing(sparsert_figures.lost(here, "hot")))
    assert "sparsert_paper at 90 % zeros" in gaps
    assert "problem 7" in gaps
    page, _ = fake_records.drawn(load(folder(tmp_path / "b", table1(sparsert_only=frozenset({7})))))
    (figure4,) = [section for section in page.sections if section.heading == "Figure 4, hot policy"]
    assert "**3.00** (19 of 20)" in figure4.tables[1]
    assert "**4.00** (10 of 11)" in figure4.tables[1]


def test_figure_5_takes_in_every_gpu_with_records(tmp_path, figures):
    alone, summary = fake_records.drawn(load(folder(tmp_path, table1())))
    assert set(summary.loc[summary["figure"] == "5a", "gpu"]) == {"nvidia-h200", "T4"}
    folder(tmp_path, table1("nvidia-a100", quicker=2.0), gpu="nvidia-a100")
    page, summary = fake_records.drawn(load(tmp_path / "nvidia-h200" / "sparsert_table1"))
    there = summary[(summary["figure"] == "5a") & (summary["gpu"] == "nvidia-a100") & (summary["level"] == 0.9)]
    assert len(there) == 12, "problems 1 to 11 and their mean"
    assert list(there["speedup"]) == pytest.approx([6.0] * 12)
    (figure5,) = [section for section in page.sections if section.heading == "Figure 5, hot policy"]
    assert "On NVIDIA A100 sparsert_paper is 6.00× as fast as cuBLAS and 9.00× as fast as cuSPARSE" in figure5.text
    assert "over cuBLAS, NVIDIA A100, 90 %" in figure5.tables[0]
    assert "A100" not in str(alone)


def test_a_gpu_that_lacks_the_baseline_leaves_an_empty_figure(tmp_path, figures):
    values, _ = drawn(tmp_path, [r for r in table1() if r.kernel not in ("cublas", "cusparse")])
    assert all(math.isnan(v) for v in ours(values, "4c", ("1", MEAN), "speedup", 0.9, over=CUBLAS))
    page, _ = fake_records.drawn(load(tmp_path / "nvidia-h200" / "sparsert_table1"))
    assert any("No checked time of cuSPARSE" in gap for gap in page.gaps)


def test_the_summary_has_every_bar_and_each_policy_its_sections(tmp_path, figures):
    records = [*table1(), *[dataclasses.replace(r, policy="cold", median_us=r.median_us + 2) for r in table1()]]
    page, summary = fake_records.drawn(load(folder(tmp_path, records)))
    assert set(summary["figure"]) == {"speedup", "4a", "4b", "4c", "4d", "5a", "5b", "6a", "6b"}
    rates = summary[(summary["figure"] == "4a") & (summary["policy"] == "hot")]
    assert len(rates) == 60
    assert rates["tflops"].notna().all()
    headings = [section.heading for section in page.sections]
    assert headings[:5] == ["Hot policy", *(f"Figure {n}, hot policy" for n in (4, 5, 6)), "Cold policy"]
    assert {section.figure for section in page.sections} == set(figures)
    for name in ("figure4", "figure5", "figure6"):
        caption = figures[f"{name}_cold"].texts[1].get_text()
        assert "TF32 off." in caption
        assert "cold policy" in caption.lower()


def test_a_kernel_looks_as_on_every_figure(tmp_path, figures):
    """Bars have the registry's colours, at the second level their tint; two kernels of one colour differ by markers."""
    folder(tmp_path, table1("nvidia-a100", quicker=2.0), gpu="nvidia-a100")
    fake_records.drawn(load(folder(tmp_path, table1())))
    blue, orange, ink = (style.look(name).colour for name in ("sparsert_paper", "cusparse", "cublas"))
    assert style.look("sputnik").colour == blue
    tint = grouped_bars.light(blue)
    other = style.GPU_COLOURS[0]
    expected = {
        "figure4": {blue, tint, orange, ink},
        "figure5": {blue, tint, other, grouped_bars.light(other)},
        "figure6": {blue, tint, grouped_bars.light(tint)},
    }
    for name, colours in expected.items():
        bars = [bar for axis in figures[name].axes for container in axis.containers for bar in container]
        found = {to_hex(bar.get_facecolor()) for bar in bars if to_rgba(bar.get_facecolor())[3]}
        assert found == {to_hex(colour) for colour in colours}, name
    marked = [(line.get_marker(), line.get_markerfacecolor()) for line in figures["figure6"].axes[0].get_lines()]
    assert marked == [(style.look("sparsert_paper").marker, blue), ("o", blue), ("o", "none")]


def test_notes_name_problems_that_their_figure_shows(tmp_path, figures):
    """By the names there, which tell the levels apart: problem 6 at both, of which figure 6 has none."""
    wide = {"6_0.9": 1.3, "6_0.95": 1.4, "12_0.9": 1.2, "1_0.9": 1.5}
    records = [
        dataclasses.replace(r, q3_us=r.median_us * wide[r.problem])
        if r.kernel == "sparsert_paper" and r.problem in wide
        else dataclasses.replace(r, q3_us=r.median_us * 2) if r.kernel == "sputnik" and r.problem == "5_0.9"
        else r
        for r in table1()
    ]  # fmt: skip
    page, _ = fake_records.drawn(load(folder(tmp_path, records)))
    notes = {section.figure: section.note.partition("the first: ")[2] for section in page.sections}
    six = "sparsert_paper on 6 at 95 % (hot, 1.40×), sparsert_paper on 6 at 90 % (hot, 1.30×)"
    assert notes["figure4"] == (
        f"sparsert_paper on 1 at 90 % (hot, 1.50×), {six}, sparsert_paper on 12 at 90 % (hot, 1.20×)."
    )
    assert notes["figure5"] == f"sparsert_paper on 1 at 90 % (hot, 1.50×), {six}."
    assert notes["figure6"] == "sparsert_paper on 12 at 90 % (hot, 1.20×)."
    assert notes["speedup"].startswith("sputnik on 5 at 90 % (hot, ")


def test_texts_keep_apart_and_inside(tmp_path, figures):
    folder(tmp_path, table1("nvidia-a100", quicker=2.0), gpu="nvidia-a100")
    fake_records.drawn(load(folder(tmp_path, table1())))
    fake_records.drawn(load(folder(tmp_path, convolutions(), "sparsert_table3")))
    for name in ("figure4", "figure5", "figure6", "figure7"):
        figure = figures[name]
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        boxes = [text.get_window_extent(renderer) for text in [*figure.texts, *figure.legends]]
        for axis in figure.axes:
            labels = [axis.xaxis.label, axis.yaxis.label, *axis.get_xticklabels(), *axis.texts]
            boxes += [text.get_window_extent(renderer) for text in labels]
            names = min(text.get_window_extent(renderer).y0 for text in axis.texts)
            bars = [patch.get_window_extent(renderer) for patch in axis.patches]
            assert all(bar.y1 < names or bar.y1 > axis.bbox.y1 - 1 for bar in bars), f"{name}: a bar under a name"
        for place, box in enumerate(boxes):
            assert min(box.x0, box.y0) >= 0, name
            assert box.x1 <= figure.bbox.width, name
            assert box.y1 <= figure.bbox.height, name
            for other in boxes[place + 1 :]:
                apart = box.x1 <= other.x0 or other.x1 <= box.x0 or box.y1 <= other.y0 or other.y1 <= box.y0
                assert apart, f"{name}: {box} over {other}"


def test_bars_of_rates_begin_at_0_and_of_ratios_at_1():
    bars = (grouped_bars.Bars("a", (0.5, math.nan, 4.0), "#0072B2"),)
    for ratio, base in ((False, 0.0), (True, 1.0)):
        panel = grouped_bars.Panel("t", ("1", "2", "mean"), ("x", "x"), bars, "y", ratio)
        axis = grouped_bars.figure([panel], "title", "caption", columns=1).axes[0]
        drawn_bars = [bar for container in axis.containers for bar in container]
        assert [bar.get_y() for bar in drawn_bars] == [base, base]
        assert [bar.get_y() + bar.get_height() for bar in drawn_bars] == pytest.approx([0.5, 4.0])
        assert drawn_bars[1].get_x() + drawn_bars[1].get_width() / 2 == pytest.approx(2 + grouped_bars.MEAN_AT)


def convolutions() -> list:
    """Table 3's first two shapes, the second without a time at 90 %."""
    rows = []
    for number, (image, channels) in enumerate(((56, 64), (28, 128)), start=1):
        shape = f"n1_c{channels}_h{image}_w{image}_d{channels}_r3_s3_p1"
        for level, us in ((0.9, 8.0), (0.95, 4.0)):
            at = {"experiment": "sparsert_table3", "op": "conv2d", "shape": shape, "sparsity": level}
            at |= {"problem": f"0{number}_{shape}_{100 * level:.0f}_weights", "q1_us": us, "q3_us": us, "nnz": 10}
            rows.append(fake_records.record(kernel="cudnn", variant="f32_plan0", median_us=16.0, **at))
            if (image, level) != (28, 0.9):
                rows.append(fake_records.record(kernel="sparsert_conv_paper", variant="r8", median_us=us, **at))
                at |= {"q1_us": us / 2, "q3_us": us / 2}
                rows.append(fake_records.record(kernel="sparsert_conv", variant="r8", median_us=us / 2, **at))
    return select(rows)


def test_quartiles_are_inside_the_figure(tmp_path, figures):
    rows = fake_records.table1(policies=("hot",))
    slow = next(row for row in rows if row.variant.startswith("tf32") and row.selected)
    rows[rows.index(slow)] = dataclasses.replace(slow, q3_us=50 * slow.median_us)
    results = load(fake_records.write(tmp_path, rows))
    fake_records.drawn(results)
    points = sparsert.table1(results).points
    wide = points[points["q3_us"] > 10 * points["q1_us"]]
    assert len(wide)
    assert figures["speedup"].axes[0].get_ylim()[0] < (wide["baseline_us"] / wide["q3_us"]).min()


def test_the_papers_method_that_the_title_is_about_is_drawn(tmp_path, figures):
    rows = fake_records.table1(policies=("hot",))
    slow = [
        dataclasses.replace(row, kernel="sparsert_paper", variant=f"r8_{at}", median_us=9 * row.median_us)
        for at, row in enumerate(one for one in rows if one.kernel == "sparsert")
    ]
    fake_records.drawn(load(fake_records.write(tmp_path, select([*rows, *slow]))))
    assert "sparsert_paper" in {text.get_text() for text in figures["speedup"].legends[0].get_texts()}


def test_figure_7_has_both_levels_of_a_problem_and_the_printed_values(tmp_path):
    table = sparsert_conv.table3(load(folder(tmp_path, convolutions(), "sparsert_table3")))
    found = sparsert_conv.speedups_by_problem(table, "hot")
    ninety, sparser = found[0.9], found[0.95]
    assert ninety[0][0] == pytest.approx(2.0)
    assert math.isnan(ninety[0][-1])
    assert ninety[1][0] == 3.7
    assert sparser[1][0] == 5.3
    assert sparser[0][0] == pytest.approx(4.0)
    beside = sparsert_conv.speedups_by_problem(table, "hot", sparsert_conv.OWN)
    assert beside[0.95][0][0] == pytest.approx(8.0)


def test_rows_on_a_standin_stand_beside_those_of_the_real_pattern(tmp_path):
    rows = [dataclasses.replace(row, source="dlmc:w.smtx") for row in convolutions()]
    for place, row in enumerate(rows):
        if row.kernel == "sparsert_conv_paper":
            name = row.problem.replace("_weights", "_standin")
            rows[place] = dataclasses.replace(row, problem=name, source="standin:w")
    results = load(folder(tmp_path, rows, "sparsert_table3"))
    table = sparsert_conv.table3(results)
    assert len(table.problems) == 4
    assert sparsert_conv.speedups_by_problem(table, "hot")[0.95][0][0] == pytest.approx(4.0)
    (said,) = results.left_out
    assert "On 3 problems the times of `sparsert_conv_paper` are of a calibrated stand-in" in said


def test_a_kernel_that_ran_on_the_pattern_and_on_its_standin_has_the_time_on_the_pattern(tmp_path):
    rows = convolutions()
    faster = [
        dataclasses.replace(
            row, problem=row.problem.replace("_weights", "_standin"), source="standin:w", median_us=0.1, limit_us=0.05
        )
        for row in rows
        if row.kernel == "sparsert_conv" and "_weights" in row.problem
    ]
    results = load(folder(tmp_path, [*rows, *faster], "sparsert_table3"))
    assert set(results.frame["problem"]) == {row.problem for row in rows}
    assert 0.1 not in set(results.frame["median_us"])
    (said,) = results.left_out
    assert said.startswith(f"On {len({row.problem for row in faster})} problems rows on a calibrated stand-in are left")


def test_the_ablation_hands_over_the_bars_that_it_draws(tmp_path, figures):
    times = {"sparsert_paper": 2.0, "sparsert_rolled": 12.0, "sparsert_unbalanced": 2.0, "sparsert_fixed": 3.0}
    rows = [
        fake_records.record(
            experiment="sparsert_ablation", kernel=kernel, variant="v", median_us=us * scale, problem=name
        )
        for name, scale in (("a", 1.0), ("b", 2.0))
        for kernel, us in times.items()
    ]
    rows[-1] = dataclasses.replace(rows[-1], median_us=24.0)
    _, summary = fake_records.drawn(load(folder(tmp_path, select(rows), "sparsert_ablation")))
    bars = summary[summary["figure"] == "8"].set_index(["series", "problem"])["speedup"]
    assert bars["sparsert_rolled over sparsert_paper", "b"] == pytest.approx(6.0)
    assert bars["sparsert_fixed over sparsert_paper", MEAN] == pytest.approx(3.0)  # of 1.5 and 6
    assert len(bars) == 9


@pytest.mark.parametrize(("sparsity", "level"), [(0.88, 0.9), (0.92, 0.9), (0.955, 0.95), (0.86, None), (0.99, None)])
def test_a_pattern_answers_to_the_papers_level_that_its_zeros_are_near(sparsity, level):
    table = sparsert_table1()
    one = table.iloc[0]
    problem = pd.DataFrame({"problem": ["p"], "m": one["m"], "k": one["k"], "n": one["n"], "sparsity": sparsity})
    matched = match(problem, table).dropna(subset=["problem"])
    assert matched["level"].tolist() == ([] if level is None else [level])


def section(page: Page, heading: str) -> str:
    return next(one.text for one in page.sections if one.heading == heading)


def test_findings_state_rates_and_both_halves_of_mobilenet(tmp_path, figures):
    larger = frozenset({"17", "18", "19", "20"})
    slow = [
        dataclasses.replace(row, median_us=8.0, q1_us=8.0, q3_us=8.0)
        if row.kernel == "sparsert_paper" and row.problem.partition("_")[0] in larger
        else row
        for row in table1()
    ]
    page, _ = fake_records.drawn(load(folder(tmp_path, slow)))
    assert "At 95 % zeros it reaches 1.33 times the TFLOP/s of 90 %" in section(page, "Figure 4, hot policy")
    said = "sparsert_paper is 1.25× on problems 12 to 16 and 0.62× on problems 17 to 20 in geometric mean"
    assert said in section(page, "Figure 6, hot policy")


def test_without_a_kernel_of_this_project_no_speedup_is_stated(tmp_path, figures):
    rows = [row for row in table1() if row.kernel in ("cublas", "cusparse")]
    page, _ = fake_records.drawn(load(folder(tmp_path, rows)))
    said = " ".join(one.text for one in page.sections)
    assert "At 90 % zeros no speed-up can be stated: no kernel of this project has a checked time." in said


def test_what_is_not_unrolled_is_set_against_the_same_tiling(tmp_path):
    """Not against its own fastest; a problem that lacks a part under one policy is not among those of the figure."""
    times = [("sparsert_paper", "mb4", 2.0), ("sparsert_paper", "mb8", 3.0), ("sparsert_rolled", "mb4", 30.0)]
    times += [("sparsert_rolled", "mb8", 12.0), ("sparsert_unbalanced", "mb8", 4.0), ("sparsert_fixed", "mb1", 5.0)]
    names = {at: f"0{at}_64x256x3136_90_uniform" for at in (1, 2)}
    rows = [
        fake_records.record(
            experiment="sparsert_ablation", kernel=kernel, variant=variant, median_us=us, problem=name, policy=policy
        )
        for kernel, variant, us in times
        for at, name in names.items()
        for policy in ("hot", "cold")
        if (kernel, at, policy) != ("sparsert_fixed", 2, "cold")
    ]
    results = load(folder(tmp_path, select(rows), "sparsert_ablation"))
    found = ablation.gains(results.frame, "hot").loc[names[1]]
    assert found.to_dict() == {"unrolling": 15.0, "load balancing": 2.0, "autotuning": 2.5}
    page, _ = fake_records.drawn(results)
    assert "at 90 % zeros, on 1 problem of its Table 1" in page.intro
