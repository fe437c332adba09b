"""Kernels whose result does not follow their weights, which the check of all elements lets pass."""

from dataclasses import replace

import numpy as np
import pytest
from fakes import FakeDevice

from nnzbench.bench.session import Session
from nnzbench.bench.sweep import Choice, run_experiment
from nnzbench.bench.values import ELEMENTS, follow, moved
from nnzbench.core.plan import Plan, Prepared
from nnzbench.core.progress import RunProgress
from nnzbench.data.problems.check import TOLERANCE, Wrong, relative_error
from nnzbench.data.problems.experiment import Experiment
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import reference
from nnzbench.kernels.registry import candidates
from nnzbench.results.records.record import read_records


def problem(dtype="f32", op="spmm", n=8):
    return Problem("x", "p", op, 64, 512, n, 0.5, "uniform:0", dtype)


class Rows(FakeDevice):
    """Computes plans on the host, of weights as `buffers` have them, in float64."""

    compiles = 0

    def prepare(self, plan):
        c = np.full(plan.buffers["c"].shape, np.nan, np.float32)
        a, b = (plan.buffers[name].astype(np.float64) for name in ("a", "b"))

        def run():
            self.timer.launch()
            c[...] = a @ b

        return Prepared(run, c.copy, lambda: c.fill(np.nan), lambda: None, prepare_ms=self.compiles)


class Kernel:
    """A product whose matrix `spoil` changes before it is packed; `source` is its program, of the values."""

    name, paper, ops, dtypes = "ring", "none", frozenset({"spmm"}), frozenset({"f32", "bf16"})

    def __init__(self, spoil, source=lambda values: "none.cu"):
        self.spoil, self.source, self.planned = spoil, source, 0

    def plans(self, problem, operands, arch):
        self.planned += 1
        a = self.spoil(operands.sparse).to_dense()
        buffers = {"a": a, "b": operands.dense["b"], "c": np.zeros((problem.m, problem.n), np.float32)}
        for variant in ("v1", "v2"):
            yield Plan(variant, "cuda", self.source(a), {}, buffers, "c", (), problem.dtype)


def tried(tmp_path, kernel, dtype="bf16", compiles=0):
    class One(Experiment):
        def problems(self, real=None):
            return [problem(dtype)]

    device = Rows()
    device.compiles, device.compiles_from_cache = compiles, False
    session = Session(device, {"ring": kernel}, clock=device.timer.clock)
    run_experiment(One("x", "", "", "", {"ring": (dtype,)}, ("hot",)), session, tmp_path, Choice(), RunProgress())
    return [(row.variant, row.status, row.reason) for row in read_records(tmp_path / "records.csv")]


def test_a_weight_that_is_dropped_below_the_tolerance_is_found(tmp_path):
    places = []

    def packed(a):
        """Without the weights that were small when it was first packed: no element is off by its tolerance."""
        places.append(np.abs(a.values) < 0.1)
        return a.with_values(np.where(places[0], np.float32(0), a.values))

    found = tried(tmp_path, Kernel(packed))
    assert {status for _, status, _ in found} == {"wrong"}
    assert found[0][2].startswith("over other weights: relative error")


def test_weights_kept_from_before_are_found(tmp_path):
    kept = []

    def first(a):
        kept.append(a)
        return kept[0]

    assert {(status, reason.partition(":")[0]) for _, status, reason in tried(tmp_path, Kernel(first), "f32")} == {
        ("wrong", "over other weights")
    }


