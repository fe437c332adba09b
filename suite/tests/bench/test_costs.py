"""What a kernel is expected to cost on a problem: of what was recorded, of what is shipped, else of its kind."""

import csv
import math
from dataclasses import replace

import pytest
from fakes import FakeKernel
from small_sweeps import SLOW, sweep, tuning

from nnzbench.bench import costs as prices
from nnzbench.bench.costs import UNKNOWN_S, Costs, learn
from nnzbench.data.problems.problem import Problem
from nnzbench.results.records.beside import TUNING

PROBLEM = Problem("one", "p0", "spmm", 8, 8, 8, 0.5, "uniform:0")


def test_costs_are_those_of_the_problem_else_of_the_experiment_else_of_the_kernel():
    other, costs = replace(PROBLEM, name="p1"), Costs()
    assert costs.first("one", PROBLEM, "row_stream") == UNKNOWN_S
    costs.add("one", tuning("row_stream", "p0", 10, 20.0))
    costs.add("one", tuning("row_stream", "p2", 10, 40.0))
    assert costs.first("one", PROBLEM, "row_stream") == 2.0
    assert costs.tuning("one", PROBLEM, "row_stream") == 18.0
    assert costs.first("one", other, "row_stream") == costs.first("two", other, "row_stream") == 3.0
    costs.add("one", tuning("row_stream", "p1", 1, 5.0, "first"))
    assert costs.first("one", other, "row_stream") == 5.0
    assert costs.first("one", PROBLEM, "row_stream") == 2.0
    large = replace(PROBLEM, name="p7", m=400, k=500)  # 100,000 nonzeros in the code
    assert costs.first("one", large, "sparsert") == pytest.approx(1e5 * prices.COMPILE_S_PER_NONZERO)
    assert costs.first("one", replace(large, m=4000), "sparsert") < 10.0  # which it refuses
    costs.add("one", tuning("cublas", "p0", 3, 6.0))
    costs.add_compiling("one", "p0", "f32", "row_stream", 3.5)  # alone, it does not share the time of a search
    assert costs.first("one", PROBLEM, "row_stream") == 3.5
    assert costs.first("one", PROBLEM, "cublas") == 6.0  # all of a library's three are defaults
    assert costs.tuning("one", PROBLEM, "cublas") == 0.0
    costs.add("one", tuning("row_stream", "p0", 2, 90.0, "some"))  # of a few, most is what all of them share
    assert costs.tuning("one", PROBLEM, "row_stream") == 16.5


def test_costs_that_are_shipped_stand_in_for_what_was_not_learnt(tmp_path, monkeypatch):
    known = Costs()
    known.add("one", replace(tuning("row_stream", "p0", 10, 20.0), gpu_seconds=5.0))
    known.add("one", replace(tuning("row_stream", "p0", 2, 3.0, "first"), gpu_seconds=0.4))
    known.add_gain("one", "p0", "f32", "row_stream", math.e, 1.0)
    known.add("two", tuning("cublas", "p0", 4, 8.0))
    (tmp_path / "datasets").mkdir()
    with (tmp_path / "datasets" / "costs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([prices.COLUMNS, *prices.table(known)])
    monkeypatch.setattr("nnzbench.core.paths.datasets", lambda: tmp_path / "datasets")
    costs = learn([tmp_path / "nothing"], True)
    problem = replace(PROBLEM, name="p9")
    assert costs.first("one", problem, "row_stream") == 3.0
    assert costs.tuning("one", problem, "row_stream") == 17.0
    assert costs.gain("one", problem, "row_stream") == 1.0
    assert costs.first_gpu("one", problem, "row_stream") == pytest.approx(2 * 0.2)
    assert costs.tuning_gpu("one", problem, "row_stream") == pytest.approx(8 * 0.5)
    assert costs.tuning_gpu("elsewhere", problem, "row_stream") == pytest.approx(8 * 0.5)
    assert costs.first("elsewhere", problem, "cublas") == 8.0
    (tmp_path / "gpu" / "one").mkdir(parents=True)
    TUNING.add(tmp_path / "gpu" / "one", tuning("row_stream", "p0", 1, 0.1, "first"))
    assert learn([tmp_path], True).first("one", problem, "row_stream") < 1.0  # its own runs count alone
    assert learn([tmp_path / "nothing"], False).first("one", problem, "row_stream") == UNKNOWN_S


def test_a_kernel_that_refused_its_first_choice_costs_nothing_to_tune():
    costs = Costs()
    costs.add("one", tuning("tensor_spmm_tf32", "p1", 10, 20.0))
    assert costs.tuning("one", PROBLEM, "tensor_spmm_tf32") > 0.0
    costs.add("one", tuning("tensor_spmm_tf32", "p0", 0, 0.1, "first"))
    assert costs.tuning("one", PROBLEM, "tensor_spmm_tf32") == 0.0
    assert costs.tuning_gpu("one", PROBLEM, "tensor_spmm_tf32") == 0.0


def test_costs_are_learnt_from_files_and_damaged_ones_are_passed_over(tmp_path):
    for name in ("one", "two"):
        sweep(tmp_path / "gpu", FakeKernel(variants=SLOW))
        (tmp_path / "gpu" / "out").rename(tmp_path / "gpu" / name)
    (tmp_path / "gpu" / "two" / "tuning.csv").write_text("problem\nx\n")
    costs = learn([tmp_path], True)
    assert 0 < costs.first("one", PROBLEM, "fake") < UNKNOWN_S
    assert costs.gain("one", PROBLEM, "fake") == pytest.approx(0.0, abs=1e-9)  # its first choice is its fastest
    assert learn([tmp_path], False).first("one", PROBLEM, "fake") == UNKNOWN_S
