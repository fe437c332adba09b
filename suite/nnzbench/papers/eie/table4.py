"""The GPU rows of EIE's table IV redrawn: nine fully connected layers, dense and sparse, at batch 1 and 64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from nnzbench import tables as problem_tables
from nnzbench.problem import Problem
from nnzbench.report import dots, published, style
from nnzbench.report.fastest import Lost, fastest, mean_cell, time_of
from nnzbench.report.frames import each, geometric_mean, percent
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, View
from nnzbench.report.tables import markdown, number

EXPERIMENT = "eie_table4"
BATCHES = (1, 64)
PUBLISHED_GPU = "Titan X"
MODELS = {"alexnet": "AlexNet", "vgg16": "VGG-16", "nt": "NeuralTalk"}


@dataclass(frozen=True)
class Source:
    """One row of the table."""

    series: str
    label: str
    kernel: str
    math: str
    batches: tuple[int, ...] = BATCHES
    """Batch sizes it computes."""
    keep: Callable[[str], bool] = lambda variant: True


def is_default(variant: str) -> bool:
    """Whether a cuSPARSE variant is the library's own choice of algorithm."""
    return "default" in variant.split("_")


SOURCES = (
    Source("dense", "dense: cuBLAS fp32", "cublas", "f32"),
    Source("dense_lt", "dense: cuBLASLt fp32, best", "cublaslt", "f32"),
    Source("dense_tf32", "dense: cuBLAS TF32", "cublas", "tf32"),
    Source("dense_lt_tf32", "dense: cuBLASLt TF32, best", "cublaslt", "tf32"),
    Source("sparse_default", "sparse: cuSPARSE, its default", "cusparse", "f32", BATCHES, is_default),
    Source("sparse", "sparse: cuSPARSE, best", "cusparse", "f32"),
    Source("sputnik", "sparse: sputnik", "sputnik", "f32", (64,)),
    Source("row_stream", "sparse: row_stream", "row_stream", "f32", (64,)),
)
DRAWN = {
    "dense_tf32": dots.Marker(style.MUTED, "_"),
    "sparse": dots.marker_of("cusparse"),
    "sputnik": dots.marker_of("sputnik"),
    "row_stream": dots.marker_of("row_stream"),
}
Times = dict[tuple[str, int, str], float]
"""Microseconds per image by series, batch and layer, only what is known."""


def problems() -> dict[tuple[int, str], Problem]:
    """By batch and layer, in the paper's order."""
    found = [row.problem for row in problem_tables.rows(EXPERIMENT)]
    return {(one.n, one.label.rpartition("_")[0]): one for one in found}


def layer_name(layer: str) -> str:
    """`AlexNet fc6` for `alexnet_fc6`."""
    model, _, rest = layer.partition("_")
    return f"{MODELS[model]} {rest}"


def paper_times() -> Times:
    """The published microseconds per image on a Titan X (series `dense` and `sparse`)."""
    frame = published.read("eie_table4_us", ("platform", "batch", "matrix", "layer", "time_us"))
    rows = each(frame[frame["platform"] == "GPU"])
    return {(row.matrix, int(row.batch), row.layer): float(row.time_us) for row in rows}


def _show(view: View[Any]) -> Shown:
    found, paper, gpu, policy = problems(), paper_times(), view.gpu, view.policy
    rows = {one.series: fastest(view.frame, policy, (one.kernel,), one.math, one.keep) for one in SOURCES}
    times = {
        (series, batch, layer): time_of(some, one.name) / batch
        for series, some in rows.items()
        for (batch, layer), one in found.items()
        if one.name in some.index
    }
    caption = (
        "Speed-up over cuBLAS fp32, which multiplies by every weight; the paper's is its sparse over its dense "
        f"row.\n{view.policy_sentence}"
    )
    return Shown(
        dots.figure([_panel(times, paper, found, batch) for batch in BATCHES], view.title, caption),
        " ".join(filter(None, (_finding(times, paper, found, batch, gpu) for batch in BATCHES))),
        [_table(times, paper, found, batch, gpu, policy) for batch in BATCHES],
        lost=_lost(times, found, policy),
        lines=_lines(rows, times, found, policy, gpu),
    )


def _lost(times: Times, found: Mapping[tuple[int, str], Problem], policy: str) -> Iterator[Lost]:
    for source in SOURCES:
        for batch in source.batches:
            layers = _layers(found, batch)
            without = tuple(layer_name(n) for n in layers if (source.series, batch, n) not in times)
            yield Lost(f"{source.label} at batch {batch}", policy, without, len(layers))


def _published() -> Iterator[dict[str, Any]]:
    paper = paper_times()
    for (series, batch, layer), time in paper.items():
        words = {"policy": "published", "table": f"batch {batch}", "row": layer_name(layer), "series": series}
        yield {**words, "gpu": PUBLISHED_GPU, "time_us": time, "baseline_us": paper["dense", batch, layer]}


def _layers(found: Mapping[tuple[int, str], Problem], batch: int) -> list[str]:
    return [layer for n, layer in found if n == batch]


