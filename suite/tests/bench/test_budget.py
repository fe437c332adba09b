"""Runs with a time limit: what comes first, what is left out, what a later run goes on with."""

import contextlib
import math
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fakes import FakeDevice, FakeKernel, Silent
from small_sweeps import PEAKS, SLOW, Small, tuning

from nnzbench.bench import costs as prices
from nnzbench.bench.budget import Resources, Schedule, make_schedule, spread
from nnzbench.bench.costs import GPU_S, Costs
from nnzbench.bench.session import Session
from nnzbench.bench.steps import Queue, Step
from nnzbench.bench.sweep import Choice, carry_out, opened
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels import registry
from nnzbench.kernels.registry import About
from nnzbench.results.records.beside import TUNING
from nnzbench.results.records.record import RecordError, read_records

PROBLEM = Problem("one", "p0", "spmm", 8, 8, 8, 0.5, "uniform:0")


class Many(Small):
    count = 6


def experiments(*kernels, names=("one", "two")):
    return [
        Many(name, "", f"paper of {name}", "", {kernel.name: ("f32",) for kernel in kernels}, policies=("hot", "cold"))
        for name in names
    ]


def run(
    tmp_path, kernels, seconds, costs=None, choice=None, per_candidate=0.0, before=None, names=("one", "two"), **options
):
    """Plans and carries out; the clock stands still but for `per_candidate` seconds at each `prepare`."""
    device = FakeDevice()
    clock = device.timer.clock

    def pass_time():
        clock.now += per_candidate

    for kernel in kernels:
        kernel.after_prepare = before or pass_time
    session = Session(device, {kernel.name: kernel for kernel in kernels}, PEAKS, {"driver": "1"}, clock)
    choice, progress = choice or Choice(resume=True), Silent()
    chosen = experiments(*kernels, names=names)
    with opened(chosen, session, lambda name: tmp_path / name, choice, progress, whole=False) as found:
        plan = make_schedule(found, costs or Costs(), seconds, **options)
        started = clock()
        queue = Queue(plan.steps, started + seconds, clock)
        carry_out(queue, found, progress)
        done = SimpleNamespace(seconds=clock() - started, left_out=tuple(queue.not_done()))
    return plan, done


def rows(tmp_path, name="one"):
    return read_records(tmp_path / name / "records.csv")


def scopes(tmp_path, name="one"):
    return [(row.problem, row.kernel, row.scope) for row in TUNING.read(tmp_path / name)]


def test_every_problem_has_its_first_choice_before_anything_is_tuned(tmp_path):
    run(tmp_path, [FakeKernel(variants=SLOW)], 1000.0)
    found = [scope for _, _, scope in scopes(tmp_path)]
    assert found == ["first"] * 6 + ["all"] * 6
    assert len(rows(tmp_path)) == 6 * 5 * 2  # every candidate, hot and cold, once
    assert [row.variant for row in rows(tmp_path)][:12] == ["v0"] * 12


def test_what_is_measured_stays_within_the_time_and_what_is_left_out_is_named(tmp_path):
    kernels = [FakeKernel(variants=SLOW)]
    plan, done = run(tmp_path, kernels, 6 * 1.05 * 1.1, per_candidate=1.0)
    assert sum(step.scope == "first" for step in plan.steps) == 12
    one, two = len(scopes(tmp_path)), len(scopes(tmp_path, "two"))
    assert abs(one - two) <= 1  # each paper has half of the time
    assert 6 <= one + two < 9  # six as planned, and what fits besides as each took less than was predicted
    assert len(done.left_out) == len(plan.steps) - one - two
    assert done.seconds < 6 * 1.05 * 1.1
    text = "\n".join(plan.unreached(done.left_out))
    assert f"one: {6 - one} of 6 problems not reached" in text
    assert "one: 6 of 6 problems not tuned" in text
    assert "one: untuned 3 of 6, tuned 0 of 6 problems" in "\n".join(plan.lines())
    assert list(plan.lines())[-1] == "  6 of 12 problems don't fit: to run all 12 untuned takes about 13 s"
    assert sum(line.startswith("  not ") for line in plan.lines()) == 6
    assert "  not two p5 f32, 1 s" in plan.lines()
    together = list(plan.lines(Resources(4, 1)))
    assert together[:-1] == list(plan.lines())
    assert together[-1] == "  with --cluster local (extra `cluster`), as 4 processes, about 3 s"
    assert list(plan.lines(Resources())) == list(plan.lines())


