"""Balanced Sparsity's pages on records with known answers."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import fake_records
import pytest
from matplotlib.figure import Figure

from nnzbench.facts.results import load
from nnzbench.papers.balanced import figure4 as balanced_figure4
from nnzbench.papers.balanced import weights as balanced_weights
from nnzbench.problems import tables
from nnzbench.records.record import Record
from nnzbench.records.selection import select
from nnzbench.report.draw.figures import MOST

FIGURE4 = tables.load("balanced_figure4")


def rows_of(problem, policy: str, times: dict[tuple[str, str], float], **changes) -> list[Record]:
    """One row per kernel and variant, with the sizes of a problem table."""
    common = {
        "experiment": problem.experiment, "problem": problem.name, "op": problem.op, "m": problem.m, "k": problem.k,
        "n": problem.n, "sparsity": problem.sparsity, "source": problem.source, "policy": policy, "shape": "",
        "nnz": round((1 - problem.sparsity) * problem.m * problem.k), **changes,
    }  # fmt: skip
    return [
        fake_records.timed(kernel, us, variant, limit_us=0.8 * us, **common) for (kernel, variant), us in times.items()
    ]


def figure4_times(problem) -> dict[tuple[str, str], float]:
    """Dense 160 us, ours the ideal with 0.5 us of overhead, the paper's mapping 1.5 times that."""
    kept = 1 - problem.sparsity
    times = {("cublas", "f32_rowmajor"): 160.0, ("cublas", "tf32_rowmajor"): 155.0}
    times["cusparse", "csr_alg2_row"] = 400 * kept
    if problem.source.startswith("balanced"):
        times["balanced", "bulk_w16"] = 159.5 * kept + 0.5
        times["balanced", "paper"] = 1.5 * (159.5 * kept + 0.5)
    if problem.n > 1:
        times["sputnik", "x32"] = 300 * kept
    return times


def figure4(policies=("hot", "cold")) -> list[Record]:
    rows = []
    for policy in policies:
        for problem in FIGURE4:
            rows += rows_of(problem, policy, figure4_times(problem))
            if not problem.source.startswith("balanced"):
                own = rows_of(problem, policy, {("balanced", ""): 1.0})
                rows += [fake_records.failed(own[0], "unsupported", "not balanced")]
    return select(rows)


def write(tmp_path: Path, experiment: str, rows: list[Record]) -> Path:
    return fake_records.write(tmp_path / "nvidia-h200" / experiment, rows)


def page_of(tmp_path: Path, experiment: str) -> str:
    path = fake_records.written(tmp_path / "nvidia-h200" / experiment)
    return path.read_text() + path.with_name("summary.md").read_text()


def test_the_ideal_line_is_the_papers_equation() -> None:
    assert balanced_figure4.ideal_us(1110, 0.5, 10) == pytest.approx(560)
    assert balanced_figure4.ideal_us(1110, 0.0, 10) == pytest.approx(1110)
    assert balanced_figure4.ideal_us(1110, 1.0, 10) == pytest.approx(10)


def test_the_digitised_ideal_follows_from_the_published_dense_time() -> None:
    for row in balanced_figure4.levels().itertuples():
        for batch, tolerance in ((1, 15), (8, 40)):
            dense, ideal = getattr(row, f"dense_b{batch}_us"), getattr(row, f"ideal_b{batch}_us")
            assert abs(balanced_figure4.ideal_us(dense, row.sparsity, 10) - ideal) <= tolerance


def test_figure4_draws_every_curve_at_every_level(tmp_path: Path) -> None:
    drawn = balanced_figure4.points(load(write(tmp_path, "balanced_figure4", figure4())))
    counts = drawn.groupby(["policy", "batch", "series"]).size().unstack("series")
    assert (counts.loc["hot"].drop(columns="random_sputnik") == 11).all().all()
    assert counts.loc[("hot", 8), "random_sputnik"] == 11
    assert math.isnan(counts.loc[("hot", 1), "random_sputnik"])
    half = drawn[(drawn["policy"] == "hot") & (drawn["batch"] == 1) & (drawn["sparsity"] == 0.5)]
    times = half.set_index("series")["time_us"]
    assert times["balanced"] == pytest.approx(80.25)
    assert times["ideal_floor"] == pytest.approx(80.25)  # the records' floor is 0.5 us
    assert times["ideal"] == pytest.approx(85.0)
    assert times["balanced_paper"] == pytest.approx(1.5 * 80.25)
    paper = drawn[(drawn["policy"] == "published") & (drawn["series"] == "balanced") & (drawn["sparsity"] == 0.5)]
    assert list(paper["time_us"]) == [1010, 1080]
    assert list(paper["gpu"].unique()) == ["GPU not named"]


