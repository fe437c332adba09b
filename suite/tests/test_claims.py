"""Claims of the papers: the table is complete and the verdicts follow from records with known answers."""

from __future__ import annotations

import csv
import dataclasses
import math
from pathlib import Path

import fake_records
import pytest
from fake_records import failed, record, write

from nnzbench import paths
from nnzbench.experiments import EXPERIMENTS
from nnzbench.record import Record, RecordError
from nnzbench.report import build, claims, claims_page
from nnzbench.report.claims import (
    CONTRADICTED,
    NOT_MEASURABLE,
    REPRODUCED,
    RULES,
    STRONGER,
    WEAKER,
    Claim,
    Verdict,
    judge,
    read,
    verdict,
)
from nnzbench.report.claims_records import stem
from nnzbench.selection import select
from nnzbench.tables import load

GPU = "nvidia-h200"
CLAIMS = {claim.id: claim for claim in read()}


def judged(tmp_path: Path, *sets: list[Record]) -> dict[str, Verdict]:
    for rows in sets:
        write(tmp_path / GPU / rows[0].experiment, select(rows))
    return {one.id: one for one in judge(tmp_path, GPU)}


def row(problem: str, kernel: str, us: float, variant: str = "v", experiment: str = "sparsert_table1", **changes):
    return record(
        experiment=experiment,
        problem=problem,
        kernel=kernel,
        variant=variant,
        median_us=us,
        q1_us=us,
        q3_us=us,
        **changes,
    )


def names(experiment: str, part: str = "", dtype: str = "f32") -> list[str]:
    return [p.name for p in load(experiment, False) if part in p.name and p.dtype == dtype]


def table1(speedup: float, level: str = "95", keep: int = 99) -> list[Record]:
    """Our generator at `speedup` over the best dense product in fp32, TF32 at 4 us and fp16 at 2."""
    rows = []
    for name in names("sparsert_table1", f"_{level}_")[:keep]:
        rows += [
            row(name, "sparsert", 10 / speedup),
            row(name, "cublas", 12.0, "f32_rowmajor"),
            row(name, "cublaslt", 10.0, "f32_rowmajor_algo01"),
            row(name, "cublas", 4.0, "tf32_rowmajor"),
            row(name, "cublas", 2.0, "f16_rowmajor", dtype="f16"),
            row(name, "cusparse", 15 / speedup, "csr_alg2_row"),
            row(name, "sparsert", 20 / speedup, policy="cold"),
            row(name, "cublas", 10.0, "f32_rowmajor", policy="cold"),
        ]
    return rows


# --- the table of claims ---------------------------------------------------------------------------------------------


def test_every_claim_has_a_rule_an_experiment_and_a_source_and_every_rule_a_claim():
    listed = [claim.id for claim in read()]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(RULES)
    for claim in CLAIMS.values():
        assert claim.experiment in EXPERIMENTS
        assert claim.paper
        assert claim.where
        assert claim.baseline
        assert claim.published_gpu


def test_every_rule_reads_an_experiment_and_finds_the_problems_it_speaks_of(tmp_path):
    found = {one.id: one for one in judge(tmp_path, GPU)}
    for name, rule in RULES.items():
        assert rule.ways[0].quantity.experiment in EXPERIMENTS
        if found[name].rule != "none":
            assert found[name].problems.startswith("0 of ")
            assert int(found[name].problems.removeprefix("0 of ")) > 0, f"{name} matches no problem of its table"


def test_published_numbers_are_those_of_the_transcribed_tables():
    def printed(name: str) -> list[dict[str, str]]:
        with (paths.datasets() / "published" / f"{name}.csv").open() as file:
            return list(csv.DictReader(file))

    def mean(values: list[float]) -> float:
        return math.exp(sum(map(math.log, values)) / len(values))

    conv = [float(r["speedup"]) for r in printed("sparsert_table3_conv") if r["sparsity"] == "0.95"]
    assert CLAIMS["sparsert-conv-95"].published == pytest.approx(mean(conv), abs=0.01)
    times = {
        (r["matrix"], r["batch"], r["layer"]): float(r["time_us"])
        for r in printed("eie_table4_us")
        if r["platform"] == "GPU"
    }
    for batch in ("1", "64"):
        ratios = [
            us / times["sparse", batch, layer]
            for (matrix, b, layer), us in times.items()
            if (matrix, b) == ("dense", batch)
        ]
        assert CLAIMS[f"eie-gpu-{batch}"].published == pytest.approx(mean(ratios), rel=0.01)
    drawn = printed("balanced_figure4_digitised")
    for batch in ("1", "8"):
        ratios = [float(r[f"balanced_b{batch}_us"]) / float(r[f"ideal_b{batch}_us"]) for r in drawn]
        assert CLAIMS[f"balanced-ideal-{batch}"].published == pytest.approx(mean(ratios), rel=0.01)
    last = printed("direct_conv_table6_vgg16")[-1]
    assert CLAIMS["direct-vgg-last"].published == pytest.approx(
        float(last["cudnn_f32_ms"]) / float(last["sparse_f32_ms"]), abs=0.01
    )


