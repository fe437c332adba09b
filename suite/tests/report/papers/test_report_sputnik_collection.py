"""Sputnik's figures 2, 7, 9 and 10 from invented records with known answers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import fake_records
import pandas as pd
import pytest
from draft_figures import pages_alone
from matplotlib.figure import Figure
from sputnik_records import Timed, apart, records, report, sddmm, spmm

from nnzbench.papers.sputnik import speedups
from nnzbench.problems import tables
from nnzbench.problems.problem import Problem
from nnzbench.report.data import published
from nnzbench.facts.results import load
from nnzbench.site.build import build, find

# figure 7


def uneven(slope: float, at_equal: float = 100.0) -> Callable[[Problem], float | None]:
    """Microseconds that grow with the CoV in the problem's source."""
    return lambda problem: at_equal * (1 + slope * float(problem.source.split(":")[1]))


FIGURE7: tuple[Timed, ...] = (
    ("sputnik_ablation", "complete_y4_x64", uneven(0.0)),
    ("sputnik_ablation", "no_load_balancing_y4_x64", uneven(1.0)),
    ("sputnik_ablation", "no_vector_y1_x64", uneven(9.0, 1.0)),
    ("row_stream", "n128", uneven(0.5, 80.0)),
)


def test_figure7_is_relative_to_equal_rows(tmp_path: Path) -> None:
    page, drawn = report(tmp_path, records("sputnik_figure7", FIGURE7))
    found = drawn.set_index(["curve", "policy", "cov"])["percent"]
    assert found["standard", "hot", 1.0] == pytest.approx(50)
    assert found["row_swizzle", "hot", 1.7] == pytest.approx(100)
    assert found["row_stream", "hot", 1.0] == pytest.approx(100 / 1.5, rel=1e-5)
    assert set(drawn[drawn["policy"] == "published"]["percent"]) == {47.5, 96.5}
    assert "At a CoV of 1.7 the standard row order keeps 37.0 % of the throughput" in page
    assert "ring: no time (hot)." in page


def test_figure7s_title_is_what_both_orders_keep(tmp_path: Path, figures: dict[str, Figure]) -> None:
    fake_records.drawn(load(fake_records.write(tmp_path / "r", records("sputnik_figure7", FIGURE7))))
    title = "At a CoV of 1.7 the row swizzle keeps 100 % of the throughput, the standard row order 37 %"
    assert figures["imbalance"].texts[0].get_text() == title


def test_figure7_needs_rows_of_equal_length(tmp_path: Path, figures: dict[str, Figure]) -> None:
    rows = records("sputnik_figure7", FIGURE7)
    rows = [row for row in rows if row.source != "cov:0:0" or row.kernel != "row_stream"]
    page, _ = fake_records.drawn(load(fake_records.write(tmp_path / "r", rows)))
    assert "row_stream: no time (hot) with rows of equal length, so it is not drawn." in page.gaps
    (axis,) = figures["imbalance"].axes
    legend = [text.get_text() for text in figures["imbalance"].legends[0].get_texts()]
    assert "mean CoV of pruned networks' matrices: 0.35" in legend
    assert not any(text.startswith("row_stream") for text in legend)
    assert axis.get_ylim()[0] == 0
    apart(figures["imbalance"])


# figure 2


def test_figure2_needs_no_records(tmp_path: Path) -> None:
    (built,) = build(tmp_path, ["sputnik_figure2"])
    assert built.page == tmp_path / "sputnik_figure2" / "README.md"
    drawn = pd.read_csv(tmp_path / "sputnik_figure2" / "summary.csv")
    bins = drawn[drawn["row"] == "bin"]
    counts = bins.groupby(["property", "group"])["matrices"].sum()
    assert (counts["sparsity", "rn50"], counts["row_cov", "transformer"]) == (807, 2205)  # each matrix in one bin
    mean = drawn[(drawn["row"] == "mean") & (drawn["group"] == "all")].set_index("property")
    assert mean["paper_ratio_to_suitesparse"].to_dict() == {"sparsity": 13.4, "row_length": 2.3, "row_cov": 25}
    page = built.page.read_text(encoding="utf-8")
    answer = "**Answer.** In the mean: sparsity **73.7 %**, 13.4 times less sparse (share of nonzeros); "
    assert answer in page.partition("\n## ")[0]
    # 26.3 % nonzeros, 13.4 times fewer in SuiteSparse; rows of 197, 2.3 times shorter; CoV of 0.352, 25 times larger
    for cells in ("| 0.98 |", "| 85.5 |", "| 8.81 |"):
        assert cells in page
    assert find(tmp_path) == {}  # it is no run on a GPU


