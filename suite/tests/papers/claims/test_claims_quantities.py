"""The number that a claim's rule makes of records with known answers, for every kind of quantity."""

import math
import re

import pandas as pd
import pytest
from fake_claim_records import GPU, Judged, figure1, judged, names, row
from fake_records import failed, tuned, write

from nnzbench.data.problems.tables import load
from nnzbench.papers.claims.claim import Quantity
from nnzbench.papers.claims.quantities import Outcome, Records, made_of
from nnzbench.papers.claims.verdicts import (
    CONTRADICTED,
    NOT_COMPARABLE,
    NOT_MEASURABLE,
    REPRODUCED,
    STRONGER,
    UNDECIDED,
    WEAKER,
)
from nnzbench.results.groups import ALL
from nnzbench.results.selector import CUBLAS, Selector


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
    assert partial.verdict == NOT_COMPARABLE
    assert math.isnan(partial.measured)


@pytest.mark.parametrize(
    ("crossing", "whole", "before"),
    [(0.71, REPRODUCED, UNDECIDED), (0.95, WEAKER, UNDECIDED), (0.99, CONTRADICTED, CONTRADICTED)],
)
def test_a_claim_holds_against_the_best_of_today_only_where_that_was_tuned(tmp_path, crossing, whole, before):
    said = judged(tmp_path, figure1(crossing))["sputnik-crossover"]
    assert (said.verdict, said.verdict_today) == (whole, whole)
    tuned(tmp_path / GPU / "sputnik_figure1", lambda one: ("first",) if one.kernel == "cublas" else ("all",))
    said = Judged(tmp_path, GPU)["sputnik-crossover"]
    assert (said.verdict, said.verdict_today) == (whole, before)


def test_imbalance_compares_uneven_rows_with_even_ones(tmp_path):
    def at(name):
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
    assert {found["sputnik-imbalance"].verdict, found["sputnik-swizzle"].verdict} == {NOT_COMPARABLE}  # 1.7 is a guess


def ablation(part, times):
    """Rows of the study's problems: of each variant the time that `times` has, of a name or of all."""
    rows = []
    for name in names("sputnik_ablation", part):
        kernel = "sputnik_sddmm_ablation" if name.startswith("sddmm_") else "sputnik_ablation"
        rows += [row(name, kernel, us(name) if callable(us) else us, v, "sputnik_ablation") for v, us in times.items()]
    return rows


def test_an_ablation_is_percent_of_the_complete_kernel(tmp_path):
    found = judged(tmp_path, ablation("", {"complete_x": 8.0, "no_vector_x": 10.0}))
    assert found["sputnik-no-vector-rn50-256"].measured == pytest.approx(80.0)
    assert found["sputnik-no-vector-rn50-256"].verdict == WEAKER
    assert found["sputnik-no-vector-tf-1"].verdict == CONTRADICTED  # the paper sees no change there
    assert found["sputnik-sddmm-no-vector-rn50-256"].verdict == CONTRADICTED  # SDDMM gains without them in the paper
    assert found["sputnik-no-residue-unroll-rn50-1"].verdict == NOT_MEASURABLE


def test_what_the_complete_kernel_does_beyond_the_papers_is_no_part_of_an_ablation(tmp_path):
    """Residues left rolled are held against the paper's fours, SDDMM in its own order against rows by length."""
    times = {"complete": 5.0, "paper_residue": 9.2, "no_residue_unroll": 10.0, "paper_order": 10.0}
    found = judged(tmp_path, ablation("", times | {"no_load_balancing": 10.0}))
    residue, order = (found[f"sputnik-{name}-tf-1"] for name in ("no-residue-unroll", "sddmm-no-load-balancing"))
    assert (residue.measured, order.measured) == (pytest.approx(92.0), pytest.approx(100.0))
    assert (residue.verdict, order.verdict) == (REPRODUCED, REPRODUCED)
    assert "against the complete kernel: 50.0 %" in residue.note
    assert found["sputnik-no-load-balancing-tf-1"].measured == pytest.approx(50.0)


def test_what_is_not_unrolled_has_the_tiling_of_what_is(tmp_path):
    """Its own fastest tiling, and problems without that of the complete system, stand beside alone."""
    first, second, third = names("sparsert_ablation")[:3]
    at = {"experiment": "sparsert_ablation"}
    rows = [
        *(row(name, "sparsert_paper", us, f"mb{us:g}", **at) for name in (first, second, third) for us in (2.0, 3.0)),
        row(first, "sparsert_rolled", 30.0, "mb2", **at),
        row(first, "sparsert_rolled", 8.0, "mb20", **at),
        row(second, "sparsert_rolled", 10.0, "mb2", **at),
        row(third, "sparsert_rolled", 70.0, "mb3", **at),
    ]
    one = judged(tmp_path, rows)["sparsert-unrolling"]
    assert (one.measured, one.problems) == (pytest.approx(15.0), "2 of 20")
    assert "35.00× (3 of 20)" in one.note


