"""Direct sparse convolution (2021): its experiments and their pages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import pandas as pd

from nnzbench.core import paths
from nnzbench.report import published
from nnzbench.report.page import Answer, Dots, Made, Page, Printed, Rows, View
from nnzbench.report.text import GAP
from nnzbench.results.groups import Group
from nnzbench.results.result_set import each
from nnzbench.results.selector import CUDNN, CUDNN_DEFAULT, CUDNN_F16, CUDNN_TF32, Selector, kernel, own
from nnzbench.results.table import Comparison

MAPPING = {math: kernel("direct_conv", math, "paper_sbs[248]$", "the paper's mapping") for math in ("f32", "f16")}
"""The published method: it fills every channel up to the longest, and somebody else pads the image."""

CODEBOOK_LEVELS = (Group(words="3×3 layers of VGG-16", level=92), Group(words="a 3×3 layer of VGG-16", level=90.8))
LAYERS = Group(words="all four layers, 90.8 and 92 % zeros")
STORED, STORED_F16 = MAPPING.values()
CODEBOOK, CODEBOOK_F16 = (kernel("direct_conv", math, "codebook_sbs", "4-bit weights") for math in ("f32", "f16"))
QUANTISERS = {
    "linear_8": ("fixed point, 8 bits", 4, STORED_F16),
    "linear_4": ("fixed point, 4 bits", 4, CODEBOOK_F16),
    "kmeans_16": ("k-means, 16 values of 8 bits", 4, CODEBOOK_F16),
    "codebook": ("k-means, 15 values of 16 bits", 4, CODEBOOK_F16),
}
"""Of `datasets/codebook_loss.csv`: in words, bytes of a weight and its offset, padded, and whose time they take."""


def _quantisers(view: View) -> Rows:
    """Errors of real pruned 3×3 layers under the paper's quantisers, beside the time of entries of that kind."""
    found = pd.read_csv(paths.datasets() / "codebook_loss.csv")
    found = found[found["array"].str.contains("conv3x3")]
    facts = view.compare(Comparison((CODEBOOK_F16, STORED_F16), (STORED,), (LAYERS,)))
    speeds = facts[facts["policy"] == "hot"].set_index("subject")["ratio"]
    for name, (words, size, entries) in QUANTISERS.items():
        errors = found.loc[found["quantiser"] == name, "outputs_error"]
        yield {
            "weights": words,
            "bytes of an entry": size,
            "error of the outputs": f"{100 * errors.min():.1f} % to {100 * errors.max():.1f} %",
            "timed as": entries.label,
            f"over {STORED.label}, hot": f"{speeds[entries.label]:.2f}×" if entries.label in speeds else GAP,
        }


def direct_conv_codebook() -> Page:
    """The paper's 4-bit weights in its direct convolution: indices into a codebook beside weights of 32 and 16 bits."""
    dense = (CUDNN_F16, CUDNN_TF32, CUDNN)
    every = (STORED, CODEBOOK, STORED_F16, CODEBOOK_F16, *dense[::-1])
    return Page(
        answers=(
            Answer(CODEBOOK_LEVELS[0], CODEBOOK_F16, CUDNN_F16, (CODEBOOK,), STORED_F16),
            Answer(CODEBOOK_LEVELS[0], CODEBOOK, CUDNN_TF32, (), STORED),
        ),
        comparison=Comparison((CODEBOOK_F16, CODEBOOK), (STORED_F16, STORED, *dense), CODEBOOK_LEVELS),
        figures=(
            Dots("speedup", "Direct convolution with 4-bit weights, and cuDNN", every[1:], STORED, "size",
                 panels=""),
        ),
        tables=(
            Made("The paper's quantisers on six real pruned 3×3 layers, before retraining", _quantisers,
                 "errors are in no record", collapsed=False),
        ),
        facts=(Comparison((CODEBOOK_F16, CODEBOOK, STORED_F16, STORED), (STORED_F16, STORED, *dense), (LAYERS,)),),
        arithmetic="fp32 is IEEE fp32 with TF32 off; fp16 weights and images, sums in fp32",
    )  # fmt: skip