def test_it_is_the_same_variant_that_follows_into_a_poisoned_output_within_its_own_tolerance():
    one, device = problem("f32"), Rows()
    operands = make_operands(one)
    known = moved(one, operands, reference(one, operands))
    kernel = Kernel(lambda a: a)
    plain, other = kernel.plans, lambda plan, a: replace(plan, buffers={**plan.buffers, "a": a})
    first = next(iter(plain(one, operands, ""))).buffers["a"]

    def planned(problem, operands, arch):
        v1, v2 = plain(problem, operands, arch)
        yield v1
        yield other(v2, v2.buffers["a"] * 1.001 if operands is known.operands else first)

    kernel.plans = planned
    v1, v2 = candidates(kernel, one, operands, device)
    follow(kernel, v1, one, known, device)
    with pytest.raises(Wrong):
        follow(kernel, v2, one, known, device)
    follow(kernel, replace(v2, tolerance="f16"), one, known, device)
    ready = device.prepare

    def before(plan):
        prepared = ready(plan)
        prepared.run()  # what it leaves is right, and no launch writes it again
        return replace(prepared, run=lambda: None)

    device.prepare = before
    with pytest.raises(Wrong):
        follow(kernel, v1, one, known, device)


def test_a_kernel_is_planned_once_more_a_problem(tmp_path):
    kernel = Kernel(lambda a: a)
    assert [status for _, status, _ in tried(tmp_path, kernel)] == ["ok", "ok"]
    assert kernel.planned == 2


@pytest.mark.parametrize(("source", "ms"), [(lambda a: f"{a.sum()}", 0), (lambda a: "none.cu", 600)])
def test_what_would_cost_a_compilation_or_a_long_preparation_is_left_out(tmp_path, source, ms):
    kept = []
    kernel = Kernel(lambda a: kept.append(a) or kept[0], lambda a: source(a) + str(len(kept) if ms == 0 else ""))
    assert {status for _, status, _ in tried(tmp_path, kernel, "f32", ms)} == {"ok"}


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i8", "f8"])
def test_the_result_over_other_weights_is_that_of_float64(dtype, negative):
    one = problem(dtype)
    operands = make_operands(one)
    values = operands.sparse.values
    operands = replace(operands, sparse=operands.sparse.with_values(-np.abs(values) if negative else values))
    known = moved(one, operands, reference(one, operands))
    whole = reference(one, known.operands)
    np.testing.assert_allclose(known.truth.value, whole.value[known.rows], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(known.truth.scale, whole.scale[known.rows], rtol=1e-9)
    assert (np.diff(known.operands.sparse.offsets) == np.diff(operands.sparse.offsets)).all()
    changed = known.operands.sparse.rows[known.operands.sparse.values != operands.sparse.values]
    assert changed.tolist() == sorted(known.rows) == list(range(64))
    old, new = (one.sparse.values.astype(np.float64) for one in (operands, known.operands))
    assert (old * new <= 0)[old != new].all()
    assert dtype != "i8" or np.abs(new.astype(int)).max() == 127
    assert np.abs(new[old != new]).min() >= min(3.9 * np.abs(old).max(), 7 if dtype == "f8" else 127)
    before = relative_error(reference(one, operands).value[known.rows], known.truth)
    assert before > 5 * TOLERANCE[dtype]


def test_the_weight_of_a_row_that_changes_is_any_of_them():
    short = Problem("x", "p", "spmm", 64, 8, 8, 0.5, "uniform:0")
    operands = make_operands(short)
    matrix = operands.sparse
    at = np.flatnonzero(moved(short, operands, reference(short, operands)).operands.sparse.values != matrix.values)
    place, length = at - matrix.offsets[matrix.rows[at]], matrix.row_lengths[matrix.rows[at]]
    assert {*zip(place[length == 4], length[length == 4], strict=True)} == {(one, 4) for one in range(4)}
    assert matrix.rows[at].tolist() == np.flatnonzero(matrix.row_lengths).tolist()


def test_of_long_results_some_rows_are_compared_and_of_other_operations_nothing():
    one = problem(n=ELEMENTS // 16)
    operands = make_operands(problem())
    wide = operands.dense["b"][:, :1].repeat(one.n, axis=1)
    known = moved(one, type(operands)(operands.sparse, {"b": wide}, ""), reference_of(operands, one.n))
    assert len(set(known.rows)) == 16 < max(known.rows)
    assert moved(problem(op="sddmm"), operands, None) is None


def reference_of(operands, n):
    truth = reference(problem(), operands)
    wide = [np.repeat(part[:, :1], n, axis=1) for part in (truth.value, truth.scale)]
    return type(truth)(*wide)