def test_an_ablation_counts_a_layer_for_all_matrices_it_stands_for(tmp_path):
    """The page's mean and the claims' are one: 3 x 3 filters lose half their speed, the other layers none."""
    rows = ablation("rn50", {"complete_x": 10.0, "no_vector_x": lambda name: 20.0 if "rn50_3x3" in name else 10.0})
    percent = judged(tmp_path, rows)["sputnik-no-vector-rn50-256"].measured
    assert percent == pytest.approx(100 - 50 * 240 / 807)  # of 807 matrices 240 are 3 x 3


def test_networks_are_judged_as_a_whole_at_the_papers_heuristics(tmp_path):
    """A rule of this project's stands beside. Both Transformers' dense products take the arithmetic asked for."""
    (transformer,) = (n for n in names("whole_networks") if n.startswith("transformer_"))
    times = {
        ("sparse_transformer", "f32_heuristic"): 100.0,
        ("sparse_transformer", "f32_heuristic_together"): 110.0,
        ("dense_transformer", "f32_default"): 200.0,
        ("dense_transformer", "f32_default_together"): 240.0,
        ("dense_transformer", "tf32_default"): 50.0,
        ("sparse_transformer", "f32_rule"): 40.0,
        ("sparse_transformer", "tf32_heuristic"): 25.0,
    }
    rows = [row(transformer, kernel, us, variant, "whole_networks") for (kernel, variant), us in times.items()]
    for name in names("whole_networks", "_mobilenet"):
        rows.append(row(name, "dense_mobilenet", 12.0, "f32_default", "whole_networks"))
        for by, us in (("heuristic", 10.0), ("rule", 6.0)) if name.startswith("sparse") else ():
            rows.append(row(name, "sparse_mobilenet", us, f"f32_{by}", "whole_networks"))
    found = judged(tmp_path, rows)
    time, frames, held = (found[f"sputnik-{name}"] for name in ("attention-time", "mobilenet-1.4", "attention-memory"))
    assert (time.measured, time.measured_tf32, time.verdict) == (pytest.approx(2.0), pytest.approx(2.0), REPRODUCED)
    assert "5.00×" in time.note  # at this project's rule's choice
    assert "2.00× (1 of 1)" in frames.note
    assert (frames.measured, frames.problems, frames.verdict) == (pytest.approx(1.2), "1 of 1", REPRODUCED)
    assert (held.measured, held.verdict) == (10.25, REPRODUCED)  # counted


def test_readings_of_other_tables_and_types_judge_once_all_of_their_problems_are_there(tmp_path):
    """The paper prints neither the layers nor the type of its table of blocks."""

    def rows(table, labels):
        return [
            row(p.name, "direct_conv", us, variant, p.experiment, dtype=p.dtype)
            for p in load(table, False, full=True)
            if re.match(labels, p.label)
            for variant, us in (("paper_sbs8", 90.0), ("paper_sbs1", 100.0))
        ]

    printed, others = rows("direct_conv_table9", "resnet50"), rows("direct_conv_table7", "image|.*32_equal")
    whole, part = (judged(tmp_path / name, printed, some) for name, some in (("all", others), ("part", others[:-2])))
    assert whole["direct-no-sub-batch-1x1"].verdict == REPRODUCED
    assert part["direct-no-sub-batch-1x1"].verdict == NOT_COMPARABLE


def test_patterns_of_one_layer_are_paired_across_problems(tmp_path):
    def at(kind):
        return next(n for n in names("balanced_models") if n.startswith(f"ptb_{kind}"))

    rows = [
        row(at("balanced"), "balanced", 10.0, "paper", "balanced_models"),
        row(at("balanced"), "balanced", 2.0, "queue_w8", "balanced_models"),
        row(at("balanced"), "cublas", 25.0, "f32_rowmajor", "balanced_models"),
        row(at("random"), "cusparse", 30.0, "spmv_csr_default", "balanced_models"),
        row(at("random"), "cusparse", 20.0, "spmv_csr_alg1", "balanced_models"),
        row(at("balanced"), "cusparse", 1.0, "spmv_csr_alg1", "balanced_models"),
    ]
    found = judged(tmp_path, rows)
    assert found["balanced-ptb-dense"].measured == pytest.approx(2.5)
    assert "12.50×" in found["balanced-ptb-dense"].note
    assert found["balanced-ptb-dense"].verdict == REPRODUCED
    assert found["balanced-ptb-random"].measured == pytest.approx(3.0)
    assert found["balanced-ptb-random"].measured_today == pytest.approx(2.0)
    assert found["balanced-ptb-block"].verdict == NOT_MEASURABLE


