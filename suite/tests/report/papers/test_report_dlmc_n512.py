"""The page of `dlmc_n512` from invented records with known answers, beside the published means."""

from __future__ import annotations

import csv
from pathlib import Path

import fake_records
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from nnzbench import paths
from nnzbench.facts.results import load
from nnzbench.papers.nnzbench import dlmc_n512
from nnzbench.problems import tables
from nnzbench.records.record import read_records
from nnzbench.records.selection import select
from nnzbench.site.generations import pruned_model

TIMES = {
    ("cublas", "f16_default_nn"): 10.0,
    ("cublaslt", "f16_algo3_nn"): 8.0,
    ("sputnik", "heuristic_y4_x64"): 16.0,
    ("sputnik", "y8_x64"): 12.0,
    ("cusparse", "csr_default_row"): 40.0,
    ("row_stream", "n128"): 4.0,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = []
    for problem in tables.load("dlmc_n512", real=True):
        for (kernel, variant), us in TIMES.items():
            for policy in ("hot", "cold"):
                time = us if policy == "hot" else 2 * us
                rows.append(
                    fake_records.record(
                        experiment="dlmc_n512", problem=problem.name, m=problem.m, k=problem.k, n=512, dtype="f16",
                        sparsity=problem.sparsity, source=problem.source, kernel=kernel, variant=variant, policy=policy,
                        median_us=time, q1_us=time, q3_us=time, limit_us=time / 2,
                        nnz=round((1 - problem.sparsity) * problem.m * problem.k),
                    )
                )  # fmt: skip
    return fake_records.write(tmp_path_factory.mktemp("r") / "nvidia-h200" / "dlmc_n512", select(rows))


def test_the_table_has_the_published_matrices_and_a_sample_of_every_stratum() -> None:
    whole, sample = (tables.rows("dlmc_n512", full) for full in (True, False))
    assert len(whole) == dlmc_n512.ALL
    assert {row.problem.n for row in whole} == {512}
    strata = [dlmc_n512.stratum(row.problem.name) for row in sample]
    assert {strata.count(one) for one in strata} == {3}
    assert set(strata) == {dlmc_n512.stratum(row.problem.name) for row in whole}
    with (paths.datasets() / "published" / "dlmc_n512_four_gpus.csv").open() as file:
        published = list(csv.DictReader(file))
    for scope, rows in (("all", whole), ("sample", sample)):
        counted = [int(row["count"]) for row in published if (row["matrices"], row["library"]) == (scope, "cublas")]
        assert sum(counted) == 4 * len(rows)


def test_means_and_gains_are_those_of_the_rows(folder: Path) -> None:
    means = dlmc_n512.by_gpu(load(folder))
    mine = means[(means["kind"] == "measured") & (means["policy"] == "hot")]
    found = mine.groupby("library")["geomean_us"].agg(["min", "max"])
    for library, us in (("sputnik", 16), ("sputnik_best", 12), ("ours", 4), ("cusparse", 40), ("cublas", 8)):
        assert found.loc[library].tolist() == pytest.approx([us, us])
    assert set(means.loc[means["kind"] == "published", "count"]) == {3}  # the sample's, as recorded
    gains = dlmc_n512.gains(means).set_index(["gpu", "policy", "level", "library"])["gain"]
    assert gains["NVIDIA H200", "cold", 0.9, "ours"] == pytest.approx(2)
    assert gains["NVIDIA H200", "hot", 0.9, "sputnik"] == pytest.approx(0.5)
    assert 0.1 < gains["A100", "", 0.5, "sputnik"] < 0.3
    assert gains["V100", "", 0.98, "sputnik"] > 1


def test_the_page_sets_all_gpus_side_by_side_with_the_caveats(folder: Path) -> None:
    page, drawn = fake_records.drawn(load(folder))
    assert [section.figure for section in page.sections] == ["gain", "gain_cold"]
    assert "84 pruned matrices" in page.intro
    assert "sums in fp16" in page.intro
    assert "xuezy-mmi/SSpMM" in page.intro
    text = page.sections[0].text
    for gpu in ("V100", "RTX 2080 Ti", "A100", "RTX 4090"):
        assert gpu in text
    assert "NVIDIA H200 0.50× (best of this project's kernels 2.00×)" in text
    assert page.title == "The pruned matrices that others timed on four GPUs, on NVIDIA H200"
    assert page.gaps == ()
    assert set(drawn["kind"]) == {"measured", "published"}


def test_without_records_the_published_means_of_all_matrices_stand_alone() -> None:
    means = dlmc_n512.by_gpu(None)
    assert means[(means["gpu"] == "A100") & (means["library"] == "cublas")]["count"].sum() == dlmc_n512.ALL
    assert set(dlmc_n512.gains(means)["library"]) == {"sputnik", "cusparse"}


def test_the_generations_page_answers_what_pruning_gains(folder: Path) -> None:
    alone, beside = pruned_model.answer([]), pruned_model.answer([load(folder)])
    assert "**V100**: 1.26× at 98 % zeros, less than 1 below" in alone.words
    assert "**A100**: nothing up to 98 % zeros (0.87× there)" in alone.words
    assert "No GPU of this suite's own records" in alone.section
    like, own = beside.words.split(" With the best of this project's kernels, which the others did not run: ")
    assert like.endswith("**NVIDIA H200**: nothing up to 98 % zeros (0.50× there).")
    assert own == "**NVIDIA H200**: 2.00× at 50 % zeros."
    assert "this project's kernels" not in alone.words
    lines = [
        beside.section.index(f"| NVIDIA H200{kernel} | measured, {policy} | {gain} |")
        for kernel, gain in (("", "0.50"), (": best of this project's kernels", "2.00"))
        for policy in ("hot", "cold")
    ]
    assert lines == sorted(lines)
    for text in (alone, beside):
        assert "sums in fp16" in text.section


def test_what_the_run_did_not_tune_is_marked_where_it_counts(folder: Path) -> None:
    """The rule's own choice stays as it is however long a run tunes; the fastest of all kernels does not."""
    fake_records.tuned(folder, lambda row: ["first"] if row.kernel in ("row_stream", "sputnik") else ["all"])
    words = pruned_model.answer([load(folder)]).words
    assert "**NVIDIA H200**: nothing up to 98 % zeros" in words
    assert "**NVIDIA H200**, before tuning: 2.00× at 50 % zeros" in words
    fake_records.tuned(folder, lambda row: ["first"] if row.kernel == "cublaslt" else ["all"])
    assert "**NVIDIA H200**, before tuning: nothing up to 98 % zeros" in pruned_model.answer([load(folder)]).words


def test_a_colour_of_the_figure_means_one_gpu_or_one_kernel(folder: Path, figures: dict[str, Figure]) -> None:
    fake_records.drawn(load(folder))
    for figure in figures.values():
        meant: dict[str, set[str]] = {}
        for line in figure.axes[0].get_lines():
            gpu, _, kernel = str(line.get_label()).partition(": ")
            if kernel:
                one = gpu if line.get_linestyle() == "--" else kernel.partition(",")[0]
                meant.setdefault(to_hex(line.get_color()), set()).add(one)
        assert len(meant) == 7
        assert all(len(names) == 1 for names in meant.values()), meant


def test_a_matrix_without_a_dense_time_is_in_no_mean_and_sparse_wins_are_counted(folder: Path, tmp_path: Path) -> None:
    every = read_records(folder / "records.csv")
    gone = min(row.problem for row in every)
    rows = [row for row in every if row.problem != gone or not row.kernel.startswith("cublas")]
    means = dlmc_n512.measured(load(fake_records.write(tmp_path / "nvidia-h200" / "dlmc_n512", rows)))
    hot = means[means["policy"] == "hot"].groupby("library")[["count", "faster_than_cublas"]].sum()
    assert set(hot["count"]) == {len({row.problem for row in rows}) - 1}
    assert hot["faster_than_cublas"]["ours"] == hot["count"]["ours"]
    assert hot["faster_than_cublas"]["sputnik"] == 0
