"""PatDNN (ASPLOS 2020): 3x3 kernels pruned to a few patterns, step by step, beside CSR, 2:4 and cuDNN."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd

from nnzbench.data.matrices.encodings import Kernels, csr_structure_bytes, reordered, structure_bytes
from nnzbench.data.problems import tables
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.sources import load_sparse
from nnzbench.kernels.pattern_conv import STEPS, input_loads
from nnzbench.report import published
from nnzbench.report.page import Answer, Dots, Made, Page, Rows, View
from nnzbench.results.groups import Group
from nnzbench.results.result_set import each
from nnzbench.results.selector import CUDNN, CUDNN_F16, CUDNN_TF32, Selector, kernel
from nnzbench.results.table import Comparison

LAYER = r"(?P<layer>(?:vgg|rn50)_\w+?)_(?P<kind>top\d+|uniform|2to4)_b(?P<batch>\d+)"
WORDS = {
    "no_opt": "no step",
    "reorder": "reordered",
    "lre_kernel": "reordered, loads shared in kernels",
    "lre": "reordered, loads shared in kernels and pairs of filters",
}
"""Variants by the paper's steps, each with those before it."""
NETWORKS = {"vgg16": "VGG-16", "resnet50": "ResNet-50"}
RATES = (18, 12, 8)
"""Times fewer weights of the paper's figure 16."""
_PATTERNS = 8


def step(name: str, math: str = "f32") -> Selector:
    """One of the paper's steps, at one tiling for all layers."""
    return kernel("pattern_conv", math, f"{name}$", WORDS[name])


def _layers(model: str, batch: int) -> Group:
    """The layers of a network with 8 patterns."""
    return Group(
        words=f"3×3 layers of {NETWORKS[model]} at batch {batch}",
        where=f"model == '{model}' and batch == {batch} and kind == 'top8'",
    )


TUNED, TUNED_F16 = (kernel("pattern_conv", math, words="best") for math in ("f32", "f16"))
ROWS = {math: kernel("direct_conv", math, "paper_counts", "as CSR") for math in ("f32", "f16")}
"""Convolution from CSR: row pointers, and an offset into the image for each nonzero."""
GENERATED = {math: Selector(f"best generated code {word}", ("direct_conv", "sparsert_conv"), math, "(?!paper)")
             for math, word in (("f32", "fp32"), ("f16", "fp16"))}  # fmt: skip
TWO_FOUR = kernel("cusparselt", "f16")
GROUPS = tuple(_layers(model, batch) for batch in (1, 16) for model in NETWORKS)
SINGLE = Group(words="layers at batch 1 with 8 patterns", where="batch == 1 and kind == 'top8'")
ANYWHERE, AS_PRODUCTS = (
    Group(words=f"the same layers{words}", cases=rf"((?:vgg|rn50)_\w+?)_{kind}_b1_",
          baseline_cases=r"((?:vgg|rn50)_\w+?)_top8_b1_")
    for words, kind in ((", zeros anywhere", "uniform"), (" as 2:4 products", "2to4"))
)  # fmt: skip


def storage(view: View | None = None) -> Rows:
    """Bytes of VGG-16's nine 3x3 layers in CSR and FKW, fp32 weights, by times fewer weights."""
    printed = published.read("patdnn_storage", ("pruned", "structure_saved_percent", "whole_saved_percent"))
    shapes = [
        (one.m, one.k) for one in tables.load("patdnn") if one.label.startswith("vgg") and one.label.endswith("top8_b1")
    ]
    for rate in RATES:
        kernels = [round(m * k / rate / 4) for m, k in shapes]
        csr = sum(csr_structure_bytes(m, kept) for (m, _), kept in zip(shapes, kernels, strict=True))
        fkw = sum(structure_bytes(m, kept, _PATTERNS) for (m, _), kept in zip(shapes, kernels, strict=True))
        weights = 16 * sum(kernels)
        paper = printed[printed["pruned"] == rate].iloc[0]
        saved, of_everything = 1 - fkw / csr, 1 - (fkw + weights) / (csr + weights)
        yield {
            "fewer weights": f"{rate}×", "CSR's structure, KB": csr / 1e3, "FKW's, KB": fkw / 1e3,
            "weights, KB": weights / 1e3, "structure saved": f"{100 * saved:.1f} %",
            "paper": f"{paper.structure_saved_percent} %", "of everything": f"{100 * of_everything:.1f} %",
            "paper ": f"{paper.whole_saved_percent} %",
        }  # fmt: skip