def test_figure4_page_says_what_was_found(tmp_path: Path) -> None:
    folder = write(tmp_path, "balanced_figure4", figure4())
    page = page_of(tmp_path, "balanced_figure4")
    low, high = 160 / 80.25, 160 / (159.5 * 8 / 256 + 0.5)
    assert f"Batch 1: `balanced` is {low:.2f} to {high:.2f}× as fast as cuBLAS fp32" in page
    assert "faster at 11 of 11 sparsities" in page
    assert "cuSPARSE on random positions is faster than cuBLAS fp32 from 62.5 % zeros" in page
    assert "Times in µs on NVIDIA H200, hot policy, fp32" in page
    why = "`sputnik` does not compute spmv"
    assert (
        f"No checked time of sputnik, random positions at batch 1 (hot, cold) is recorded for any row: {why}." in page
    )
    assert {"figure4.svg", "figure4_cold.svg", "summary.csv"} <= {p.name for p in folder.iterdir()}


def test_figure4_has_one_entry_for_the_ideal_of_either_overhead(tmp_path: Path, figures: dict[str, Figure]) -> None:
    """More than eight entries are not told apart; the two ideals are never in one panel."""
    write(tmp_path, "balanced_figure4", figure4(("hot",)))
    page_of(tmp_path, "balanced_figure4")
    legend = [text.get_text() for text in figures["figure4"].legends[0].get_texts()]
    assert legend.count("ideal") == 1
    assert len(legend) <= MOST
    assert "The ideal's overhead is as measured above, 10 µs below." in figures["figure4"].texts[1].get_text()


@pytest.mark.figures(kind="svg")
def test_figure4_is_drawn_twice_with_the_same_bytes(tmp_path: Path) -> None:
    folder = write(tmp_path, "balanced_figure4", figure4(("hot",)))
    page_of(tmp_path, "balanced_figure4")
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    page_of(tmp_path, "balanced_figure4")
    assert first == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_figure4_names_what_an_incomplete_run_lacks(tmp_path: Path) -> None:
    some = [r for r in figure4(("hot",)) if r.problem.startswith(("balanced_b1_keep128", "random_b1_keep64"))]
    write(tmp_path, "balanced_figure4", [r for r in some if r.kernel != "cublas"])
    page = page_of(tmp_path, "balanced_figure4")
    assert "No checked time of cuBLAS fp32 at batch 1; cuBLAS TF32 at batch 1; " in page
    assert "balanced at batch 1 (hot) is recorded for 62.5 %, 68.75 %, " in page
    assert "; balanced at batch 8 (hot) is recorded for any row." in page
    assert "80.2" in page


def test_a_run_without_any_time_is_a_page_too(tmp_path: Path) -> None:
    rows = [fake_records.failed(r, "unsupported", "no GPU") for r in figure4(("hot",))[:3]]
    write(tmp_path, "balanced_figure4", rows)
    assert "No row has a time" in page_of(tmp_path, "balanced_figure4")


def test_figure4_leaves_out_other_sizes_and_says_so(tmp_path: Path) -> None:
    rows = figure4(("hot",))
    other = dataclasses.replace(rows[0], problem="mine", m=100)
    write(tmp_path, "balanced_figure4", select([*rows, other]))
    assert "`mine` is recorded but not a point of the figure." in page_of(tmp_path, "balanced_figure4")


def figure1(policies=("hot",)) -> list[Record]:
    """Dense 100 us; ours takes 25 and the paper's mapping 40 at every sparsity, blocks 60, random zeros 120."""
    rows = []
    for policy in policies:
        for problem in tables.load("balanced_figure1"):
            times = {("cublas", "f32_rowmajor"): 100.0, ("cusparse", "spmv_csr_alg2"): 120.0}
            if problem.source.startswith("block"):
                times["cusparse", "spmv_csr_alg2"] = 60.0
            if problem.source.startswith("balanced"):
                times |= {("balanced", "bulk2_w16x1"): 25.0, ("balanced", "paper"): 40.0}
            rows += rows_of(problem, policy, times)
    return select(rows)


def test_figure1_sets_published_perplexities_against_times(tmp_path: Path) -> None:
    folder = write(tmp_path, "balanced_figure1", figure1(("hot", "cold")))
    page = page_of(tmp_path, "balanced_figure1")
    assert "takes 40.0 µs at a perplexity of 79.2, 8×8 blocks in cuSPARSE 60.0 µs at 95.2; the dense product" in page
    assert "| balanced, the paper's mapping | 40.0 | 78.4 | 40.0 | 78.6 | 40.0 | 79.2 |" in page
    assert "| random, cuSPARSE | 120.0 | – | 120.0 | – | 120.0 | – |" in page
    assert {"tradeoff.svg", "tradeoff_cold.svg", "summary.csv"} <= {p.name for p in folder.iterdir()}


def test_figure1_names_what_an_incomplete_run_lacks(tmp_path: Path) -> None:
    write(tmp_path, "balanced_figure1", [r for r in figure1() if not r.problem.startswith("block8")])
    assert "No checked time (hot) of 8×8 blocks, cuSPARSE at 60 %" in page_of(tmp_path, "balanced_figure1")


