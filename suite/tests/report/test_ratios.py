"""What is divided by what, and what is said of times that are not there."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import fake_records
import pandas as pd
import pytest
from fake_records import to_frame

from nnzbench.facts import crossover
from nnzbench.facts import results as frames
from nnzbench.facts.groups import ALL, Group
from nnzbench.matrices import index
from nnzbench.problems.tables import dlmc_sample
from nnzbench.records.selection import select
from nnzbench.report import generic
from nnzbench.report.data.series import DEFAULT, Series
from nnzbench.report.text import baselines, fastest, lead, ratios
from nnzbench.report.text.fastest import Lost
from nnzbench.report.text.lead import Lead

PAPER, ROLLED = Series("k", "k", ("sparsert_paper",)), Series("r", "r", ("sparsert_rolled",))


def frame(*times: tuple[str, str, str, float]) -> pd.DataFrame:
    """Of problem, kernel, variant and microseconds."""
    rows = [fake_records.timed(kernel, us, variant, problem=problem) for problem, kernel, variant, us in times]
    return to_frame(select(rows))


def test_an_even_time_is_no_win_and_the_mean_is_geometric():
    above, below = (pd.Series(times, index=["a", "b", "c"]) for times in ([4.0, 2.0, 1.0], [1.0, 2.0, 1.0]))
    found = ratios.ratio(({}, above), ({}, below), "hot")
    assert found is not None
    assert (found.value, found.wins, found.count) == (pytest.approx(4 ** (1 / 3)), 1, 3)
    assert ratios.ratio(({}, above[:0]), ({}, below), "hot") is None


def test_the_rival_at_the_same_variant_is_that_of_the_sides_fastest_in_whatever_order_rows_are():
    rows = frame(
        ("p", "sparsert_paper", "mb8", 3.0),
        ("p", "sparsert_paper", "mb4", 2.0),
        ("p", "sparsert_rolled", "mb8", 12.0),
        ("p", "sparsert_rolled", "mb4", 30.0),
    )
    found = ratios.on(ratios.alike(rows, ROLLED, PAPER), "hot", frozenset({"p"}))
    assert found.to_dict() == {"p": 30.0}
    assert ratios.on(ratios.times_of(rows, ROLLED), "hot", frozenset({"p"})).to_dict() == {"p": 12.0}


def test_a_line_of_the_summary_has_its_baselines_time_over_its_own_unless_it_is_printed():
    lines = [
        {"series": "measured", "time_us": 4.0, "baseline_us": 10.0},
        {"series": "printed", "speedup": 3.0, "time_us": 4.0, "baseline_us": 10.0},
        {"series": "alone", "time_us": 4.0},
        None,
    ]
    found = fastest.summary(lines).set_index("series")["speedup"].to_dict()
    assert found == pytest.approx({"measured": 2.5, "printed": 3.0, "alone": math.nan}, nan_ok=True)


@pytest.mark.parametrize(
    ("kernels", "op", "policy", "why"),
    [
        (("ring",), "spmm", "hot", "the run's time was over there after the first choices of `ring`, before such"),
        (("ring",), "spmm", "cold", ""),
        (("ring_sddmm",), "spmm", "hot", "`ring_sddmm` does not compute spmm"),
        (("ring", "ring_sddmm"), "spmm", "cold", ""),
        (("ring", "sputnik"), "conv2d", "hot", "`ring` and `sputnik` do not compute conv2d"),
    ],
)
def test_why_a_time_is_missing_is_told_of_that_policy_and_of_all_its_kernels(kernels, op, policy, why):
    rows = [fake_records.record(kernel="ring", op=op, policy=one) for one in ("hot", "cold")]
    recorded = to_frame(rows).assign(cut_short=["first", ""])
    (lost,) = fastest.by_reason(recorded, policy, Series("k", "k", kernels), "it", {"p": "row 1"}, 2)
    assert lost[:4] == Lost("it", policy, ("row 1",), 2)[:4]
    assert lost.why.startswith(why)
    assert bool(lost.why) == bool(why)


def test_fp16_kernels_are_set_against_dense_fp16_on_the_problems_asked_for_and_under_one_policy():
    times = {"p": (2.0, 8.0), "q": (2.0, 2.0), "other": (1.0, 100.0)}
    rows = [
        fake_records.record(
            problem=name, kernel=kernel, variant="f16_x", dtype="f16", median_us=us * (1 + 9 * (policy == "cold")),
            q1_us=us, q3_us=us, policy=policy,
        )
        for name, both in times.items()
        for kernel, us in zip(("ring", "cublas"), both, strict=True)
        for policy in ("hot", "cold")
        if (name, kernel, policy) != ("q", "ring", "cold")
    ]  # fmt: skip
    text = baselines.in_half(to_frame(select(rows)), "hot", {"p": 0.9, "q": 0.9})
    assert "| 90 % | **2.00×** | 1 of 2 | ring 2 |" in text
    assert "| 90 % | **4.00×** | 1 of 1 | ring 1 |" in baselines.in_half(
        to_frame(select(rows)), "cold", {"p": 0.9, "q": 0.9}
    )


def test_as_fast_is_fast_enough_for_a_crossover():
    assert crossover.crossover([(0.5, 1.0), (0.9, 1.0)]) == crossover.ALWAYS
    assert crossover.crossover([(0.5, 2.0), (0.9, 0.99)]) == crossover.NEVER
    assert crossover.crossover([(0.5, 2.0), (0.75, 0.5), (0.9, 1.0)]) == pytest.approx(0.9)


def test_rivals_are_the_fastest_of_both_dense_libraries_on_sparse_products_alone():
    rows = [
        fake_records.timed(kernel, us, variant, problem=name, op=op, source="uniform:0")
        for name, op, kernel, variant, us in (
            ("p", "spmm", "ring", "v", 2.0),
            ("p", "spmm", "cublas", "f32_default_nn", 8.0),
            ("p", "spmm", "cublas", "tf32_default_nn", 6.0),
            ("p", "spmm", "cublaslt", "tf32_algo1", 4.0),
            ("s", "sddmm", "ring_sddmm", "v", 1.0),
            ("s", "sddmm", "cusparse", "csr_default_row", 50.0),
        )
    ]  # fmt: skip
    folder = frames.ResultSet(
        Path(), "own", "nvidia-h200", pd.DataFrame(), to_frame(select(rows)), "cupy", (), {}, (), {}
    )
    table = baselines.products_of(generic.tabulate(folder))
    assert list(table.problems["problem"]) == ["p"]
    found = {rival.label: baselines.ratios(table, "hot", rival)["ratio"].tolist() for rival in baselines.RIVALS}
    assert [values for values in found.values() if values] == [[4.0], [2.0]]


def test_a_group_of_the_sample_has_no_other_matrix_of_the_collection():
    paths = {entry.path for entry in dlmc_sample()}
    other = next(path for path in index.dlmc() if path not in paths)
    found = sorted(paths)[:2]
    rows = pd.DataFrame({"problem": ["a", "b", "c"], "source": [f"dlmc:{path}" for path in (*found, other)]})
    rows = rows.assign(op=["spmm", "sddmm", "spmm"], n=32, sparsity=0.9)
    assert set(Group(sample=True).problems(rows)["problem"]) == {"a", "b"}
    assert set(Group("spmm", sample=True).problems(rows)["problem"]) == {"a"}
    assert set(Group("spmm").problems(rows)["problem"]) == {"a", "c"}


def test_a_whole_is_the_sum_of_its_parts_least_times_and_only_of_all_of_them():
    names = {"l1_forward": 3.0, "l1_input": 4.0, "l1_dense_input": 1.0, "l2_forward": 9.0}
    times = pd.Series({f"{label}_8x8x8_90_uniform": us for label, us in names.items()})
    whole, added = ratios._whole(Group(parts=("forward", "input")), times)
    assert whole.to_dict() == {"l1": 4.0}
    assert {name.partition("_8x8")[0] for name in added} == {"l1_forward", "l1_input", "l1_dense_input"}


def test_a_title_divides_what_its_figure_draws_by_what_is_1_there():
    rows = frame(
        *(("p_8x8x8_90_uniform", "sputnik", variant, us) for variant, us in (("heuristic_x", 4.0), ("x64", 2.0))),
        *(("p_8x8x8_90_uniform", kernel, "f32_x", us) for kernel, us in (("cublas", 8.0), ("cublaslt", 6.0))),
        ("q_8x8x8_90_uniform", "cublas", "f32_x", 1.0),
        ("q_8x8x8_90_uniform", "sputnik", "x64", 2.0),
    )
    rule, tuned = lead.side("sputnik", variants=DEFAULT), lead.side("sputnik")
    asked = Lead("?", sides=(rule, tuned), rivals=(lead.DENSE, lead.CUBLAS))
    cells = lead.cells_of(asked, rows, ["hot"])
    said = {
        lead.headline(one, cells, ALL, "hot").partition(": ")[2]
        for one in (
            asked,
            replace(asked, drawn_over=lead.CUBLAS),
            replace(asked, drawn=tuned),
            replace(asked, drawn=tuned, drawn_over=lead.CUBLAS),
        )
    }
    assert said == {
        "sputnik, its heuristic is 1.50× as fast as best dense fp32",
        "sputnik, its heuristic is 2.00× as fast as cuBLAS fp32",
        "sputnik is 1.22× as fast as best dense fp32",
        "sputnik is 1.41× as fast as cuBLAS fp32",
    }
    table = lead.screen(asked, cells, ["hot"]).table
    assert "| `sputnik`, its heuristic | all problems (2) | 1.50× (1 of 1) | 2.00× (1 of 1) |" in table
    assert "| `sputnik` | all problems (2) | 1.22× (1) | 1.41× (1) |" in table