def test_processes_or_gpus_are_what_a_plan_waits_for():
    assert Resources().wall_s(10.0, 4.0) == 10.0
    assert Resources(8, 2).wall_s(80.0, 4.0) == pytest.approx(10.0, rel=0.01)
    assert Resources(8, 2).wall_s(80.0, 40.0) == pytest.approx(20.0, rel=0.03)
    assert 11.5 < Resources(8, 1).wall_s(80.0, 10.0) < 13.0  # of ten seconds each, one waits for the other
    assert Resources(2, 2).wall_s(20.0, 20.0) == 10.0  # each process has a GPU of its own
    costs = Costs()
    costs.add("one", replace(tuning("row_stream", "p0", 10, 20.0), gpu_seconds=1.0))
    assert costs.first_gpu("one", PROBLEM, "row_stream") == pytest.approx(0.1)
    assert costs.tuning_gpu("one", PROBLEM, "row_stream") == pytest.approx(0.9)
    assert costs.first_gpu("one", PROBLEM, "unheard_of") == pytest.approx(GPU_S, rel=1e-3)
    large = replace(PROBLEM, name="p1", m=50_000, n=20_000)
    assert costs.first_gpu("one", large, "row_stream") == pytest.approx(GPU_S + 4.0 * prices.GPU_S_PER_GB, rel=1e-2)
    assert costs.first("one", replace(large, name="p0"), "row_stream") == 2.0
    assert prices.operands_s(large) == pytest.approx(prices.OPERANDS_S + 1e3 * prices.OPERANDS_S_PER_MILLION, rel=1e-2)


def test_a_plan_ends_with_its_longest_step():
    short, long = (Step("one", "paper", PROBLEM, ("fake",), "first", seconds) for seconds in (1.0, 30.0))
    every = frozenset(range(9))
    assert Schedule((short,) * 8 + (long,), every, 99.0).seconds == 38.0
    assert Schedule((short,) * 8 + (long,), every, 99.0, Resources(4, 1)).seconds == 30.0
    assert Schedule((long,) * 9, every, 99.0, Resources(4, 1)).seconds == pytest.approx(67.5 + 15.0)
    assert Schedule((long,) * 9, every, 99.0, Resources(4, 1), room_s=70.0).seconds == 70.0


@pytest.mark.parametrize(("processes", "fit"), [(1, 2), (4, 8)])
def test_no_step_is_planned_that_would_end_too_late(processes, fit):
    costs = Costs()
    costs.add("one", tuning("fake", "p0", 1, 10.0, "first"))
    plan = planned(costs, 30.0, 12, names=("one",), scopes=("first",), resources=Resources(processes, 1))
    assert len(plan.steps) == 12
    assert len(plan.fitting) == fit


@pytest.mark.parametrize(("budget", "last"), [(30.0, True), (90.0, False)])
def test_what_costs_much_more_than_the_rest_comes_last_where_not_all_fits(budget, last):
    costs = Costs()
    for at in range(8):
        costs.add("one", tuning("fake", f"p{at}", 1, 40.0 if at == 0 else 5.0, "first"))
    order = [step.problem.name for step in planned(costs, budget, 8, names=("one",), scopes=("first",)).steps]
    even = ["p0", "p4", "p2", "p6", "p1", "p5", "p3", "p7"]
    assert order == ([*even[1:], "p0"] if last else even)


def test_rows_of_a_run_that_stopped_have_hot_and_cold_and_all_kernels(tmp_path):
    kernels = [FakeKernel("a", SLOW), FakeKernel("b", SLOW)]
    run(tmp_path, kernels, 12.0, per_candidate=1.0)
    for name in ("one", "two"):
        groups = {}
        for row in rows(tmp_path, name):
            groups.setdefault(row.problem, set()).add((row.kernel, row.policy))
        assert groups
        assert all(group == {(k, p) for k in "ab" for p in ("hot", "cold")} for group in groups.values())


def planned(costs, budget, count, leads=(), names=("one", "two", "three"), scopes=("first", "all"), **options):
    """A schedule of experiments of so many problems each, of which nothing is recorded that `scopes` would."""
    nothing = SimpleNamespace(waiting=lambda problem, names, scope="all": list(names) if scope in scopes else [])
    there = [
        (
            replace(experiments(FakeKernel(), names=(name,))[0], leads=name in leads),
            nothing,
            [(Problem(name, f"p{at}", "spmm", 8, 8, 8, 0.5, f"uniform:{at}"), ["fake"]) for at in range(count)],
        )
        for name in names
    ]
    return make_schedule(there, costs, budget, **options)


