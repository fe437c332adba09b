"""Sputnik's tables III and IV: attention and MobileNetV1, layer by layer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from nnzbench.data.problems import tables
from nnzbench.kernels.registry import about
from nnzbench.papers.sputnik import EQUAL_ACCURACY
from nnzbench.report import published
from nnzbench.report.page import Answer, Bars, Drawn, Made, Page, RatioTable, Rows, View
from nnzbench.results.groups import Group
from nnzbench.results.result_set import each
from nnzbench.results.selector import DEFAULT, Selector, kernel, pick, written_here
from nnzbench.results.table import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MASKED = Group(words="attention under the sparse mask", like="attention")
WHOLE = Group(words="sparse against full causal attention", like="attention", baseline_like="causal")
ALL_OF_A_HEAD = Group(words="a whole head", where="label in ('attention', 'causal')")
UNFUSED, UNFUSED_TF32 = kernel("dense_attention"), kernel("dense_attention", "tf32")
FUSED = kernel("cudnn_attention", "f16")
RULE = kernel("sparse_attention", variants=DEFAULT)
BEST, BEST_F16 = kernel("sparse_attention"), kernel("sparse_attention", "f16")
WAYS = (UNFUSED, UNFUSED_TF32, FUSED, RULE, BEST, BEST_F16)


def attention_bytes(kernel: str, variant: str, math: str, queries: int, keys: int, features: int, nnz: int) -> int:
    """Bytes of the buffers of an attention kernel's row in arithmetic class `math`.

    `dense_attention` holds all scores, and the mask as bits; `cudnn_attention` no scores, and in its variants `bias`
    the mask as a number of 2 bytes per score. The sparse kernel holds an index (2 bytes in fp16, where the keys are few
    enough), a score and a weight per position of the mask, a record per row and one per 32 positions of a row; the last
    is taken as half full in its row's last one.
    """
    element = 2 if math in ("f16", "bf16") else 4
    outside = element * features * 2 * (queries + keys)
    if kernel == "cudnn_attention":
        return outside + (2 * queries * 8 * -(-keys // 8) if "_bias_" in variant else 0)
    if about(kernel).work == "dense":
        return outside + element * queries * keys + 4 * queries * -(-keys // 32)
    index = 2 if element == 2 and keys <= 65535 else 4
    return outside + (index + 2 * element) * nnz + 16 * queries + 16 * (nnz // 32 + queries // 2)


def _memory(view: View) -> pd.DataFrame:
    """Tokens per second of all heads, one after another, and memory of one head by what computes it."""
    cells = view.cells(WAYS, ALL_OF_A_HEAD, view.policy)
    unfused = cells[(cells["label"] == "attention") & (cells["subject"] == UNFUSED.label)]
    dense = unfused.set_index("policy")["memory_mb"]
    maths = {one.label: one.math for one in WAYS}
    counted = [
        attention_bytes(row.kernel, row.variant, maths[row.subject], row.m, row.k, row.n, row.nnz) / 1e6
        for row in each(cells)
    ]
    return pd.DataFrame(
        {
            "problem": cells["label"],
            "kernel": cells["subject"],
            "policy": cells["policy"],
            "positions": cells["nnz"],
            "tokens/s": (1e6 * cells["m"] / (cells["median_us"] * cells["count"])).round().astype(int),
            "MB counted": counted,
            "MB measured": cells["memory_mb"],
            "times less than dense_attention's": cells["policy"].map(dense) / cells["memory_mb"],
        }
    )


def sputnik_attention() -> Page:
    """Sputnik's table III: time and memory of sparse, dense and fused attention over 12,288 tokens."""
    return Page(
        answers=(
            Answer(WHOLE, BEST_F16, FUSED, (RULE, BEST)),
            Answer(MASKED, RULE, FUSED, (BEST, BEST_F16), UNFUSED),
        ),
        comparison=Comparison((RULE, BEST, BEST_F16), (FUSED, UNFUSED_TF32, UNFUSED), (WHOLE, MASKED)),
        figures=(
            Bars("attention", "Attention of one head over 12,288 tokens: time", WAYS, group=ALL_OF_A_HEAD,
                 value="time"),
            Bars("memory", "Attention of one head over 12,288 tokens: memory", WAYS, group=ALL_OF_A_HEAD,
                 value="memory"),
        ),
        tables=(
            Made("Tokens per second of 24 heads, memory of one", _memory, "counts buffers", collapsed=False),
        ),
        facts=(
            Comparison((UNFUSED_TF32, FUSED), (UNFUSED,), (MASKED,)),
            Comparison((FUSED,), (UNFUSED,), (Group(words="causal against masked attention", like="causal",
                                                    baseline_like="attention"),)),
        ),
        baseline=UNFUSED,
    )  # fmt: skip