def test_half_precision_pairs_with_single_on_problems_of_two_names(tmp_path):
    rows = []
    for p in load("direct_conv_table6", False):
        us = 3.0 if p.dtype == "f16" else 4.0
        at = {"experiment": p.experiment, "dtype": p.dtype}
        rows += [
            row(p.name, "direct_conv", us, "paper_half2_sbs4" if p.dtype == "f16" else "paper_sbs4", **at),
            row(p.name, "direct_conv", us + 1, "paper_sbs2", **at),  # in fp16 sums in fp32, the other reading
            row(p.name, "direct_conv", 0.5, "paper_sbs4_padding_timed", **at),
        ]
        rows.append(row(p.name, "cudnn", 2.0 * us, f"{p.dtype}_nchw_plan00_default", **at))
        rows.append(row(p.name, "cudnn", us / 2, f"{p.dtype}_nhwc_plan07", **at))
    found = judged(tmp_path, rows)
    assert found["direct-half-over-single"].measured == pytest.approx(100.0)
    assert found["direct-vgg-last"].measured == pytest.approx(2.0)
    assert found["direct-vgg-last"].measured_today == pytest.approx(0.5)  # cuDNN's fastest engine
    assert found["direct-vgg-last"].measured_fp16 == pytest.approx(0.375)  # its 1.5 us in fp16 over our 4 in fp32
    assert found["direct-vgg-last-half"].measured == pytest.approx(2.0)
    assert found["direct-vgg-last-half"].verdict_fp16 == ""


def test_the_gain_of_a_unified_count_is_judged_where_counts_differ(tmp_path):
    rows = []
    for p in load("direct_conv_table6", False):
        if p.dtype == "f32":
            own = 100.0 if p.source.startswith("uniform") else 81.0
            at = {"experiment": p.experiment}
            rows += [row(p.name, "direct_conv", 73.0, "paper_sbs4", **at)]
            rows += [row(p.name, "direct_conv", own + extra, f"paper_counts_sbs{2 + extra}", **at) for extra in (0, 2)]
    found = judged(tmp_path, rows)["direct-unified-count"]
    assert found.measured == pytest.approx(27.0)
    assert found.problems == "8 of 8"
    assert "9.9 %" in found.note  # equal counts: 73 of 81 us
    assert found.verdict == "not comparable"  # the paper does not describe the kernel that it compares with


def test_of_two_kernels_that_never_meet_the_dense_product_nothing_is_known(tmp_path):
    one = judged(tmp_path, figure1(0.99))["sputnik-crossover-nonzeros"]
    assert math.isnan(one.measured)
    assert one.verdict == NOT_MEASURABLE


def test_of_several_kernels_on_one_problem_the_fastest_counts_and_any_may_be_untuned(tmp_path):
    name = names("sparsert_table1")[0]
    rows = [row(name, "sputnik", 4.0), row(name, "ring", 2.0), row(name, "cublas", 8.0, "f32_default_nn")]
    folder = write(tmp_path / GPU / "sparsert_table1", rows)
    tuned(folder, lambda one: ("first",) if one.kernel == "sputnik" else ("all",))
    asked = Quantity(Selector("both", ("sputnik", "ring")), CUBLAS, ALL, "geometric mean", "sparsert_table1")
    found = Records(tmp_path, GPU).measure(asked, judging=False)
    assert (found.value, found.cut) == (pytest.approx(4.0), True)


def test_the_ideal_is_the_share_that_is_kept_of_what_is_above_the_overhead(tmp_path):
    """10 us above a launch of 1 us, of which a tenth is kept: 2 us, and the subject takes 4."""
    first, second = names("sparsert_table1", "_90_")[:2]
    at = {"sparsity": 0.9, "floor_us": 1.0}
    rows = [row(first, "ring", 4.0, **at), row(first, "cublas", 11.0, "f32_default_nn", **at)]
    rows += [row(second, "ring", 9.0, sparsity=0.9, floor_us=None), row(second, "cublas", 9.0, "f32_default_nn")]
    write(tmp_path / GPU / "sparsert_table1", rows)
    asked = Quantity(Selector("ring", ("ring",)), CUBLAS, ALL, "over ideal", "sparsert_table1")
    found = Records(tmp_path, GPU).measure(asked, judging=False)
    assert (found.value, found.have) == (pytest.approx(2.0), 1)


