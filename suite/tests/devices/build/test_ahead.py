from concurrent.futures import Future
from itertools import islice

import numpy as np
import pytest

from nnzbench.core.plan import Candidate, Plan, Prepared, Unsupported
from nnzbench.devices.build import pool
from nnzbench.devices.build.cache import CompileError, CompileTimeout

DONE = Prepared(lambda: None, lambda: np.zeros(1), lambda: None, lambda: None)


def candidate(name, plan=True):
    made = Plan(name, "cuda", f"{name}.cu", {}, {}, "c", ()) if plan else None
    return Candidate(name, "f32", lambda: DONE, plan=made)


class Pool:
    """Compiles nothing: what it was asked for and within how long, and futures that a test sets."""

    def __init__(self, done=False):
        self.begun, self.limits, self.done = {}, [], done

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def add(self, job, timeout_s):
        self.limits.append(timeout_s)
        if job.source == "cached.cu":
            return None
        if job.source == "foreign.cu":
            raise Unsupported("NVRTC is missing")
        future = self.begun.setdefault(job.source, Future())
        if self.done:
            future.set_result(None)
        return future


@pytest.fixture
def workers(monkeypatch):
    made = Pool(done=True)
    monkeypatch.setattr(pool, "CompilePool", lambda most: made)
    return made


def test_plans_are_compiled_together_before_the_first_is_handed_out(workers):
    found = pool.compiled_ahead(iter([candidate("a"), candidate("library", plan=False), candidate("b")]), "sm_90")
    first = next(found)
    assert list(workers.begun) == ["a.cu", "b.cu"]
    assert [first.variant, *(c.variant for c in found)] == ["a", "library", "b"]


def test_long_programs_get_the_time_they_take(workers):
    for length in (1_000, 13_000_000):
        plan = Plan("generated", "ptx", "\n" * length, {}, {}, "c", ())
        list(pool.compiled_ahead(iter([Candidate("generated", "f32", lambda: DONE, plan=plan)]), "sm_90"))
    assert workers.limits == [pool.TIMEOUT_S, 13 * pool.TIMEOUT_S_PER_MB]


@pytest.mark.usefixtures("workers")
def test_no_more_than_a_batch_of_plans_is_held():
    made = []

    def endless():
        for number in range(10_000):
            made.append(number)
            yield candidate(f"k{number}")

    assert len(list(islice(pool.compiled_ahead(endless(), "sm_90"), 40))) == 40
    assert len(made) == 2 * pool.AT_ONCE


def test_items_are_held_while_their_programs_compile():
    workers = Pool()
    items = [*map(candidate, ("a", "cached", "slow", "bad")), candidate("library", plan=False), "the end"]
    pending = pool.Pending(iter(items), "sm_90", "", workers)
    while pending.hold():
        pass
    assert pending.over
    assert len(pending) == 6
    assert pending.awaited() == [workers.begun["a.cu"]]
    workers.begun["a.cu"].set_result(None)
    assert not pending.awaited()
    assert pending.take().variant == "a"
    assert not pending.awaited()
    assert pending.take().variant == "cached"
    assert pending.awaited() == [workers.begun["slow.cu"]]
    workers.begun["slow.cu"].set_result(CompileTimeout("too slow"))
    with pytest.raises(CompileTimeout, match="too slow"):
        pending.take().prepare()
    workers.begun["bad.cu"].set_result(CompileError("bad"))
    assert pending.take().prepare() is DONE  # the device meets the failure in the cache
    assert pending.take().variant == "library"
    assert pending.take() == "the end"
    assert pending.take() is None


def test_items_come_without_a_compiler_too():
    for workers in (None, Pool()):
        pending = pool.Pending(iter([candidate("foreign")]), "sm_90", "", workers)
        assert pending.hold()
        assert not pending.awaited()
        assert pending.take().prepare() is DONE


def test_a_cache_that_can_not_be_written_ends_the_search():
    workers = Pool()
    pending = pool.Pending(iter([candidate("a")]), "sm_90", "", workers)
    pending.hold()
    workers.begun["a.cu"].set_exception(OSError("No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        pending.take()
