"""ESE's comparison redrawn: a step of an LSTM of 1,024 cells, dense and with 90 % zeros, beside published times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from nnzbench.facts.results import each
from nnzbench.papers.eie import leads
from nnzbench.papers.eie.table4 import NO_VECTOR
from nnzbench.problems import tables as problem_tables
from nnzbench.problems.problem import Problem
from nnzbench.report.data import published
from nnzbench.report.data.series import Series, pick_under
from nnzbench.report.draw import dots, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, TableOf, View
from nnzbench.report.text.fastest import Lost, measured, time_of
from nnzbench.report.text.tables import GAP, markdown, number

EXPERIMENT = "ese_lstm"
BATCHES = (32, 1)
PRODUCTS = ("gates", "projection")

SOURCES = (
    Series("dense_f32", "dense: cuBLAS, cuBLASLt fp32, best", ("cublas", "cublaslt")),
    Series("dense_tf32", "dense: cuBLAS, cuBLASLt TF32, best", ("cublas", "cublaslt"), "tf32"),
    Series("dense_f16", "dense: cuBLAS, cuBLASLt fp16, best", ("cublas", "cublaslt"), "f16"),
    Series("cusparse", "sparse: cuSPARSE fp32, best", ("cusparse",)),
    Series("sputnik", "sparse: sputnik fp32", ("sputnik",)),
    Series("row_stream", "sparse: row_stream fp32", ("row_stream",)),
    Series("row_stream_f16", "sparse: row_stream fp16", ("row_stream",), "f16"),
)
"""One row of the table each."""
PRODUCTS_ALONE = ("sputnik", "row_stream")
"""Kernels that have no product with a single vector."""
SPARSE_F32 = ("cusparse", "sputnik", "row_stream")
DRAWN = {
    "dense_tf32": dots.Marker(style.MUTED, "_"),
    "dense_f16": dots.Marker(style.INK, "_"),
    "cusparse": dots.marker_of("cusparse"),
    "sputnik": dots.marker_of("sputnik"),
    "row_stream": dots.marker_of("row_stream"),
    "row_stream_f16": dots.marker_of("row_stream", hollow=True),
}
Times = dict[tuple[str, int, str], float]
"""Microseconds by series, batch and product, only what is known."""


def problems() -> dict[tuple[int, str], Problem]:
    """By batch and product."""
    found = [row.problem for row in problem_tables.rows(EXPERIMENT)]
    return {(one.n, one.label.rpartition("_")[0]): one for one in found}


def paper_times() -> dict[tuple[str, str], tuple[float, float]]:
    """Published microseconds of a step at batch 32 and watts, by platform and matrix."""
    frame = published.read("ese_lstm_us", ("platform", "matrix", "time_us", "power_w"))
    return {(row.platform, row.matrix): (float(row.time_us), float(row.power_w)) for row in each(frame)}


def step_us(times: Times, series: str, batch: int) -> float:
    """Both products of a step, NaN where one has no time."""
    return sum(times.get((series, batch, product), math.nan) for product in PRODUCTS)


def _least(times: Times, batch: int) -> float:
    """The step with the fastest fp32 sparse kernel for each product."""
    known = [[times.get((one, batch, product), math.inf) for one in SPARSE_F32] for product in PRODUCTS]
    total = sum(min(some) for some in known)
    return total if math.isfinite(total) else math.nan


def _shown(source: Series, batch: int) -> bool:
    return batch > 1 or source.kernel not in PRODUCTS_ALONE


def _show(view: View[Any]) -> Shown:
    found, policy = problems(), view.policy
    rows = {one.key: pick_under(view.frame, policy, one) for one in SOURCES}
    times = {
        (key, batch, product): time_of(some, one.name)
        for key, some in rows.items()
        for (batch, product), one in found.items()
        if one.name in some.index
    }
    caption = (
        "Speed-up over the faster of cuBLAS and cuBLASLt in fp32, which multiply by every weight; the paper's is its "
        f"GPU's sparse over its dense step.\n{view.policy_sentence}"
    )
    return Shown(
        dots.figure([_panel(times)], view.title, caption),
        " ".join(filter(None, (_finding(times, batch, view.gpu) for batch in BATCHES))),
        [
            TableOf(_table(times, found, batch, view), view.of(found[batch, product].name for product in PRODUCTS))
            for batch in BATCHES
        ],
        lost=_lost(times, policy),
        lines=_lines(rows, found, times, view),
    )


def _panel(times: Times) -> dots.Panel:
    places = [(batch, product) for batch in BATCHES for product in PRODUCTS]
    labels = {source.key: source.label.partition(": ")[2] for source in SOURCES}
    base = {place: times.get(("dense_f32", *place), math.nan) for place in places}
    curves = [
        dots.Curve(labels[key], tuple(base[at] / times.get((key, *at), math.nan) for at in places), marker)
        for key, marker in DRAWN.items()
    ]
    paper = paper_times()
    ratio = paper["GPU", "dense"][0] / paper["GPU", "sparse"][0]
    theirs = tuple(ratio if batch > 1 else math.nan for batch, _ in places)
    curves.append(dots.Curve("paper: sparse over dense step, its GPU", theirs, dots.PAPER))
    rows = tuple(product for _, product in places)
    groups = tuple(f"batch {batch}" for batch, _ in places)
    return dots.Panel("Products of a step, 90 % zeros", rows, groups, tuple(curves), "speed-up (log)")


def _finding(times: Times, batch: int, gpu: str) -> str:
    dense, sparse = step_us(times, "dense_f32", batch), _least(times, batch)
    if math.isnan(dense / sparse):
        return ""
    words = (
        f"At batch {batch} a step takes {number(dense)} µs dense and {number(sparse)} µs sparse in fp32 on {gpu}, "
        f"each in its fastest kernel: sparse is {dense / sparse:.2f}× as fast"
    )
    if batch == 1:
        return f"{words}."
    paper = paper_times()
    theirs = paper["GPU", "dense"][0] / paper["GPU", "sparse"][0]
    itself = f"ESE itself: {paper['ESE', 'sparse'][0]:g} µs"
    return f"{words}. On the paper's GPU it is {theirs:.2f}× in cuSPARSE over cuBLAS ({itself})."


def _table(times: Times, found: Mapping[tuple[int, str], Problem], batch: int, view: View[Any]) -> str:
    dense = step_us(times, "dense_f32", batch)
    rows = []
    for source in SOURCES:
        if _shown(source, batch):
            parts = [number(times.get((source.key, batch, product), math.nan)) for product in PRODUCTS]
            step = step_us(times, source.key, batch)
            rows.append([view.gpu, source.label, *parts, number(step), number(dense / step), ""])
    if batch > 1:
        base = paper_times()["GPU", "dense"][0]
        for (platform, matrix), (us, watts) in paper_times().items():
            rows.append(
                [f"{platform} (published)", matrix, GAP, GAP, number(us, 1), number(base / us), number(watts, 0)]
            )
    sizes = "; ".join(f"{product} {found[batch, product].m}×{found[batch, product].k}" for product in PRODUCTS)
    header = ["", "matrix and library", *PRODUCTS, "step", "over dense (fp32; published: its GPU's)", "watts"]
    lead = f"Batch {batch}. Times in µs on {view.gpu}, {view.policy} policy. Sizes: {sizes}."
    return f"{lead}\n\n{markdown(header, rows, left=2)}"


def _lost(times: Times, policy: str) -> Iterator[Lost]:
    for source in SOURCES:
        for batch in BATCHES:
            if _shown(source, batch):
                without = tuple(product for product in PRODUCTS if (source.key, batch, product) not in times)
                yield Lost(f"{source.label} at batch {batch}", policy, without, len(PRODUCTS))


def _lines(
    rows: Mapping[str, pd.DataFrame], found: Mapping[tuple[int, str], Problem], times: Times, view: View[Any]
) -> Iterator[dict[str, Any] | None]:
    for key, some in rows.items():
        for (batch, product), one in found.items():
            words = {"policy": view.policy, "table": f"batch {batch}", "row": product, "series": key, "gpu": view.gpu}
            line = measured(some, one.name, **words)
            yield None if line is None else line | {"baseline_us": times.get(("dense_f32", batch, product), math.nan)}


def _published() -> Iterator[dict[str, Any]]:
    base = paper_times()["GPU", "dense"][0]
    for (platform, matrix), (us, _) in paper_times().items():
        words = {"policy": "published", "table": "batch 32", "row": "step", "series": matrix, "gpu": platform}
        yield {**words, "time_us": us, "baseline_us": base}


PAGE = PageSpec(
    lead=leads.ESE,
    title="ESE's LSTM",
    intro=(
        "*ESE: Efficient Speech Recognition Engine with Sparse LSTM on FPGA* (FPGA 2017) prunes an LSTM of 1,024 cells"
        " to 10 % and compares its chip with a CPU and a GPU at batch 32, where the GPU is slower with the sparse "
        "matrices than with dense ones. Here are the two products of a step (the four gates as one matrix, and the "
        "projection): is that still so? The element-wise steps, which the published times include, are left out, so "
        "that ratios are comparable and times are not."
    ),
    sections=(SectionSpec("speedup", "One step of ESE's LSTM", _show),),
    gaps=lambda view: (NO_VECTOR,),
    published=_published,
    problem_names=lambda view: {one.name: f"{product} at batch {n}" for (n, product), one in problems().items()},
    series=lambda view: SOURCES,
)
