"""What a claim is judged by: the number that its rule makes of records with known answers, and which records count."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from fake_claim_records import GPU, names, row, table1
from fake_records import failed, record, write

from nnzbench.problem_names import stem_of
from nnzbench.record import Record
from nnzbench.report.claims import CONTRADICTED, NOT_MEASURABLE, REPRODUCED, STRONGER, WEAKER, Verdict, judge
from nnzbench.selection import select
from nnzbench.tables import load


def judged(tmp_path: Path, *sets: list[Record]) -> dict[str, Verdict]:
    for rows in sets:
        write(tmp_path / GPU / rows[0].experiment, select(rows))
    return {one.id: one for one in judge(tmp_path, GPU)}


def test_a_geometric_mean_is_judged_against_each_arithmetic_of_the_dense_product(tmp_path):
    one = judged(tmp_path, table1(5.0))["sparsert-spmm-95"]
    assert one.measured == pytest.approx(5.0)  # cuBLASLt's 10 us, not cuBLAS's 12
    assert (one.measured_tf32, one.measured_fp16) == (pytest.approx(2.0), pytest.approx(1.0))
    assert one.measured_cold == pytest.approx(2.5)
    assert (one.verdict, one.verdict_tf32, one.verdict_fp16) == (REPRODUCED, WEAKER, CONTRADICTED)
    assert one.problems == "11 of 11"
    assert "With cold caches: weaker." in one.note
    assert "11 of 11 problems are on generated stand-ins" not in one.note  # their source is real


def test_the_papers_own_kernel_judges_where_it_was_recorded_and_ours_stands_beside(tmp_path):
    paper = [
        dataclasses.replace(r, kernel="sparsert_paper", median_us=4.0) for r in table1(5.0) if r.kernel == "sparsert"
    ]
    one = judged(tmp_path, [*table1(5.0), *paper])["sparsert-spmm-95"]
    assert one.measured == pytest.approx(2.5)
    assert one.kernel.startswith("`sparsert_paper`")
    assert "`sparsert` against the best algorithm of cuBLAS and cuBLASLt: 5.00×, TF32 2.00×, fp16 1.00×" in one.note


def test_slower_than_dense_contradicts(tmp_path):
    assert judged(tmp_path, table1(0.8))["sparsert-spmm-95"].verdict == CONTRADICTED


def test_missing_problems_are_counted_and_too_few_are_not_judged(tmp_path):
    some = judged(tmp_path / "a", table1(5.0, keep=4))["sparsert-spmm-95"]
    assert (some.problems, some.verdict) == ("4 of 11", REPRODUCED)
    few = judged(tmp_path / "b", table1(5.0, keep=3))["sparsert-spmm-95"]
    assert (few.problems, few.verdict, few.measured) == ("3 of 11", NOT_MEASURABLE, pytest.approx(5.0))
    assert "too few" in few.note


def test_rows_without_a_checked_time_do_not_count(tmp_path):
    rows = [failed(r, "wrong", "far") if r.kernel == "sparsert" and i % 2 else r for i, r in enumerate(table1(5.0))]
    gone = [failed(r, "wrong", "far") if r.kernel == "sparsert" else r for r in table1(5.0)]
    assert judged(tmp_path / "a", rows)["sparsert-spmm-95"].problems == "11 of 11"
    one = judged(tmp_path / "b", gone)["sparsert-spmm-95"]
    assert math.isnan(one.measured)
    assert (one.verdict, one.problems) == (NOT_MEASURABLE, "0 of 11")
    assert "No problem of sparsert_table1 has a checked hot time" in one.note


def test_nothing_recorded_says_so(tmp_path):
    found = {one.id: one for one in judge(tmp_path, GPU)}
    assert {one.verdict for one in found.values()} == {NOT_MEASURABLE}
    assert "sputnik_rnn is not recorded on this GPU yet." in found["sputnik-rnn-cusparse"].note
    assert "not part of this suite" in found["sputnik-rnn-aspt"].note


def test_records_that_break_the_schema_judge_nothing_and_are_named(tmp_path):
    path = write(tmp_path / GPU / "sparsert_table1", select(table1(5.0))) / "records.csv"
    path.write_bytes(path.read_bytes()[:-20])
    found = judged(tmp_path, figure1(0.73))
    assert found["sparsert-spmm-95"].verdict == NOT_MEASURABLE
    assert "The records of sparsert_table1 are refused" in found["sparsert-spmm-95"].note
    assert found["sputnik-crossover"].verdict == REPRODUCED


def test_processor_times_judge_nothing(tmp_path):
    rows = [dataclasses.replace(r, device="cpu") for r in table1(5.0)]
    assert judged(tmp_path, rows)["sparsert-spmm-95"].verdict == NOT_MEASURABLE


def test_stand_ins_are_named(tmp_path):
    rows = [dataclasses.replace(r, source="standin:rn50/x") for r in table1(5.0)]
    assert "11 of 11 problems are on generated stand-ins" in judged(tmp_path, rows)["sparsert-spmm-95"].note


def figure1(crossing: float) -> list[Record]:
    """Time falls linearly with density and meets cuBLAS's 10 us at `crossing`; cuSPARSE takes three times as long."""
    rows = []
    for p in load("sputnik_figure1", False):
        us = 10 * (1 - p.sparsity) / (1 - crossing)
        rows += [
            row(p.name, "sputnik", us, "heuristic_x", p.experiment, sparsity=p.sparsity),
            row(p.name, "sputnik", us / 2, "y1_other", p.experiment, sparsity=p.sparsity),
            row(p.name, "cublas", 10.0, "f32_rowmajor", p.experiment, sparsity=p.sparsity),
            row(p.name, "cublas", 1e-3, "tf32_rowmajor", p.experiment, sparsity=p.sparsity),
            row(p.name, "cusparse", 3 * us, "csr_default_col", p.experiment, sparsity=p.sparsity),
        ]
    return rows