def test_figure2_is_laid_out(tmp_path: Path, figures: dict[str, Figure]) -> None:
    build(tmp_path, ["sputnik_figure2"])
    assert [axis.get_xscale() for axis in figures["properties"].axes] == ["linear", "log", "log"]
    apart(figures["properties"])


# figure 10


def scaled(us: Callable[[Problem], float], factor: float) -> Callable[[Problem], float]:
    return lambda problem: factor * us(problem)


def rnn_us(problem: Problem) -> float:
    return 1.0 + 1e-7 * problem.m * problem.k


RNN: tuple[Timed, ...] = (
    ("sputnik", "y2_x64", spmm(rnn_us)),
    ("sputnik", "heuristic_y4_x64", spmm(scaled(rnn_us, 2.0))),
    ("row_stream", "n128", spmm(lambda p: rnn_us(p) * (0.5 if p.sparsity == 0.9 else 1.5))),
    ("cusparse", "csr_default_row", spmm(scaled(rnn_us, 6.0))),
    ("cusparse", "csr_alg2_row", spmm(scaled(rnn_us, 4.0))),
    ("cublas", "f32_rowmajor", spmm(scaled(rnn_us, 1.0))),
    ("merge_spmm", "heuristic_row_split_n32", spmm(scaled(rnn_us, 3.0))),
    ("merge_spmm", "row_split", spmm(scaled(rnn_us, 2.5))),
    ("aspt", "tiles8", spmm(scaled(rnn_us, 3.2))),
    ("sputnik_sddmm", "heuristic_s32", sddmm(rnn_us)),
    (
        "cusparse",
        "sddmm_default_col",
        sddmm(lambda p: 8 * rnn_us(p) if p.label == "sddmm_rnn1k_b32" else 2 * rnn_us(p)),
    ),
)


def test_rnn_has_the_papers_means_beside_ours(tmp_path: Path, figures: dict[str, Figure]) -> None:
    folder = fake_records.write(tmp_path / "r", records("sputnik_rnn", RNN))
    page, drawn = fake_records.drawn(load(folder))
    forward, backward = (section.tables[0] for section in page.sections)
    best = (4 * 4 * 8) ** (1 / 3)  # twice as fast at 90 % of the three levels
    assert f"| best of this project's kernels | cuSPARSE, best | **{best:.2f}×** | 8.00× | 72 of 72 |" in forward
    assert "| sputnik, heuristic | cuSPARSE, default | **3.00×** | 3.00× | 72 of 72 |" in forward
    assert "| sputnik, best tile | cuBLAS fp32 | **1.00×** | 1.00× | 0 of 72 |" in forward
    assert "| sputnik, heuristic | MergeSpMM, its own rule | **1.50×** | 1.50× | 72 of 72 |" in forward
    assert "| sputnik, heuristic | ASpT | **1.60×** | 1.60× | 72 of 72 |" in forward
    assert "| the paper, V100 | cuSPARSE | 3.47× | 4.45× | – |" in forward
    of_eight = math.exp((3 * math.log(8) + 69 * math.log(2)) / 72)  # one size of 24, at three levels
    assert f"| sputnik_sddmm, heuristic | cuSPARSE, best | **{of_eight:.2f}×** | 8.00× |" in backward
    assert isinstance(drawn, pd.DataFrame)
    assert set(drawn["op"]) == {"spmm", "sddmm"}
    extra = [row for row in tables.rows("sputnik_rnn") if row.model == "extra"]
    assert len(extra) > 0
    assert "Further sizes, not the paper's, 95 % zeros" in "".join(page.sections[0].tables)
    for name in ("spmm", "sddmm"):
        assert len(figures[name].axes) == 3  # 70, 80, 90 %
        assert [text.get_text() for text in figures[name].axes[0].texts] == ["RNN", "GRU", "LSTM"]
        assert figures[name].axes[0].get_xticklabels()[0].get_text().startswith("1k:  1024×")
        apart(figures[name])


