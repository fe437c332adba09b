"""Where seconds go: each second to one phase, and none of another process's turn on the GPU to the work."""

import threading
from contextlib import contextmanager, nullcontext, suppress

import pytest
from fake_search import Clock
from filelock import FileLock

from nnzbench.bench import trial
from nnzbench.bench.phases import ON_GPU, Phases, Work, lines
from nnzbench.bench.trial import Conditions, try_candidate
from nnzbench.core.plan import Candidate, Plan, Unsupported
from nnzbench.data.problems.problem import Problem
from nnzbench.devices.build.cache import CompilerKilled
from nnzbench.devices.gpu import LaunchError, short_of_memory
from nnzbench.kernels.registry import candidates


def test_a_phase_inside_another_counts_for_itself_alone():
    clock = Clock()
    phases = Phases(clock=clock)
    with phases.of("compiling"):
        clock.now += 2.0
        with phases.of("planning"):
            clock.now += 3.0
        clock.now += 1.0
    clock.now += 10.0  # between phases: nobody's
    before = dict(phases.seconds)
    with phases.of("hot"):
        clock.now += 4.0
        assert phases.since(before)["hot"] == 4.0
        assert phases.seconds["hot"] == 0.0
    assert dict(phases.seconds) == {"compiling": 3.0, "planning": 3.0, "hot": 4.0}
    assert phases.since(before) == {"compiling": 0.0, "planning": 0.0, "hot": 4.0}


def test_a_phase_ends_with_its_error():
    phases = Phases(clock=Clock())
    for _ in range(2):
        with suppress(ValueError), phases.of("checking"), phases.of("reference"):
            phases.clock.now += 1.0
            raise ValueError
    assert phases.seconds["reference"] == 2.0
    assert not phases._open


def test_one_at_a_time_has_the_gpu_and_waiting_is_told_apart(tmp_path):
    clock = Clock()
    first, second = (Work(Phases(clock=clock), lambda: FileLock(tmp_path / "lock")) for _ in range(2))
    has, order = threading.Event(), []

    def wait_and_work():
        with second.on_gpu("hot"):
            order.append("second")
            has.set()
            clock.now += 2.0

    waiting = threading.Thread(target=wait_and_work)
    with first.on_gpu("hot"):
        waiting.start()
        while waiting.is_alive() and "waiting" not in second.phases._open:
            has.wait(0.01)
        clock.now += 5.0
        assert not has.wait(0.1)  # it has not got the lock that the first one holds
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]
    assert dict(first.phases.seconds) == {"waiting": 0.0, "hot": 5.0}
    assert dict(second.phases.seconds) == {"waiting": 5.0, "hot": 2.0}
    assert "hot" in ON_GPU
    assert "waiting" not in ON_GPU


def test_who_has_the_gpu_does_not_wait_for_it():
    asked = []

    @contextmanager
    def turn():
        asked.append(True)
        yield

    work = Work(Phases(clock=Clock()), turn)
    with work.on_gpu("warming"), work.on_gpu("preparing"):
        work.phases.clock.now += 1.0
    with work.phases.of("planning"), work.on_gpu("hot"):
        pass
    assert len(asked) == 2
    assert work.phases.seconds["preparing"] == 1.0


def test_what_a_run_tells_of_its_seconds():
    assert list(lines({})) == []
    (one,) = lines({"hot": 25.0, "compiling": 75.0, "memory": 0.0001}, 4)
    assert one == "100 s of 4 processes went into: compiling 75%, hot 25%."


def test_programs_are_read_before_the_gpu_is_waited_for():
    order = []

    class Device:
        arch = "sm_90"

        def preload(self, plan):
            order.append(("preload", plan.variant))

        def prepare(self, plan):
            order.append(("prepare", plan.variant))
            raise Unsupported("enough")

    @contextmanager
    def turn():
        order.append("turn")
        yield

    class Kernel:
        name, ops, dtypes, paper = "k", frozenset({"spmm"}), frozenset({"f32"}), ""

        def plans(self, problem, operands, arch):
            yield Plan("v", "cuda", "x.cu", {}, {}, "c", ())

    problem = Problem("t", "p", "spmm", 8, 8, 8, 0.5, "uniform:0")
    (candidate,) = candidates(Kernel(), problem, None, Device())
    outcome = try_candidate(candidate, None, lambda: None, Conditions((), work=Work(turn=turn)), lambda run: None)
    assert outcome.reason == "enough"
    assert order == [("preload", "v"), "turn", ("prepare", "v")]


@pytest.mark.parametrize(("shared", "tried"), [(True, 4), (False, 1)])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (LaunchError("Out of memory allocating 17,179,869,184 bytes"), "launch-error"),
        (CompilerKilled("plan.ptx: the compiler was killed, as if the system was out of memory"), "compile-error"),
    ],
    ids=["GPU", "host"],
)
def test_what_a_shared_machine_has_no_memory_for_is_tried_again(error, status, shared, tried, monkeypatch):
    monkeypatch.setattr(trial, "PAUSES_S", (0.0, 0.0, 0.0))
    errors = []

    def prepare():
        errors.append(error)
        raise error

    work = Work(turn=lambda: nullcontext()) if shared else Work()
    outcome = try_candidate(
        Candidate("v", "f32", prepare), None, lambda: None, Conditions((), work=work), lambda run: None
    )
    assert (outcome.status, len(errors)) == (status, tried)
    assert short_of_memory(outcome.reason)
    assert not short_of_memory("an illegal memory access was encountered")
