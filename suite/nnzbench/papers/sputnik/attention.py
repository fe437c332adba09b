"""Sputnik's table III redrawn: time and memory of sparse, dense and fused attention over 12,288 tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from nnzbench.facts.results import ResultSet, each
from nnzbench.matrices import generate
from nnzbench.papers.sputnik import leads
from nnzbench.problems import tables as problem_tables
from nnzbench.report.data import context, networks, published
from nnzbench.report.data.series import Series, kernel_label, standing
from nnzbench.report.draw import layout, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, View
from nnzbench.report.text.tables import GAP, markdown, number


class Way(NamedTuple):
    """One way to compute a head's attention."""

    what: str
    """Label of the problem: `attention` under the sparse mask, `causal` with every key up to the query."""
    kernel: str
    math: str
    label: str
    colour: str


UNFUSED = Way("attention", "dense_attention", "f32", "dense, cuBLAS fp32", style.INK)
UNFUSED_TF32 = Way("attention", "dense_attention", "tf32", "dense, cuBLAS TF32", style.MUTED)
FUSED = Way("causal", "cudnn_attention", "f16", "dense, fused, cuDNN fp16", style.ORANGE)
FUSED_MASKED = Way("attention", "cudnn_attention", "f16", "dense, fused, mask added", style.YELLOW)
SPARSE = Way("attention", "sparse_attention", "f32", "sparse, fp32", style.BLUE)
SPARSE_F16 = Way("attention", "sparse_attention", "f16", "sparse, fp16", style.SKY)
WAYS = (UNFUSED, UNFUSED_TF32, FUSED, FUSED_MASKED, SPARSE, SPARSE_F16)
"""In the paper's order: dense first."""
STEPS = {"scores": "scores at the mask's positions (SDDMM)", "softmax": "sparse softmax", "context": "context (SpMM)"}
SCALE, BAND = 16, 256
"""Tokens of the recorded mask per token of the drawn one, and the width of the recorded one's band."""
COLUMNS = (
    "policy", "gpu", "what", "kernel", "variant", "math", "us", "tokens_per_second", "bytes", "measured_bytes",
)  # fmt: skip


def attention(results: ResultSet) -> pd.DataFrame:
    """One row per policy and way of computing all heads' attention, and per step and kernel; then the paper's rows.

    `us` is that of one head, `tokens_per_second` what the table's heads, one after another, leave time for; `bytes`
    the buffers of one head as counted, `measured_bytes` the device memory that it took. The paper's rows are of its
    whole model. `what` is a step, or the problem that is all of one head's attention.
    """
    whole = _whole(results.experiment)
    measured = {(row.problem, row.dtype, row.kernel, row.variant): row.memory_bytes for row in each(results.frame)}
    rows = []
    for policy in context.policies(results.frame):
        rows += [
            {
                "policy": policy,
                "what": one.problem.partition("_")[0],
                "kernel": one.kernel,
                "variant": one.variant,
                "math": one.math,
                "us": one.us,
                "tokens_per_second": 1e6 * whole.problem.m / (one.us * whole.count),
                "bytes": one.buffer_bytes,
                "measured_bytes": measured[one.problem, one.dtype, one.kernel, one.variant],
            }
            for one in networks.attentions(results.frame, policy)
        ]
    frame = results.frame
    steps = standing(frame[frame["math"] == "f32"])
    steps = steps.assign(what=[name.partition("_")[0] for name in steps["problem"]], us=steps["median_us"])
    found = pd.concat([pd.DataFrame(rows, columns=list(COLUMNS)), steps[steps["what"].isin(STEPS)]])
    paper = published.read(
        "sputnik_table3_sparse_transformer", ("model", "gpu", "throughput_tokens_per_s", "memory_gb")
    )
    printed = paper.assign(
        policy="published",
        what="whole model",
        kernel=paper["model"],
        tokens_per_second=paper["throughput_tokens_per_s"],
        measured_bytes=1e9 * paper["memory_gb"],
    )
    both = [part.reindex(columns=list(COLUMNS)) for part in (found.assign(gpu=results.gpu), printed) if len(part)]
    return pd.concat(both, ignore_index=True)


def _whole(experiment: str) -> problem_tables.Row:
    """The row of the table that is all of one head's attention."""
    return next(row for row in problem_tables.rows(experiment) if row.problem.op == "attention")


def _title(view: View[pd.DataFrame]) -> str:
    tokens = _whole(view.results.experiment).problem.m
    return f"Attention of one head over {tokens:,} tokens on {view.gpu}, {view.policy} policy"


