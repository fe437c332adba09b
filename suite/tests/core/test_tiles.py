"""Tile configurations, the occupancy that one leaves, plans of several programs, and work that plans share."""

import gc
import weakref
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from fake_gpu import open_fake
from fakes import FakeClock

from nnzbench.core import plan as plans
from nnzbench.core.architectures import ARCHITECTURES
from nnzbench.core.plan import Launch, Plan, SharedWork, Unsupported
from nnzbench.core.tiles import Occupancy, TileConfiguration, occupancy
from nnzbench.kernels.registry import About, Kernel, about, kernels
from nnzbench.kernels.registry import kernel as registered


@dataclass(frozen=True)
class Tile(TileConfiguration):
    DEFINES: ClassVar = {"x": "BLOCK_X", "parts": ""}
    x: int
    warps: int = 2
    wide: bool = False
    parts: int = 1

    @property
    def name(self):
        return f"x{self.x}" + "_wide" * self.wide

    @property
    def shared_bytes(self):
        return 4 * self.x


def buffers(dtype=np.float32):
    return {"a": np.ones(3, np.float32), "c": np.zeros(3, dtype)}


def test_all_follows_from_the_fields():
    plan = Tile(8, wide=True).plan("scale", (3, 1, 1), (5,), buffers())
    assert (plan.variant, plan.source, plan.output, plan.math) == ("x8_wide", "scale.cu", "c", "f32")
    assert plan.defines == {"BLOCK_X": 8, "WARPS": 2, "WIDE": 1}
    assert plan.launches == (Launch("scale", (3, 1, 1), (64, 1, 1), (5, "a", "c"), 32),)


def test_a_grid_may_be_as_large_as_gpus_take_and_no_larger():
    assert Tile(8).plan("scale", (1 << 20, 65535, 65535), (), buffers()).launches[0].grid[1:] == (65535, 65535)
    for grid in ((1, 65536, 1), (1, 1, 65536)):
        with pytest.raises(Unsupported, match="at most 65535"):
            Tile(8).plan("scale", grid, (), buffers())


def test_what_the_problem_adds():
    then = (Launch("after", (1, 1, 1), (32, 1, 1), ("c",)),)
    added = {"defines": {"FILL": 4}, "label": "rule", "marks": ("", "i16"), "shared_bytes": 0, "then": then}
    plan = Tile(8).plan("scale", (1, 1, 1), ("c", 7, "a"), buffers(), "a", **added)
    assert (plan.variant, plan.output) == ("rule_x8_i16", "a")
    assert plan.defines == {"BLOCK_X": 8, "WARPS": 2, "WIDE": 0, "FILL": 4}
    assert plan.launches == (Launch("scale", (1, 1, 1), (64, 1, 1), ("c", 7, "a")), *then)


def test_arithmetic_follows_from_the_type_of_the_result():
    for dtype, math in ((np.float16, "f16"), (np.uint16, "bf16"), (np.float32, "f32")):
        assert Tile(8).plan("scale", (1, 1, 1), (), buffers(dtype)).math == math
        assert Tile(8).plan("scale", (1, 1, 1), (), buffers(dtype), math="tf32").math == "tf32"


def test_a_function_that_yields_plans_is_a_kernel_of_its_name(monkeypatch):
    kernels()  # imports what registers itself, once in a process, before there is another registry
    for name in ("_registry", "_about"):
        monkeypatch.setattr(f"nnzbench.kernels.registry.{name}", {})

    @registered("a paper", "spmm spmv", "f32", About("paper"))
    def made(problem, operands, arch):
        yield Tile(8).plan("scale", (1, 1, 1), (), buffers())

    assert kernels() == {"made": made}
    assert isinstance(made, Kernel)
    assert (made.paper, made.ops, made.dtypes) == ("a paper", {"spmm", "spmv"}, {"f32"})
    assert about("made").role == "paper"


CASES = [
    # 32 registers: 1024 per warp, 16 warps per partition, 64 per SM; 8 warps per block.
    (("sm_90", 32, 0, 256), Occupancy(8, 64, 1.0, "warps")),
    # One warp per block: block slots run out at 32 of 64 warps.
    (("sm_90", 32, 0, 32), Occupancy(32, 32, 0.5, "blocks")),
    # 255 registers: 8160 rounded to 8192 per warp, 2 warps per partition, 8 per SM, one block of 8.
    (("sm_90", 255, 0, 256), Occupancy(1, 8, 0.125, "registers")),
    # 33 registers: 1056 rounded to 1280, 12 warps per partition, 48 per SM, six blocks of 8.
    (("sm_80", 33, 0, 256), Occupancy(6, 48, 0.75, "registers")),
    # 40000 + 1024 reserved = 41024, rounded to 41088; 167936 / 41088 = 4.08.
    (("sm_80", 32, 40000, 128), Occupancy(4, 16, 0.25, "shared memory")),
    # 41000 + 1024 = 42024, rounded to 42112, 3.99 of which fit; without what is reserved there would be room for four.
    (("sm_80", 32, 41000, 128), Occupancy(3, 12, 0.1875, "shared memory")),
    # 33 registers: 12 warps per partition, 48 per SM, sixteen blocks of 3; the registers left over make no warp.
    (("sm_80", 33, 0, 96), Occupancy(16, 48, 0.75, "registers")),
    # The largest block: 227 KiB and 1 KiB reserved is the whole SM.
    (("sm_90", 32, 227 * 1024, 1024), Occupancy(1, 32, 0.5, "shared memory")),
    (("sm_90", 32, 227 * 1024 + 1, 1024), Occupancy(0, 0, 0.0, "shared memory")),
    # Nothing is reserved before sm_80: 96 KiB / 32 KiB; steps of 256 bytes make 32769 into 33024.
    (("sm_70", 32, 32768, 256), Occupancy(3, 24, 0.375, "shared memory")),
    (("sm_70", 32, 32769, 256), Occupancy(2, 16, 0.25, "shared memory")),
    (("sm_75", 64, 0, 64), Occupancy(16, 32, 1.0, "blocks")),
    (("sm_86", 40, 0, 128), Occupancy(12, 48, 1.0, "warps")),
    (("sm_89", 16, 0, 64), Occupancy(24, 48, 1.0, "blocks")),
    # A block of 1024 threads at 65 registers wants 32 warps of 2304, more than the 65536 there are.
    (("sm_90", 65, 0, 1024), Occupancy(0, 0, 0.0, "registers")),
    # Part of a warp takes a whole one.
    (("sm_90a", 32, 0, 33), Occupancy(32, 64, 1.0, "blocks")),
]