def test_a_crossover_is_interpolated_for_the_papers_heuristic_alone(tmp_path):
    found = judged(tmp_path, figure1(0.73))
    one = found["sputnik-crossover"]
    assert one.measured == pytest.approx(0.73, abs=0.002)
    assert one.verdict == REPRODUCED
    assert math.isnan(one.measured_tf32)
    assert one.verdict_tf32 == CONTRADICTED  # never as fast
    assert found["sputnik-crossover-nonzeros"].measured == pytest.approx(3, rel=0.03)
    assert found["sputnik-crossover-nonzeros"].verdict == WEAKER


def test_a_crossover_outside_what_was_recorded_is_no_number(tmp_path):
    below = judged(tmp_path / "a", figure1(0.3))["sputnik-crossover"]
    assert (below.measured, below.verdict) == (pytest.approx(0.5), STRONGER)
    assert "below 50 %" in below.note
    above = judged(tmp_path / "b", figure1(0.99))["sputnik-crossover"]
    assert math.isnan(above.measured)
    assert above.verdict == CONTRADICTED
    cut = [r for r in figure1(0.9) if r.sparsity < 0.8]
    partial = judged(tmp_path / "c", cut)["sputnik-crossover"]
    assert partial.verdict == NOT_MEASURABLE
    assert "Not all sparsities are recorded." in partial.note


def test_imbalance_compares_uneven_rows_with_even_ones(tmp_path):
    def at(name: str) -> str:
        return next(n for n in names("sputnik_figure7") if n.startswith(name))

    rows = [
        row(at("cov0_"), "sputnik_ablation", 10.0, "complete_x", "sputnik_figure7"),
        row(at("cov1.7_"), "sputnik_ablation", 10.5, "complete_x", "sputnik_figure7"),
        row(at("cov1.7_"), "sputnik_ablation", 20.0, "no_load_balancing_x", "sputnik_figure7"),
        row(at("cov1.5_"), "sputnik_ablation", 99.0, "no_load_balancing_x", "sputnik_figure7"),
    ]
    found = judged(tmp_path, rows)
    assert found["sputnik-imbalance"].measured == pytest.approx(50.0)
    assert found["sputnik-swizzle"].measured == pytest.approx(100 / 1.05)
    assert {found["sputnik-imbalance"].verdict, found["sputnik-swizzle"].verdict} == {REPRODUCED}


def test_an_ablation_is_percent_of_the_complete_kernel(tmp_path):
    rows = []
    for name in names("sputnik_ablation"):
        at = {"experiment": "sputnik_ablation", "problem": name, "kernel": "sputnik_ablation"}
        rows += [record(variant="complete_x", median_us=8.0, **at), record(variant="no_vector_x", median_us=10.0, **at)]
    found = judged(tmp_path, rows)
    assert found["sputnik-no-vectors"].measured == pytest.approx(80.0)
    assert found["sputnik-no-vectors"].verdict == WEAKER
    assert found["sputnik-sddmm-no-vectors"].verdict == CONTRADICTED  # the paper says that SDDMM gains without them
    assert found["sputnik-no-unrolling"].verdict == NOT_MEASURABLE


