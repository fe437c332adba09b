"""Tile configurations: what follows from their fields, and the plan that is made of them."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from nnzbench.kernels.registry import About, Kernel, about, kernel, kernels
from nnzbench.plans.plan import Launch
from nnzbench.plans.tiles import TileConfiguration


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


def test_what_the_problem_adds():
    then = (Launch("after", (1, 1, 1), (32, 1, 1), ("c",)),)
    added = {"defines": {"FILL": 4}, "label": "rule", "marks": ("", "i16"), "shared_bytes": 0, "then": then}
    plan = Tile(8).plan("scale", (1, 1, 1), ("c", 7, "a"), buffers(), "a", **added)
    assert (plan.variant, plan.output) == ("rule_x8_i16", "a")
    assert plan.defines == {"BLOCK_X": 8, "WARPS": 2, "WIDE": 0, "FILL": 4}
    assert plan.launches == (Launch("scale", (1, 1, 1), (64, 1, 1), ("c", 7, "a")), *then)


@pytest.mark.parametrize(("dtype", "math"), [(np.float16, "f16"), (np.uint16, "bf16"), (np.float32, "f32")])
def test_arithmetic_follows_from_the_type_of_the_result(dtype, math):
    assert Tile(8).plan("scale", (1, 1, 1), (), buffers(dtype)).math == math
    assert Tile(8).plan("scale", (1, 1, 1), (), buffers(dtype), math="tf32").math == "tf32"


def test_a_function_that_yields_plans_is_a_kernel_of_its_name(monkeypatch):
    for name in ("_registry", "_about"):
        monkeypatch.setattr(f"nnzbench.kernels.registry.{name}", {})

    @kernel("a paper", "spmm spmv", "f32", About("paper"))
    def made(problem, operands, arch):
        yield Tile(8).plan("scale", (1, 1, 1), (), buffers())

    assert kernels() == {"made": made}
    assert isinstance(made, Kernel)
    assert (made.paper, made.ops, made.dtypes) == ("a paper", {"spmm", "spmv"}, {"f32"})
    assert about("made").role == "paper"
