"""Which step is next, in one process and for the GPUs of a cluster, and in which order steps are."""

import random
from dataclasses import replace

import pytest
from fake_search import Clock

from nnzbench.bench.budget import Schedule, abreast
from nnzbench.bench.cluster.run import ALIKE_S, Model
from nnzbench.bench.steps import Queue, Step
from nnzbench.data.problems.problem import Problem, parse


def step(name, scope="first", source="uniform:0", dtype="f32", seconds=1.0):
    return Step("one", "paper", Problem("one", name, "spmm", 8, 8, 8, 0.5, source, dtype), ("k",), scope, seconds)


def model_of(*steps, ends=None, clock=None):
    return Model(Schedule(steps, frozenset(), 100.0), Queue(steps, ends, clock or Clock()), {}, 0.0)


@pytest.mark.parametrize("seed", range(8))
def test_every_step_is_done_once_in_order_within_the_time_or_known_as_not_done(seed):
    """Of random steps that take other times than predicted, with a worker lost now and then."""
    rng = random.Random(seed)
    steps = [
        step(f"p{at}", rng.choice(("first", "all")), f"uniform:{at // 3}", seconds=rng.uniform(0.1, 9.0))
        for at in range(60)
    ]
    steps += [replace(one, scope="all") for one in steps if one.scope == "first"]
    clock = Clock()
    queue, slower, done = Queue(steps, rng.choice((None, 50.0, 200.0)), clock), rng.uniform(0.5, 1.5), []
    while taken := queue.take(rank=lambda one: one.scope == "all", alike_s=rng.choice((None, 20.0))):
        assert len({(one.matrix, one.scope) for one in taken}) == 1
        assert not queue.over()
        for one in taken:
            assert one.scope == "first" or not any(one.place == other.place for other in queue.waiting)
            if rng.random() < 0.1:
                queue.give_back(one)
                continue
            clock.now += one.seconds * slower
            queue.timed([one], one.seconds * slower)
            queue.done(one)
            done.append(one)
    assert sorted(map(str, [*done, *queue.not_done()])) == sorted(map(str, steps))
    assert len(set(done)) == len(done)
    if queue.ends is None:
        assert not queue.not_done()


def test_what_does_not_fit_waits_for_a_better_pace_and_smaller_steps_go_first():
    clock = Clock()
    large, small = step("p0", seconds=30.0), step("p1", seconds=10.0)
    queue = Queue([large, small], 35.0, clock)
    queue.timed([large], 60.0)  # twice as slow as predicted
    assert queue.take() == [small]
    queue.timed([small], 1.0)
    queue.timed([replace(small, seconds=200.0)], 10.0)
    assert queue.take() == [large]
    clock.now = 36.0
    queue.give_back(large)
    assert queue.take() == []
    assert queue.over()
    assert queue.not_done() == [large]


def test_nothing_is_tuned_before_its_first_choices_are_done():
    first, tuned, other = step("p0"), step("p0", "all"), step("p1", "all")
    queue = Queue([first, tuned, other])
    assert queue.take() == [first]
    assert queue.take() == [other]
    assert queue.take() == []
    queue.done(first)
    assert queue.take() == [tuned]


def test_a_problem_of_another_type_is_for_the_gpu_that_the_first_was_begun_on():
    """Pages compare fp32 kernels with dense fp16."""
    names = ("a_8x8x8_50_uniform", "a_8x8x8_50_uniform_f16", "b_8x8x8_50_uniform")
    fp32, fp16, other = (
        step(name, dtype=parse(name)["dtype"] or "f32", source=name[0], seconds=ALIKE_S) for name in names
    )
    model = model_of(fp32, fp16, other)
    assert model.take("GPU 0", True) == [fp32]
    assert model.take("GPU 1", True) == [other]
    assert model.take("GPU 1", True) == [fp16]  # better than nothing
    assert model.again(fp32, fp32.kernels, "GPU 0")
    model.queue.give_back(fp16)
    assert model.take("GPU 1", True) == [fp16]
    assert model.take("GPU 1", True) == [fp32]


def test_steps_of_one_matrix_are_one_job_and_one_that_cost_a_worker_is_alone():
    steps = [step(f"p{at}", source=f"uniform:{at // 4}", dtype=("f32", "f16")[at % 2]) for at in range(8)]
    model = model_of(*steps)
    assert model.take("GPU", True) == steps[:4]
    for one in steps[:4]:
        assert model.again(one, one.kernels, "GPU")
    assert [model.take("GPU", True) for _ in range(5)] == [[one] for one in reversed(steps[:4])] + [steps[4:]]
    assert model.again(steps[0], ("k",), "GPU")
    assert not model.again(steps[0], ("k",), "GPU")
    assert model.queue.left_out == [steps[0]]


def test_what_found_no_memory_is_for_a_gpu_that_nobody_is_at():
    last = step("p0")
    model = model_of()
    assert model.again(last, ("k",), "GPU", short=True)
    assert model.take("GPU", False) == []
    assert model.take("GPU", True) == [last]


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
