"""What a search tries and when; seconds pass on a clock of their own, as do those of compilers."""

import math
from types import SimpleNamespace

import pytest
from fake_search import Attempts, Clock, Compilers, TimedKernel
from fakes import Silent

from nnzbench.bench.search import Search
from nnzbench.core.plan import Unsupported


@pytest.fixture
def world():
    """A library, a kernel that compiles at once, and two that compile for six seconds; each is timed for a second.

    With 50,000 weights in them, what the search expects of the two.
    """
    clock = Clock()
    made = (
        TimedKernel("sputnik", [5.0, 4.0, 3.0], clock, 0.5, 0.01),
        TimedKernel("sparsert", [2.0, 1.0, 1.5], clock, 6.0, 0.2),
        TimedKernel("sparsert_paper", [2.5, 2.4], clock, 6.0, 0.2),
        TimedKernel("cublas", [9.0, 8.0], clock),
        TimedKernel("ring", [7.0] * 4, clock, 0.1, 2.0),
    )
    attempts = Attempts(clock, {one.name: one for one in made})
    return SimpleNamespace(clock=clock, attempts=attempts, crew=lambda workers=4: Compilers(clock, workers))


SUBJECT = SimpleNamespace(problem=SimpleNamespace(name="p", op="spmm", dtype="f32"))
OPERANDS = SimpleNamespace(sparse=SimpleNamespace(nnz=50_000))
NAMES = ("sputnik", "sparsert", "sparsert_paper", "cublas")


def searched(world, seconds, names=NAMES, operands=OPERANDS, workers=4):
    with Search(SUBJECT, operands, names, world.attempts, Silent(), pool=world.crew(workers)) as one:
        found = one.go(seconds)
        one.record_unreached()
    return found


def order(world):
    return [name for name, *_ in world.attempts.tried]


def test_programs_compile_while_others_are_timed(world):
    found = searched(world, math.inf)
    assert order(world)[:2] == ["cublas", "sputnik"]  # each once before either is tuned
    assert sorted(order(world)[:6]) == ["cublas"] * 2 + ["sparsert"] + ["sputnik"] * 3
    assert found.tried == {"cublas": 2, "sputnik": 3, "sparsert": 3, "sparsert_paper": 2}
    assert not found.unfinished
    kernel, variant, ended = world.attempts.tried[5]
    assert (kernel, variant, round(ended, 1)) == ("sparsert", "v0", 7.2)  # planned 0.2 s, compiled 6, timed 1
    assert world.clock.now < 16  # 10 s on the GPU, and of 42 s of compilations what nothing else hid


def test_what_takes_longest_begins_before_the_libraries_are_timed(world):
    found = searched(world, 8.0)
    assert "sparsert" in order(world)
    assert found.unfinished == ("sparsert", "sparsert_paper")
    assert found.tried["cublas"] == 2
    assert found.tried["sputnik"] == 3
    assert world.attempts.told[-1] == ("sparsert_paper", "timeout")
    assert world.clock.now < 9.0


def test_nothing_is_begun_that_cannot_end_within_the_time(world):
    found = searched(world, 5.5)  # 6 s are expected of 50,000 weights
    assert found.tried == {"cublas": 2, "sputnik": 3, "sparsert": 0, "sparsert_paper": 0}
    assert world.clock.now < 5.6


def test_a_kernel_that_refuses_a_matrix_says_so_whatever_time_is_left(world):
    def refuse(problem, operands, device):
        raise Unsupported("600000 nonzeros")

    world.attempts.kernels["sparsert"].candidates = refuse
    many = SimpleNamespace(sparse=SimpleNamespace(nnz=600_000))
    found = searched(world, 7.0, ("cublas", "sputnik", "sparsert"), many)
    assert world.attempts.told == [("sparsert", "unsupported")]
    assert not found.unfinished
    assert world.clock.now < 7.0


