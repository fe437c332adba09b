"""Facts and tables of this project's own experiments on invented records with known answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

import fake_records
import pandas as pd
import pytest
from sputnik_records import Timed, records

from nnzbench.facts.results import load
from nnzbench.papers.nnzbench import awkward_sizes, spmm_scaling
from nnzbench.problems.problem import Problem
from nnzbench.records.record import Record
from nnzbench.report import render
from nnzbench.report.pages.view import View
from nnzbench.report.text import checked


def drawn(folder: Path, module: ModuleType, rows: Iterable[Record]) -> tuple[View, pd.Series]:
    """The page's view, and the hot facts that it writes by group, subject and baseline."""
    results = load(fake_records.write(folder, rows))
    render.write(module.page(), results)
    facts = pd.read_csv(folder / "facts.csv").query("policy == 'hot'")
    return View(results, module.page().attributes), facts.set_index(["group", "subject", "baseline"])["ratio"]


def cost(picoseconds: float, launch_us: float = 0.0) -> Callable[[Problem], float | None]:
    """Microseconds at so much per nonzero and column, plus a launch."""
    return lambda p: launch_us + 1e-6 * picoseconds * round(0.1 * p.m * p.k) * p.n


# 104858 x 128 products at 0.1 ps take 1.3421824 us: as much again for the launch doubles the smallest cost
SCALING: tuple[Timed, ...] = (
    ("row_stream", "slow", cost(9.0)),
    ("row_stream", "fast", cost(0.1, launch_us=1.3421824)),
    ("ring", "n128", lambda p: cost({4096: 0.5, 16384: 0.6}.get(p.m, 0.55))(p)),
    ("cusparse", "csr_default_row", lambda p: cost(1.0)(p) if p.m == 1024 else None),
)


def test_the_rates_of_a_kernels_best_and_worst_size_are_those_of_its_costs(tmp_path: Path) -> None:
    rows = records("spmm_scaling", SCALING)
    cold = [dataclasses.replace(one, policy="cold", median_us=2 * (one.median_us or 0)) for one in rows]
    view, facts = drawn(tmp_path, spmm_scaling, [*rows, *cold])
    assert facts["with 1024 columns", "ring", "best cuSPARSE fp32"] == pytest.approx(1 / 0.55, rel=1e-5)
    found = spmm_scaling.spreads(view).set_index(["columns", "kernel", "policy"])
    ring = found.loc[("128", "ring", "hot")]
    assert (ring["best at"], ring["worst at"]) == ("4096×4096×128", "16384×16384×128")
    assert (ring["best TFLOP/s"], ring["best over worst"]) == pytest.approx((2 / 0.5, 1.2), rel=1e-5)
    assert found.loc[("1024", "ring", "cold"), "best TFLOP/s"] == pytest.approx(2 / 1.0, rel=1e-5)
    assert found.loc[("128", "row_stream", "hot"), "best over worst"] == pytest.approx(2.0, rel=2e-3)
    assert set(found.index.get_level_values("kernel")) == {"row_stream", "ring"}  # one size has no spread


def test_problems_of_one_label_are_told_apart_by_their_sizes(tmp_path: Path) -> None:
    view, _ = drawn(tmp_path, spmm_scaling, records("spmm_scaling", SCALING[:1]))
    assert "square 1024×1024×128" in view.names().values()


def test_right_candidates_are_counted_by_kernel_operation_and_type(tmp_path: Path) -> None:
    rows = []
    for problem in ("column_33x70x1_70_uniform", "row_1x64x8_50_uniform"):
        told = {"experiment": "awkward_sizes", "problem": problem, "relative_error": 2e-7}
        rows += [fake_records.record(variant=variant, **told) for variant in ("a", "b")]
        rows.append(fake_records.failed(fake_records.record(kernel="ring", **told), "wrong", "relative error 2"))
        rows.append(fake_records.failed(fake_records.record(kernel="aspt", **told), "unsupported", "32 columns"))
    view, _ = drawn(tmp_path, awkward_sizes, rows)
    counts = ["problems", "right", "failed", "unsupported"]
    found = awkward_sizes.counts(view).set_index(["kernel", "op", "inputs"])[counts].T
    assert found["sputnik", "spmm", "f32"].tolist() == [2, 4, 0, 0]
    assert found["ring", "spmm", "f32"].tolist() == [0, 0, 2, 0]
    assert found["aspt", "spmm", "f32"].tolist() == [0, 0, 0, 2]


def test_the_largest_error_is_of_right_candidates_and_problems_are_those_with_one() -> None:
    rows = [fake_records.record(problem=f"p{at}", relative_error=error) for at, error in enumerate((2e-7, 3e-6, 1e-7))]
    wrong = fake_records.failed(fake_records.record(problem="p9"), "wrong", "relative error 2")
    (found,) = checked.counted([*rows, wrong]).to_dict("records")
    assert (found["problems"], found["right"], found["failed"]) == (3, 3, 1)
    assert found["largest_error"] == 3e-6


@pytest.mark.parametrize("module", [awkward_sizes, spmm_scaling])
def test_records_without_times_make_a_page(module: ModuleType, tmp_path: Path) -> None:
    row = fake_records.record(experiment=module.EXPERIMENT.name, problem="x_1024x1024x128_90_uniform")
    results = load(fake_records.write(tmp_path, [fake_records.failed(row, "timeout", "took too long")]))
    assert "took too long" in render.write(module.page(), results).read_text(encoding="utf-8")
