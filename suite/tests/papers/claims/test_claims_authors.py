"""A kernel that is not about as fast as its authors' code does not judge alone: their times must say the same."""

import dataclasses
import math
from dataclasses import replace

import pytest
from fake_claim_records import AUTHORS_GPU, CLAIMS, GPU, Judged, figure1, judged, names, row
from fake_records import write

from nnzbench.data.problems.tables import load
from nnzbench.papers.claims import authors, peers
from nnzbench.papers.claims.peers import Match, Pair
from nnzbench.papers.claims.verdicts import NOT_COMPARABLE, NOT_MEASURABLE, REPRODUCED, WEAKER

TIMES = peers.read()[2]


@pytest.fixture(autouse=True)
def first_sessions(monkeypatch):
    """SparseRT's first two, of whose times the numbers here are made, whichever judges by now."""
    products = Pair("tuned", "the fastest found", "sparsert_paper", "", "searched")
    first = (
        Match("SparseRT's products", "sparsert", "table1", ("sparsert_table1", "sparsert_ablation"), (products,),
              any_pattern=True),
        Match("SparseRT's convolutions", "sparsert", "table3", ("sparsert_table3",),
              (replace(products, kernel="sparsert_conv_paper"),), "cudnn", any_pattern=True),
    )  # fmt: skip
    later = {one.session for one in peers.MATCHES if one.code == "sparsert"} - {one.session for one in first}
    rest = [one for one in peers.MATCHES if one.code != "sparsert" and one.session not in later]
    monkeypatch.setattr(authors, "MATCHES", (*first, *rest))


def theirs(session, code, **which):
    """The least time of a code on each problem of a session: by label and level."""
    rows = TIMES[(TIMES["session"] == session) & (TIMES["code"] == code) & (TIMES["math"] == "f32")]
    for column, value in which.items():
        rows = rows[rows[column] == value]
    return rows.groupby(["label", "sparsity"])["median_us"].min().to_dict()


def products(gain, level="90"):
    """Table 1 at a level: the paper's kernel is `gain` times as fast as the author's code, cuBLAS as in its session."""
    original, dense = theirs("table1", "sparsert"), theirs("table1", "cublas")
    rows = []
    for problem in load("sparsert_table1", False):
        key = (problem.name[:2], problem.sparsity)
        if problem.dtype == "f32" and f"_{level}_" in problem.name:
            same = {name: getattr(problem, name) for name in ("m", "k", "n", "sparsity", "source")}
            rows += [
                row(problem.name, "sparsert_paper", original[key] / gain, "mb8_nb4_gy1", **same),
                row(problem.name, "cublas", dense[key], "f32_rowmajor", **same),
                row(problem.name, "cusparse", 3 * dense[key], "csr_alg1_col", **same),
                row(problem.name, "cusparse", dense[key] / 3, "csr_alg2_row", **same),
            ]
    return rows


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


@pytest.mark.parametrize("gain", [0.9, 1.1, 1.6, 0.5])
def test_authors_times_must_say_the_same_where_the_kernel_is_not_about_as_fast(tmp_path, gain):
    one = judged(tmp_path, products(gain), gpu=AUTHORS_GPU)["sparsert-spmm-90"]
    original, dense = theirs("table1", "sparsert", sparsity=0.9), theirs("table1", "cublas", sparsity=0.9)
    their_ratio = geomean([dense[key] / us for key, us in original.items()])
    assert one.authors == pytest.approx(gain)
    assert one.measured == pytest.approx(their_ratio * gain)
    far = not 0.85 <= gain <= 1.15
    assert math.isnan(one.measured_authors) != far
    assert one.verdict == (WEAKER if gain > 0.5 else NOT_COMPARABLE)  # 1.5 of 3.4, at half their speed contradicted
    if far:
        assert one.measured_authors == pytest.approx(their_ratio)
        assert "(20 of 20)" in one.note


def test_a_verdict_that_only_a_faster_kernel_reaches_is_not_given(tmp_path):
    """3.4 at 2.3 times the authors' speed, whose own 1.5 is weaker. Against cuSPARSE of its time theirs is 4.5."""
    found = judged(tmp_path, products(2.3), gpu=AUTHORS_GPU)
    one, old = found["sparsert-spmm-90"], found["sparsert-cusparse-90"]
    assert one.measured == pytest.approx(3.4, rel=0.1)
    assert one.verdict == NOT_COMPARABLE
    assert "weaker, by the records reproduced" in one.reason
    assert old.measured_authors == pytest.approx(3 * one.measured_authors)  # csr_alg1_col's
    assert (found["sparsert-cublas-over-cusparse"].verdict, old.baseline_today) == (REPRODUCED, "best cuSPARSE fp32")
    assert found["sparsert-cublas-over-cusparse"].verdict_today == "contradicted"
    assert (old.verdict, old.verdict_today) == (WEAKER, NOT_COMPARABLE)  # theirs is half as fast as csr_alg2_row


