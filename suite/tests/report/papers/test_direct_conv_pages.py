"""Facts of direct sparse convolution's pages on invented records with known answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from sputnik_records import Timed, drawn, records, view_of

from nnzbench.data.problems.problem import Problem
from nnzbench.papers import direct_conv
from nnzbench.papers.catalogue import page_of

US = {
    "paper_sbs2": (400, 240), "paper_sbs4": (300, 180), "paper_sbs1": (1, 1), "paper_whole": (1, 1),
    "paper_sbs4_padding_timed": (320, 192), "paper_counts_sbs2": (250, 150), "staged_r64": (100, 60),
    "f32_nchw_plan00_default": (400, 400),
}  # fmt: skip
"""In fp32 and fp16: the method 300 us with its fastest sub-batch, its padding 20 more, ours 100, cuDNN 400."""
TABLES: list[Timed] = [
    ("cudnn" if "nchw" in variant else "direct_conv", variant, lambda problem, us=us: us[problem.dtype == "f16"])
    for variant, us in US.items()
]


@pytest.mark.parametrize("number", [6, 7, 8])
def test_the_method_is_its_fastest_sub_batch_given_a_padded_image(tmp_path: Path, number: int) -> None:
    view, facts = drawn(tmp_path, f"direct_conv_table{number}", TABLES)
    page = page_of(f"direct_conv_table{number}")
    assert page is not None
    assert page.comparison is not None
    for group in page.comparison.groups:
        assert facts[group.label, "best of ours", "direct_conv, the paper's mapping"] == pytest.approx(3.0)
    for figure, dtype in zip(page.figures, ("f32", "f16"), strict=True):
        printed = figure.printed.make(view)
        keys = ["label", "level"] if "label" in printed else ["layer", "pattern"]
        problems = view.problems[view.problems["dtype"] == dtype]
        assert len(printed.merge(problems[keys].drop_duplicates(), on=keys)) == len(printed) > 0
    if number == 8:
        found = direct_conv._gains8("f32", view).set_index(["label", "level"])["value"]
        assert found["filter2", 83] == pytest.approx(0.192 / 0.126)  # the paper's dense over its sparse time
        assert direct_conv._gains6("f32", view)["value"].iloc[0] == pytest.approx(19.07 / 60.73)


def test_a_network_is_configured_by_the_faster_of_two_for_each_layer(tmp_path: Path) -> None:
    timed: list[Timed] = [
        ("direct_conv", "paper_sbs4", lambda p: 3.0 if p.dtype == "f32" else None),
        ("cudnn", "f32_nchw_plan00_default", lambda p: 2.0 if p.label < "06" else 5.0),
    ]
    view = view_of(tmp_path, "direct_conv_table6", timed)
    found = {one["cuDNN"]: one for one in direct_conv._configured(view)}
    ours = found["cuDNN's default fp32 in NCHW"]
    assert list(ours.values())[1:] == [5 * 2 + 3 * 5, 8 * 3, 5 * 2 + 3 * 3, "3 of 8"]
    paper = found["the paper's, V100, fp32"]
    assert paper["all layers by it"] - paper["each by the faster"] == pytest.approx(1e3 * (4.84 - 4.23))
    assert paper["of them direct"] == "1 of 8"


def vgg(problem: Problem) -> bool:
    return problem.label.startswith("vgg16")


def test_an_untuned_number_of_blocks_is_set_against_the_best_sub_batch(tmp_path: Path) -> None:
    """Neither an extreme nor a variant with a pass of its own is a sub-batch to tune."""
    us = {"paper_sbs1": 50.0, "paper_sbs2": 400.0, "paper_sbs4": 300.0, "paper_sbs8": 500.0, "paper_whole": 600.0}
    us |= {"paper_sbs4_padding_timed": 10.0, "paper_counts_sbs2": 10.0, "staged_r64": 100.0}
    timed: list[Timed] = [("direct_conv", name, lambda _, one=one: one) for name, one in us.items()]
    timed.append(("cudnn", "tf32_nhwc_plan00", lambda problem: 150.0 if vgg(problem) else None))
    _, facts = drawn(tmp_path, "direct_conv_table9", timed)
    tuned = "direct_conv, the paper's mapping"
    for group in direct_conv.NETWORKS:
        assert facts[group.label, "direct_conv, one image a block", tuned] == pytest.approx(6.0)
        assert facts[group.label, "direct_conv, the whole batch a block", tuned] == pytest.approx(0.5)
        assert facts[group.label, "direct_conv, our mapping", tuned] == pytest.approx(3.0)
    assert facts[direct_conv.NETWORKS[0].label, tuned, "best cuDNN TF32"] == pytest.approx(0.5)
    assert (direct_conv.NETWORKS[1].label, tuned, "best cuDNN TF32") not in facts.index


def test_the_papers_loss_of_a_network_stands_at_each_of_its_layers(tmp_path: Path) -> None:
    view = view_of(tmp_path, "direct_conv_table9", [("direct_conv", "paper_sbs2", lambda _: 1.0)])
    found = direct_conv._printed9(view).set_index(["subject", "label"])["value"]
    assert len(found) == 24
    assert found["direct_conv, the whole batch a block", "vgg16_08"] == pytest.approx(0.55)
    assert found["direct_conv, one image a block", "cnn1d_filter2"] == pytest.approx(0.88)


def test_four_bit_weights_are_beside_the_weights_themselves_level_by_level(tmp_path: Path) -> None:
    """Dense 40 us, the paper's method 20, with a codebook 16; counts per channel and our mapping are not compared."""
    us = {"paper_sbs4": 20.0, "codebook_sbs4": 16.0, "paper_counts_sbs4": 1.0, "staged_r64": 1.0}
    timed: list[Timed] = [("direct_conv", name, lambda _, one=one: one) for name, one in us.items()]
    rows = records("direct_conv_codebook", [*timed, ("cudnn", "f32_nchw_plan01", lambda _: 40.0)])
    rows += records(
        "direct_conv_codebook",
        [("direct_conv", "codebook_sbs4", lambda p: None if p.label == "05" else 10.0)],
        dtype="f16",
    )
    _, facts = drawn(tmp_path, "direct_conv_codebook", rows)
    for group in direct_conv.CODEBOOK_LEVELS:
        found = facts[group.label, "direct_conv, 4-bit weights"]
        assert dict(found) == pytest.approx({"direct_conv, the paper's mapping": 1.25, "best cuDNN fp32": 2.5})
    most, one = (group.label for group in direct_conv.CODEBOOK_LEVELS)
    half, stored = "direct_conv fp16, 4-bit weights", "direct_conv, the paper's mapping"
    assert facts[most, half, stored] == pytest.approx(2.0)
    assert (one, half, stored) not in facts.index