def test_a_row_that_is_no_claim_is_refused_with_its_line(tmp_path, monkeypatch):
    source = (paths.datasets() / "published" / "claims.csv").read_text()
    (tmp_path / "published").mkdir()
    monkeypatch.setattr(paths, "datasets", lambda: tmp_path)
    path = tmp_path / "published" / "claims.csv"
    path.write_text(source.replace(",3.4,x,", ",much,x,"))
    with pytest.raises(RecordError, match="line 2"):
        read()
    path.write_text(source.replace("published_gpu", "gpu", 1))
    with pytest.raises(RecordError, match="columns"):
        read()


# --- verdicts on one number ------------------------------------------------------------------------------------------


def claim(**changes) -> Claim:
    return dataclasses.replace(CLAIMS["sparsert-spmm-95"], **changes)


@pytest.mark.parametrize(
    ("changes", "measured", "expected"),
    [
        ({"published": 4.0}, 3.2, REPRODUCED),
        ({"published": 4.0}, 5.0, REPRODUCED),
        ({"published": 4.0}, 3.19, WEAKER),
        ({"published": 4.0}, 5.01, STRONGER),
        ({"published": 4.0}, 0.99, CONTRADICTED),
        ({"published": 4.0}, 1.0, CONTRADICTED),
        ({"published": 4.0}, math.nan, NOT_MEASURABLE),
        ({"published": 1.1}, 0.99, CONTRADICTED),
        ({"published": 0.27, "better": "lower"}, 0.1, STRONGER),
        ({"published": 0.27, "better": "lower"}, 0.8, WEAKER),
        ({"published": 0.27, "better": "lower"}, 1.5, CONTRADICTED),
        ({"published": 1.0, "break_even": math.nan}, 0.9, REPRODUCED),
        ({"published": 1.0, "break_even": math.nan}, 2.0, STRONGER),
        ({"published": 64.8, "scale": "points", "break_even": 100.0, "better": "lower"}, 69.8, REPRODUCED),
        ({"published": 64.8, "scale": "points", "break_even": 100.0, "better": "lower"}, 80.0, WEAKER),
        ({"published": 64.8, "scale": "points", "break_even": 100.0, "better": "lower"}, 40.0, STRONGER),
        ({"published": 64.8, "scale": "points", "break_even": 100.0, "better": "lower"}, 101.0, CONTRADICTED),
        ({"published": 0.71, "scale": "density", "break_even": math.nan, "better": "lower"}, 0.75, REPRODUCED),
        ({"published": 0.71, "scale": "density", "break_even": math.nan, "better": "lower"}, 0.80, WEAKER),
        ({"published": 0.71, "scale": "density", "break_even": math.nan, "better": "lower"}, 0.55, STRONGER),
        ({"published": 2.0, "scale": "bound"}, 8.0, NOT_MEASURABLE),
        ({"published": 2.0, "scale": "bound"}, 1.9, NOT_MEASURABLE),
        ({"published": 2.0, "scale": "bound"}, 1.3, WEAKER),
        ({"published": 2.0, "scale": "bound"}, 0.9, CONTRADICTED),
    ],
)
def test_verdicts(changes, measured, expected):
    assert verdict(claim(**changes), measured) == expected


# --- rules on records with known answers -----------------------------------------------------------------------------


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
    assert stem("01_64x256x3136_90_dlmc") == stem("01_64x256x3136_90_standin_f16") == "01_64x256x3136_90"
    assert stem("ptb_balanced_6000x3072x1_80_balanced") == "ptb_balanced_6000x3072x1_80_balanced"


# --- pages -----------------------------------------------------------------------------------------------------------


def test_pages_are_written_twice_alike_and_name_every_claim(tmp_path):
    write(tmp_path / GPU / "sparsert_table1", select(table1(5.0)))
    page = claims_page.write(tmp_path, GPU)
    first = {path.name: path.read_bytes() for path in page.parent.iterdir() if path.is_file()}
    claims_page.write(tmp_path, GPU)
    assert first == {path.name: path.read_bytes() for path in page.parent.iterdir() if path.is_file()}
    assert set(first) == {"claims.md", "claims.csv"}
    with (page.parent / "claims.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [r["id"] for r in rows] == list(CLAIMS)
    assert list(rows[0]) == [field.name for field in dataclasses.fields(Verdict)]
    text = first["claims.md"].decode()
    assert "5.00× **reproduced** | 2.00× **weaker** | 1.00× **contradicted** | 2.50× | 11 of 11" in text
    assert text.count('<a id="') == len(CLAIMS)


def test_report_judges_the_claims_of_every_gpu_it_draws(tmp_path):
    write(tmp_path / GPU / "sparsert_table1", fake_records.table1())
    build.build(tmp_path, ["sparsert_table1"])
    assert (tmp_path / GPU / "claims.md").is_file()
    assert {path.name for folder in build.find(tmp_path).values() for path in folder} == {"sparsert_table1"}


def test_numbers_are_shown_in_their_unit():
    assert [claims.show(*pair) for pair in ((2.314, "x"), (0.7312, "sparsity"), (47.51, "%"), (math.nan, "x"))] == [
        "2.31×", "73.1 %", "47.5 %", "",
    ]  # fmt: skip
