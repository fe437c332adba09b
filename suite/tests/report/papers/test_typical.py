"""Which problems stand for an experiment."""

from __future__ import annotations

import pytest

from nnzbench.data.problems.problem import Problem, stem_of
from nnzbench.papers.catalogue import EXPERIMENTS, page_of
from nnzbench.papers.typical import typical
from nnzbench.report.page import Page

FEW = 10


@pytest.mark.parametrize("name", [name for name, one in EXPERIMENTS.items() if one.kernels])
def test_every_page_that_answers_has_few_typical_problems_that_are_its_own(name):
    problems = EXPERIMENTS[name].problems()
    found = typical(name, problems)
    page = page_of(name)
    asked = isinstance(page, Page) and bool(page.answers)
    assert (0 < len(found) <= FEW) == asked
    assert len(found) == len(set(found))
    assert set(found) <= {stem_of(problem.name) for problem in problems}


def test_the_median_size_stands_for_a_group():
    page = page_of("llm_layers")
    problems = [one for one in EXPERIMENTS["llm_layers"].problems() if one.n == page.answers[0].group.columns]
    group = [one for one in problems if round(100 * one.sparsity) == page.answers[0].group.level]
    first, *_ = typical("llm_layers", problems)
    sizes = sorted(one.m * one.k * one.n for one in group)
    (chosen,) = {one.m * one.k * one.n for one in group if stem_of(one.name) == first}
    assert chosen == sizes[len(sizes) // 2]


def test_no_problem_stands_for_what_has_none():
    other = Problem("llm_layers", "p0", "sddmm", 8, 8, 8, 0.5, "uniform:0")
    assert typical("llm_layers", [other]) == []
    assert typical("not_listed", [other]) == []
