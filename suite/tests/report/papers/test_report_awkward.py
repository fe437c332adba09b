"""The page of `awkward_sizes` from invented records with known counts."""

from __future__ import annotations

from pathlib import Path

import fake_records

from nnzbench.report.text import checked
from nnzbench.site.build import build


def test_counts_are_by_kernel_op_and_type_and_times_are_not_shown(tmp_path: Path) -> None:
    rows = []
    for problem in ("column_33x70x1_70_uniform", "row_1x64x8_50_uniform"):
        told = {"experiment": "awkward_sizes", "problem": problem, "relative_error": 2e-7}
        rows += [fake_records.record(variant=variant, **told) for variant in ("a", "b")]
        rows.append(fake_records.failed(fake_records.record(kernel="ring", **told), "wrong", "relative error 2"))
        rows.append(fake_records.failed(fake_records.record(kernel="aspt", **told), "unsupported", "32 columns"))
    fake_records.write(tmp_path / "nvidia-h200" / "awkward_sizes", rows)
    (built,) = build(tmp_path, ["awkward_sizes"])
    text = built.page.read_text()
    assert "**4 candidates of 1 kernels on 2 problems were right, 2 were wrong or failed.**" in text
    assert "| sputnik | spmm | f32 | 2 | 4 | 0 | 0 | 2e-07 |" in text
    assert "| ring | spmm | f32 | 0 | 0 | 2 | 0 | – |" in text
    summary = (built.page.parent / "summary.csv").read_text()
    assert "aspt,spmm,f32,0,0,0,2" in summary


def test_the_largest_error_is_of_right_candidates_and_problems_are_those_with_one() -> None:
    rows = [fake_records.record(problem=f"p{at}", relative_error=error) for at, error in enumerate((2e-7, 3e-6, 1e-7))]
    wrong = fake_records.failed(fake_records.record(problem="p9"), "wrong", "relative error 2")
    (found,) = checked.counted([*rows, wrong]).to_dict("records")
    assert (found["problems"], found["right"], found["failed"]) == (3, 3, 1)
    assert found["largest_error"] == 3e-6
