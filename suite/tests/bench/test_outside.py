"""Kernels from outside under a timer made of Python: what only their launches between samples can tell."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import FakeTimer

from nnzbench.bench import values
from nnzbench.bench.trial import Conditions, try_candidate
from nnzbench.bench.values import PAIRS, _places, outside
from nnzbench.core.plan import Candidate, Plan, Prepared, Unsupported
from nnzbench.data.problems.check import TOLERANCE
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import reference
from nnzbench.kernels.vendor.support import to_storage

PROBLEM = Problem("x", "p", "spmm", 16, 12, 8, 0.5, "uniform:0")


class Held:
    def __init__(self, array):
        self.array, self.shape, self.dtype = array.copy(), array.shape, array.dtype

    def read(self):
        return self.array.copy()

    def write(self, array):
        self.array[...] = array


def tried(cheat, form=lambda b: b, undo=lambda b: b, takes=lambda b: 100.0):
    """The outcome of a product of 100 us, or `takes(b)`, where `cheat(b, c, launches)` does not say that it left."""
    operands = make_operands(PROBLEM)
    weights = operands.sparse.to_dense()
    buffers = {"b": np.ascontiguousarray(form(operands.dense["b"])), "c": np.zeros((PROBLEM.m, PROBLEM.n), np.float32)}
    buffers["w"], moved = weights, []
    held = {name: Held(array) for name, array in buffers.items()}
    timer, launches = FakeTimer(), []

    def run():
        launches.append(None)
        left = cheat(held["b"].array, held["c"].array, len(launches))
        timer.enqueued_us += 1.0 if left else takes(held["b"].array)
        if not left:
            held["c"].write(weights @ undo(held["b"].array))

    def poison():
        held["c"].array[:] = np.nan

    plan = Plan("x", "cuda", "none.cu", {}, buffers, "c", ())
    prepared = Prepared(run, held["c"].read, poison, lambda: None, arrays=held, copied=moved.append)
    known = outside(PROBLEM, operands, lambda: reference(PROBLEM, operands))
    conditions = Conditions(("hot", "cold"), clock=timer.clock, operands=operands, outside=known)
    candidate = Candidate("x", "f32", lambda: prepared, plan)
    outcome = try_candidate(candidate, timer, known.given.truth, conditions, lambda run: None)
    assert not moved, "values are written where it was prepared, and nowhere else"
    return outcome


@pytest.mark.parametrize("form", [lambda b: b, np.transpose])
def test_a_kernel_that_computes_is_timed_as_it_is(form):
    outcome = tried(lambda b, c, launches: False, form, form)
    assert (outcome.status, outcome.reason) == ("ok", "")
    assert {policy: one.median for policy, one in outcome.measurements.items()} == pytest.approx(
        {"hot": 100.0, "cold": 100.0}
    )


def test_what_a_second_launch_over_the_same_values_leaves_out_is_missing():
    last = [None]

    def skips(b, c, launches):
        same = np.array_equal(last[0], b)
        last[0] = b.copy()
        return same

    assert tried(skips).reason.startswith("launched again over the same values: all 128 elements are NaN")


def test_each_sample_is_over_values_that_the_one_before_was_not(monkeypatch):
    """It is into a poisoned output, after a launch over these values; and no line of L2 persists to a cold one."""
    seen, forgotten, odds = [], [], []
    monkeypatch.setattr(values, "forget_persisting_l2", lambda: forgotten.append(len(seen)))
    monkeypatch.setattr(values.secrets, "randbelow", lambda most: odds.append(most) or 0)
    outcome = tried(lambda b, c, launches: bool(seen.append((float(b.sum()), bool(np.isnan(c).all())))))
    changes = sum(one[0] != other[0] for one, other in itertools.pairwise(seen))
    assert sum(one[0] == other[0] and other[1] for one, other in itertools.pairwise(seen)) >= len(odds)
    assert changes > sum(len(one.samples_us) for one in outcome.measurements.values())
    assert odds == [*range(1, len(odds) + 1)], "of so many samples each is kept with the same probability"
    assert len(forgotten) == len(outcome.measurements["cold"].samples_us) + PAIRS


def test_a_launch_that_is_left_out_over_the_same_values_shows_in_its_time():
    seen = []

    def skips(b, c, launches):
        same = bool(seen) and np.array_equal(seen[-1], b) and not np.isnan(c).any()
        seen[:] = [b.copy()]
        return same

    outcome = tried(skips)
    assert outcome.status == "wrong"
    assert outcome.reason == "a launch over new values takes 100 us, and over the same values again 1 us"
    assert not outcome.measurements


@pytest.mark.parametrize(
    ("new", "same", "status"), [(152.0, 100.0, "ok"), (154.0, 100.0, "wrong"), (5.9, 2.0, "ok"), (6.1, 2.0, "wrong")]
)
def test_new_values_may_take_half_as_long_again_and_three_microseconds_more(new, same, status):
    seen = []

    def takes(b):
        again = bool(seen) and np.array_equal(seen[-1], b)
        seen[:] = [b.copy()]
        return same if again else new

    assert tried(lambda b, c, launches: False, takes=takes).status == status


def test_two_slow_launches_over_new_values_of_five_say_nothing():
    exact, launches = [], []
    tried(lambda b, c, number: False, takes=lambda b: exact.append(None) or 100.0)
    slow = {len(exact) - 2 * PAIRS, len(exact) - 2 * PAIRS + 2}  # the last one of all is checked
    taken = tried(
        lambda b, c, number: False, takes=lambda b: launches.append(None) or 100.0 + 900 * (len(launches) in slow)
    )
    assert (taken.status, len(launches)) == ("ok", len(exact))


def test_launches_that_write_nothing_while_they_are_timed_are_found_by_one_of_them():
    outcome = tried(lambda b, c, launches: launches > 5)
    assert outcome.status == "wrong"
    assert outcome.reason.startswith("in a timed launch picked at random: all 128 elements are NaN")


@pytest.mark.parametrize("timed", [True, False])
def test_the_error_of_a_launch_over_other_values_is_the_rows(timed):
    """Off are those that samples are taken of alone, or the first over other values, by less than the tolerance."""
    exact, launches = [], []
    tried(lambda b, c, number: False, undo=lambda b: exact.append(None) or b)

    def undo(b):
        launches.append(None)
        off = 5 < len(launches) < len(exact) - 2 * PAIRS if timed else len(launches) == 2
        return b * (1 + 0.5 * TOLERANCE["f32"]) if off else b

    outcome = tried(lambda b, c, number: False, undo=undo)
    assert outcome.status == "ok"
    assert outcome.error == pytest.approx(0.5 * TOLERANCE["f32"], rel=0.2)


def test_an_operand_that_the_last_timed_launch_changes_is_told():
    exact = []
    tried(lambda b, c, number: bool(exact.append(None)))
    outcome = tried(lambda b, c, number: number == len(exact) - 1 and bool(b.fill(1.0)))
    assert (outcome.status, outcome.reason) == ("wrong", "it changed its operand b, in the buffer 'b'")


def test_the_operands_of_a_plan_are_in_its_buffers_but_its_output_and_a_bias_may_have_another_form():
    b, other = np.arange(6.0, dtype=np.float32).reshape(2, 3), np.ones((4, 2), np.float32)

    def places(op, dense, dtype="f32", **buffers):
        known = SimpleNamespace(problem=SimpleNamespace(op=op, dtype=dtype), given=SimpleNamespace(dense=dense))
        return list(_places(Plan("x", "cuda", "none.cu", {}, {**buffers, "c": b}, "c", ()), known))

    turned = np.ascontiguousarray(b.T)
    for dtype in ("bf16", "f8"):
        stored = to_storage(b, dtype)
        for at, form in enumerate((b, stored, b.T, stored.T)):
            assert places("spmm", {"b": b}, dtype, x=np.ascontiguousarray(form)) == [("x", ("b", at))]
    assert places("pointwise", {"b": b, "bias": np.ones(3, np.float32)}, x=turned.ravel()) == [("x", ("b", 1))]
    assert places("transformer", {"b": b, "k": other}, x=b, y=b) == [("x", ("b", 0)), ("y", ("b", 0))]
    for op, dense in (("spmm", {"b": b, "k": other}), ("transformer", {"k": other})):
        with pytest.raises(Unsupported):
            places(op, dense, x=turned)


@pytest.mark.parametrize("op", ["spmm", "sparse_softmax"])
def test_other_values_are_drawn_anew_and_of_a_softmax_those_of_its_pattern_in_another_order(op):
    one = replace(PROBLEM, op=op, n=12)
    operands = make_operands(one)
    given, other = (getattr(outside(one, operands, lambda: reference(one, operands)), of) for of in ("given", "other"))
    (name, before), (_, after) = (*given.dense.items(), *other.dense.items())
    again = outside(one, operands, None).other.dense[name]
    assert [np.mean(after == old) < 0.5 for old in (before, again)] == [True, True]
    assert op == "spmm" or sorted(after) == sorted(before)
    same = operands if op == "spmm" else replace(operands, sparse=operands.sparse.with_values(after))
    truth = reference(one, replace(same, dense=other.dense if op == "spmm" else {}))
    np.testing.assert_array_equal(other.truth().value, truth.value)


def test_an_operand_in_a_form_of_the_plans_own_is_refused():
    outcome = tried(lambda b, c, launches: False, np.flipud, np.flipud)
    assert outcome.status == "unsupported"
    assert outcome.reason.startswith("no buffer of x holds the operand b as it is given, or transposed")
