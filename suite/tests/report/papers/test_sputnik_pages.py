"""Facts and tables of Sputnik's pages on invented records with known answers."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from sputnik_records import Timed, records, sddmm, spmm, view_of

from nnzbench.data.problems import tables
from nnzbench.data.problems.problem import Problem
from nnzbench.papers.catalogue import page_of
from nnzbench.papers.sputnik import ablations, products
from nnzbench.report import render
from nnzbench.results.result_set import nothing


def test_figure1_finds_where_the_curves_cross_and_sets_fp16_against_fp16_alone(tmp_path: Path) -> None:
    timed: tuple[Timed, ...] = (
        ("sputnik", "y2_x64", lambda p: 400 * (1 - p.sparsity)),
        ("sputnik", "heuristic_y4_x64", lambda p: 800 * (1 - p.sparsity)),
        ("cusparse", "default_row", lambda p: 5000 * (1 - p.sparsity)),
        ("cublas", "f32_default_nn", lambda _: 100.0),
        ("cublas", "tf32_default_nn", lambda _: 10.0),
    )
    half: tuple[Timed, ...] = (
        ("tensor_spmm", "n128", lambda p: 50 * (1 - p.sparsity)),
        ("cublas", "f16_rowmajor", lambda _: 5.0),
    )
    rows = records("sputnik_figure1", timed) + records("sputnik_figure1", half, dtype="f16")
    found = pd.DataFrame(products._crossings(view_of(tmp_path, "sputnik_figure1", rows)))
    cells = found.set_index("faster from")
    fp32, tf32, fp16 = (f"over {name}" for name in ("cuBLAS fp32", "best dense TF32", "best dense fp16"))
    assert list(cells[fp32][["sputnik", "sputnik, its heuristic", "best cuSPARSE fp32"]]) == [
        "75.0 %",
        "87.5 %",
        "98.0 %",
    ]
    assert list(cells[tf32][["sputnik", "best cuSPARSE fp32", "tensor_spmm fp16"]]) == ["97.5 %", "above 98 %", "–"]
    assert cells[fp16]["tensor_spmm fp16"] == "90.0 %"


def test_figure7_is_relative_to_equal_rows(tmp_path: Path) -> None:
    def uneven(slope: float, even: bool = True) -> object:
        def us(problem: Problem) -> float | None:
            cov = float(problem.source.split(":")[1])
            return 100 * (1 + slope * cov) if cov or even else None

        return us

    timed: tuple[Timed, ...] = (
        ("sputnik_ablation", "complete_y4_x64", uneven(0.0)),
        ("sputnik_ablation", "no_load_balancing_y4_x64", uneven(1.0)),
        ("row_stream", "n128", uneven(0.5)),
        ("ring", "n128", uneven(0.5, even=False)),
    )
    view = view_of(tmp_path, "sputnik_figure7", timed)
    kept = ablations._kept(view)
    assert kept is not None
    kept = kept.set_index("CoV")
    assert kept["sputnik, standard row order, hot"]["1"] == pytest.approx(0.5)
    assert kept["sputnik, row swizzle, hot"]["1.7"] == pytest.approx(1)
    assert kept["row_stream, hot"]["1"] == pytest.approx(1 / 1.5)
    assert "ring, hot" not in kept  # no rows of equal length to compare with
    assert kept["sputnik, standard row order, hot"].iloc[-1] == 0.475


def test_the_ablation_counts_a_layer_as_often_as_the_collection_has_it(tmp_path: Path) -> None:
    timed: tuple[Timed, ...] = (
        ("sputnik_ablation", "complete_y4_x64", spmm(lambda _: 8.0)),
        ("sputnik_ablation", "no_load_balancing_y4_x64", spmm(lambda _: 10.0)),
        ("sputnik_ablation", "no_vector_y1_x64_w32_v1", spmm(lambda p: 16.0 if "tf_attn" in p.label else 8.0)),
        ("sputnik_sddmm_ablation", "complete_s32", sddmm(lambda _: 5.0)),
        ("sputnik_sddmm_ablation", "no_load_balancing_s32", sddmm(lambda _: 4.0)),
    )
    found = pd.DataFrame(ablations._beside(view_of(tmp_path, "sputnik_ablation", timed)))
    rows = found.set_index(["", "layers"])
    large, small = "layers of ResNet-50 at batch 256 (152)", "layers of the Transformer at batch 1 (28)"
    assert tuple(rows.loc[("SpMM without load balancing", large)]) == ("80.0", "78.5")
    # 1,640 of the collection's attention matrices at half the speed, 565 others at all of it
    expected = (1640 * 50 + 565 * 100) / 2205
    assert float(rows["here"]["SpMM without vector instructions", small]) == pytest.approx(expected, abs=0.05)
    assert rows["here"]["SDDMM without load balancing", large] == "125.0"
    assert "SDDMM without vector instructions" not in found[""].tolist()  # not recorded


def test_a_part_that_does_more_here_is_also_left_out_of_the_papers_form_of_it(tmp_path: Path) -> None:
    timed: tuple[Timed, ...] = (
        ("sputnik_ablation", "complete_y4_x64", spmm(lambda _: 5.0)),
        ("sputnik_ablation", "paper_residue_y4_x64", spmm(lambda _: 9.0)),
        ("sputnik_ablation", "no_residue_unroll_y4_x64", spmm(lambda _: 10.0)),
        ("sputnik_sddmm_ablation", "complete_s32", sddmm(lambda _: 5.0)),
        ("sputnik_sddmm_ablation", "no_load_balancing_s32", sddmm(lambda _: 4.0)),
    )
    view = view_of(tmp_path, "sputnik_ablation", timed)
    found = pd.DataFrame(ablations._beside(view))
    hot = found[found["layers"].str.endswith("batch 8 (28)")].set_index("")["here"].to_dict()
    whole, alike = (
        "SpMM without residue unrolling",
        "SpMM without residue unrolling, over the kernel with residues in fours",
    )
    assert hot == {whole: "50.0", alike: "90.0", "SDDMM without load balancing": "125.0"}
    assert ablations._of_how_many(view) == ""


def test_a_verdict_has_the_papers_number_of_its_own_part(tmp_path: Path) -> None:
    parts = ("complete_y4_x64", "no_load_balancing_y4_x64", "no_prescale_y4_x64")
    timed: tuple[Timed, ...] = tuple(("sputnik_ablation", part, spmm(lambda _: 5.0)) for part in parts)
    told = " ".join(render.answers(ablations.sputnik_ablation(), view_of(tmp_path, "sputnik_ablation", timed)))
    assert "SpMM without load balancing is **1.00×** as fast as the complete kernel; the paper: 78.5 % on V100." in told


def test_the_ablation_tells_on_how_many_problems_parts_are_left_out(tmp_path: Path) -> None:
    timed: tuple[Timed, ...] = (
        ("sputnik_ablation", "complete_y4_x64", spmm(lambda _: 5.0)),
        ("sputnik_ablation", "no_prescale_y4_x64", lambda p: 10.0 if p.op == "spmm" and "_b8" in p.label else None),
    )
    view = view_of(tmp_path, "sputnik_ablation", timed)
    said = "Parts are left out on 28 of 360 problems of SpMM: every mean is of such problems alone."
    assert ablations._of_how_many(view) == said


def test_levels_of_the_collection_stand_apart_and_table_1_pools_them(tmp_path: Path) -> None:
    timed: tuple[Timed, ...] = (
        ("sputnik", "heuristic_y4_x64", spmm(lambda p: 20.0 if p.sparsity < 0.94 else 5.0)),
        ("cusparse", "csr_alg2_row", spmm(lambda _: 40.0)),
        ("cublas", "rowmajor", spmm(lambda _: 10.0)),
    )
    page = products.sputnik_dlmc()
    sample = {entry.path for entry in tables.dlmc_sample()}
    rows = records("sputnik_dlmc", timed, keep=lambda p: p.dtype == "f32" and p.source.partition(":")[2] in sample)
    view = view_of(tmp_path, "sputnik_dlmc", rows)
    assert page.comparison is not None
    facts = view.compare(page.comparison)
    dense = facts[(facts["baseline"] == "best dense fp32") & (facts["subject"] == "sputnik, its heuristic")]
    assert list(dense["ratio"]) == pytest.approx([0.5, 0.5, 0.5, 0.5, 2.0])
    assert dense["n"].sum() == 120
    found = pd.DataFrame(products._table1(view))
    sparser = int(dense["n"].iloc[-1])
    mean = math.exp(((120 - sparser) * math.log(2) + sparser * math.log(8)) / 120)
    first, *_, paper = found.to_numpy().tolist()
    assert first[1:4] == [pytest.approx(mean), pytest.approx(8.0), "100.0 % of 120"]
    assert paper[1:] == [3.58, 14.2, "99.75 %", 4.29]


def test_sizes_that_are_not_the_papers_stand_apart(tmp_path: Path) -> None:
    timed: tuple[Timed, ...] = (
        ("sputnik", "heuristic_y4_x64", spmm(lambda p: 5.0 if p.label == "extra" else 10.0)),
        ("cusparse", "csr_alg2_row", spmm(lambda _: 20.0)),
    )
    page = products.sputnik_rnn()
    view = view_of(tmp_path, "sputnik_rnn", timed)
    assert page.comparison is not None
    facts = view.compare(page.comparison)
    assert set(facts["ratio"]) == {2.0}
    assert set(facts["n"]) == {24}
    (extra,) = (one for one in page.facts if one.groups == products.EXTRA)
    assert set(view.compare(extra)["ratio"]) == {4.0}


def test_figure2_is_drawn_from_the_index_alone(tmp_path: Path) -> None:
    folder = tmp_path / "sputnik_figure2"
    folder.mkdir()
    page = render.write(page_of("sputnik_figure2"), nothing(folder)).read_text(encoding="utf-8")
    # 26.3 % nonzeros, 13.4 times fewer in SuiteSparse; rows of 197, 2.3 times shorter; CoV of 0.352, 25 times larger
    for cell in ("| 0.737 |", "| 0.98 |", "| 85.5 |", "| 8.81 |"):
        assert cell in page
    assert not (folder / "facts.csv").exists()
    found = ablations.matrices()
    assert found.groupby("model").size().to_dict() == {"rn50": 807, "transformer": 2205}
    entry = next(one for one in tables.dlmc_selection() if one.path.endswith("0.8/bottleneck_1_block_group1_1_1.smtx"))
    (mine,) = found[found["row_cov"] == entry.row_cov].to_dict("records")
    assert (mine["sparsity"], mine["row_length"]) == pytest.approx((1 - 3279 / (64 * 256), 3279 / 64))