def _of_a_table(
    attributes: str, answered: Mapping[str, Group], groups: tuple[Group, ...],
    gains: Callable[[str, View], pd.DataFrame], title: str, x: str = "layer", panels: str = "pattern",
    tables: tuple[Made, ...] = (),
) -> Page:  # fmt: skip
    """The page of table 6, 7 or 8; `answered` by claims, `gains` the paper's in an arithmetic."""
    paper, ours, paper_f16, ours_f16 = sides = (MAPPING["f32"], own(), MAPPING["f16"], own("f16"))
    paper_gains = [
        Printed("the paper, V100, over its cuDNN", functools.partial(gains, dtype)) for dtype in ("f32", "f16")
    ]
    return Page(
        attributes=attributes,
        answers=tuple(
            Answer(group, paper, CUDNN_TF32, (ours, ours_f16), CUDNN_DEFAULT, claim)
            for claim, group in answered.items()
        ),
        comparison=Comparison(sides, (CUDNN_TF32, CUDNN_F16, CUDNN, CUDNN_DEFAULT), groups),
        figures=(
            Dots("speedup", f"{title}: fp32 over best cuDNN fp32", (ours, paper, CUDNN_TF32), CUDNN, x, panels,
                 printed=paper_gains[0]),
            Dots("speedup_f16", f"{title}: fp16 over best cuDNN fp16", (ours_f16, paper_f16, CUDNN_TF32), CUDNN_F16, x,
                 panels, printed=paper_gains[1]),
        ),
        tables=tables,
        facts=(Comparison((ours,), (paper,), groups), Comparison((CUDNN_F16,), (CUDNN_TF32,), groups)),
        baseline=CUDNN,
    )  # fmt: skip


def _gains6(dtype: str, view: View) -> pd.DataFrame:
    """cuDNN's time over the sparse one on a V100; the paper's lines are the layers in order."""
    found = published.read("direct_conv_table6_vgg16", (f"sparse_{dtype}_ms", f"cudnn_{dtype}_ms"))
    gain = found[f"cudnn_{dtype}_ms"] / found[f"sparse_{dtype}_ms"]
    return pd.DataFrame({"layer": [float(at + 1) for at in range(len(gain))], "pattern": "equal", "value": gain})


EQUAL = Group(words="layers with equal counts, 90 to 93 % zeros", where="pattern == 'equal'")


def _chosen(label: str, dense: pd.Series[float], direct: pd.Series[float]) -> dict[str, object]:
    return {
        "cuDNN": label, "all layers by it": dense.sum(), "all by direct convolution": direct.sum(),
        "each by the faster": dense.clip(upper=direct).sum(),
        "of them direct": f"{sum(direct < dense)} of {len(dense)}",
    }  # fmt: skip


def _configured(view: View) -> Rows:
    """Steps 3 and 4 of algorithm 1, the faster of two for each layer, every kind of layer once; the paper's beside."""
    for dense, direct in ((CUDNN, STORED), (CUDNN_DEFAULT, STORED), (CUDNN_F16, STORED_F16)):
        cells = view.cells((dense, direct), EQUAL, view.policy)
        us = cells.pivot(index="problem", columns="subject", values="median_us")
        us = us.reindex(columns=[dense.label, direct.label]).dropna()
        if len(us):
            yield _chosen(dense.label, us[dense.label], us[direct.label])
    for dtype, words in (("f32", "fp32"), ("f16", "fp16")):
        ms = published.read("direct_conv_table6_vgg16", (f"sparse_{dtype}_ms", f"cudnn_{dtype}_ms"))
        yield _chosen(f"the paper's, V100, {words}", 1e3 * ms[f"cudnn_{dtype}_ms"], 1e3 * ms[f"sparse_{dtype}_ms"])


def direct_conv_table6() -> Page:
    """Table 6: 3x3 layers of VGG-16 over cuDNN's."""
    last = Group(words="the last layers of VGG-16 with equal counts, 92 % zeros", like="08_equal")
    uniform = Group(words="layers with zeros anywhere, 90 to 93 %", where="pattern == 'uniform'")
    return _of_a_table(
        r"(?P<layer>\d\d)_(?P<pattern>equal|uniform)",
        {"direct-vgg-last": last, "": EQUAL}, (last, EQUAL, uniform),
        _gains6, "3×3 layers of VGG-16",
        tables=(
            Made("VGG-16 configured layer by layer, with equal counts: µs of one layer of each kind, added up",
                 _configured, "a choice by layer and its sum"),
        ),
    )  # fmt: skip


def _gains7(dtype: str, view: View) -> pd.DataFrame:
    """The same, where images of 32x32 fit the times."""
    columns = ("dtype", "in_channels", "out_channels", "cudnn_ms", "sparse_ms")
    found = published.read("direct_conv_table7_resnet50_1x1", columns)
    found = found[found["dtype"] == dtype]
    layers = [f"c{row.in_channels}_d{row.out_channels}_32" for row in each(found)]
    return pd.DataFrame({"layer": layers, "pattern": "equal", "value": found["cudnn_ms"] / found["sparse_ms"]})


