"""Shared work is done once, and charged to every plan that needs it."""

from __future__ import annotations

import gc
import time
import weakref

from nnzbench.plans.shared_work import SharedWork


def test_work_is_done_once_and_charged_each_time_with_all_that_it_needs() -> None:
    shared = SharedWork()
    made = []

    def inner() -> str:
        time.sleep(0.02)
        made.append("inner")
        return "value"

    def outer() -> str:
        return shared.once("inner", inner) + "!"

    first = shared.timer()
    assert shared.once("inner", inner) == "value"
    assert first() >= 20
    second = shared.timer()
    assert shared.once("outer", outer) == "value!"
    assert second() >= 20
    third = shared.timer()
    assert shared.once("outer", outer) == "value!"
    assert third() >= 20  # what `outer` itself found made is part of its time
    assert made == ["inner"]
    assert shared.timer()() < 20


def test_what_is_made_for_an_owner_is_shared_as_long_as_it_lives() -> None:
    class Thing:
        pass

    owner, other, made = Thing(), Thing(), []

    def make() -> Thing:
        time.sleep(0.02)
        value = Thing()
        made.append(weakref.ref(value))
        return value

    for count, one in ((1, owner), (1, owner), (2, other)):
        shared = SharedWork()
        elapsed = shared.timer()
        assert shared.once_for(one, "key", make) is made[-1]()
        assert len(made) == count
        assert elapsed() >= 20
    del owner, one
    first, second = made
    assert SharedWork().once_for(other, "key", make) is second()
    assert len(made) == 2
    gc.collect()  # the first owner is gone, and what was made for it
    assert first() is None
    assert second() is not None
