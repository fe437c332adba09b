import dataclasses
from typing import get_args

import numpy as np
import pytest
from fakes import FakeDevice, FakeKernel

from nnzbench.core.plan import Candidate, Launch, Plan, Unsupported, plans_that_fit, poison_value
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import DType, Op, Problem
from nnzbench.kernels import registry as kernel
from nnzbench.kernels.registry import Kernel, VendorKernel, candidates, kernels, register

PROBLEM = Problem("t", "p", "spmm", 4, 6, 3, 0.5, "uniform:0")


def plan(variant, math="f32"):
    out = np.zeros(1, np.float32)
    return Plan(variant, "cuda", "t.cu", {}, {"out": out}, "out", (Launch("t", (1, 1, 1), (1, 1, 1), ("out",)),), math)


@dataclasses.dataclass
class Planner:
    """A kernel of plans; `asked` tells what it was asked for."""

    name: str = "planner"
    paper: str = "none"
    ops: frozenset[str] = frozenset({"spmm"})
    dtypes: frozenset[str] = frozenset({"f32", "f16"})
    asked: list = dataclasses.field(default_factory=list)

    def plans(self, problem, operands, arch):
        self.asked.append((problem, arch))
        yield plan("a")
        yield plan("b", "f16")


@pytest.fixture
def empty_registry(monkeypatch):
    kernels()  # imports what registers itself, once in a process, before there is another registry
    monkeypatch.setattr(kernel, "_registry", {})
    monkeypatch.setattr(kernel, "_about", {})


def test_a_name_is_registered_once(empty_registry):
    register(FakeKernel("same"))
    with pytest.raises(ValueError, match="kernel 'same' is registered twice"):
        register(Planner("same"))
    assert list(kernel._registry) == ["same"]


def test_every_kernel_has_one_kind_a_source_and_known_ops_and_dtypes():
    found = kernels()
    assert list(found) == sorted(found)
    assert {"sputnik", "sparsert", "balanced", "direct_conv", "cublas", "cusparse"} <= set(found)
    for name, one in found.items():
        assert name == one.name
        assert one.paper
        assert isinstance(one, Kernel) != isinstance(one, VendorKernel)
        assert one.ops
        assert one.ops <= set(get_args(Op))
        assert one.dtypes
        assert one.dtypes <= set(get_args(DType))


@pytest.mark.parametrize("one", [Planner(), FakeKernel()])
def test_another_op_or_dtype_is_refused_with_the_reason_before_the_kernel_is_asked(one):
    operands = make_operands(PROBLEM)
    with pytest.raises(Unsupported, match=f"{one.name} does not compute sddmm"):
        list(candidates(one, dataclasses.replace(PROBLEM, op="sddmm"), operands, FakeDevice()))
    with pytest.raises(Unsupported, match=f"{one.name} has no bf16 form"):
        list(candidates(one, dataclasses.replace(PROBLEM, dtype="bf16"), operands, FakeDevice()))
    assert not getattr(one, "asked", [])


def test_plans_become_candidates_that_prepare_their_own_plan_when_asked():
    planner, device, prepared = Planner(), FakeDevice(), []
    device.prepare = lambda plan: prepared.append(plan.variant)
    stream = candidates(planner, PROBLEM, make_operands(PROBLEM), device)
    assert planner.asked == []  # plans are made one at a time
    found = list(stream)
    assert planner.asked == [(PROBLEM, device.arch)]
    assert [(c.variant, c.math, c.plan.variant) for c in found] == [("a", "f32", "a"), ("b", "f16", "b")]
    assert prepared == []
    found[1].prepare()
    found[0].prepare()
    assert prepared == ["b", "a"]


def test_a_vendor_gives_its_own_candidates_and_no_plans():
    vendor = FakeKernel(variants={"f32_default": (5.0, ""), "tf32_default": (3.0, "")})
    found = list(candidates(vendor, PROBLEM, make_operands(PROBLEM), FakeDevice()))
    assert [(c.variant, c.math, c.plan) for c in found] == [
        ("f32_default", "f32", None),
        ("tf32_default", "tf32", None),
    ]
    assert all(isinstance(c, Candidate) for c in found)
    assert vendor.prepared == []  # nothing is prepared by listing


def test_poison_is_nan_or_an_integer_that_fits_and_stands_out():
    assert all(np.isnan(poison_value(np.dtype(kind))) for kind in (np.float16, np.float32, np.float64))
    assert [poison_value(np.dtype(kind)) for kind in (np.int32, np.uint16)] == [2**31 - 1, 2**16 - 1]


def test_plans_of_choices_that_fit_and_why_none_does():
    def make(choice):
        if choice < 0:
            raise Unsupported(f"{choice} is negative")
        return choice

    assert list(plans_that_fit([-1, 2, -3, 4], make, "nothing to choose")) == [2, 4]
    with pytest.raises(Unsupported, match="-3 is negative"):
        list(plans_that_fit([-1, -3], make, "nothing to choose"))
    with pytest.raises(Unsupported, match="nothing to choose"):
        list(plans_that_fit([], make, "nothing to choose"))
