from concurrent.futures import Future
from itertools import islice

import numpy as np
import pytest

from nnzbench.build import pool
from nnzbench.build.cache import CompileError, CompileTimeout
from nnzbench.plans.plan import Candidate, Plan, Prepared, Unsupported

DONE = Prepared(lambda: None, lambda: np.zeros(1), lambda: None, lambda: None)


def candidate(name, plan=True):
    made = Plan(name, "cuda", f"{name}.cu", {}, {}, "c", ()) if plan else None
    return Candidate(name, "f32", lambda: DONE, plan=made)


@pytest.fixture
def compiled(monkeypatch):
    """Sources compiled, batch by batch; those named `slow` time out, those named `bad` fail."""
    batches = []

    def compile_many(jobs, timeout_s):
        assert timeout_s >= pool.TIMEOUT_S
        batches.append([job.source for job in jobs])
        for index in reversed(range(len(jobs))):  # results come in any order
            source = jobs[index].source
            error = {"slow.cu": CompileTimeout("too slow"), "bad.cu": CompileError("bad")}.get(source)
            yield index, error or object()

    monkeypatch.setattr(pool, "compile_many", compile_many)
    return batches


def test_plans_are_compiled_together_before_the_first_is_prepared(compiled):
    found = pool.compiled_ahead(iter([candidate("a"), candidate("library", plan=False), candidate("b")]), "sm_90")
    first = next(found)
    assert compiled == [["a.cu", "b.cu"]]
    assert [first.variant, *(c.variant for c in found)] == ["a", "library", "b"]


def test_a_program_that_takes_too_long_fails_alone_when_it_is_prepared(compiled):
    names = ["a", "slow", "bad"]
    got = {c.variant: c for c in pool.compiled_ahead(iter(map(candidate, names)), "sm_90")}
    assert got["a"].prepare() is DONE
    assert got["bad"].prepare() is DONE  # the device meets the failure in the cache
    with pytest.raises(CompileTimeout, match="too slow"):
        got["slow"].prepare()


def test_long_programs_get_the_time_they_take(monkeypatch):
    limits = []

    def compile_many(jobs, timeout_s):
        limits.append(timeout_s)
        return iter(())

    monkeypatch.setattr(pool, "compile_many", compile_many)
    for length in (1_000, 13_000_000):
        plan = Plan("generated", "ptx", "\n" * length, {}, {}, "c", ())
        list(pool.compiled_ahead(iter([Candidate("generated", "f32", lambda: DONE, plan=plan)]), "sm_90"))
    assert limits == [pool.TIMEOUT_S, 13 * pool.TIMEOUT_S_PER_MB]


def test_no_more_than_a_batch_of_plans_is_held(compiled):
    made = []

    def endless():
        for number in range(10_000):
            made.append(number)
            yield candidate(f"k{number}")

    assert len(list(islice(pool.compiled_ahead(endless(), "sm_90"), 40))) == 40
    assert len(made) == 2 * pool.AT_ONCE


def test_without_a_compiler_candidates_still_come(monkeypatch):
    def compile_many(jobs, timeout_s):
        raise Unsupported("NVRTC is missing")
        yield

    monkeypatch.setattr(pool, "compile_many", compile_many)
    assert [c.variant for c in pool.compiled_ahead(iter([candidate("a")]), "sm_90")] == ["a"]


class Pool:
    """Compiles nothing: what it was asked for, and futures that a test sets."""

    def __init__(self):
        self.begun = {}

    def add(self, job, timeout_s):
        assert timeout_s >= pool.TIMEOUT_S
        if job.source == "cached.cu":
            return None
        if job.source == "foreign.cu":
            raise Unsupported("NVRTC is missing")
        return self.begun.setdefault(job.source, Future())


def test_items_are_held_while_their_programs_compile():
    workers = Pool()
    items = [candidate("a"), candidate("cached"), candidate("slow"), candidate("library", plan=False), "the end"]
    pending = pool.Pending(iter(items), "sm_90", "", workers)
    while pending.hold():
        pass
    assert pending.over
    assert len(pending) == 5
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
