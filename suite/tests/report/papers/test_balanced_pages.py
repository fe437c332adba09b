"""Facts of Balanced Sparsity's pages on invented records with known answers, and theorem 1 by sampling."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sputnik_records import Timed, drawn

from nnzbench.data.problems.problem import Problem
from nnzbench.papers import balanced as pages
from nnzbench.report import published, render
from nnzbench.results.result_set import nothing
from nnzbench.site.index.data import _printed


def balanced(us: float) -> Timed:
    """A time on balanced patterns alone."""
    return ("balanced", "paper_r1", lambda problem: us if "balanced" in problem.label else None)


def sparse_us(problem: Problem) -> float:
    """Random zeros 400 us, blocks 800; on other patterns cuSPARSE is fast, which must not count."""
    return {"uniform": 400.0, "block": 800.0}.get(problem.source.partition(":")[0], 1.0)


TIMED: list[Timed] = [
    balanced(200.0),
    ("cublas", "rowmajor_default", lambda _: 1000.0),
    ("cusparse", "csr_default_col", sparse_us),
]
MINE = "balanced, the paper's mapping"


def test_the_digitised_ideal_follows_from_the_published_dense_time() -> None:
    columns = ("sparsity", "ideal_b1_us", "ideal_b8_us")
    times = published.read("balanced_figure4_digitised", columns)
    dense = published.read("balanced_figure4_dense", ("batch", "dense_us")).set_index("batch")["dense_us"]
    for n in pages.BATCHES:
        ideal = [pages.ideal_us(dense[n], zeros, pages.OVERHEAD_US) for zeros in times["sparsity"]]
        assert times[f"ideal_b{n}_us"].tolist() == pytest.approx(ideal, abs=35)


def test_balanced_is_set_against_other_patterns_with_as_many_zeros(tmp_path: Path) -> None:
    view, facts = drawn(tmp_path, "balanced_figure4", TIMED)
    for group, pairs in zip(pages.LARGE, pages.LARGE_PATTERNS, strict=True):
        assert facts[group.label, MINE, "cuBLAS fp32"] == pytest.approx(5.0)
        assert facts[pairs.label, MINE, "cuSPARSE, random zeros"] == pytest.approx(2.0)
        assert facts[pairs.label, MINE, "cuSPARSE, blocks of zeros"] == pytest.approx(4.0)
    assert _printed(pages.balanced_figure4(), view) == ("", {}), "along a line no number is of one problem"
    printed = pages._printed_figure4(view).set_index(["n", "level"])["value"]
    assert len(printed) == 22
    assert printed[1, 50.0] == pytest.approx(1.09, abs=0.02)


def test_perplexities_stand_beside_the_times_of_their_pattern(tmp_path: Path) -> None:
    view, _ = drawn(tmp_path, "balanced_figure1", TIMED)
    found = pages.tradeoff(view).query("policy == 'hot'").set_index(["kernel", "zeros (%)"])
    assert found.loc[(MINE, 60.0)].tolist()[1:] == [200.0, 78.4]
    assert found.loc[("cuSPARSE, 4×4 blocks", 60.0)].tolist()[1:] == [800.0, 80.6]
    assert pd.isna(found.loc[("cuSPARSE, random zeros", 60.0), "perplexity"])


def test_vgg_is_a_sum_over_all_layers_or_nothing(tmp_path: Path) -> None:
    _, facts = drawn(tmp_path / "all", "balanced_models", TIMED)
    assert facts["all layers of VGG-16 with balanced zeros (total)", MINE, "cuBLAS fp32"] == pytest.approx(5.0)
    assert facts["PTB's LSTM, a pattern each", MINE, "cuSPARSE, random zeros"] == pytest.approx(2.0)
    part: Timed = ("balanced", "paper_r1", lambda one: 200.0 if one.label == "vgg16_fc6_balanced" else None)
    _, facts = drawn(tmp_path / "part", "balanced_models", [part, *TIMED[1:]])
    assert not any("all layers" in group and subject == MINE for group, subject, _ in facts.index)


def test_the_sampled_variance_is_the_sum_of_the_squares_taken_away() -> None:
    cut = norm.ppf(0.75)  # half of all magnitudes lie below it
    squares = 0.5 - 2 * cut * norm.pdf(cut)
    found = pages.samples().set_index(["zeros", "size"])
    one = found.loc[0.5, 32]
    assert one["random"] == pytest.approx(pages.N * squares, rel=0.03)
    assert 1.05 < one["balanced"] / one["random"] < 1.2
    assert abs(one["mean"]) < 0.02
    assert (found["balanced"] / found["random"]).loc[0.5].is_monotonic_decreasing  # small ranges cost more


def test_equation_3_is_how_uncertain_the_kth_smallest_of_a_sample_is() -> None:
    rng = np.random.default_rng(0)
    drawn = np.sort(rng.standard_normal((4000, 99)), axis=1)[:, 49]  # the median
    assert pages.order_variance(np.array([49.5]), 99)[0] == pytest.approx(drawn.var(), rel=0.06)


def test_its_page_is_drawn_from_nothing_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "balanced_theorem1"
    folder.mkdir()
    text = render.write(pages.balanced_theorem1(), nothing(folder)).read_text(encoding="utf-8")
    assert text.count("| 50 |") == len(pages.RANGES)
    assert "](maps.svg)" in text
