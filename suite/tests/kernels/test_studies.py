"""Studies that name their variants: these are all that they have, and each of them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from nnzbench.core.plan import Unsupported
from nnzbench.data.problems.operands import make_operands
from nnzbench.kernels.composed import decoder
from nnzbench.kernels.registry import about, kernels
from nnzbench.kernels.samples import PROBLEMS
from nnzbench.papers.catalogue import EXPERIMENTS

NAMED = {name: one for name, one in kernels().items() if about(name).study_variants}


def begin_as_named(name, problem, variants):
    """Whether every variant begins as the study says of one of them, in that order."""
    named = about(name).study_variants(problem)
    assert [[one for one in named if variant.startswith(one)] for variant in variants] == [[one] for one in named]


@pytest.mark.parametrize("name", [name for name, one in NAMED.items() if hasattr(one, "plans")])
def test_plans_are_those_that_the_study_names(name):
    kernel = NAMED[name]
    problems = [one for one in PROBLEMS if one.op in kernel.ops]
    assert problems
    for problem in problems:
        for dtype in kernel.dtypes:
            typed = replace(problem, dtype=dtype)
            plans = kernel.plans(typed, make_operands(typed), "sm_90")
            begin_as_named(name, typed, [plan.variant for plan in plans])


@pytest.mark.parametrize("name", ["block_parts", "block_steps"])
def test_candidates_are_those_that_the_study_names(name, monkeypatch):
    def part(network, variant, matrix, family):
        if variant.startswith("f8"):
            raise Unsupported("no FP8 here")
        return SimpleNamespace(variant=f"{variant}_cublas.f16_b100")

    monkeypatch.setattr(decoder, "GpuDevice", SimpleNamespace)
    monkeypatch.setattr(decoder, "_part", part)
    problems = EXPERIMENTS["decoder_block"].problems()
    kinds = {(one.sparsity == 0, one.source.partition(":")[0]): one for one in problems}
    assert len({len(about(name).study_variants(one)) for one in kinds.values()}) == (3 if name == "block_parts" else 1)
    for problem in kinds.values():
        found = NAMED[name].candidates(problem, None, SimpleNamespace(arch="sm_90"))
        begin_as_named(name, problem, [one.variant for one in found])
