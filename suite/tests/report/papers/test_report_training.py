"""The page of `training_step` from invented records with known answers."""

from __future__ import annotations

from pathlib import Path

import fake_records
import pytest
from matplotlib.figure import Figure
from sputnik_records import Timed, apart, records, report

from nnzbench.facts.results import load
from nnzbench.papers.catalogue import experiment
from nnzbench.problems import tables
from nnzbench.problems.operands import make_operands
from nnzbench.problems.problem import Problem

EXPERIMENT = "training_step"


def at(step: str, us: float, by_level: bool = True):  # type: ignore[no-untyped-def]
    """That time on the problems of a step, halved at 90 % zeros."""

    def time(p: Problem) -> float | None:
        if not p.label.endswith(f"_{step}") or (step == "weights" and p.label.endswith("dense_weights")):
            return None
        return us / 2 if by_level and p.sparsity == 0.9 else us

    return time


def dense(us: float):  # type: ignore[no-untyped-def]
    return lambda p: us if p.op == "spmm" or p.label.endswith("_dense_weights") else None


TIMED: tuple[Timed, ...] = (
    ("sputnik", "heuristic_x", at("forward", 20.0)),
    ("sputnik", "y2", at("forward", 10.0)),
    ("sputnik_transposed", "heuristic_x", at("input", 14.0)),
    ("sputnik_sddmm", "heuristic_x", at("weights", 12.0)),
    ("ring_sddmm", "n128", at("weights", 6.0)),
    ("cusparse", "csr_default_row", lambda p: 60.0 if p.op in ("spmm", "sddmm") else None),
    ("cublas", "f32_rowmajor", dense(20.0)),
    ("cublas", "tf32_rowmajor", dense(5.0)),
)


def test_a_step_is_the_sum_of_the_fastest_of_each_part(tmp_path: Path) -> None:
    page, drawn = report(tmp_path, records(EXPERIMENT, TIMED))
    assert "2.00× at 70 %, 2.00× at 80 %, 4.00× at 90 % zeros" in page  # 60 over 10 + 14 + 6
    assert "against TF32 0.50× at 70 %, 0.50× at 80 %, 1.00× at 90 % zeros" in page
    assert "| Sputnik's kernels, fp32 | best dense fp32 | **1.67×** (10 of 10 faster)" in page
    assert "| best kernel of each step, fp32 | cuSPARSE, fp32 | **6.00×** (10 of 10 faster)" in page
    assert "| lstm2k | 32 | 90 % | 5.0 + 7.0 + 3.0 = **15.0** | 20.0 + 20.0 + 20.0 = **60.0** |" in page
    steps = drawn[(drawn["row"] == "step") & (drawn["way"] == "best-f32")].set_index(
        ["layer", "batch", "level", "step"]
    )
    assert steps.loc[("gru2k", 128, 0.7, "weights"), "kernel"] == "ring_sddmm"
    assert steps.loc[("gru2k", 128, 0.7, "forward"), "variant"] == "y2"


def test_the_page_begins_with_whole_steps(tmp_path: Path) -> None:
    page, _ = report(tmp_path, records(EXPERIMENT, TIMED, keep=lambda p: not p.label.startswith("rnn2k_b32_input")))
    answer = page.partition("**Answer.** ")[2].partition("\n")[0]
    said = "Sputnik's kernels are **3.33×** as fast as best dense fp32 (hot, faster on 9 of 9)"  # 60 over 18
    beside = "the fastest sparse kernels 4.00×"
    assert answer.startswith(f"Of a whole step at 90 % zeros: {said}, {beside}. Of a whole step at 80 % zeros: ")
    assert f"| {beside[:-6]} | of a whole step at 70 % zeros (9) | 2.00× (9) | 0.50× (0) | 6.00× (9) |" in page


def test_a_step_without_one_of_its_parts_has_no_sum(tmp_path: Path) -> None:
    some = records(EXPERIMENT, TIMED, keep=lambda p: not p.label.startswith("rnn2k_b32_input"))
    page, drawn = report(tmp_path, some)
    assert "10 of 10" not in page
    assert "9 of 9 faster" in page
    assert set(drawn[drawn["row"] == "ratio"]["count"]) == {9}


def test_bars_are_stacked_to_the_ratio(tmp_path: Path, figures: dict[str, Figure]) -> None:
    fake_records.drawn(load(fake_records.write(tmp_path / "r", records(EXPERIMENT, TIMED))))
    (figure,) = figures.values()
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["batch 32", "batch 128"]
    tops = [bar.get_y() + bar.get_height() for bar in figure.axes[0].patches]
    assert tops[2::3][:4] == pytest.approx([0.5, 0.5, 0.25, 1.0])
    title = (
        "A whole step at 90 % zeros: sparse is 4.00× as fast as best dense fp32 and 1.00× as fast as best dense TF32"
    )
    assert figure.texts[0].get_text() == title
    apart(figure)


def test_each_kernel_runs_the_step_that_it_is_for() -> None:
    one = experiment(EXPERIMENT)
    steps = {name: [p.label for p in one.problems() if one.takes(name, p)] for name in ("sputnik", "cublas")}
    assert len(steps["cublas"]) == 100
    assert {label.rpartition("_")[2] for label in steps["sputnik"]} == {"forward"}


def test_the_input_gradient_has_the_transpose_of_the_layers_own_weights() -> None:
    forward, backward = (
        next(p for p in tables.load(EXPERIMENT) if p.label == f"lstm1k_b32_{step}" and p.sparsity == 0.9)
        for step in ("forward", "input")
    )
    assert (backward.m, backward.k) == (forward.k, forward.m)
    one, other = make_operands(forward).sparse, make_operands(backward).sparse
    assert (other.to_dense() == one.to_dense().T).all()