def _intro(view: View[pd.DataFrame]) -> str:
    whole = _whole(view.results.experiment)
    return (
        f"softmax(QKᵀ)V of one head of {whole.problem.n} features over {whole.problem.m:,} tokens: with all scores "
        "computed and kept, the mask applied in the softmax, or with scores at the mask's positions alone, a dense "
        "band of 256 and 5 % of the tokens left of it (table III and figure 11 of *Sparse GPU Kernels for Deep "
        "Learning*, SC 2020). The paper times its whole 3-layer Transformer with 8 heads per layer on 8 sequences; "
        f"here it is the attention alone, {whole.count} heads of one sequence one after another, and memory is "
        "that of one head: counted from its buffers, and measured as what the driver says is in use. Only the ratios "
        "compare, and the paper's include layers that stay dense. Bits per dimension (3.76 dense, 3.77 sparse) are the "
        "paper's. Today a dense Transformer runs fused attention, which writes no scores: cuDNN's takes fp16 alone and "
        "is given the dense Transformer's own mask, causality, or the sparse mask as a tensor added to the scores. It "
        "is set against sparse attention in fp32, as the paper ran it, and in fp16."
    )


def _show(view: View[pd.DataFrame]) -> Shown:
    here = view.data[view.data["policy"] == view.policy]
    steps = f"The steps of the sparse attention by themselves, one head:\n\n{_steps(here)}"
    tables = (_table(view.data, view.policy, view.gpu), steps)
    return Shown(_figure(here, view.title), _finding(here), tables, _gaps(here, view.policy))


def _gaps(here: pd.DataFrame, policy: str) -> Iterator[str]:
    missing = [way.label for way in WAYS if math.isnan(_one(here, way, "us"))]
    yield from (f"No time of {label} attention ({policy})." for label in missing)
    unmeasured = [way.label for way in WAYS if math.isnan(_one(here, way, "measured_bytes"))]
    yield from (f"Memory of {label} attention is not measured ({policy})." for label in unmeasured)
    yield from (f"No time of the step {step} ({policy})." for step in STEPS if not (here["what"] == step).any())