MOBILENET = "sputnik_mobilenet"
LAYERS = Group(words="pruned 1x1 convolutions", level=90, where="op == 'spmm'")
EQUAL = tuple(
    Group(
        words=f"MobileNetV1 of equal accuracy, sparse of width {sparse} against dense of {dense}",
        cases=rf"sparse_w{sparse}_(\w\w\d\d)_",
        baseline_cases=rf"dense_w{dense}_(\w\w\d\d)_",
        statistic="total",
        counted=True,
    )
    for dense, sparse in EQUAL_ACCURACY
)
RULE_TILE, BEST_TILE = kernel("sputnik_bias_relu", variants=DEFAULT), kernel("sputnik_bias_relu")
ORACLE = 4
"""1x1 convolutions of a network for which the paper takes the fastest tile in place of the heuristic's."""
DENSE_LAYERS = ("cublas_bias_relu", "depthwise_conv")
NETWORK = Selector("each layer's fastest kernel fp32", ("sputnik_bias_relu", "row_stream_bias_relu", *DENSE_LAYERS))
SPUTNIK = Selector("each layer's fastest of Sputnik and cuBLAS fp32", ("sputnik_bias_relu", *DENSE_LAYERS))
DENSE = Selector("dense layers fp32", DENSE_LAYERS)
TF32 = Selector("dense layers TF32 or fp32", DENSE_LAYERS, "tf32", also="f32")
LAYER_DENSE = kernel("cublas_bias_relu")
LAYER_SPARSE = written_here()
"""Kernels whose fastest computes a sparse layer; give one alone to see its network."""
CURVES = {
    "dense, cuBLAS fp32": ("dense", LAYER_SPARSE, LAYER_DENSE),
    "dense, cuBLAS TF32": ("dense", LAYER_SPARSE, kernel("cublas_bias_relu", "tf32")),
    "sparse, best kernel of each layer": ("sparse", LAYER_SPARSE, LAYER_DENSE),
    "sparse, sputnik alone": ("sparse", kernel("sputnik_bias_relu"), LAYER_DENSE),
}
"""Which networks, and what computes their sparse and dense 1x1 convolutions."""
COLUMNS = ["policy", "curve", "weights", "width", "accuracy", "us", "fps", "depthwise"]
PRINTED = "the paper, V100"
LOOKS = (("#000000", "s"), ("#2f8f9d", "s"), ("#009e73", "^"), ("#0072b2", "o"))


def mobilenets(
    frame: pd.DataFrame, policy: str = "hot", sparse: Selector = LAYER_SPARSE, dense: Selector = LAYER_DENSE
) -> pd.DataFrame:
    """Every network of the table, in its order, from one run's rows: its 13 pairs of layers at batch 1, added up.

    Columns name (`sparse_w1.8`: which 1x1 convolutions, and the width multiplier), us (NaN where a layer was not timed)
    and depthwise, the microseconds of it in depthwise convolutions. Dense layers take their time from `dense`, sparse
    ones from `sparse`, depthwise ones from this project's kernels. Layers were timed one by one, back to back with
    themselves: a network in which each waits for the one before gains nothing over the sum.
    """
    rows = frame[(frame["experiment"] == MOBILENET) & (frame["policy"] == policy)]
    sides = (LAYER_SPARSE, sparse, dense)
    times = {one: pick(rows, one, by=("label",)).set_index("label")["median_us"] for one in sides}
    layers = []
    for layer in tables.rows(MOBILENET):
        depthwise = layer.op == "depthwise"
        side = LAYER_SPARSE if depthwise else sparse if layer.sparsity else dense
        us = layer.count * float(times[side].get(layer.label, math.nan))
        layers.append((layer.label.rpartition("_")[0], us, us if depthwise else 0.0))
    found = pd.DataFrame(layers, columns=["name", "us", "depthwise"])
    return found.groupby("name", sort=False)[["us", "depthwise"]].sum(skipna=False).reset_index()


def accuracies() -> dict[tuple[str, float], float]:
    """The paper's, percent, by weights and width."""
    paper = published.read("sputnik_table4_sparse_mobilenet", ("model", "width", "accuracy"))
    return {(row.model, row.width): row.accuracy for row in each(paper)}


def networks_of(view: View) -> pd.DataFrame:
    """Networks whose layers all have a time: policy, curve, weights, width, accuracy (the paper's), us, fps, depthwise.

    `depthwise` is the share of its time, in percent.
    """
    parts = [
        mobilenets(view.frame, policy, sparse, dense).assign(policy=policy, curve=curve, of=weights)
        for policy in view.policies
        for curve, (weights, sparse, dense) in CURVES.items()
    ]
    if not parts:
        return pd.DataFrame(columns=COLUMNS)
    found = pd.concat(parts).dropna(subset="us")
    found[["weights", "width"]] = found["name"].str.split("_w", expand=True)
    found = found[found["weights"] == found["of"]].astype({"width": float})
    known = accuracies()
    accuracy = [known.get(key, math.nan) for key in zip(found["weights"], found["width"], strict=True)]
    shares = 100 * found["depthwise"] / found["us"]
    return found.assign(accuracy=accuracy, fps=1e6 / found["us"], depthwise=shares)[COLUMNS].reset_index(drop=True)


