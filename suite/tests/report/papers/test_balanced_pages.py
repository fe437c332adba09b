"""Facts of Balanced Sparsity's pages on invented records with known answers."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from sputnik_records import Timed, drawn

from nnzbench.papers.balanced import balanced_figure1, balanced_figure4, balanced_models
from nnzbench.problems.problem import Problem
from nnzbench.report.data import published


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


def test_the_ideal_line_is_the_papers_equation() -> None:
    assert balanced_figure4.ideal_us(1110.0, 0.5, 10.0) == pytest.approx(560.0)


def test_the_digitised_ideal_follows_from_the_published_dense_time() -> None:
    columns = ("sparsity", "ideal_b1_us", "ideal_b8_us")
    times = published.read("balanced_figure4_digitised", columns)
    dense = published.read("balanced_figure4_dense", ("batch", "dense_us")).set_index("batch")["dense_us"]
    for n in balanced_figure4.BATCHES:
        ideal = [
            balanced_figure4.ideal_us(dense[n], zeros, balanced_figure4.OVERHEAD_US) for zeros in times["sparsity"]
        ]
        assert times[f"ideal_b{n}_us"].tolist() == pytest.approx(ideal, abs=35)


def test_balanced_is_set_against_other_patterns_with_as_many_zeros(tmp_path: Path) -> None:
    view, facts = drawn(tmp_path, balanced_figure4, TIMED)
    for group, pairs in zip(balanced_figure4.BALANCED, balanced_figure4.PATTERNS, strict=True):
        assert facts[group.label, MINE, "cuBLAS fp32"] == pytest.approx(5.0)
        assert facts[pairs.label, MINE, "cuSPARSE, random zeros"] == pytest.approx(2.0)
        assert facts[pairs.label, MINE, "cuSPARSE, blocks of zeros"] == pytest.approx(4.0)
    printed = balanced_figure4._printed(view).set_index(["n", "level"])["value"]
    assert len(printed) == 22
    assert printed[1, 50.0] == pytest.approx(1.09, abs=0.02)


def test_perplexities_stand_beside_the_times_of_their_pattern(tmp_path: Path) -> None:
    view, _ = drawn(tmp_path, balanced_figure1, TIMED)
    found = balanced_figure1.tradeoff(view).query("policy == 'hot'").set_index(["kernel", "zeros (%)"])
    assert found.loc[(MINE, 60.0)].tolist()[1:] == [200.0, 78.4]
    assert found.loc[("cuSPARSE, 4×4 blocks", 60.0)].tolist()[1:] == [800.0, 80.6]
    assert pd.isna(found.loc[("cuSPARSE, random zeros", 60.0), "perplexity"])


def test_vgg_is_a_sum_over_all_layers_or_nothing(tmp_path: Path) -> None:
    _, facts = drawn(tmp_path / "all", balanced_models, TIMED)
    assert facts["all layers of VGG-16 with balanced zeros (total)", MINE, "cuBLAS fp32"] == pytest.approx(5.0)
    assert facts["PTB's LSTM, a pattern each", MINE, "cuSPARSE, random zeros"] == pytest.approx(2.0)
    part: Timed = ("balanced", "paper_r1", lambda one: 200.0 if one.label == "vgg16_fc6_balanced" else None)
    _, facts = drawn(tmp_path / "part", balanced_models, [part, *TIMED[1:]])
    assert not any("all layers" in group and subject == MINE for group, subject, _ in facts.index)