def test_a_search_goes_on_where_its_time_was_over(world):
    crew = world.crew()
    with Search(SUBJECT, OPERANDS, NAMES, world.attempts, Silent(), pool=crew) as one:
        within = one.go(4.0)
        before = len(order(world))
        everything = one.go(math.inf)
    assert crew.closed
    assert 0 < before < len(order(world)) == 10
    assert len({(name, variant) for name, variant, *_ in world.attempts.tried}) == 10
    assert sum(within.tried.values()) == before
    assert sum(everything.tried.values()) == 10
    assert not everything.unfinished
    assert not world.attempts.told


def test_programs_of_16_bit_weights_are_known_to_take_longer(world):
    """30 s are expected for 50,000 weights, six in fp32."""
    subject = SimpleNamespace(problem=SimpleNamespace(name="p", op="spmm", dtype="f16"))
    with Search(subject, OPERANDS, NAMES, world.attempts, Silent(), pool=world.crew()) as one:
        found = one.go(20.0)
    assert found.tried["sparsert"] == 0
    assert found.tried["sputnik"] == 3
    assert searched(world, 20.0).tried["sparsert"] > 0


def test_what_compiled_since_is_tried_and_nothing_is_begun(world):
    with Search(SUBJECT, OPERANDS, NAMES, world.attempts, Silent(), pool=world.crew()) as one:
        within = one.go(6.0)
        assert one.compiling
        held = sum(len(turn.pending) for turn in one._states)
        world.clock.now += 20.0  # another search's time
        settled = one.settle(5.0)
        assert not one.compiling
    tried = sum(settled.tried.values()) - sum(within.tried.values())
    assert tried == held > 0
    assert "sparsert" in order(world)[-tried:]
    assert settled.unfinished


def test_settling_ends_with_its_time(world):
    with Search(SUBJECT, OPERANDS, NAMES, world.attempts, Silent(), pool=world.crew()) as one:
        one.go(6.0)
        before = world.clock.now
        one.settle(0.5)
        assert world.clock.now <= before + 0.5 + 1.0  # a candidate that was begun is finished


def test_a_host_of_one_compiler_keeps_it_for_the_short_programs(world):
    searched(world, 14.0, workers=1)
    assert sorted(order(world)[:5]) == ["cublas", "cublas", "sputnik", "sputnik", "sputnik"]
    assert world.attempts.tried[4][2] < 6.5


def test_planning_ahead_leaves_the_time_to_measuring(world):
    """A kernel whose plans take seconds holds up what is timed by a quarter of the time at most."""
    searched(world, 4.5, (*NAMES, "ring"))
    assert order(world)[:2] == ["cublas", "sputnik"]
    assert world.attempts.tried[1][2] < 4.5


EXPECTED = {"cublas": 9.0, "sputnik": 3.0, "ring": 7.0}


def test_who_is_expected_to_win_is_timed_before_anything_is_tuned(world):
    """Even where there is no time for it; who is left out though it might win is named."""
    with Search(
        SUBJECT, OPERANDS, ("ring", "sputnik", "cublas"), world.attempts, Silent(), None, world.crew(), EXPECTED
    ) as one:
        found = one.go(0.0)
    assert order(world) == ["cublas", "sputnik"]
    assert not found.missed  # 7 us are expected of `ring`, and `sputnik` takes 5
    with Search(
        SUBJECT,
        OPERANDS,
        ("ring", "sputnik", "cublas"),
        world.attempts,
        Silent(),
        None,
        world.crew(),
        {**EXPECTED, "ring": 4.0},
    ) as one:
        assert one.go(0.5).missed == {"ring": 4.0}
        one.go(math.inf)
        assert not one.found.missed


def test_neither_side_takes_the_other_ones_time(world):
    """Dense takes twice as long and is tuned all the same: a factor over it is of its best."""
    with Search(
        SUBJECT, OPERANDS, ("sputnik", "cublas"), world.attempts, Silent(), None, world.crew(), EXPECTED
    ) as one:
        one.go(6.0)
    assert sorted(order(world)) == ["cublas", "cublas", "sputnik", "sputnik", "sputnik"]