def mobilenet(pointwise: float, depthwise: float = 2.0) -> list[Record]:
    rows = []
    for name in names("sputnik_mobilenet"):
        experiment = "sputnik_mobilenet"
        if "_dw" in name:
            rows.append(row(name, "depthwise_conv", depthwise, "o1", experiment))
            continue
        rows += [
            row(name, "cublas_bias_relu", 4.0, "f32_x", experiment),
            row(name, "cublas_bias_relu", 1.0, "tf32_x", experiment),
        ]
        if name.startswith("sparse") and "pw00" not in name:
            rows.append(row(name, "sputnik_bias_relu", pointwise, "heuristic_x", experiment))
    return rows


def test_frames_per_second_sum_the_layers_as_often_as_they_occur(tmp_path):
    one = judged(tmp_path, mobilenet(3.0))["sputnik-mobilenet-1.2"]
    assert one.measured == pytest.approx(13 * (2 + 4) / (13 * 2 + 4 + 12 * 3))  # 13 pairs, the first dense in both
    assert one.measured_tf32 == pytest.approx(13 * (2 + 1) / (13 * 2 + 1 + 12 * 3))
    assert (one.verdict, one.verdict_tf32) == (REPRODUCED, CONTRADICTED)
    assert one.problems == "18 of 18"


def test_patterns_of_one_layer_are_paired_across_problems(tmp_path):
    def at(kind: str) -> str:
        return next(n for n in names("balanced_models") if n.startswith(f"ptb_{kind}"))

    rows = [
        row(at("balanced"), "balanced", 10.0, "paper", "balanced_models"),
        row(at("balanced"), "balanced", 2.0, "queue_w8", "balanced_models"),
        row(at("balanced"), "cublas", 25.0, "f32_rowmajor", "balanced_models"),
        row(at("random"), "cusparse", 30.0, "spmv_csr_alg1", "balanced_models"),
        row(at("balanced"), "cusparse", 1.0, "spmv_csr_alg1", "balanced_models"),
    ]
    found = judged(tmp_path, rows)
    assert found["balanced-ptb-dense"].measured == pytest.approx(2.5)
    assert "All variants of `balanced`: 12.50×" in found["balanced-ptb-dense"].note
    assert found["balanced-ptb-random"].measured == pytest.approx(3.0)
    assert found["balanced-ptb-block"].verdict == NOT_MEASURABLE


def test_half_precision_pairs_with_single_on_problems_of_two_names(tmp_path):
    rows = []
    for p in load("direct_conv_table6", False):
        us = 3.0 if p.dtype == "f16" else 4.0
        at = {"experiment": p.experiment, "dtype": p.dtype}
        rows += [
            row(p.name, "direct_conv", us, "paper_sbs4", **at),
            row(p.name, "direct_conv", 0.5, "paper_sbs4_padding_timed", **at),
        ]
        rows.append(row(p.name, "cudnn", 2.0 * us, f"{p.dtype}_nchw_plan00", **at))
    found = judged(tmp_path, rows)
    assert found["direct-half-over-single"].measured == pytest.approx(100.0)
    assert found["direct-vgg-last"].measured == pytest.approx(2.0)
    assert found["direct-vgg-last"].measured_fp16 == pytest.approx(1.5)  # cuDNN's 6 us in fp16 over our 4 in fp32
    assert found["direct-vgg-last-half"].measured == pytest.approx(2.0)
    assert found["direct-vgg-last-half"].verdict_fp16 == ""


def test_a_part_of_a_model_can_refute_and_not_confirm(tmp_path):
    name = next(n for n in names("sputnik_attention") if n.startswith("attention"))

    def attention(dense: float) -> list[Record]:
        at = {"experiment": "sputnik_attention", "m": 12288, "k": 12288, "nnz": 12288 * 1228}
        return [
            row(name, "sparse_attention", 10.0, "heuristic_x", **at),
            row(name, "dense_attention", dense, "f32", **at),
        ]

    one = judged(tmp_path / "a", attention(80.0))
    assert one["sputnik-attention-time"].measured == pytest.approx(8.0)
    assert one["sputnik-attention-time"].verdict == NOT_MEASURABLE
    assert "possible" in one["sputnik-attention-time"].note
    assert one["sputnik-attention-memory"].measured == pytest.approx(12288 / 1228 * 16 / 17, rel=1e-3)
    assert judged(tmp_path / "b", attention(9.0))["sputnik-attention-time"].verdict == CONTRADICTED


def test_names_lose_source_and_dtype_and_nothing_else():
    assert stem_of("01_64x256x3136_90_dlmc") == stem_of("01_64x256x3136_90_standin_f16") == "01_64x256x3136_90"
    assert stem_of("ptb_balanced_6000x3072x1_80_balanced") == "ptb_balanced_6000x3072x1_80_balanced"
