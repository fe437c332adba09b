"""EIE's own format on a GPU: one byte for a nonzero, beside CSR, dense products and balanced rows, at batch 1 and 8."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from nnzbench import paths
from nnzbench.facts.results import each, geometric_mean, percent
from nnzbench.papers.eie import leads
from nnzbench.papers.eie.table4 import MODELS, NO_VECTOR, PUBLISHED_GPU, layer_name
from nnzbench.problems import tables as problem_tables
from nnzbench.problems.problem import Problem
from nnzbench.report.data import published
from nnzbench.report.data.series import Series, pick_under
from nnzbench.report.draw import dots, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, TableOf, View
from nnzbench.report.text.fastest import Lost, mean_cell, measured, time_of
from nnzbench.report.text.tables import markdown, number

EXPERIMENT = "eie_format"
BATCHES = (1, 8)
TWIN = "codebook_balanced"
MANY = 3_000_000
"""Nonzeros from which a layer's bytes are most of its time."""
ACCURACY = "codebook_loss.csv"

SOURCES = (
    Series("dense_f16", "dense: cuBLAS, cuBLASLt fp16, best", ("cublas", "cublaslt"), "f16"),
    Series("dense_f32", "dense: cuBLAS, cuBLASLt fp32, best", ("cublas", "cublaslt")),
    Series("csr_f32", "CSR: cuSPARSE fp32, best", ("cusparse",)),
    Series("csr_f16", "CSR: cuSPARSE fp16, best", ("cusparse",), "f16"),
    Series("sputnik_f32", "CSR: sputnik fp32", ("sputnik",)),
    Series("sputnik_f16", "CSR: sputnik fp16", ("sputnik",), "f16"),
    Series("row_stream_f32", "packed rows: row_stream fp32", ("row_stream",)),
    Series("row_stream_f16", "packed rows: row_stream fp16", ("row_stream",), "f16"),
    Series("balanced_f32", "balanced rows: balanced fp32", ("balanced",), source=TWIN),
    Series("balanced_f16", "balanced rows: balanced fp16", ("balanced",), "f16", source=TWIN),
    Series("eie_f32", "EIE's format: eie, fp32 inputs", ("eie",)),
    Series("eie_f16", "EIE's format: eie, fp16 inputs", ("eie",), "f16"),
    Series("eie_twin", "EIE's format on the balanced rows: eie, fp16 inputs", ("eie",), "f16", source=TWIN),
)
"""One row of the table each; those of `source` are timed on the layer's balanced twin."""
PRODUCTS_ALONE = ("sputnik", "row_stream")
"""Kernels that have no product with a single vector."""
OURS, ON_TWIN = ("eie_f32", "eie_f16"), ("eie_twin",)
RIVALS = tuple(one.key for one in SOURCES if not one.source and not one.key.startswith(("dense", "eie")))
"""Sparse kernels that multiply by the layer itself."""
BALANCED = ("balanced_f32", "balanced_f16")
"""Those of the twin alone, which `eie` multiplies by too."""
DRAWN = {
    "dense_f32": dots.Marker(style.MUTED, "_"),
    "csr_f32": dots.marker_of("cusparse"),
    "csr_f16": dots.marker_of("cusparse", hollow=True),
    "row_stream_f16": dots.marker_of("row_stream", hollow=True),
    "balanced_f16": dots.marker_of("balanced", hollow=True),
    "eie_f32": dots.marker_of("eie"),
    "eie_f16": dots.marker_of("eie", hollow=True),
}
Times = dict[tuple[str, int, str], float]
"""Microseconds by series, batch and layer, only what is known."""


def problems() -> dict[tuple[bool, int, str], Problem]:
    """By whether it is the balanced twin, batch and layer, in the table's order."""
    found = [row.problem for row in problem_tables.rows(EXPERIMENT)]
    return {(one.source.startswith(TWIN), one.n, one.label.rpartition("_")[0]): one for one in found}