def test_a_dense_product_of_the_session_is_not_slower_than_the_library_is(tmp_path):
    """torch asks cuBLAS for few of its algorithms: recorded, it takes half the time that theirs had beside it."""
    rows = [replace(one, median_us=one.median_us / 2) if one.kernel == "cublas" else one for one in products(1.6)]
    one = judged(tmp_path, rows, gpu=AUTHORS_GPU)["sparsert-spmm-90"]
    original, dense = theirs("table1", "sparsert", sparsity=0.9), theirs("table1", "cublas", sparsity=0.9)
    assert one.measured_authors == pytest.approx(geomean([dense[key] / us / 2 for key, us in original.items()]))


def test_a_kernel_is_held_against_its_authors_code_on_matrices_of_the_same_kind(tmp_path):
    """On recurrent layers it is as fast; on real pruned ones, as the collection has them, it is 1.4 times."""
    real = [
        row(p.name, kernel, us, variant, m=p.m, k=p.k, n=p.n, source=p.source, sparsity=p.sparsity)
        for p in load("sparsert_table1", True)
        if p.dtype == "f32"
        for us in TIMES.loc[(TIMES["session"] == "table1_real") & (TIMES["choice"] == "heuristic")
                            & (TIMES["source"] == p.source), "median_us"]
        for kernel, variant, us in (("sputnik", "heuristic_x", us / 1.4), ("cublas", "f32_rowmajor", us))
    ]  # fmt: skip
    found = judged(tmp_path, real, figure1(0.71), gpu=AUTHORS_GPU)
    assert found["sputnik-spmm"].authors == pytest.approx(1.4)
    assert "of its kind" in found["sputnik-spmm"].note


def test_without_the_authors_times_of_both_sides_the_verdict_is_withheld(tmp_path):
    ablated = [
        row(name, kernel, us, "mb1_nb1_gy1", "sparsert_ablation")
        for name in names("sparsert_ablation")
        for kernel, us in (("sparsert_paper", 1.0), ("sparsert_rolled", 20.0))
    ]
    near = products(1.0)
    write(tmp_path / "near" / AUTHORS_GPU / "sparsert_ablation", ablated)
    assert judged(tmp_path / "near", near, gpu=AUTHORS_GPU)["sparsert-unrolling"].verdict == REPRODUCED
    write(tmp_path / "far" / AUTHORS_GPU / "sparsert_ablation", ablated)
    one = judged(tmp_path / "far", products(1.5), gpu=AUTHORS_GPU)["sparsert-unrolling"]
    assert (one.verdict, one.measured) == (NOT_COMPARABLE, pytest.approx(20.0))
    assert "1.50 times" in one.reason


@pytest.mark.parametrize(
    ("whole", "part", "word", "worst"),
    [(1.1, 1.1, REPRODUCED, 1.1), (0.7, 0.7, REPRODUCED, 0.7), (1.1, 0.5, NOT_COMPARABLE, 0.5)],
)
def test_of_an_ablation_both_kernels_are_held_against_the_authors_code(tmp_path, whole, part, word, worst):
    """Near theirs the records judge, far from theirs what both say, which they don't if a part costs more here."""
    here = TIMES[(TIMES["session"] == "authors_ablation") & (TIMES["code"] == "sputnik")]
    times = here.groupby(["choice", "source", "m", "k", "n"])["median_us"].min().to_dict()
    gains, rows = {"complete": ("heuristic", whole), "no_prescale": ("no prescale", part)}, []
    ran = set(zip(here["source"], here["n"], strict=True))
    for p in [*load("sputnik_ablation", True), *load("sputnik_ablation", False)]:
        same = {"op": p.op, "m": p.m, "k": p.k, "n": p.n, "source": p.source, "sparsity": p.sparsity}
        rows += [row(p.name, "sputnik_ablation", times[choice, p.source, p.m, p.k, p.n] / gain, f"{name}_x",
                     p.experiment, **same)
                 for name, (choice, gain) in gains.items() if p.op == "spmm" and (p.source, p.n) in ran]  # fmt: skip
    one = judged(tmp_path, rows, gpu=AUTHORS_GPU)["sputnik-no-prescale-rn50-256"]
    assert (one.verdict, one.authors) == (word, pytest.approx(worst))
    assert one.measured == pytest.approx(99.4 * part / whole, abs=1)
    assert math.isnan(one.measured_authors) == (worst == 1.1)
    assert (one.reason == "") == (word == REPRODUCED)
    assert f"`sputnik_ablation` is {worst:.2f} times as fast" in one.note