def named(plan):
    steps = [plan.steps[at] for at in sorted(plan.fitting)]
    return [(step.experiment, step.problem.name, step.scope) for step in steps]


def test_what_leads_and_what_is_typical_is_tuned_before_anything_else():
    costs = Costs()
    for at in range(4):
        costs.add("one", tuning("fake", f"p{at}", 10, 20.0))
        costs.add("two", tuning("fake", f"p{at}", 10, 10.0))
        costs.add("three", tuning("fake", f"p{at}", 10, 5.0))
    typical = {"one": ("p3",), "two": ("p1", "p2"), "three": ("p2",)}
    plan = planned(costs, 130.0, 4, leads=("one",), typical=typical)
    tuned = named(plan)
    assert tuned[:6] == [
        ("one", "p3", "all"),  # its own typical problem first, and half of the time
        ("one", "p0", "all"),
        ("one", "p2", "all"),
        ("three", "p2", "all"),  # the cheaper first
        ("two", "p1", "all"),
        ("two", "p2", "all"),  # and its second one when every other had its first
    ]
    assert tuned[6] == ("one", "p1", "all")  # the rest of what leads
    assert {scope for *_, scope in tuned[7:]} == {"first", "all"}  # of what is not begun
    assert len({step[:2] for step in tuned[:7]} & {step[:2] for step in tuned[7:]}) == 0
    assert plan.line() == "2.2 min: 9 problems tuned and 3 untuned, of 3 experiments"


def test_a_typical_problem_that_is_too_dear_to_tune_is_run_untuned():
    costs = Costs()
    costs.add("one", tuning("fake", "p0", 100, 400.0))
    costs.add("one", tuning("fake", "p0", 1, 4.0, "first"))
    plan = planned(costs, 60.0, 1, typical={"one": ("p0",)}, names=("one",))
    assert named(plan) == [("one", "p0", "first")]


def test_a_later_run_goes_on_with_the_typical_problems_that_are_left(tmp_path):
    costs = Costs()
    costs.add("one", tuning("fake", "p0", 5, 5.0))
    for _ in range(2):
        typical = {"one": [f"p{at}" for at in (2, 3, 4)]}
        run(tmp_path, [FakeKernel(variants=SLOW)], 8.0, costs, per_candidate=1.0, names=("one",), typical=typical)
    tuned = [problem for problem, _, scope in scopes(tmp_path) if scope == "all"]
    assert tuned == ["p2", "p3"]


def test_papers_take_turns_in_tuning_too_each_where_it_promised_most(tmp_path):
    costs = Costs()
    for name, problem, best in (("one", "p1", 2.0), ("one", "p4", 9.9), ("two", "p5", 5.0), ("two", "p2", 3.0)):
        costs.add_gain(name, problem, "f32", "fake", 10.0, best)
    plan, _ = run(tmp_path, [FakeKernel(variants=SLOW)], 0.001, costs)
    tunings = [step for step in plan.steps if step.scope == "all"]
    order = [step.experiment for step in tunings]
    assert all(set(order[at : at + 2]) == {"one", "two"} for at in range(0, 12, 2))
    one, two = ([step.problem.name for step in tunings if step.experiment == name] for name in ("one", "two"))
    assert (one[0], one[-1], two[0], two[-1]) == ("p1", "p4", "p2", "p5")


def test_a_step_takes_processes_and_gpus_away_from_others():
    on_gpus, on_processors = (Step("one", "paper", PROBLEM, (), "all", *both) for both in ((6.0, 4.0), (24.0, 1.0)))
    assert Resources(16, 2).price_s(on_processors) == 24.0 / 16 + 1.0 / 2
    assert Resources().price_s(on_gpus) < Resources().price_s(on_processors)
    assert Resources(16, 1).price_s(on_gpus) > Resources(16, 1).price_s(on_processors)


