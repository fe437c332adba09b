"""The GPU rows of EIE's table IV redrawn: nine fully connected layers, dense and sparse, at batch 1 and 64."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from nnzbench.facts.results import each, geometric_mean, percent
from nnzbench.papers.eie import leads
from nnzbench.problems import tables as problem_tables
from nnzbench.problems.problem import Problem
from nnzbench.report.data import published
from nnzbench.report.data.series import DEFAULT, Series, pick_any, pick_under
from nnzbench.report.draw import dots, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, TableOf, View
from nnzbench.report.text.fastest import Lost, mean_cell, time_of
from nnzbench.report.text.tables import markdown, number

EXPERIMENT = "eie_table4"
BATCHES = (1, 64)
PUBLISHED_GPU = "Titan X"
MODELS = {"alexnet": "AlexNet", "vgg16": "VGG-16", "nt": "NeuralTalk"}


SOURCES = (
    Series("dense", "dense: cuBLAS fp32", ("cublas",)),
    Series("dense_lt", "dense: cuBLASLt fp32, best", ("cublaslt",)),
    Series("dense_tf32", "dense: cuBLAS TF32", ("cublas",), "tf32"),
    Series("dense_lt_tf32", "dense: cuBLASLt TF32, best", ("cublaslt",), "tf32"),
    Series("sparse_default", "sparse: cuSPARSE, its default", ("cusparse",), variants=DEFAULT),
    Series("sparse", "sparse: cuSPARSE, best", ("cusparse",)),
    Series("sputnik", "sparse: sputnik", ("sputnik",)),
    Series("row_stream", "sparse: row_stream", ("row_stream",)),
)
"""One row of the table each."""
PRODUCTS_ALONE = ("sputnik", "row_stream")
"""Those that have no product with a single vector."""
NO_VECTOR = "`sputnik` and `row_stream` have no product with a single vector, and so no mark at batch 1."
DRAWN = {
    "dense_tf32": dots.Marker(style.MUTED, "_"),
    "sparse": dots.marker_of("cusparse"),
    "sputnik": dots.marker_of("sputnik"),
    "row_stream": dots.marker_of("row_stream"),
}
Times = dict[tuple[str, int, str], float]
"""Microseconds per image by series, batch and layer, only what is known."""


def batches_of(source: Series) -> tuple[int, ...]:
    """Batch sizes that it computes."""
    return tuple(batch for batch in BATCHES if batch > 1 or source.key not in PRODUCTS_ALONE)


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
    rows = {one.key: pick_under(view.frame, policy, one) for one in SOURCES}
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
    drawn = pick_any(view.of(one.name for one in found.values()), SOURCES)
    return Shown(
        dots.figure([_panel(times, paper, found, batch) for batch in BATCHES], view.title, caption),
        " ".join(filter(None, (_finding(times, paper, found, batch, gpu) for batch in BATCHES))),
        [TableOf(_table(times, paper, found, batch, gpu, policy), drawn[drawn["n"] == batch]) for batch in BATCHES],
        lost=_lost(times, found, policy),
        lines=_lines(rows, times, found, policy, gpu),
        drawn=[drawn],
    )


def _lost(times: Times, found: Mapping[tuple[int, str], Problem], policy: str) -> Iterator[Lost]:
    for source in SOURCES:
        for batch in batches_of(source):
            layers = _layers(found, batch)
            without = tuple(layer_name(n) for n in layers if (source.key, batch, n) not in times)
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
    labels = {source.key: source.label.partition(": ")[2] for source in SOURCES}
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
        if batch in batches_of(source):
            cells = [number(times.get((source.key, batch, layer), math.nan)) for layer in layers]
            gains = mean_cell(_gain(times, source.key, batch, layer) for layer in layers)
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
    lead=leads.TABLE4,
    title="EIE table IV, GPU rows,",
    intro=(
        "The nine fully connected layers of table IV of *EIE: Efficient Inference Engine on Compressed Deep Neural "
        f"Network* (ISCA 2016), whose GPU is a {PUBLISHED_GPU} with cuBLAS and cuSPARSE. Sizes and densities are "
        "those of its table III, positions are uniformly random, and zeros among the activations are not used. All "
        "times are per image: those of a batch of 64 are divided by 64, as the paper's must be, because its dense "
        "times at that batch would otherwise ask for more than ten times the arithmetic of its GPU."
    ),
    sections=(SectionSpec("speedup", "Fully connected layers of EIE's table IV", _show),),
    gaps=lambda view: (NO_VECTOR,),
    published=_published,
    problem_names=lambda view: {
        one.name: f"{layer_name(layer)} at batch {batch}" for (batch, layer), one in problems().items()
    },
    series=lambda view: SOURCES,
)