def expected_bytes(problem: Problem) -> float:
    """Bytes of EIE's entries for uniformly random places: a byte for a nonzero and for each break of a long run.

    At density d and q = 1 - d, q^16/(1 - q^16) runs are broken for each nonzero of a long slice.
    """
    q16 = problem.sparsity**16
    return problem.m * problem.k * (1 - problem.sparsity) / (1 - q16)


def accuracy() -> list[dict[str, str]]:
    """Lines of `datasets/codebook_loss.csv`: errors of the real weights under a codebook of 15 values and zero."""
    with (paths.datasets() / ACCURACY).open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _layers(found: Mapping[tuple[bool, int, str], Problem]) -> list[str]:
    return [layer for twin, n, layer in found if not twin and n == 1]


def _shown(source: Series, batch: int) -> bool:
    return batch > 1 or source.kernel not in PRODUCTS_ALONE


def _show(view: View[Any]) -> Shown:
    found, policy, gpu = problems(), view.policy, view.gpu
    uniform = [one for (twin, _, _), one in found.items() if not twin]
    frame = view.frame
    own = frame[frame["problem"].isin([one.name for one in uniform])]
    rows = {one.key: pick_under(frame if one.source else own, policy, one) for one in SOURCES}
    of = {
        (one.key, batch, layer): found[bool(one.source), batch, layer]
        for one in SOURCES
        for batch in BATCHES
        for layer in _layers(found)
    }
    times = {key: time_of(rows[key[0]], one.name) for key, one in of.items() if one.name in rows[key[0]].index}
    caption = (
        "Speed-up over the faster of cuBLAS and cuBLASLt in fp16, which multiply by every weight; the balanced kernel "
        f"is timed on a twin of each layer.\n{view.policy_sentence}"
    )
    drawn = pd.concat([rows[key].reset_index() for key in ("dense_f16", *DRAWN)], ignore_index=True)
    by_batch = {batch: [one for one in found.values() if one.n == batch] for batch in BATCHES}
    return Shown(
        dots.figure([_panel(times, found, batch) for batch in BATCHES], view.title, caption),
        " ".join(filter(None, (_finding(times, found, batch, gpu, policy) for batch in BATCHES))),
        [
            TableOf(_table(times, found, batch, gpu, policy), view.of(one.name for one in some))
            for batch, some in by_batch.items()
        ],
        lost=_lost(times, found, policy),
        lines=_lines(rows, of, times, policy, gpu),
        drawn=[drawn[drawn["n"] == batch] for batch in BATCHES],
    )


def _gain(times: Times, series: str, batch: int, layer: str, base: str = "dense_f16") -> float:
    return times.get((base, batch, layer), math.nan) / times.get((series, batch, layer), math.nan)


def _least(times: Times, keys: tuple[str, ...], batch: int, layer: str) -> float:
    known = [times[key, batch, layer] for key in keys if (key, batch, layer) in times]
    return min(known, default=math.nan)


def _over_rivals(times: Times, batch: int, layer: str) -> float:
    return _least(times, RIVALS, batch, layer) / _least(times, OURS, batch, layer)


def _over_balanced(times: Times, batch: int, layer: str) -> float:
    return _least(times, BALANCED, batch, layer) / _least(times, ON_TWIN, batch, layer)


def _panel(times: Times, found: Mapping[tuple[bool, int, str], Problem], batch: int) -> dots.Panel:
    layers = _layers(found)
    labels = {source.key: source.label.partition(": ")[2] for source in SOURCES}
    curves = tuple(
        dots.Curve(labels[series], tuple(_gain(times, series, batch, layer) for layer in layers), marker)
        for series, marker in DRAWN.items()
    )
    rows = tuple(f"{layer.partition('_')[2]}, {percent(found[False, batch, layer].sparsity)}" for layer in layers)
    groups = tuple(MODELS[layer.partition("_")[0]] for layer in layers)
    return dots.Panel(f"Batch {batch}", rows, groups, curves, "speed-up over dense fp16 (log)")


