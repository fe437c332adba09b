"""Facts of direct sparse convolution's tables 6 to 8 on invented records with known answers."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import fake_records
import pandas as pd
import pytest
from sputnik_records import Timed, records

from nnzbench.facts.results import load
from nnzbench.papers.direct_conv import direct_conv_table6, direct_conv_table7, direct_conv_table8
from nnzbench.report import render
from nnzbench.report.pages.view import View


def times(us: float, half: float) -> Timed:
    """By the problem's type, for a kernel of that name and variant to be put in front."""
    return ("", "", lambda problem: half if problem.dtype == "f16" else us)


def timed() -> list[Timed]:
    """The method 300 us with its fastest sub-batch, its padding 20 more, ours 100; fp16 180, 12 and 60; cuDNN 400."""
    by_type = {
        ("direct_conv", "paper_sbs2"): times(400, 240), ("direct_conv", "paper_sbs4"): times(300, 180),
        ("direct_conv", "paper_sbs1"): times(1, 1), ("direct_conv", "paper_whole"): times(1, 1),
        ("direct_conv", "paper_sbs4_padding_timed"): times(320, 192),
        ("direct_conv", "paper_counts_sbs2"): times(250, 150), ("direct_conv", "staged_r64"): times(100, 60),
        ("cudnn", "f32_nchw_plan00_default"): times(400, 400),
    }  # fmt: skip
    return [(kernel, variant, value) for (kernel, variant), (_, _, value) in by_type.items()]


@pytest.mark.parametrize("module", [direct_conv_table6, direct_conv_table7, direct_conv_table8])
def test_the_method_is_its_fastest_sub_batch_given_a_padded_image(tmp_path: Path, module: ModuleType) -> None:
    page = module.page()
    results = load(fake_records.write(tmp_path, records(module.EXPERIMENT.name, timed())))
    render.write(page, results)
    facts = pd.read_csv(tmp_path / "facts.csv").set_index(["group", "subject", "baseline"])["ratio"].sort_index()
    for group in page.comparison.groups:
        assert facts[group.label, "best of ours", "direct_conv, the paper's mapping"] == pytest.approx(3.0)
    mine = View(results, page.attributes)
    for figure, dtype in zip(page.figures, ("f32", "f16"), strict=True):
        printed = figure.printed.make(mine)
        keys = ["label", "level"] if "label" in printed else ["layer", "pattern"]
        problems = mine.data.problems[mine.data.problems["dtype"] == dtype]
        assert len(printed.merge(problems[keys].drop_duplicates(), on=keys)) == len(printed) > 0


def test_the_papers_gains_are_its_dense_over_its_sparse_times(tmp_path: Path) -> None:
    results = load(fake_records.write(tmp_path, records("direct_conv_table8", timed())))
    view = View(results, direct_conv_table8.page().attributes)
    found = direct_conv_table8._printed("f32").make(view).set_index(["label", "level"])["value"]
    assert found["filter2", 83] == pytest.approx(0.192 / 0.126)
    assert direct_conv_table6._printed("f32").make(view)["value"].iloc[0] == pytest.approx(19.07 / 60.73)