def test_part_of_a_larger_sample_of_the_collection_counts_for_nothing(tmp_path):
    sample, more = (
        [p for p in load("sputnik_dlmc", False, sample=count) if (p.op, p.dtype) == ("spmm", "f32")]
        for count in (60, 120)
    )
    extra = [p for p in more if p not in sample]

    def largest(folder, problems):
        times = [
            row(p.name, kernel, us, variant, p.experiment, dtype=p.dtype, source=p.source)
            for p in problems
            for kernel, variant, us in (
                ("sputnik", "heuristic_x", 10.0),
                ("cusparse", "csr_default_col", 900.0 if p in extra else 40.0),
            )
        ]
        return judged(tmp_path / folder, times)["sputnik-spmm-most"]

    part, whole = largest("part", [*sample, *extra[:20]]), largest("whole", more)
    assert (part.measured, part.problems) == (pytest.approx(4.0), "120 of 120")
    assert (whole.measured, whole.problems) == (pytest.approx(90.0), "242 of 242")


def test_what_a_library_computes_wrong_is_no_problem_that_lacks(tmp_path):
    """Nor is it one on which the library is slower. A wrong result of the paper's kernel stays a gap."""
    problems = [p for p in load("sputnik_dlmc", False) if (p.op, p.dtype) == ("spmm", "f32")]

    def share(kernel):
        times = [
            row(p.name, name, us, variant, p.experiment, dtype=p.dtype, source=p.source)
            for p in problems
            for name, variant, us in (("sputnik", "heuristic_x", 10.0), ("cusparse", "csr_default_col", 40.0))
        ]
        at = next(at for at, one in enumerate(times) if one.kernel == kernel)
        times[at] = failed(times[at], "wrong", "far")
        return judged(tmp_path / kernel, times)["sputnik-spmm"]

    theirs, ours = share("cusparse"), share("sputnik")
    assert (theirs.verdict, theirs.problems) == (REPRODUCED, f"{len(problems) - 1} of {len(problems) - 1}")
    assert "On 1 more problem" in theirs.note
    assert (ours.verdict, ours.problems) == (NOT_COMPARABLE, f"{len(problems) - 1} of {len(problems)}")


def test_what_kernels_times_say_alone(tmp_path):
    """Quartiles 2 % apart in one layer of eight; a time that grows with the square root of M x K; searches of 90 s."""
    rows = []
    for at, name in enumerate(n for n in names("direct_conv_table6") if "_equal_" in n):
        quartiles = {"q1_us": 9.9, "q3_us": 10.1} if at == 3 else {"q1_us": 10.0, "q3_us": 10.0}
        rows.append(row(name, "direct_conv", 10.0, "paper_sbs4", "direct_conv_table6", **quartiles))
    found = judged(tmp_path / "a", rows)["direct-deviation"]
    assert (found.measured, found.verdict) == (pytest.approx(2 / 1.349, rel=1e-3), NOT_COMPARABLE)
    products = [
        row(p.name, "sparsert_paper", (p.m * p.k) ** 0.5, m=p.m, k=p.k, n=p.n)
        for p in load("sparsert_table1", False)
        if p.dtype == "f32"
    ]
    folder = write(tmp_path / "b" / GPU / "sparsert_table1", products)
    tuned(folder, lambda one: ("all",))
    judgements = Judged(tmp_path / "b", GPU)
    assert judgements["sparsert-time"].measured == pytest.approx(0.5)
    assert judgements["sparsert-time"].verdict == CONTRADICTED
    assert judgements["sparsert-tuning-time"].verdict == REPRODUCED  # of invented searches of a second


def test_a_share_is_known_as_well_as_there_are_matrices():
    def interval(problems, matrices):
        fact = pd.Series({"ratio": 2.0, "low": 1.0, "high": 3.0, "best": 4.0, "wins": 0.75 * problems, "n": problems})
        found = made_of(fact, "share faster", Outcome(math.nan, problems, problems), matrices)
        return found.low, found.high

    assert interval(16, 16) == interval(1600, 16)
    assert interval(1600, 16)[0] < interval(1600, 160)[0] < 75 < interval(1600, 160)[1] < interval(1600, 16)[1]