def test_a_kernel_that_is_far_on_the_authors_gpu_judges_on_none(tmp_path):
    rows = products(2.0)
    write(tmp_path / AUTHORS_GPU / "sparsert_table1", rows)
    write(tmp_path / GPU / "sparsert_table1", [dataclasses.replace(one, gpu=GPU) for one in rows])
    one = Judged(tmp_path, GPU)["sparsert-spmm-90"]
    assert (one.verdict, one.authors) == (NOT_COMPARABLE, pytest.approx(2.0))
    assert "H200" in one.reason


def test_what_has_no_dense_product_beside_it_is_scaled_as_those_of_the_session_that_have(tmp_path):
    """SDDMM: twice and as fast as its authors' codes; the library as long as three of theirs where dense took half."""
    session = TIMES[(TIMES["session"] == "authors_rnn") & (TIMES["math"] == "f32")]
    codes = {"sputnik_sddmm": ("heuristic_x", "heuristic", 0.5), "aspt_sddmm": ("tiles8", "kernels alone", 1.0),
             "sputnik": ("heuristic_x", "heuristic", 1.0), "cublas": ("f32_rowmajor", "torch.mm", 0.5)}  # fmt: skip
    rows, expected = [], []
    for p in load("sputnik_rnn", False):
        here = session[(session[["op", "m", "k", "n", "sparsity"]] == [p.op, p.m, p.k, p.n, p.sparsity]).all(axis=1)]
        times = here.groupby(["code", "choice"])["median_us"].min()
        if p.dtype != "f32" or p.label.startswith("extra"):
            continue
        same = {"experiment": "sputnik_rnn", "op": p.op, "m": p.m, "k": p.k, "n": p.n, "source": p.source}
        same["sparsity"] = p.sparsity
        for kernel, (variant, choice, share) in codes.items():
            if (kernel, choice) in times and (kernel != "cublas" or p.op == "spmm"):
                rows.append(row(p.name, kernel, share * times[kernel, choice], variant, **same))
        if p.op == "sddmm":
            us = times["sputnik_sddmm", "heuristic"]
            rows.append(row(p.name, "constrained_gemm", 3 * us, "csr", **same))
            expected.append(100 * times["aspt_sddmm", "kernels alone"] / us)
    found = judged(tmp_path, rows, gpu=AUTHORS_GPU)
    sampled, library = found["sputnik-rnn-sddmm-aspt"], found["sputnik-rnn-sddmm"]
    assert (sampled.measured, sampled.measured_authors) == (
        pytest.approx(2 * sum(expected) / len(expected)),
        pytest.approx(sum(expected) / len(expected)),
    )
    assert (library.measured, library.measured_authors) == (pytest.approx(6.0), pytest.approx(6.0))


def test_of_a_larger_sample_the_authors_times_are_asked_on_the_part_that_both_sides_ran(tmp_path):
    """The library ran on 60 matrices, the kernel on 120: theirs, half as fast, on 120 problems of 60."""
    session = TIMES[(TIMES["session"] == "authors_dlmc") & (TIMES["math"] == "f32")]
    times = session.groupby(["source", "op", "k", "n", "code", "choice"])["median_us"].min()
    asked, rows = {p.name for p in load("sputnik_dlmc", False)}, []
    for p in load("sputnik_dlmc", False, sample=120):
        if p.dtype == "f32":
            real = p.source.replace("standin:", "dlmc:")
            source = real if (real, p.op, p.k, p.n) in times else p.source
            same = {"m": p.m, "k": p.k, "n": p.n, "op": p.op, "sparsity": p.sparsity, "source": source}
            same["experiment"] = "sputnik_dlmc"
            us = times.get((source, p.op, p.k, p.n, "sputnik_sddmm", "heuristic"), 10.0)
            dense = times.get((source, p.op, p.k, p.n, "cublas", "torch.mm"), 10.0)
            kernels = [("sputnik_sddmm", us / 2, "heuristic_x"), ("constrained_gemm", 1.4 * us, "csr")]
            for kernel, took, variant in kernels if p.op == "sddmm" else [("cublas", dense, "f32_rowmajor")]:
                if kernel != "constrained_gemm" or p.name in asked:
                    rows.append(row(p.name, kernel, took, variant, **same))
    one = judged(tmp_path, rows, gpu=AUTHORS_GPU)["sputnik-sddmm"]
    assert (one.measured, one.measured_authors) == (pytest.approx(2.8), pytest.approx(1.4))
    assert one.problems == "120 of 120"
    assert "(120 of 120)" in one.reason
    assert one.verdict == NOT_COMPARABLE  # stronger by the records, weaker by their times


