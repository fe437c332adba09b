"""Shared work is done once, and charged to every plan that needs it."""

import gc
import weakref
from types import SimpleNamespace

import pytest
from fakes import FakeClock

from nnzbench.plans import chain
from nnzbench.plans.chain import SharedWork

MOMENT = 1e-2
"""Milliseconds that looking at the clock some times takes."""


@pytest.fixture
def clock(monkeypatch):
    """The time that the module sees."""
    made = FakeClock()
    monkeypatch.setattr(chain, "time", SimpleNamespace(perf_counter=made))
    return made


def test_work_is_done_once_and_charged_each_time_with_all_that_it_needs(clock):
    shared = SharedWork()
    made = []

    def inner():
        clock.now += 0.02
        made.append("inner")
        return "value"

    def outer():
        clock.now += 0.01
        return shared.once("inner", inner) + "!"

    first = shared.timer()
    assert shared.once("inner", inner) == "value"
    assert first() == pytest.approx(20, abs=MOMENT)
    second = shared.timer()
    assert shared.once("outer", outer) == "value!"
    assert second() == pytest.approx(30, abs=MOMENT)
    third = shared.timer()
    assert shared.once("outer", outer) == "value!"
    assert third() == pytest.approx(30, abs=MOMENT)  # what `outer` itself found made is part of its time
    assert made == ["inner"]
    assert shared.timer()() == pytest.approx(0, abs=MOMENT)


def test_what_is_made_for_an_owner_is_shared_as_long_as_it_lives(clock):
    class Thing:
        pass

    owner, other, made = Thing(), Thing(), []

    def make():
        clock.now += 0.02
        value = Thing()
        made.append(weakref.ref(value))
        return value

    for count, one in ((1, owner), (1, owner), (2, other)):
        shared = SharedWork()
        elapsed = shared.timer()
        assert shared.once_for(one, "key", make) is made[-1]()
        assert len(made) == count
        assert elapsed() == pytest.approx(20, abs=MOMENT)
    del owner, one
    first, second = made
    assert SharedWork().once_for(other, "key", make) is second()
    assert len(made) == 2
    gc.collect()  # the first owner is gone, and what was made for it
    assert first() is None
    assert second() is not None