def _gain(times: Times, series: str, batch: int, layer: str) -> float:
    return times.get(("dense", batch, layer), math.nan) / times.get((series, batch, layer), math.nan)


def _panel(times: Times, paper: Times, found: Mapping[tuple[int, str], Problem], batch: int) -> dots.Panel:
    layers = _layers(found, batch)
    labels = {source.series: source.label.partition(": ")[2] for source in SOURCES}
    curves = [
        dots.Curve(labels[series], tuple(_gain(times, series, batch, layer) for layer in layers), marker)
        for series, marker in DRAWN.items()
    ]
    theirs = tuple(_gain(paper, "sparse", batch, layer) for layer in layers)
    curves.append(dots.Curve(f"paper: cuSPARSE over cuBLAS, {PUBLISHED_GPU}", theirs, dots.PAPER))
    rows = tuple(f"{layer.partition('_')[2]}, {percent(found[batch, layer].sparsity)}" for layer in layers)
    groups = tuple(MODELS[layer.partition("_")[0]] for layer in layers)
    what = "matrix × vector" if batch == 1 else "matrix × matrix"
    return dots.Panel(f"Batch {batch} ({what})", rows, groups, tuple(curves), "speed-up (log)")


def _finding(times: Times, paper: Times, found: Mapping[tuple[int, str], Problem], batch: int, gpu: str) -> str:
    layers = _layers(found, batch)
    gains = [gain for gain in (_gain(times, "sparse", batch, layer) for layer in layers) if not math.isnan(gain)]
    if not gains:
        return ""
    theirs = [_gain(paper, "sparse", batch, layer) for layer in layers]
    return (
        f"At batch {batch} the best cuSPARSE algorithm is {geometric_mean(gains):.2f}× as fast as cuBLAS fp32 on {gpu} "
        f"in geometric mean over {len(gains)} of {len(layers)} layers (faster on {sum(g > 1 for g in gains)}); on the "
        f"paper's {PUBLISHED_GPU} it is {geometric_mean(theirs):.2f}× (faster on {sum(g > 1 for g in theirs)} of "
        f"{len(layers)})."
    )


def _table(
    times: Times, paper: Times, found: Mapping[tuple[int, str], Problem], batch: int, gpu: str, policy: str
) -> str:
    layers = _layers(found, batch)
    rows = []
    for source in SOURCES:
        if batch in source.batches:
            cells = [number(times.get((source.series, batch, layer), math.nan)) for layer in layers]
            gains = mean_cell(_gain(times, source.series, batch, layer) for layer in layers)
            rows.append([gpu, source.label, *cells, gains])
    for series in ("dense", "sparse"):
        cells = [number(paper[series, batch, layer], 1) for layer in layers]
        gains = mean_cell(_gain(paper, series, batch, layer) for layer in layers)
        rows.append([f"{PUBLISHED_GPU} (published)", series, *cells, gains])
    header = ["GPU", "matrix and library", *(layer_name(layer) for layer in layers), "over dense, geometric mean"]
    sizes = "; ".join(
        f"{layer_name(n)} {found[batch, n].m}×{found[batch, n].k} at {percent(found[batch, n].sparsity)}"
        for n in layers
    )
    lead = f"Batch {batch}. Times in µs per image on {gpu}, {policy} policy, fp32 unless TF32 is named. Zeros: {sizes}."
    return f"{lead}\n\n{markdown(header, rows, left=2)}"


def _lines(
    rows: Mapping[str, pd.DataFrame], times: Times, found: Mapping[tuple[int, str], Problem], policy: str, gpu: str
) -> list[dict[str, Any]]:
    out = []
    for (series, batch, layer), time in times.items():
        row = rows[series].loc[found[batch, layer].name]
        words = {"policy": policy, "table": f"batch {batch}", "row": layer_name(layer), "series": series, "gpu": gpu}
        names = {"problem": found[batch, layer].name, "kernel": row["kernel"], "variant": row["variant"]}
        numbers = {"time_us": time, "q1_us": row["q1_us"] / batch, "q3_us": row["q3_us"] / batch}
        base = times.get(("dense", batch, layer), math.nan)
        shares = {"math": row["math"], "limit_share": row["limit_share"], "baseline_us": base}
        out.append({**words, **names, **numbers, **shares})
    return out


PAGE = PageSpec(
    title="EIE table IV, GPU rows,",
    intro=(
        "The nine fully connected layers of table IV of *EIE: Efficient Inference Engine on Compressed Deep Neural "
        f"Network* (ISCA 2016), whose GPU is a {PUBLISHED_GPU} with cuBLAS and cuSPARSE. Sizes and densities are "
        "those of its table III, positions are uniformly random, and zeros among the activations are not used. All "
        "times are per image: those of a batch of 64 are divided by 64, as the paper's must be, because its dense "
        "times at that batch would otherwise ask for more than ten times the arithmetic of its GPU."
    ),
    sections=(SectionSpec("speedup", "Fully connected layers of EIE's table IV", _show),),
    published=_published,
    problem_names=lambda view: {
        one.name: f"{layer_name(layer)} at batch {batch}" for (batch, layer), one in problems().items()
    },
)