@pytest.mark.parametrize(("arguments", "expected"), CASES)
def test_occupancy(arguments, expected):
    assert occupancy(*arguments) == expected


def test_one_register_more_never_raises_occupancy():
    for arch in ARCHITECTURES:
        for threads in (32, 96, 256, 1000):
            blocks = [occupancy(arch, registers, 4096, threads).blocks for registers in range(256)]
            assert blocks == sorted(blocks, reverse=True)


@pytest.mark.parametrize("arguments", [(32, 0, 0), (32, 0, 1025), (256, 0, 32), (-1, 0, 32), (32, -1, 32)])
def test_impossible_blocks_are_refused(arguments):
    with pytest.raises(ValueError, match=r"block has|make no kernel"):
        occupancy("sm_90", *arguments)


ONE = (1, 1, 1)


def launch(entry, source="", shared_bytes=0, **defines):
    return Launch(entry, ONE, ONE, ("y",), shared_bytes, source, defines)


def plan(*launches):
    return Plan("v", "cuda", "own.cu", {"A": 1}, {"y": np.zeros(4, np.float32)}, "y", launches)


def test_a_plan_of_one_program_is_its_own_only_stage():
    one = plan(launch("f"), launch("g"))
    (stage,) = one.stages()
    assert stage is one
    assert len(plan().stages()) == 1


def test_stages_keep_the_order_and_join_neighbours_of_one_program():
    other = (launch("g", "other.cu", B=1), launch("h", "other.cu", B=1), launch("h", "other.cu", B=2))
    stages = plan(launch("f"), *other, launch("f")).stages()
    assert [(s.source, s.defines, [x.entry for x in s.launches]) for s in stages] == [
        ("own.cu", {"A": 1}, ["f"]),
        ("other.cu", {"B": 1}, ["g", "h"]),
        ("other.cu", {"B": 2}, ["h"]),  # other defines are another program
        ("own.cu", {"A": 1}, ["f"]),
    ]


def test_a_gpu_loads_each_program_once_and_launches_in_order():
    ran: list[str] = []
    device = open_fake({name: lambda *call, name=name: ran.append(name) for name in ("f", "g")})
    prepared = device.prepare(plan(launch("f"), launch("g", "other.cu"), launch("f")))
    prepared.run()
    assert ran == ["f", "g", "f"]
    assert sum(step[0] == "load" for step in device.backend.log) == 2
    assert prepared.compile_ms == 25.0


def test_shared_memory_of_an_entry_is_opted_in_to_once_over_all_stages():
    """Opting in to less later would take away what the first launch needs."""
    device = open_fake({name: lambda *call: None for name in ("f", "g")})
    device.prepare(plan(launch("f", shared_bytes=90_000), launch("g", "other.cu"), launch("f", shared_bytes=60_000)))
    bound = [step[1:] for step in device.backend.log if step[0] == "function"]
    assert bound == [("f", 90_000, 90_000), ("g", 0, 0), ("f", 60_000, 0)]


MOMENT = 1e-2
"""Milliseconds that looking at the clock some times takes."""


@pytest.fixture
def clock(monkeypatch):
    """The time that the module sees."""
    made = FakeClock()
    monkeypatch.setattr(plans, "time", SimpleNamespace(perf_counter=made))
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
    shared.forget("inner")
    assert shared.once("inner", inner) == "value"
    assert made == ["inner"] * 2
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


def test_a_plan_for_launches_that_overlap_tells_its_programs_and_keeps_what_they_are_told():
    launch = Launch("k", (1, 1, 1), (32, 1, 1), ("c",))
    plan = Plan("v", "cuda", "k.cu", {"ROWS": 4}, {"c": np.zeros(4)}, "c", (launch, launch))
    found = plan.overlapping()
    assert found.defines == {"ROWS": 4, "OVERLAPS": 1}
    assert [one.overlaps for one in (*found.launches, *plan.launches)] == [True, True, False, False]
    both = plans.chain("both", [plans.Step(plans.replace(plan, generate_ms=ms)) for ms in (1.0, 2.5)])
    assert (both.generate_ms, len(both.launches), both.output) == (3.5, 4, "1.c")