@functools.cache
def _counted(problem: Problem) -> dict[str, object]:
    kernels = Kernels.of(load_sparse(problem))
    loads = {name: input_loads(kernels, tiling) for name, tiling in STEPS.items()}
    lengths = kernels.lengths
    blocks = {
        name: np.pad(lengths[order], (0, -lengths.size % 8)).reshape(-1, 8).max(axis=1).sum() * 8 / lengths.sum() - 1
        for name, order in (("before", np.arange(lengths.size)), ("after", reordered(kernels)))
    }
    return {
        "layer": problem.label.removesuffix("_top8_b1"),
        "kernels": kernels.filter.size,
        "shortest and longest filter": f"{lengths.min()}-{lengths.max()}",
        **{f"idle in blocks of 8 filters, {name}": f"{100 * share:.0f} %" for name, share in blocks.items()},
        "loads of a lane": loads["reorder"],
        "shared in a kernel": loads["lre_kernel"],
        "and between filters": loads["lre"],
    }


def _counts(view: View) -> Rows:
    """What the reorder and the two eliminations of loads do, counted from the patterns (the paper's figure 14)."""
    recorded = set(view.problems["problem"])
    chosen = [one for one in tables.load("patdnn") if one.label.endswith("top8_b1") and one.name in recorded]
    yield from map(_counted, chosen)


def _by_count(view: View) -> pd.DataFrame | None:
    """Times of VGG-16's 13 layers by number of patterns, each layer as often as the network has it."""
    asked = Group(where="model == 'vgg16' and batch == 1 and kind != 'uniform' and op == 'conv2d'")
    times = view.cells((TUNED, TUNED_F16), asked)
    if times.empty:
        return None
    counts = {layer.label: layer.count for layer in tables.rows("patdnn")}
    times = times.assign(weighted=[row.median_us * counts[row.label] for row in each(times)])
    whole = times.groupby(["kind", "subject", "policy"]).filter(lambda some: len(some) == 9)
    if whole.empty:
        return None
    sums = whole.pivot_table(index="kind", columns=["subject", "policy"], values="weighted", aggfunc="sum")
    sums.columns = [", ".join(one) for one in sums.columns]
    sums.index = pd.Index([int(str(kind).removeprefix("top")) for kind in sums.index], name="patterns")
    return sums.sort_index().reset_index()


def patdnn() -> Page:
    """PatDNN on a GPU: pattern-pruned 3x3 layers of VGG-16 and ResNet-50, step by step, beside CSR, 2:4 and cuDNN."""
    steps = {math: tuple(step(name, math) for name in STEPS) for math in ("f32", "f16")}
    series = {"f32": (*steps["f32"][1:], TUNED), "f16": (*steps["f16"][1:], TUNED_F16)}
    return Page(
        attributes=LAYER,
        answers=tuple(
            Answer(group, TUNED, CUDNN_TF32, (GENERATED["f32"],), CUDNN) for group in GROUPS
        ),
        comparison=Comparison(
            (TUNED, TUNED_F16, ROWS["f32"], GENERATED["f32"]), (CUDNN_F16, CUDNN_TF32, CUDNN), GROUPS
        ),
        figures=(
            Dots("steps", "Each of PatDNN's steps with those before it, fp16, over none", series["f16"],
                 steps["f16"][0], x="layer", panels="batch", group=SINGLE),
            Dots("speedup", "Pattern-pruned layers over cuDNN's dense fp32", (TUNED, TUNED_F16, ROWS["f32"],
                 GENERATED["f32"], CUDNN_TF32, CUDNN_F16), CUDNN, x="layer", panels="batch",
                 group=Group(words="layers with 8 patterns", where="kind == 'top8'")),
        ),
        tables=(
            Made("What the steps change in each layer, counted", _counts, "counts patterns, not times"),
            Made("Storage of VGG-16's 3×3 layers in CSR and FKW, fp32 weights", storage, "counts bytes of formats",
                 collapsed=False),
            Made("VGG-16's 13 layers by number of patterns, µs", _by_count, "sums of times"),
        ),
        facts=(
            *(Comparison((*steps[math][1:], series[math][-1]), steps[math], GROUPS[:2]) for math in steps),
            *(Comparison(series[math], (steps[math][0],), (SINGLE,), ("layer",)) for math in steps),
            Comparison(series["f32"], (steps["f32"][0],), (SINGLE,), ("layer", "batch")),
            Comparison((GENERATED["f32"], GENERATED["f16"], ROWS["f32"]), (CUDNN, CUDNN_TF32, CUDNN_F16), (ANYWHERE,)),
            Comparison((TWO_FOUR,), (CUDNN_F16,), (AS_PRODUCTS,)),
        ),
        baseline=CUDNN,
    )  # fmt: skip
