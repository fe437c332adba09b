"""Kernels that say there is nothing to tune: whatever they are asked for, all they have is what they run untuned."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from nnzbench.bench.trial import FirstChoices
from nnzbench.core.plan import Unsupported
from nnzbench.data.problems.operands import make_operands
from nnzbench.kernels.registry import about, kernels
from nnzbench.kernels.samples import PROBLEMS
from nnzbench.kernels.vendor import support
from nnzbench.papers.catalogue import EXPERIMENTS

NAMED = [name for name in kernels() if about(name).nothing_to_tune and not name.startswith("pytorch")]
"""Without those that need PyTorch."""


def found(name):
    """Plans or candidates by problem; networks make theirs late, from operands that nobody looks at here."""
    kernel = kernels()[name]
    if hasattr(kernel, "plans"):
        for problem in PROBLEMS:
            if problem.op in kernel.ops and problem.m < 1000:  # larger programs take long to generate
                yield plans(kernel, problem)
        return
    for experiment in EXPERIMENTS.values():
        for problem in experiment.problems() if name in experiment.kernels else ():
            if problem.op in kernel.ops:
                nothing = SimpleNamespace(sparse=None, dense=None)
                with contextlib.suppress(Unsupported):
                    yield list(kernel.candidates(problem, nothing, SimpleNamespace(arch="sm_90")))


def plans(kernel, problem):
    typed = replace(problem, dtype=min(kernel.dtypes, key=["f32", "f16", "i8", "f8"].index))
    try:
        return list(kernel.plans(typed, make_operands(typed), "sm_90"))
    except Unsupported:
        return []


def test_of_others_the_first_of_each_arithmetic_does_or_of_a_library_each_default():
    def takes(name, *told):
        choices = FirstChoices(name)
        return [one for one in told if choices.takes(SimpleNamespace(variant=one[3:], math=one[:3]))]

    assert takes("ring", "f32a", "f32b") == ["f32a"]
    assert takes("row_stream", "f32a", "f16b", "f16c") == ["f32a"]  # it was the first: no other is looked at
    both = "f32rule_a", "f32b", "f32heuristic_c", "f32heuristic_d", "f16rule_e"
    assert takes("sputnik", *both) == ["f32rule_a", "f32heuristic_c"]
    many = [f"f32v{at}" for at in range(62)]
    assert takes("sputnik", *many, "f16v", "f32heuristic_a") == ["f32v0", "f16v", "f32heuristic_a"]
    assert takes("sputnik", *many, "f32v", "f16v", "f32heuristic_a") == ["f32v0", "f16v"]  # behind 64 no more is sought
    library = "f32nn_a", "f32nn_default", "f16nn_b", "f32tn_default", "f32nn_c", "f16heuristic_d", "f32defaults"
    assert takes("cublas", *library) == [*library[:4], library[5]]


@pytest.mark.parametrize("name", NAMED)
def test_every_candidate_runs_untuned(name, monkeypatch):
    monkeypatch.setattr(support, "require_gpu", lambda device, _: device)
    every = [some for some in found(name) if some]
    assert every
    for some in every:
        choices = FirstChoices(name)
        assert all(choices.takes(one) for one in some), [one.variant for one in some]
