"""Facts and counts of PatDNN's page on invented records with known answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pandas as pd
import pytest
from sputnik_records import Timed, drawn

from nnzbench.data.problems.problem import Problem
from nnzbench.papers import patdnn
from nnzbench.report.page import View

Page = tuple[View, "pd.Series[float]"]
Time = Callable[[Problem], float | None]
STEPS = {"no_opt": 64.0, "reorder": 32.0, "lre_kernel": 16.0, "lre": 8.0, "tuned_32x8_w8_c16": 4.0}


def patterned(us: float) -> Time:
    """12 patterns take twice as long."""

    def time(problem: Problem) -> float | None:
        if "_2to4_" in problem.label or "uniform" in problem.label:
            return None
        return us * (2 if "top12" in problem.label else 1)

    return time


def of(label: str, us: float) -> Time:
    return lambda problem: us if label in problem.label else None


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    timed: tuple[Timed, ...] = (
        *(("pattern_conv", variant, patterned(us)) for variant, us in STEPS.items()),
        ("cudnn", "f32_nchw_eng1_default", of("_top8_", 20.0)),
        ("direct_conv", "paper_counts_sbs2", of("_top8_", 10.0)),
        ("direct_conv", "staged_r8", of("_uniform_", 5.0)),
        ("cusparselt", "f16_alg0", of("_2to4_", 2.0)),
    )
    return drawn(tmp_path_factory.mktemp("page"), "patdnn", timed)


def test_each_step_is_taken_over_the_one_before(page: Page) -> None:
    _, facts = page
    vgg = "3×3 layers of VGG-16 at batch 1"
    steps = [patdnn.step(name).label for name in STEPS if name in patdnn.WORDS] + [patdnn.TUNED.label]
    for before, after in itertools.pairwise(steps):
        assert facts[vgg, after, before] == pytest.approx(2.0)
    assert facts[vgg, patdnn.TUNED.label, "best cuDNN fp32"] == pytest.approx(5.0)
    anywhere = "the same layers, zeros anywhere"
    assert facts[anywhere, patdnn.GENERATED["f32"].label, "best cuDNN fp32"] == pytest.approx(4.0)


def test_times_of_a_network_count_layers_as_often_as_it_has_them(page: Page) -> None:
    found = patdnn._by_count(page[0])
    assert found is not None
    times = found.set_index("patterns").iloc[:, 0]
    assert times[8] == 13 * 4
    assert times[12] == 2 * 13 * 4


def test_storage_is_close_to_what_the_paper_prints() -> None:
    """Its figure 16: 94, 92 and 88 % of CSR's structure; a channel's number of two bytes saves at most 7 of 8."""
    found = pd.DataFrame(patdnn.storage()).set_index("fewer weights")
    saved = [float(found.loc[rate, "structure saved"].rstrip("%")) for rate in ("18×", "12×", "8×")]
    assert all(80 < one < 87.5 for one in saved)
    assert float(found.loc["8×", "of everything"].rstrip("%")) == pytest.approx(43.9, abs=1)