def direct_conv_table7() -> Page:
    """Table 7: 1x1 layers of ResNet-50 over cuDNN's."""
    small = Group(words="layers with equal counts on images of 32×32, 90 % zeros", like="*_32_equal")
    equal = Group(words="layers with equal counts, 90 % zeros", where="pattern == 'equal'")
    uniform = Group(words="layers with zeros anywhere, 90 %", where="pattern == 'uniform'")
    return _of_a_table(
        r"(?=.*?(?P<pattern>equal|uniform|image\d+))(?:image\d+_)?(?P<layer>c\d+_d\d+(?:_\d+)?)(?:_equal|_uniform)?",
        {"direct-pointwise": small, "": equal}, (small, equal, uniform),
        _gains7, "1×1 layers of ResNet-50",
    )  # fmt: skip


def _gains8(dtype: str, view: View) -> pd.DataFrame:
    """The same by filter and level."""
    levels = {77: "sparse_77_ms", 83: "sparse_83_ms", 87.5: "sparse_875_ms"}
    found = published.read("direct_conv_table8_cnn1d", ("dtype", "kernel", "cudnn_ms", *levels.values()))
    rows = [
        (f"filter{row.kernel[0]}", level, row.cudnn_ms / getattr(row, column))
        for row in each(found[found["dtype"] == dtype])
        for level, column in levels.items()
    ]
    return pd.DataFrame(rows, columns=["label", "level", "value"])


def direct_conv_table8() -> Page:
    """Table 8: 1-D layers over cuDNN's."""
    words = {f"filter{taps}": f"the filter of {taps} with equal counts" for taps in (2, 3)}
    answered = tuple(Group(words=told, like=like, level=83) for like, told in words.items())
    every = (Group(words=f"{told}, 77 to 87.5 %", like=like) for like, told in words.items())
    return _of_a_table(
        r"(?P<layer>filter\d)(?:_(?P<pattern>uniform))?",
        dict(zip(("direct-1d-2-83", "direct-1d-3-83"), answered, strict=True)),
        (*answered, *every, Group(words="both filters with zeros anywhere, 77 to 87.5 %", like="filter?_uniform")),
        _gains8, "1-D layers", x="label", panels="level",
    )  # fmt: skip


NETWORKS = tuple(
    Group(words=words, where=f"model == '{model}'")
    for words, model in (
        ("3×3 layers of VGG-16 at 90 to 93 % zeros", "vgg16"),
        ("1×1 layers of ResNet-50 at 90 % zeros", "resnet50_1x1"),
        ("1-D layers at 83 % zeros", "cnn_1d"),
    )
)
ONE_IMAGE = kernel("direct_conv", variants="paper_sbs1$", words="one image a block")
WHOLE_BATCH = kernel("direct_conv", variants="paper_whole$", words="the whole batch a block")
OURS = kernel("direct_conv", variants="staged", words="our mapping")
BLOCKS = {"D*bS": ONE_IMAGE, "D": WHOLE_BATCH}
"""By the number of thread blocks as the paper's table calls it."""


def _printed9(view: View) -> pd.DataFrame:
    """The share of its speed that the paper's method keeps: the mean of a network, at each of its layers."""
    columns = ("layer", "thread_blocks", "performance_decrease_percent")
    found = published.read("direct_conv_table9_blocks", columns).rename(columns={"layer": "model"})
    found = found.assign(
        subject=[BLOCKS[one].label for one in found["thread_blocks"]],
        value=1 - found["performance_decrease_percent"] / 100,
    )
    return view.problems[["label", "model"]].merge(found, on="model")


def direct_conv_table9() -> Page:
    """Direct sparse convolution's table 9: what the number of thread blocks is worth to the published method."""
    sub_batches: tuple[Selector, ...] = tuple(
        kernel("direct_conv", variants=f"paper_sbs{images}$", words=f"sub-batch {images}") for images in (2, 4, 8)
    )
    extremes = (ONE_IMAGE, WHOLE_BATCH)
    return Page(
        answers=tuple(Answer(group, STORED, CUDNN_TF32, (OURS,), WHOLE_BATCH) for group in NETWORKS),
        comparison=Comparison((STORED, *extremes, OURS), (STORED, CUDNN_TF32, CUDNN), NETWORKS),
        figures=(
            Dots("blocks", "Direct convolution without a tuned number of thread blocks", extremes, STORED,
                 panels="subject", printed=Printed("the paper's mean of the network, V100", _printed9)),
        ),
        facts=(
            Comparison((STORED, OURS), (WHOLE_BATCH,), NETWORKS),
            Comparison((*sub_batches, *extremes), (STORED,), by=("label", "size")),
        ),
    )  # fmt: skip