def _mask(view: View[pd.DataFrame]) -> Shown:
    """Figure 11. The recorded mask has 8 million positions; drawn is one made the same way at a smaller scale."""
    row = _whole(view.results.experiment)
    kept = view.frame[view.frame["problem"].str.startswith("attention")]["nnz"]
    tokens = row.problem.m
    text = (
        f"Which token (row) attends to which (column). Drawn at a scale of 1 to {SCALE}: {tokens // SCALE} tokens and "
        f"a band of {BAND // SCALE} for {tokens:,} and {BAND}, made by the same generator with as many zeros left of "
        "the band."
    )
    if len(kept):
        causal = tokens * (tokens + 1) // 2
        text += (
            f" The mask that was timed keeps {int(kept.iloc[0]):,} of the {causal:,} positions that dense attention "
            f"has, {100 * kept.iloc[0] / causal:.1f} %."
        )
    return Shown(_mask_figure(tokens // SCALE, BAND // SCALE, row.problem.sparsity, view.title), text)


def _mask_figure(tokens: int, band: int, sparsity: float, title: str) -> Figure:
    mask = generate.banded(tokens, tokens, sparsity, band, seed=0)
    kept = np.zeros((tokens, tokens), dtype=bool)
    kept[np.repeat(np.arange(tokens), mask.row_lengths), mask.indices] = True
    dense = np.tri(tokens, dtype=bool)
    share = 100 * kept.sum() / dense.sum()
    caption = (
        "A token attends to itself and to those before it. Random positions thin out with the distance from the "
        f"diagonal.\nDrawn with {tokens} tokens."
    )
    figure = layout.headed(5.4, f"{title} keeps {share:.0f} % of the positions", caption)
    for left, picture, name in ((0.1, dense, "dense"), (0.56, kept, f"sparse: {share:.0f} % of the positions")):
        axis = figure.add_axes((left, 0.1, 0.38, 0.7))
        axis.imshow(picture, cmap=ListedColormap(["white", style.BLUE]), interpolation="antialiased")
        axis.set_title(name)
        axis.set_xlabel("attended token")
        axis.set_ylabel("token" if picture is dense else "")
        axis.set_xticks(range(0, tokens + 1, tokens // 3))
        axis.set_yticks(range(0, tokens + 1, tokens // 3))
        axis.spines[:].set_visible(True)
    return figure


def _one(rows: pd.DataFrame, way: Way, column: str) -> float:
    found = rows[(rows["what"] == way.what) & (rows["kernel"] == way.kernel) & (rows["math"] == way.math)][column]
    return float(found.iloc[0]) if len(found) else math.nan


def _less(rows: pd.DataFrame, more: Way, way: Way) -> tuple[float, str]:
    """How many times less memory `way` takes than `more`, and whether `measured`; else `counted` of both."""
    sizes = [_one(rows, one, "measured_bytes") for one in (more, way)]
    if not math.isnan(sum(sizes)):
        return sizes[0] / sizes[1], "measured"
    return _one(rows, more, "bytes") / _one(rows, way, "bytes"), "counted"


def _finding(rows: pd.DataFrame) -> str:
    dense, sparse = (_one(rows, way, "us") for way in (UNFUSED, SPARSE))
    if math.isnan(dense + sparse):
        return "One of the two has no checked time, so no speed-up is stated."
    less, how = _less(rows, UNFUSED, SPARSE)
    text = (
        f"Sparse attention takes {sparse:.0f} µs where unfused dense attention takes {dense:.0f} µs in fp32, "
        f"{dense / sparse:.2f} times as fast in {less:.1f} times less memory ({how}); the paper's whole model "
        "on a V100 is 2.09 times as fast in 12.8 times less."
    )
    tf32, fused, half = (_one(rows, way, "us") for way in (UNFUSED_TF32, FUSED, SPARSE_F16))
    if not math.isnan(tf32):
        text += f" Against TF32 tensor cores it is {tf32 / sparse:.2f} times as fast."
    if not math.isnan(fused):
        in_half = "" if math.isnan(half) else f" and {half / fused:.2f} times as fast as in fp16"
        less, how = _less(rows, SPARSE, FUSED)
        text += (
            f" Fused dense attention (cuDNN, fp16, every key up to the query) takes {fused:.0f} µs: "
            f"{sparse / fused:.2f} times as fast as sparse attention in fp32{in_half}, "
            f"in {less:.1f} times less memory than in fp32 ({how})."
        )
    return text


def _table(found: pd.DataFrame, policy: str, gpu: str) -> str:
    here = found[found["policy"] == policy]
    dense = _one(here, UNFUSED, "us")
    out = []
    for way in WAYS:
        us = _one(here, way, "us")
        cells = [
            number(us, 1),
            number(_one(here, way, "tokens_per_second"), 0),
            number(_one(here, way, "bytes") / 2**20, 1),
            number(_one(here, way, "measured_bytes") / 2**20, 1),
            number(dense / us),
            number(_less(here, UNFUSED, way)[0], 1),
        ]
        out.append([f"{way.label}, one head, {gpu}", *cells])
    paper = found[found["what"] == "whole model"]
    for gpu_name, group in paper.groupby("gpu", sort=False):
        first = group.iloc[0]
        for row in each(group):
            speed = row.tokens_per_second / first["tokens_per_second"]
            less = first["measured_bytes"] / row.measured_bytes
            label = f"the paper's {row.kernel.replace('_', ' ')}, whole model, {gpu_name}"
            missing = " (out of memory)" if math.isnan(row.tokens_per_second) else ""
            cells = [GAP, number(row.tokens_per_second, 0), GAP, number(row.measured_bytes / 2**20, 0)]
            out.append([label + missing, *cells, number(speed), number(less, 1)])
    header = ["", "µs per head", "tokens/s", "memory counted (MiB)", "measured (MiB)", "speed-up", "times less memory"]
    return markdown(header, out)


def _steps(rows: pd.DataFrame) -> str:
    out = []
    for step, words in STEPS.items():
        for row in each(rows[rows["what"] == step].sort_values("us", kind="stable")):
            out.append([words, kernel_label(row.kernel), f"`{row.variant}`", number(row.us, 1)])
    return markdown(["step", "kernel", "variant", "µs"], out, left=3) if out else ""


def _figure(rows: pd.DataFrame, title: str) -> Figure:
    ways = [way for way in WAYS if not math.isnan(_one(rows, way, "us"))]
    measured = bool(ways) and not any(math.isnan(_one(rows, way, "measured_bytes")) for way in ways)
    memory = "device memory, measured (MiB)" if measured else "buffers, counted (MiB)"
    height, bottom, part = (3.0, 0.19, 0.55) if len(ways) <= 3 else (4.0, 0.14, 0.65)
    figure = layout.headed(height, title, "One head, causal; memory is of all that it holds.")
    parts = ((0.24, "us", 1.0, "time (µs)"), (0.63, "measured_bytes" if measured else "bytes", 2.0**20, memory))
    for left, column, scale, label in parts:
        axis = figure.add_axes((left, bottom, 0.33, part))
        values = [_one(rows, way, column) / scale for way in ways]
        bars = axis.barh(range(len(ways)), values, 0.62, color=[way.colour for way in ways])
        axis.bar_label(bars, [number(value, 0) for value in values], padding=4, fontsize=8.5)
        axis.set_yticks(range(len(ways)), [way.label if column == "us" else "" for way in ways])
        axis.invert_yaxis()
        axis.margins(x=0.18)
        axis.grid(axis="x")
        axis.set_xlabel(label)
    return figure


PAGE = PageSpec(
    lead=leads.ATTENTION,
    title="Sputnik table III",
    intro=_intro,
    data=attention,
    sections=(
        SectionSpec("attention", _title, _show),
        SectionSpec("mask", "Sputnik figure 11: the attention mask", _mask, heading="Figure 11", once=True),
    ),
    series=lambda view: [Series(way.what, way.label, (way.kernel,), way.math) for way in WAYS],
)