def test_rnn_sets_fp16_kernels_against_dense_fp16(tmp_path: Path) -> None:
    half: tuple[Timed, ...] = (
        ("tensor_spmm", "n32", spmm(scaled(rnn_us, 0.5))),
        ("ring", "n32", spmm(lambda p: rnn_us(p) * (0.4 if p.n == 128 else 2.0))),
        ("cublas", "f16_rowmajor", spmm(rnn_us)),
        ("cublaslt", "f16_colmajor_algo00", spmm(scaled(rnn_us, 0.8))),
    )

    def here(p: Problem) -> bool:
        return p.op == "spmm" and p.label.startswith("gru1k")

    rows = records("sputnik_rnn", RNN, keep=here) + records("sputnik_rnn", half, dtype="f16", keep=here)
    page, _ = report(tmp_path, rows)
    assert "| 90 % | **1.79×** | 2 of 2 | ring 1, tensor_spmm 1 |" in page  # sqrt(0.8 / 0.5 * 0.8 / 0.4)


def test_rnn_without_sddmm_says_so(tmp_path: Path, figures: dict[str, Figure]) -> None:
    rows = records("sputnik_rnn", RNN, keep=lambda p: p.op == "spmm" and p.label == "gru2k_b32")
    page, _ = fake_records.drawn(load(fake_records.write(tmp_path / "r", rows)))
    assert page.gaps == ("SDDMM, fp32: no time is recorded, so nothing of it is drawn.",)
    assert list(figures) == ["spmm"]


def test_a_policy_without_any_ratio_gets_no_figure_and_no_earlier_one_stays(tmp_path: Path) -> None:
    def here(p: Problem) -> bool:
        return p.op == "sddmm" and p.label == "sddmm_gru2k_b32"

    rows = records("sputnik_rnn", RNN, keep=here)
    rows += [dataclasses.replace(row, policy="cold") for row in rows if row.kernel == "sputnik_sddmm"]
    folder = fake_records.write(tmp_path / "r", rows)
    stale = [folder / f"sddmm_cold{ending}" for ending in (".png", ".svg")]
    for path in stale:
        path.write_bytes(b"")
    page, _ = fake_records.drawn(load(folder))
    assert [section.figure for section in page.sections] == ["sddmm", ""]
    assert not any(path.exists() for path in stale)
    assert (folder / "sddmm.png").is_file()


# figure 9 and table I

DLMC: tuple[Timed, ...] = (
    ("sputnik", "y2_x64", spmm(lambda p: 10.0)),
    ("sputnik", "heuristic_y4_x64", spmm(lambda p: 20.0)),
    ("row_stream", "n128", spmm(lambda p: 5.0 if "_b256" in p.label else 40.0)),
    ("cusparse", "csr_alg2_row", spmm(lambda p: 40.0 if p.dtype == "f32" else 80.0)),
    ("cublas", "rowmajor", spmm(lambda p: 20.0)),
    ("sputnik_sddmm", "s16", sddmm(lambda p: 10.0)),
    ("cusparse", "sddmm_default_col", sddmm(lambda p: 5.0)),
)


def few(problem: Problem) -> bool:
    """Two matrices of each model."""
    sample = tables.dlmc_sample()
    paths = [e.path for model in ("rn50", "transformer") for e in [e for e in sample if e.model == model][:2]]
    return problem.source.partition(":")[2] in paths


