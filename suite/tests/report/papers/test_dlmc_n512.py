"""Means and gains of `dlmc_n512` on invented records with known answers, beside the published ones."""

from __future__ import annotations

import csv
from pathlib import Path

import fake_records
import pandas as pd
import pytest

from nnzbench.core import paths
from nnzbench.data.problems import tables
from nnzbench.papers.nnzbench import dlmc_n512
from nnzbench.report import render
from nnzbench.report.page import View
from nnzbench.results.records.record import read_records
from nnzbench.results.result_set import load
from nnzbench.site.generations.models import pruned_model

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
    return fake_records.write(tmp_path_factory.mktemp("r") / "nvidia-h200" / "dlmc_n512", rows)


def test_the_table_has_the_published_matrices_and_a_sample_of_every_stratum() -> None:
    whole, sample = (tables.rows("dlmc_n512", full) for full in (True, False))
    assert len(whole) == dlmc_n512.ALL
    assert {row.n for row in whole} == {512}
    strata = [dlmc_n512.stratum(row.name) for row in sample]
    assert {strata.count(one) for one in strata} == {3}
    assert set(strata) == {dlmc_n512.stratum(row.name) for row in whole}
    with (paths.datasets() / "published" / "dlmc_n512_four_gpus.csv").open() as file:
        published = list(csv.DictReader(file))
    for scope, rows in (("all", whole), ("sample", sample)):
        counted = [int(row["count"]) for row in published if (row["matrices"], row["library"]) == (scope, "cublas")]
        assert sum(counted) == 4 * len(rows)


def test_means_and_gains_are_those_of_the_rows(folder: Path) -> None:
    means = dlmc_n512.by_gpu(load(folder))
    mine = means[(means["kind"] == "measured") & (means["policy"] == "hot")]
    found = mine.groupby("library")["geomean_us"].agg(["min", "max"])
    for library, us in (("sputnik", 16), ("ours", 4), ("cusparse", 40), ("cublas", 8)):
        assert found.loc[library].tolist() == pytest.approx([us, us])
    assert set(means.loc[means["kind"] == "published", "count"]) == {3}  # the sample's, as recorded
    gains = dlmc_n512.gains([load(folder)]).set_index(["gpu", "policy", "level", "library"])["gain"]
    assert gains["NVIDIA H200", "cold", 0.9, "ours"] == pytest.approx(2)
    assert gains["NVIDIA H200", "hot", 0.9, "sputnik"] == pytest.approx(0.5)
    assert 0.1 < gains["A100", "", 0.5, "sputnik"] < 0.3
    assert gains["V100", "", 0.98, "sputnik"] > 1


def test_a_level_is_named_and_counted(folder: Path, tmp_path: Path) -> None:
    results = load(fake_records.write(tmp_path, read_records(folder / "records.csv")))
    render.write(dlmc_n512.dlmc_n512(), results)
    facts = pd.read_csv(tmp_path / "facts.csv").query("policy == 'hot'")
    over = facts[facts["baseline"] == "best dense fp16"].set_index(["group", "subject"])
    sparsest = dlmc_n512.groups()[0].label
    assert over.loc[(sparsest, "sputnik fp16"), ["n", "wins", "ratio"]].tolist() == pytest.approx([12, 0, 8 / 12], 1e-5)
    assert over.loc[(sparsest, "best of ours fp16"), ["n", "wins", "ratio"]].tolist() == [12, 12, 2]
    bands = {group.label: over.loc[(group.label, "sputnik fp16"), "n"] for group in dlmc_n512.COUNTED}
    named = dlmc_n512.zeros(View(results, dlmc_n512.ATTRIBUTES)).set_index("named")
    assert named.loc["98 %", "least zeros (%)"] == pytest.approx(93.94, abs=0.01)
    assert sum(bands.values()) == named["matrices"].sum()
    gains = dlmc_n512._gains(View(results, dlmc_n512.ATTRIBUTES))
    assert all(str(one["faster than dense"]).endswith("of 84") for one in gains)


def test_without_records_the_published_means_of_all_matrices_stand_alone() -> None:
    found = dlmc_n512.gains([])
    assert set(found["library"]) == {"sputnik", "cusparse"}
    assert found[(found["gpu"] == "A100") & (found["library"] == "sputnik")]["count"].sum() == dlmc_n512.ALL


def test_the_generations_page_answers_what_pruning_gains(folder: Path) -> None:
    alone, beside = pruned_model([]), pruned_model([load(folder)])
    assert "**V100** from 98 % zeros (1.26×)" in alone.words
    assert "**A100** never (0.87× at 98 % zeros)" in alone.words
    assert "**NVIDIA H200** never (0.50× at 98 % zeros)." in beside.words
    assert beside.words.endswith("**NVIDIA H200** from 50 % zeros (2.00×).")
    lines = [
        beside.section.index(f"| NVIDIA H200{kernel} | measured, {policy} | {gain} |")
        for kernel, gain in (("", "0.50"), (f": {dlmc_n512.SIDES['ours'].label}", "2.00"))
        for policy in ("hot", "cold")
    ]
    assert lines == sorted(lines)


def test_what_the_run_did_not_tune_is_marked_where_it_counts(folder: Path) -> None:
    """The rule's own choice stays as it is however long a run tunes; the fastest of all kernels does not."""
    fake_records.tuned(folder, lambda row: ["first"] if row.kernel in ("row_stream", "sputnik") else ["all"])
    words = pruned_model([load(folder)]).words
    assert "**NVIDIA H200** never (" in words
    assert "**NVIDIA H200**, before tuning, from 50 % zeros (2.00×)" in words
    fake_records.tuned(folder, lambda row: ["first"] if row.kernel == "cublaslt" else ["all"])
    assert "**NVIDIA H200**, before tuning, never (" in pruned_model([load(folder)]).words


def test_a_matrix_without_a_dense_time_is_in_no_mean(folder: Path, tmp_path: Path) -> None:
    every = read_records(folder / "records.csv")
    gone = min(row.problem for row in every)
    rows = [row for row in every if row.problem != gone or not row.kernel.startswith("cublas")]
    means = dlmc_n512.by_gpu(load(fake_records.write(tmp_path / "nvidia-h200" / "dlmc_n512", rows)))
    hot = means[(means["policy"] == "hot")].groupby("library")["count"].sum()
    assert set(hot) == {len({row.problem for row in rows}) - 1}