def convolutions(gain, layers="1234"):
    original, dense = theirs("table3", "sparsert"), theirs("table3", "cudnn")
    rows = []
    for problem in load("sparsert_table3", True):
        level = 0.91 if problem.sparsity < 0.93 else 0.96
        key = (problem.name[:2], level if problem.name[:2] != "04" else 0.95)
        sizes = {name: getattr(problem, name) for name in ("m", "k", "n", "source", "op")}
        same = {**sizes, "shape": str(problem.shape), "experiment": "sparsert_table3", "sparsity": level}
        us = original[key] / gain if key in original and not (key[0] == "04" and level == 0.91) else 50.0
        rows.append(row(problem.name, "cudnn", dense.get(key, 100.0), "f32_nchw_plan01", **same))
        if key[0][1] in layers:
            rows.append(row(problem.name, "sparsert_conv_paper", us, "checked_mb8_nb4_gy1", **same))
    return rows


@pytest.mark.parametrize("layers", ["1234", "23", ""])
def test_problems_that_the_authors_did_not_time_leave_the_printed_number_too(tmp_path, layers):
    """At 90 % the last of four. Without a row of the paper's kernel theirs judge, with some that say else nobody."""
    found = judged(tmp_path, convolutions(3.0, layers), gpu=AUTHORS_GPU)
    half, full = found["sparsert-conv-90"], found["sparsert-conv-95"]
    assert half.measured_authors == pytest.approx(1.757, abs=0.01)
    assert half.verdict == (NOT_COMPARABLE if layers else REPRODUCED)  # the paper's three are 2.18
    assert "2.18" in half.note
    assert ("No time of `sparsert_conv_paper` is recorded" in half.note) == (not layers)
    assert (full.verdict, full.measured_authors) == (
        NOT_COMPARABLE if layers else WEAKER,
        pytest.approx(2.58, abs=0.01),
    )
    assert found["sparsert-conv-most"].verdict == full.verdict
    assert math.isnan(half.measured) == (not layers)
    always = found["sparsert-conv-always"]  # the fourth layer might be slower at 90 %
    assert always.verdict == (NOT_COMPARABLE if layers else NOT_MEASURABLE)
    assert "7 of 8" in always.reason


def test_a_verdict_holds_for_every_reading_of_what_the_paper_leaves_open(tmp_path):
    def rows(projection):
        return [
            row(name, kernel, us, variant, "ese_lstm")
            for name in names("ese_lstm", "_b32_")
            for kernel, variant, us in (
                ("cusparse", "csr_default_col", 12.0 if name.startswith("gates") else projection),
                ("cublas", "f32_rowmajor", 10.0),
            )
        ]

    assert CLAIMS["ese-gpu"].obstacle
    assert judged(tmp_path / "same", rows(13.0))["ese-gpu"].verdict == REPRODUCED
    other = judged(tmp_path / "other", rows(40.0))["ese-gpu"]
    assert (other.verdict, other.measured) == (NOT_COMPARABLE, pytest.approx(20 / 52))
    assert "0.25×" in other.reason


def test_where_the_authors_times_judge_they_do_so_on_every_reading(tmp_path):
    """The kernel is twice as fast as theirs and on a par with Sputnik; theirs is so on the larger products alone."""
    rows = products(2.0)
    mine = {one.problem: one.median_us for one in rows if one.kernel == "sparsert_paper"}
    sputnik = [row(one, "sputnik", us, "heuristic_x") for one, us in mine.items()]
    one = judged(tmp_path, [*rows, *sputnik], gpu=AUTHORS_GPU)["sparsert-sputnik-large"]
    code, other = theirs("table1", "sparsert"), theirs("table1", "sputnik", choice="heuristic")
    assert one.measured_authors == pytest.approx(
        geomean([other[f"{at}", 0.9] / code[f"{at}", 0.9] for at in range(17, 21)])
    )
    assert (one.measured, one.verdict) == (pytest.approx(1.0), NOT_COMPARABLE)
    assert "Read otherwise" in one.reason


def test_a_gain_is_held_between_two_gpus_once_both_are_recorded(tmp_path):
    def write_gpu(gpu, us):
        rows = [
            row(name, kernel, time, gpu=gpu)
            for name in names("sparsert_table1")
            for kernel, time in (("sparsert_paper", us), ("cublas", 10.0))
        ]
        rows = [dataclasses.replace(r, variant="f32_rowmajor") if r.kernel == "cublas" else r for r in rows]
        write(tmp_path / gpu / "sparsert_table1", rows)

    def found():
        return Judged(tmp_path, "tesla-t4")["sparsert-t4-over-v100"]

    write_gpu("tesla-t4", 2.0)
    assert found().verdict == NOT_MEASURABLE
    write_gpu("tesla-v100-sxm2-16gb", 3.0)
    assert (found().verdict, found().measured, found().problems) == (REPRODUCED, 100.0, "22 of 22")