def test_dlmc_has_table_1_in_all_and_by_class(tmp_path: Path) -> None:
    page, drawn = report(tmp_path, records("sputnik_dlmc", DLMC, keep=few))
    whole = drawn[drawn["row"] == "all"].set_index(["kind", "series", "rival"])
    # of 8 problems the two of ResNet-50 at batch 256 are 8 times as fast, the others 4 times
    mean = math.exp((2 * math.log(8) + 6 * math.log(4)) / 8)
    assert whole["geometric_mean"]["spmm_f32", "best", "cusparse-f32"] == pytest.approx(mean, rel=1e-5)
    assert whole["geometric_mean"]["spmm_f32", "sputnik-f32-default", "cusparse-f32"] == pytest.approx(2)
    assert whole["geometric_mean"]["spmm_f16", "sputnik-f16", "cublas-f16"] == pytest.approx(2)
    assert whole["won"]["sddmm_f32", "best", "cusparse-f32"] == 0
    classes = drawn[(drawn["row"] == "class") & (drawn["rival"] == "cusparse-f32") & (drawn["kind"] == "spmm_f32")]
    large = classes[(classes["model"] == "rn50") & (classes["batch"] == 256)]
    assert (large["geometric_mean"] == 8).all()
    assert large["count"].sum() == 2
    most = max(row.flops for row in load(tmp_path / "nvidia-h200" / "sputnik_dlmc").frame.itertuples()) / 5e6
    assert classes["peak_tflops"].max() <= most + 1e-6
    assert "Matrices recorded: 4 of the paper's 3,012, a part of the sample of 60" in page
    assert "4 of them are calibrated stand-ins" in page
    assert "| geometric mean | **4.76×** | **4.00×** | 3.58× |" in page
    assert "| problems won | 100.0 % of 8 | 100.0 % of 8 | 99.75 % | 0.0 % of 8 |" in page


def test_dlmc_is_laid_out_and_names_what_it_lacks(tmp_path: Path, figures: dict[str, Figure]) -> None:
    rows = records("sputnik_dlmc", DLMC, keep=lambda p: few(p) and p.dtype == "f32")
    rows = [row for row in rows if row.op == "spmm" or row.kernel != "cusparse"]
    page, _ = fake_records.drawn(load(fake_records.write(tmp_path / "r", rows)))
    assert "SpMM, fp16 data and fp32 sums: not recorded." in page.gaps
    assert "SDDMM, fp32 (hot): no time of cuSPARSE, best on 8 of 8 problems." in page.gaps
    axes = figures["collection"].axes
    assert [axis.get_ylabel() for axis in axes[:2]] == ["runtime (µs)", "throughput (GFLOP/s)"]
    assert [len(axis.lines) for axis in axes] == [4, 4, 2, 2, 0, 0]
    apart(figures["collection"])


@pytest.mark.figures(kind="svg")
@pytest.mark.parametrize("experiment", ["sputnik_figure2", "sputnik_figure7"])
def test_drawing_twice_gives_the_same_bytes(experiment: str, tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        reports = tmp_path / name
        if experiment == "sputnik_figure7":
            fake_records.write(reports / "nvidia-h200" / experiment, records(experiment, FIGURE7))
        with pages_alone():
            (built,) = build(reports, [experiment])
        assert built.page is not None
        found.append({path.name: path.read_bytes() for path in sorted(built.page.parent.iterdir())})
    assert found[0] == found[1]
    assert {"README.md", "summary.csv"} <= set(found[0])


def test_the_papers_numbers_are_of_the_arithmetic_of_the_kind() -> None:
    table = published.read("sputnik_table1_dataset", ("kernel", "precision", "geomean_speedup"))
    for kind in speedups.KINDS:
        wanted = table[(table["kernel"] == kind.op) & (table["precision"] == kind.math)]["geomean_speedup"]
        found = speedups.published_rows(kind, "sputnik_table1_dataset")["geomean_speedup"]
        assert found.tolist() == wanted.tolist()
        assert len(found) == 1