def _finding(times: Times, found: Mapping[tuple[bool, int, str], Problem], batch: int, gpu: str, policy: str) -> str:
    layers = _layers(found)
    large = [layer for layer in layers if _nonzeros(found[False, batch, layer]) > MANY]
    sentences = []
    for over, rival in (
        (_over_rivals, "as the next best sparse kernel on the same matrix"),
        (_over_balanced, "as `balanced` on the layers' balanced twins, both on the twin"),
    ):
        gains = {layer: gain for layer in layers if not math.isnan(gain := over(times, batch, layer))}
        if gains:
            some = [number(gains[layer]) for layer in large if layer in gains]
            more = f"; {' and '.join(some)}× where there are over 3 million nonzeros" if some else ""
            sentences.append(
                f"{geometric_mean(gains.values()):.2f}× as fast {rival}, in geometric mean over {len(gains)} of "
                f"{len(layers)} layers ({min(gains.values()):.2f} to {max(gains.values()):.2f}×{more})"
            )
    dense = [gain for layer in layers if not math.isnan(gain := _gain(times, "eie_f16", batch, layer))]
    if dense:
        sentences.append(
            f"with fp16 inputs {geometric_mean(dense):.2f}× as fast as dense fp16 (faster on "
            f"{sum(gain > 1 for gain in dense)} of {len(dense)})"
        )
    return f"At batch {batch}, {policy}, EIE's format is on {gpu} {'; '.join(sentences)}." if sentences else ""


def _nonzeros(problem: Problem) -> float:
    return problem.m * problem.k * (1 - problem.sparsity)


def _table(times: Times, found: Mapping[tuple[bool, int, str], Problem], batch: int, gpu: str, policy: str) -> str:
    layers = _layers(found)
    rows = [
        [
            source.label,
            *(number(times.get((source.key, batch, layer), math.nan)) for layer in layers),
            mean_cell(_gain(times, source.key, batch, layer) for layer in layers),
        ]
        for source in SOURCES
        if _shown(source, batch)
    ]
    for label, gain in (
        ("**EIE's format over the next best sparse kernel on the same matrix**", _over_rivals),
        ("**EIE's format over `balanced`, both on the balanced rows**", _over_balanced),
    ):
        over = [gain(times, batch, layer) for layer in layers]
        rows.append([label, *(number(one) for one in over), mean_cell(over)])
    paper = _paper_times()
    for series, label in (("dense", f"{PUBLISHED_GPU}, dense (published)"), ("chip", "EIE's chip (published)")):
        if batch == 1:
            gains = mean_cell(paper["dense", layer] / paper[series, layer] for layer in layers)
            rows.append([label, *(number(paper[series, layer], 1) for layer in layers), f"{gains} over Titan X"])
    shapes = (f"{found[False, batch, layer].m}×{found[False, batch, layer].k}" for layer in layers)
    rows.append(["size of W", *shapes, ""])
    for label, size in (
        ("bytes of W per nonzero, EIE's format, expected", expected_bytes),
        ("the same, of dense fp16", lambda one: 2.0 * one.m * one.k),
    ):
        each_layer = (found[False, batch, layer] for layer in layers)
        rows.append([label, *(number(size(one) / _nonzeros(one)) for one in each_layer), ""])
    header = ["format and kernel", *(layer_name(layer) for layer in layers), "over dense fp16, geometric mean"]
    lead = (
        f"Batch {batch}. Times in µs of the whole batch on {gpu}, {policy} policy. CSR takes 8 bytes per nonzero in "
        "fp32 and 6 or 4 in fp16, balanced rows 5 or 6 and 3 or 4."
    )
    return f"{lead}\n\n{markdown(header, rows)}"


