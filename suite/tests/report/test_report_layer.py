"""`Your layer` of index.html: the nearest recorded problems and the crossover, run by Node where it is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from html_reports import data_of, no_claims, page_of_reports, reports_folder  # noqa: F401

SCRIPT = Path(__file__).resolve().parents[2] / "nnzbench" / "report" / "static" / "layer.js"
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")


def problem(m=1024, k=2048, n=64, zeros=0.9):
    return {"op": "spmm", "m": m, "k": k, "n": n, "nnz": round(m * k * (1 - zeros))}


def rows(*cases):
    """Rows of problems with a dense and a sparse time each; a problem's rows share the object, as on the page."""
    return {
        "problems": [one for one, _, _ in cases],
        "rows": [
            {"at": at, "us": us, "series": {"dense": dense}}
            for at, (_, *times) in enumerate(cases)
            for us, dense in zip(times, (True, False), strict=True)
        ],
    }


def run(call: str, given: dict) -> object:
    code = f"""
      const layer = require({json.dumps(str(SCRIPT))});
      const given = {json.dumps(given)};
      const rows = given.rows.map((row) => ({{ ...row, problem: given.problems[row.at] }}));
      console.log(JSON.stringify({call}));
    """
    done = subprocess.run(["node", "-e", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_node
def test_the_nearest_problem_is_one_octave_for_a_factor_of_two():
    given = rows((problem(n=512), 10.0, 5.0), (problem(n=128), 10.0, 20.0), (problem(m=4096), 10.0, 5.0))
    found = run("layer.nearest({m: 1024, k: 2048, n: 64, zeros: 0.9}, rows, 2)", given)
    assert [round(one["octaves"], 2) for one in found] == [1.0, 2.0]
    assert found[0]["problem"]["n"] == 128
    assert found[0]["over"] == 0.5


@needs_node
def test_a_problem_without_a_dense_time_is_no_contest():
    given = rows((problem(), 10.0, 5.0))
    given["rows"] = [row for row in given["rows"] if not row["series"]["dense"]]
    assert run("layer.nearest({m: 1024, k: 2048, n: 64, zeros: 0.9}, rows, 2)", given) == []


@needs_node
@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        ([(10, 5), (10, 10), (10, 20)], {"winner": "both", "n": 64}),
        ([(10, 5), (10, 6), (10, 7)], {"winner": "sparse"}),
        ([(10, 15), (10, 16), (10, 17)], {"winner": "dense"}),
    ],
)
def test_the_crossover_lies_between_recorded_widths(times, wanted):
    given = rows(*((problem(n=n), dense, sparse) for n, (dense, sparse) in zip((32, 64, 128), times, strict=True)))
    found = run("layer.crossover({m: 1024, k: 2048, n: 64, zeros: 0.9}, rows)", given)
    assert {name: found[name] for name in wanted} == wanted
    assert (found["least"], found["most"]) == (32, 128)
    assert run("layer.crossover({m: 1024, k: 2048, n: 64, zeros: 0.5}, rows)", given) is None


def test_problems_carry_their_sizes(page):
    data = data_of(page)
    problems = data["problems"]
    assert all(size >= 1 for name in ("m", "k", "n") for size in problems[name])
    assert set(problems["plain"]) <= {0, 1}
    assert any(one["dense"] for one in data["series"])
    assert 'id="layer"' in page
