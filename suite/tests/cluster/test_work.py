"""Which step a free worker gets, and in which order steps are: of schedules that nobody runs."""

from collections import deque
from dataclasses import replace

from nnzbench.cluster.work import Model, abreast
from nnzbench.measure.budget import Schedule, Step
from nnzbench.problems.operands import matrix_of
from nnzbench.problems.problem import Problem, parse


def step(name, scope="first", source="uniform:0", dtype="f32"):
    return Step("one", "paper", Problem("one", name, "spmm", 8, 8, 8, 0.5, source, dtype), ("k",), scope, 1.0)


def model_of(*steps):
    return Model(Schedule(steps, frozenset(), 100.0), {}, deque(steps), 0.0)


def test_a_problem_of_another_type_is_for_the_gpu_that_the_first_was_begun_on():
    """Pages compare fp32 kernels with dense fp16."""
    names = ("a_8x8x8_50_uniform", "a_8x8x8_50_uniform_f16", "b_8x8x8_50_uniform")
    fp32, fp16, other = steps = [step(name, dtype=parse(name).dtype) for name in names]
    model = model_of(*steps)
    here, there = ("host", "GPU 0"), ("host", "GPU 1")
    assert model.next_step(here, (), None) is fp32
    model.begin(fp32, here)
    assert model.next_step(there, (), None) is other
    assert model.next_step(there, (), None) is fp16  # better than nothing
    model.queue.extend([fp16, other])
    model.forget(fp32, here)
    assert model.next_step(there, (), None) is fp16


def test_a_step_that_did_not_fit_while_all_waited_for_the_gpu_is_done_when_nothing_else_is_left():
    late = replace(step("p0"), seconds=10.0)
    model = model_of(late)
    model.predicted, model.taken = 30.0, 120.0
    model.phases["waiting"] = 90.0
    assert model.next_step(("host", "GPU"), (), 9.0) is None
    assert list(model.not_done()) == [late]
    assert model.next_step(("host", "GPU"), (), 11.0) is late
    assert not list(model.not_done())


def test_tuning_waits_for_the_first_choices_though_it_has_the_matrix_and_the_gpu():
    first, tuned = step("p0", "first"), step("p1", "all", "uniform:1")
    model, unit = model_of(first, tuned), ("host", "GPU")
    model.begin(tuned, unit)
    model.begin(first, ("host", "another"))
    assert model.next_step(unit, (), None) is first
    assert model.next_step(unit, (), None) is tuned


def test_experiments_advance_together_and_those_of_one_matrix_stay_together():
    def steps(experiment, matrices, each):
        return [
            replace(step(f"p{at}-{n}", source=f"uniform:{at}", dtype=("f32", "f16")[n % 2]), experiment=experiment)
            for at in range(matrices)
            for n in range(each)
        ]

    every = {name: steps(name, matrices, each) for name, matrices, each in (("a", 9, 1), ("b", 3, 4), ("c", 1, 2))}
    found = abreast([one for some in every.values() for one in some])
    assert "".join(one.experiment for one in found) == "aabbbbaaabbbbccaaabbbba"
    for name, some in every.items():
        assert [one for one in found if one.experiment == name] == some


def test_what_takes_minutes_to_compile_is_begun_early_and_the_rest_keeps_its_order():
    steps = [step(f"p{at}", source=f"uniform:{at}") for at in range(20)]
    steps[-1] = replace(steps[-1], seconds=200.0)
    found = abreast(steps, 500.0)
    assert found.index(steps[-1]) <= 10
    assert [one for one in found if one is not steps[-1]] == steps[:-1]
    assert list(abreast(steps)) == steps


def test_workers_take_several_matrices_at_a_time_each_its_own():
    """Of 25 experiments, all types and widths of a matrix are one worker's, though others take steps in between."""
    steps = [
        replace(step(f"p{at}-{n}", source=f"uniform:{5 * e + at}"), experiment=f"e{e}")
        for e in range(25)
        for at in range(5)
        for n in range(4)
    ]
    model = model_of(*abreast(steps))
    matrices, made = dict.fromkeys(range(12), ()), 0
    for turn in range(len(steps)):
        at = turn * 7 % 12
        taken = model.next_step(("host", "GPU"), matrices[at], None, set(matrices.values()))
        made += matrices[at] != matrix_of(taken.problem)
        matrices[at] = matrix_of(taken.problem)
    assert made < 1.2 * 25 * 5