def _frames(view: View) -> pd.DataFrame:
    found = networks_of(view).query("policy == @view.policy")
    names = {"fps": "frames/s", "depthwise": "% in depthwise layers"}
    shown = found.assign(
        width=found["width"].map("{:g}".format), fps=found["fps"].round(), depthwise=found["depthwise"].round()
    )
    return shown.drop(columns=["us", "weights"]).rename(columns=names)


def _tiles(view: View) -> Rows:
    """The sparse 1x1 convolutions of each network, added up, at the heuristic's tiles and at faster ones."""
    cells = view.cells((RULE_TILE, BEST_TILE), LAYERS, view.policy)
    for width, some in cells.groupby("width", sort=False):
        us = some.pivot(index=["layer", "count"], columns="subject", values="median_us")
        us = us.reindex(columns=[RULE_TILE.label, BEST_TILE.label]).dropna()
        us = us.loc[us.index.repeat(us.index.get_level_values("count"))]
        rule, best = (us[one] for one in us)
        gains = (rule - best).nlargest(ORACLE)
        four = gains.index.get_level_values("layer").value_counts(sort=False)
        yield {
            "width": f"{width:g}", "the heuristic's": rule.sum(), "the fastest for four": rule.sum() - gains.sum(),
            "the fastest for all": best.sum(), "the four": ", ".join(f"{n} of {one}" for one, n in four.items()),
        }  # fmt: skip


def _figure(view: View, title: str) -> Figure | None:
    return tradeoff(view, title, networks_of(view))


def tradeoff(view: View, title: str, networks: pd.DataFrame) -> Figure | None:
    """Accuracy against time (`us`) of networks by `policy`, `curve` (of `CURVES`) and `width`, the paper's beside."""
    from nnzbench.report.draw import canvas

    found = networks.dropna(subset=["accuracy"])
    if found.empty:
        return None
    paper = published.read("sputnik_table4_sparse_mobilenet", ("model", "width", "accuracy", "throughput_fps"))
    paper = paper.assign(curve=paper["model"], us=1e6 / paper["throughput_fps"], policy=PRINTED)
    every, heights = pd.concat([found, paper]), paper["accuracy"]
    look = {curve: canvas.Look(*one) for curve, one in zip(CURVES, LOOKS, strict=True)}

    def draw(axis: Axes, row: None, policy: str) -> None:
        for curve, some in every[every["policy"] == policy].groupby("curve", sort=False):
            points = some["us"], some["accuracy"]
            printed = policy == PRINTED
            line = canvas.printed_line(*points) if printed else look[str(curve)].line(*points, joined=True)
            axis.add_line(line)
            for one in each(some.sort_values("width").iloc[[0, -1]]):
                axis.annotate(
                    f"{one.width:g}", (one.us, one.accuracy), (5, -9), textcoords="offset points", fontsize=7.5
                )
        axis.grid()
        axis.margins(x=0.15)
        axis.autoscale_view()
        axis.set_ylim(heights.min() - 0.25, heights.max() + 0.15)
        axis.set_xlabel("one image (µs)", fontsize=8.5)
        axis.set_title(canvas.policy_text(policy), pad=4)

    caption = "Top-1 accuracy (%), the paper's, against time; left and up is better. Width multipliers at the ends."
    legend = {curve: one.line(joined=True) for curve, one in look.items() if curve in set(found["curve"])}
    columns = [*view.policies, PRINTED]
    return canvas.grid([None], columns, [3.2], title, caption, legend, draw, share="y")


def sputnik_mobilenet() -> Page:
    """Sputnik's table IV and figure 12: frames per second of dense and sparse MobileNetV1 by accuracy."""
    rule, best, ours = RULE_TILE, BEST_TILE, kernel("row_stream_bias_relu")
    dense, tf32 = LAYER_DENSE, kernel("cublas_bias_relu", "tf32")
    return Page(
        attributes=r"(?P<weights>dense|sparse)_w(?P<width>[\d.]+)_(?P<layer>\w+)",
        answers=(
            Answer(LAYERS, rule, tf32, (best, ours), dense),
            Answer(EQUAL[1], NETWORK, TF32, (SPUTNIK,), DENSE, "sputnik-mobilenet-1.2"),
        ),
        comparison=Comparison((rule, best, ours), (tf32, dense), (LAYERS,)),
        figures=(Drawn("accuracy", "MobileNetV1: accuracy and time of one image", _figure, "x is a sum of layers"),),
        tables=(
            RatioTable("Networks of equal accuracy, sums over layers (in brackets the layers)",
                       Comparison((NETWORK, SPUTNIK), (TF32, DENSE), EQUAL), collapsed=False),
            Made("Images per second of dense and sparse networks by width and accuracy", _frames,
                 "sums over layers, each as often as the network has it"),
            Made("Sputnik's sparse 1x1 convolutions by their tiles, µs; the paper takes the fastest for four of them",
                 _tiles, "sums over layers, each as often as the network has it"),
        ),
        facts=(Comparison((rule, best, ours), (dense,), (LAYERS,), ("layer", "width")),),
        baseline=dense,
    )  # fmt: skip