def test_a_library_runs_its_defaults_untuned_and_comes_before_what_it_is_compared_with(tmp_path, monkeypatch):
    library = FakeKernel(
        "z_library",
        {"f32_default_nn": (9.0, ""), "f32_algo1_nn": (5.0, ""), "f32_default_nt": (8.0, ""), "tf32_x": (3.0, "")},
    )
    mine = FakeKernel("mine", {"rule": (4.0, ""), "other": (3.0, ""), "paper_a": (7.0, ""), "paper_b": (6.0, "")})
    for kernel, about in ((library, About("library")), (mine, About("own", paper_variants="paper_"))):
        monkeypatch.setitem(registry._registry, kernel.name, kernel)
        monkeypatch.setitem(registry._about, kernel.name, about)
    plan, _ = run(tmp_path, [mine, library], 1e6, choice=Choice(resume=True, problems=("p0",)))
    assert plan.steps[0].kernels == ("z_library", "mine")
    tried = {(row.kernel, row.scope): row.candidates for row in TUNING.read(tmp_path / "one")}
    assert tried == {("z_library", "first"): 3, ("mine", "first"): 2, ("z_library", "all"): 4, ("mine", "all"): 4}
    firsts = [row.variant for row in rows(tmp_path) if row.policy == "hot"][:5]
    assert firsts == ["f32_default_nn", "f32_default_nt", "tf32_x", "rule", "paper_a"]


@pytest.mark.parametrize("names", [("rule_a", "heuristic_b", "c", "d"), ("heuristic_b", "rule_a", "c", "d")])
def test_what_the_paper_chooses_runs_untuned_beside_our_rule(tmp_path, monkeypatch, names):
    kernel = FakeKernel("both", dict.fromkeys(names, (4.0, "")))
    monkeypatch.setitem(registry._registry, kernel.name, kernel)
    monkeypatch.setitem(registry._about, kernel.name, About("paper", paper_variants="heuristic_"))
    run(tmp_path, [kernel], 1e6, choice=Choice(resume=True, problems=("p0",)))
    untuned = {row.untuned for row in TUNING.read(tmp_path / "one") if row.scope == "first"}
    assert untuned == {" ".join(names[:2])}


def test_records_are_not_replaced_by_a_run_that_may_not_bring_them_again(tmp_path):
    run(tmp_path, [FakeKernel(variants=SLOW)], 1000.0)
    with pytest.raises(RecordError, match=r"60 of which this run does not bring again: add --yes"):
        run(tmp_path, [FakeKernel(variants=SLOW)], 1000.0, choice=Choice(overwrite=True))


@pytest.mark.parametrize("count", [1, 2, 3, 6, 31])
def test_each_beginning_of_a_table_lies_evenly_over_it(count):
    work = [(Problem("t", f"p{i}", "spmm", 8, 8, 8, 0.5, f"uniform:{i}"), ["k"]) for i in range(count)]
    order = [int(problem.name[1:]) for problem, _ in spread(work)]
    assert sorted(order) == list(range(count))
    for some in range(2, count):
        gaps = [b - a for a, b in zip([0, *sorted(order[:some])], [*sorted(order[:some]), count], strict=True)]
        assert max(gaps) <= 4 * math.ceil(count / some)


@pytest.mark.parametrize("ended", ["by its budget", "by an interrupt"])
def test_a_run_that_is_gone_on_with_has_the_cells_of_one_that_was_not_stopped(tmp_path, ended):
    moments, left = random.Random(5), 0

    def stop():
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt

    def piece(seconds, before=None):
        kernels = [FakeKernel("a", SLOW), FakeKernel("b", SLOW)]
        with contextlib.suppress(KeyboardInterrupt):
            return run(tmp_path / "pieces", kernels, seconds, per_candidate=1.0, before=before)[1].left_out

    for _ in range(4):
        left = moments.randrange(1, 12)
        piece(20.0) if ended == "by its budget" else piece(1e6, stop)
    assert piece(1e6) == ()
    run(tmp_path / "whole", [FakeKernel("a", SLOW), FakeKernel("b", SLOW)], 1e6)
    for name in ("one", "two"):
        pieces, whole = (rows(tmp_path / part, name) for part in ("pieces", "whole"))
        assert sorted(row.key for row in pieces) == sorted(row.key for row in whole)
        assert {(row.key, row.selected) for row in pieces} == {(row.key, row.selected) for row in whole}


def test_nothing_is_tuned_on_a_problem_whose_first_choices_did_not_fit():
    costs = Costs()
    for at in range(2):
        costs.add("one", tuning("fake", f"p{at}", 1, (100.0, 1.0)[at], "first"))
    assert set(named(planned(costs, 60.0, 2, names=("one",)))) == {("one", "p1", "first"), ("one", "p1", "all")}