def models(policies=("hot",)) -> list[Record]:
    """Dense 100 us everywhere, cuSPARSE 200, blocks 50, ours 25, ours of the paper 40."""
    rows = []
    for policy in policies:
        for problem in tables.load("balanced_models"):
            times = {("cublas", "f32_rowmajor"): 100.0, ("cusparse", "csr_alg2_row"): 200.0}
            if problem.source.startswith("block"):
                times["cusparse", "bsr8_row"] = 50.0
            if problem.source.startswith("balanced"):
                times |= {("balanced", "wide_m64_n128_w8"): 25.0, ("balanced", "paper"): 40.0}
            rows += rows_of(problem, policy, times)
    return select(rows)


def test_model_tables_hold_the_papers_rows_beside_ours(tmp_path: Path) -> None:
    folder = write(tmp_path, "balanced_models", models(("hot", "cold")))
    page = page_of(tmp_path, "balanced_models")
    assert "| balanced | 80 % | 50.00 | 4.00 | 120.2 | 2.45 |" in page  # two products of 25 us
    assert "| cuSPARSE, random positions | 87.5 % | 400.00 | 0.50 | 190.5 | 0.62 |" in page
    assert "| cuSPARSE, 8×8 blocks | 40 % | 100.00 | 2.00 | 326.3 | 0.90 |" in page
    layer = next(line for line in page.splitlines() if line.startswith("| conv5_3 |"))
    assert "| 25.0 (95 %) | 4.00 | 211.0 | 1053.6 | 163.8 | 110.2 | 1.91 |" in layer
    total = next(line for line in page.splitlines() if line.startswith("| **total** |"))
    assert "| 1600.0 |" in total
    assert total.endswith("| 400.0 | 4.00 | 6814.1 | 33407.4 | 5886.1 | 5213.0 | 1.31 |")
    assert "`balanced` is 4.00× as fast as cuBLAS fp32 in geometric mean over 18 of 18 workloads" in page
    assert "No checked time of cuBLAS TF32 (hot, cold) is recorded for any row." in page
    vectors = "PTB LSTM, fc6, fc7, fc8, TIMIT LSTM: `sputnik` does not compute spmv."
    assert f"No checked time of sputnik, random positions (hot, cold) is recorded for {vectors}" in page
    assert {"speedup.svg", "speedup_cold.svg", "weight_maps.svg"} <= {p.name for p in folder.iterdir()}


def test_a_total_needs_every_layer_and_a_gap_is_named(tmp_path: Path) -> None:
    write(tmp_path, "balanced_models", [r for r in models() if not r.problem.startswith("vgg16_fc8")])
    page = page_of(tmp_path, "balanced_models")
    total = next(line for line in page.splitlines() if line.startswith("| **total** |"))
    assert total.startswith("| **total** |  | – |")
    assert "balanced (hot) is recorded for fc8." in page
    assert "**4.00** (15 of 16)" in page


@pytest.mark.figures(kind="svg")
def test_models_are_drawn_twice_with_the_same_bytes(tmp_path: Path) -> None:
    folder = write(tmp_path, "balanced_models", models())
    page_of(tmp_path, "balanced_models")
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    page_of(tmp_path, "balanced_models")
    assert first == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_weight_maps_show_what_each_pruner_keeps() -> None:
    random, balanced, block = balanced_weights.weight_maps()
    assert balanced.per_range.min() == balanced.per_range.max() == 3
    assert random.per_range.min() < 3 < random.per_range.max()
    assert set(block.per_block.ravel()) == {0, 64}
    assert all(abs(one.sparsity - 0.9) < 0.01 for one in (random, balanced, block))


def test_the_ideal_of_the_measured_overhead_has_that_of_its_policy(tmp_path: Path) -> None:
    rows = [row if row.policy == "hot" else dataclasses.replace(row, floor_us=4.0) for row in figure4()]
    drawn = balanced_figure4.points(load(write(tmp_path, "balanced_figure4", rows)))
    half = drawn[(drawn["batch"] == 1) & (drawn["sparsity"] == 0.5) & (drawn["series"] == "ideal_floor")]
    assert dict(zip(half["policy"], half["time_us"], strict=True)) == pytest.approx({"hot": 80.25, "cold": 82.0})


def test_a_layer_on_which_it_is_only_slightly_slower_is_named(tmp_path: Path) -> None:
    slow = [
        dataclasses.replace(row, median_us=110.0, q1_us=110.0, q3_us=110.0)
        if row.kernel == "balanced" and row.variant.startswith("wide") and "timit" in row.problem
        else row
        for row in models()
    ]
    write(tmp_path, "balanced_models", slow)
    assert "It is not faster on TIMIT LSTM." in page_of(tmp_path, "balanced_models")