def _paper_times() -> dict[tuple[str, str], float]:
    """Published microseconds at batch 1 by what computed it, and layer."""
    frame = published.read("eie_table4_us", ("platform", "batch", "matrix", "layer", "time_us"))
    names = {("GPU", "dense"): "dense", ("EIE_actual", "sparse"): "chip"}
    rows = each(frame[frame["batch"] == 1])
    kept = ((names.get((row.platform, row.matrix)), row) for row in rows)
    return {(name, row.layer): float(row.time_us) for name, row in kept if name}


def _lost(times: Times, found: Mapping[tuple[bool, int, str], Problem], policy: str) -> Iterator[Lost]:
    layers = _layers(found)
    for source in SOURCES:
        for batch in BATCHES:
            if _shown(source, batch):
                without = tuple(layer_name(n) for n in layers if (source.key, batch, n) not in times)
                yield Lost(f"{source.label} at batch {batch}", policy, without, len(layers))


def _lines(
    rows: Mapping[str, pd.DataFrame],
    of: Mapping[tuple[str, int, str], Problem],
    times: Times,
    policy: str,
    gpu: str,
) -> Iterator[dict[str, Any] | None]:
    for (series, batch, layer), one in of.items():
        words = {"policy": policy, "table": f"batch {batch}", "row": layer_name(layer), "series": series, "gpu": gpu}
        line = measured(rows[series], one.name, **words)
        if line is not None:
            line["baseline_us"] = times.get(("dense_f16", batch, layer), math.nan)
            yield line


def _published() -> Iterator[dict[str, Any]]:
    paper = _paper_times()
    for (series, layer), time in paper.items():
        words = {"policy": "published", "table": "batch 1", "row": layer_name(layer), "series": series}
        gpu = PUBLISHED_GPU if series == "dense" else "EIE"
        yield {**words, "gpu": gpu, "time_us": time, "baseline_us": paper["dense", layer]}


def _show_accuracy(view: View[Any]) -> Shown:
    lines = accuracy()
    share = [float(line["outputs_error"]) for line in lines]
    table = markdown(
        ["real pruned weights", "rows × columns", "nonzeros", "error of the weights", "error of the outputs"],
        [
            [
                f"`{line['array']}`",
                f"{line['rows']}×{line['columns']}",
                line["nonzeros"],
                f"{float(line['weights_error']):.1%}",
                f"{float(line['outputs_error']):.1%}",
            ]
            for line in lines
        ],
    )
    words = (
        "All kernels above are given the weights after clustering, and are checked against them: the format itself "
        f"loses nothing more. Sharing 15 values changes the outputs of {len(lines)} real pruned layers by "
        f"{min(share):.1%} to {max(share):.1%} (root mean square, over that of the output, standard normal inputs) "
        "before any retraining; Deep Compression trains the shared values further, which is not simulated here."
    )
    return Shown(None, words, [table])


PAGE = PageSpec(
    lead=leads.FORMAT,
    title="EIE's format",
    intro=(
        "What does a weight of one byte buy on a GPU? EIE (ISCA 2016) stores a nonzero as a 4-bit index into a "
        "codebook of 16 values and a 4-bit run of zeros, and breaks longer runs by padding zeros. `eie` decodes these "
        "entries on a GPU, in slices of rows rather than of columns and without skipping zeros among the inputs: the "
        "format is the paper's, the mapping this project's own. The layers are the nine of EIE's table III with "
        "uniformly random positions and 15 different values; `balanced` is timed on twins with as many nonzeros in "
        "each of 32 ranges of every row."
    ),
    sections=(
        SectionSpec("speedup", "One byte per nonzero on EIE's nine layers", _show),
        SectionSpec("accuracy", "", _show_accuracy, heading="What the codebook costs in accuracy", once=True),
    ),
    gaps=lambda view: (NO_VECTOR,),
    published=_published,
    problem_names=lambda view: {
        one.name: f"{layer_name(layer)} at batch {batch}{', balanced' if twin else ''}"
        for (twin, batch, layer), one in problems().items()
    },
    math_text="fp32 is IEEE fp32 with TF32 off; fp16 sums in fp32; the codebook's values are fp16 numbers in both",
    series=lambda view: SOURCES,
)
