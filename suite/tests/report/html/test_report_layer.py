"""`Your layer` of index.html: the nearest recorded problems and the crossover, run by Node where it is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from html_reports import data_of, no_claims, page_of_reports, reports_folder  # noqa: F401

SCRIPT = Path(__file__).resolve().parents[3] / "nnzbench" / "report" / "static" / "layer.js"
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")


ASKED = {"op": "spmm", "m": 1024, "k": 2048, "n": 64, "zeros": 0.9, "math": "f32", "pattern": ""}
DENSE = {"math": "f32", "dense": True}


def problem(m=1024, k=2048, n=64, zeros=0.9, op="spmm"):
    return {"op": op, "m": m, "k": k, "n": n, "nnz": round(m * k * (1 - zeros))}


def row(at, us, kernel="sputnik", math="f32", dense=False, pattern=""):
    return {"at": at, "us": us, "series": {"dense": dense, "math": math, "kernel": kernel, "pattern": pattern}}


def rows(*cases):
    """Rows of problems with a dense and a sparse time each; a problem's rows share the object, as on the page."""
    return {
        "problems": [one for one, _, _ in cases],
        "rows": [
            made
            for at, (_, dense, sparse) in enumerate(cases)
            for made in (row(at, dense, "cublas", dense=True), row(at, sparse))
        ],
    }


def run(call: str, given: dict, asked: dict | None = None) -> object:
    code = f"""
      const layer = require({json.dumps(str(SCRIPT))});
      const given = {json.dumps(given)}, asked = {json.dumps({**ASKED, **(asked or {})})};
      const dense = {json.dumps(DENSE)};
      const rows = given.rows.map((row) => ({{ ...row, problem: given.problems[row.at] }}));
      console.log(JSON.stringify({call}));
    """
    done = subprocess.run(["node", "-e", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_node
def test_the_nearest_problem_is_one_octave_for_a_factor_of_two():
    given = rows((problem(n=512), 10.0, 5.0), (problem(n=128), 10.0, 20.0), (problem(m=4096), 10.0, 5.0))
    found = run("layer.nearest(asked, rows, dense, 2)", given)
    assert [round(one["octaves"], 2) for one in found] == [1.0, 2.0]
    assert found[0]["problem"]["n"] == 128
    assert found[0]["over"] == 0.5


@needs_node
def test_a_problem_without_a_dense_time_is_no_contest():
    given = rows((problem(), 10.0, 5.0))
    given["rows"] = [one for one in given["rows"] if not one["series"]["dense"]]
    assert run("layer.nearest(asked, rows, dense, 2)", given) == []


@needs_node
def test_each_rival_has_its_own_winner():
    given = rows((problem(), 10.0, 5.0))
    given["rows"] += [
        row(0, 4.0, "cublas", "tf32", dense=True),
        row(0, 2.0, "cublas", "f16", dense=True),
        row(0, 8.0, "cusparse"),
        row(0, 1.0, "tensor_spmm", "tf32"),  # of fewer digits: no answer to fp32
    ]
    found = run(
        "layer.rivals(asked, rows).map((one) => [one.label, layer.nearest(asked, rows, one, 1)[0].over])", given
    )
    assert found == [
        ["dense fp32", 2.0], ["dense TF32, fewer digits", 0.8], ["dense fp16, fewer digits", 0.4],
        ["cuSPARSE fp32", 1.6],
    ]  # fmt: skip


@needs_node
def test_cusparse_is_a_sparse_kernel_against_dense_and_not_against_itself():
    given = rows((problem(), 10.0, 5.0))
    given["rows"].append(row(0, 4.0, "cusparse"))
    call = "layer.rivals(asked, rows).map((one) => layer.nearest(asked, rows, one, 1)[0])"
    dense, cusparse = run(call, given)
    assert (dense["over"], cusparse["over"]) == (2.5, 0.8)
    assert cusparse["sparse"]["series"]["kernel"] == "sputnik"


@needs_node
def test_a_kernel_that_needs_a_pattern_answers_for_that_pattern_alone():
    given = rows((problem(), 10.0, 5.0), (problem(op="sddmm"), 10.0, 5.0), (problem(op="spmv", n=1), 10.0, 5.0))
    given["rows"].append(row(0, 1.0, "balanced", pattern="balanced"))
    call = "layer.able(asked, rows).map((one) => [one.at, one.us])"
    assert run(call, given) == [[0, 10], [0, 5], [2, 10], [2, 5]]
    assert [0, 1] in run(call, given, {"pattern": "balanced"})
    assert run(call, given, {"op": "sddmm"}) == [[1, 10], [1, 5]]


@needs_node
@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        ([(10, 5), (10, 10), (10, 20)], {"winner": "both", "n": 64}),
        ([(10, 5), (10, 6), (10, 7)], {"winner": "sparse"}),
        ([(10, 15), (10, 16), (10, 17)], {"winner": "rival"}),
        ([(10, 20), (10, 20), (10, 5)], {"winner": "later", "n": 91}),
        ([(10, 5), (10, 20), (10, 10)], {"winner": "later", "n": 130}),
    ],
)
def test_the_crossover_lies_between_recorded_widths(times, wanted):
    given = rows(*((problem(n=n), dense, sparse) for n, (dense, sparse) in zip((32, 64, 128), times, strict=True)))
    found = run("layer.crossover(layer.widths(asked, rows, dense))", given)
    assert {name: found[name] for name in wanted} == wanted
    assert (found["least"], found["most"]) == (32, 128)
    assert run("layer.crossover(layer.widths(asked, rows, dense))", given, {"zeros": 0.5}) is None


@needs_node
def test_of_several_problems_of_one_width_the_nearest_level_counts_with_either_sides_best():
    given = rows((problem(zeros=0.88), 10.0, 2.0), (problem(), 10.0, 8.0), (problem(), 9.0, 9.0))
    assert run("layer.widths(asked, rows, dense)", given) == [[64, 9 / 8]]


def test_problems_carry_their_sizes(page):
    data = data_of(page)
    problems = data["problems"]
    assert all(size >= 1 for name in ("m", "k", "n") for size in problems[name])
    assert set(problems["plain"]) <= {0, 1}
    assert any(one["dense"] for one in data["series"])
    assert {one["pattern"] for one in data["series"]} <= {"", "balanced", "2:4"}
    assert 'id="layer"' in page
