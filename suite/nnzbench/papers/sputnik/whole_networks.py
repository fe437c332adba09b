"""Sputnik's tables III and IV of whole networks: every launch in one graph, memory measured, layers' times beside."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nnzbench.facts.results import ResultSet, each, load
from nnzbench.papers.sputnik import busy, leads
from nnzbench.papers.sputnik.mobilenet import EQUAL_ACCURACY
from nnzbench.problems import tables as problem_tables
from nnzbench.problems.names import label_of
from nnzbench.records.files import has_records
from nnzbench.records.record import RecordError
from nnzbench.report.data import networks, published
from nnzbench.report.data.series import DEFAULT, Series, pick
from nnzbench.report.draw import layout, style
from nnzbench.report.draw.dots import PAPER_COLOUR
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, View
from nnzbench.report.text.tables import GAP, markdown, number

COLUMNS = (
    "network", "policy", "model", "width", "kernel", "variant", "math", "us", "per_second", "memory_bytes",
    "steps_us", "launches", "whole_us", "busy_us", "paper_per_second", "paper_memory_gb",
)  # fmt: skip
SPARSE_STEPS = {
    "gemm_project": "cublas", "gemm_output": "cublas", "gemm_up": "cublas", "gemm_down": "cublas",
    "step_scores": "sputnik_sddmm", "step_softmax": "sparse_softmax", "step_context": "sputnik",
}  # fmt: skip
"""What the sparse Transformer is made of, and who computes it; norms and ReLU have no time of their own."""
DENSE_STEPS = {**dict.fromkeys(list(SPARSE_STEPS)[:4], "cublas"), "step_attention": "dense_attention"}
HEURISTIC = frozenset({"sputnik_sddmm", "sputnik"})
"""Whose step is the one with the paper's own choice, as in the network."""
GB = 1e9


@dataclass(frozen=True)
class Networks:
    """One line per network, way to compute it, and policy; and the paper's."""

    lines: pd.DataFrame
    layers: bool
    """Whether MobileNet's layers are recorded by themselves."""


def collect(results: ResultSet) -> Networks:
    """Computes what the page shows; MobileNet's layers are rows of `sputnik_mobilenet` beside this experiment's."""
    beside = _layers(results)
    table3 = published.read(
        "sputnik_table3_sparse_transformer", ("model", "gpu", "throughput_tokens_per_s", "memory_gb")
    )
    table4 = published.read("sputnik_table4_sparse_mobilenet", ("model", "width", "throughput_fps"))
    tokens = {row.model: row for row in each(table3[table3["gpu"] == "V100"])}
    frames = {(row.model, row.width): row.throughput_fps for row in each(table4)}
    rows = []
    inside = busy.read(results.folder)
    frame = results.frame[results.frame["median_us"].notna()]
    for row in each(frame.assign(label=[label_of(name) for name in frame["problem"]])):
        line = {
            "policy": row.policy, "kernel": row.kernel, "variant": row.variant, "math": row.math, "us": row.median_us,
            "memory_bytes": row.memory_bytes,
        }  # fmt: skip
        found = inside.get((row.problem, row.kernel, row.variant))
        if found and row.policy == "hot":
            line |= {"launches": found.launches, "whole_us": found.whole_us, "busy_us": found.busy_us}
        if row.shape == "transformer":
            paper = tokens["sparse_transformer" if row.kernel == "sparse_transformer" else "transformer"]
            line |= {"network": "transformer", "model": row.kernel.partition("_")[0], "width": math.nan}
            line |= {"per_second": 1e6 * row.m / row.median_us, "steps_us": _steps(results.frame, row)}
            line |= {"paper_per_second": paper.throughput_tokens_per_s, "paper_memory_gb": paper.memory_gb}
        elif row.shape == "mobilenet":
            model, _, width = row.label.partition("_w")
            line |= {"network": "mobilenet", "model": model, "width": float(width), "per_second": 1e6 / row.median_us}
            line |= {"steps_us": _layers_us(beside, row), "paper_per_second": frames.get((model, float(width)))}
        else:
            continue
        rows.append(line)
    return Networks(pd.DataFrame(rows, columns=list(COLUMNS)), beside is not None)


def _layers(results: ResultSet) -> ResultSet | None:
    folder = results.folder.parent / networks.MOBILENET
    try:
        return load(folder) if has_records(folder) else None
    except RecordError:
        return None


def _steps(frame: pd.DataFrame, row: Any) -> float:
    """Microseconds of all steps of a Transformer that were timed by themselves; NaN where one was not."""
    counts = {one.problem.label: one.count for one in problem_tables.rows("whole_networks")}
    mine = frame[frame["policy"] == row.policy]
    mine = mine.assign(label=[label_of(name) for name in mine["problem"]])
    total = 0.0
    for label, name in (SPARSE_STEPS if row.kernel == "sparse_transformer" else DENSE_STEPS).items():
        own = name in HEURISTIC
        math_class = row.math if name in ("cublas", "dense_attention") else "f32"
        series = Series(label, label, (name,), math_class, DEFAULT if own else "")
        found = pick(mine[mine["label"] == label], series, by=("label",))["median_us"]
        total += counts[label] * float(found.iloc[0]) if len(found) else math.nan
    return total


def _layers_us(beside: ResultSet | None, row: Any) -> float:
    """Sum of the 26 layers of a MobileNetV1, each timed by itself; NaN where one was not."""
    if beside is None:
        return math.nan
    if row.kernel == "sparse_mobilenet":
        sparse = Series("sparse", "", ("sputnik_bias_relu",), variants=DEFAULT)
        found = networks.mobilenets(beside.frame, row.policy, sparse=sparse)
    else:
        dense = Series("dense", "", ("cublas_bias_relu",), row.math)
        found = networks.mobilenets(beside.frame, row.policy, sparse=dense, dense=dense)
    return next((one.us for one in found if one.name == row.label and one.us), math.nan)


def _fastest(lines: pd.DataFrame, **which: object) -> Any:
    """The fastest line with those values; None for none."""
    for name, value in which.items():
        lines = lines[lines[name] == value]
    return min(each(lines), key=lambda line: float(line.us), default=None)


def _transformer(view: View[Networks]) -> Shown | None:
    lines = view.data.lines
    here = lines[(lines["network"] == "transformer") & (lines["policy"] == view.policy)]
    if here.empty:
        return None
    rows = [
        [
            row.model,
            f"`{row.variant}`",
            number(row.us / 1e3, 2),
            f"{row.per_second:,.0f}",
            number(row.memory_bytes / GB, 2),
            f"{row.paper_per_second:,.0f}",
            number(row.paper_memory_gb),
        ]
        for row in each(here.sort_values(["model", "us"], ascending=[False, True], kind="stable"))
    ]
    header = ["", "variant", "ms", "tokens per second", "GB, measured"]
    table = markdown([*header, "paper's tokens per second, V100", "paper's GB"], rows, left=2)
    return Shown(None, _transformer_finding(here) + _between(here), (table, *_parts(here, 2, 1e3, "ms")))


def _pair(here: pd.DataFrame, arithmetic: str) -> tuple[Any, Any]:
    """The sparse Transformer at the paper's heuristics and the dense one, in one arithmetic; None for no time."""
    return _fastest(here, model="sparse", variant=f"{arithmetic}_heuristic"), _fastest(
        here, model="dense", math=arithmetic
    )


def _transformer_finding(here: pd.DataFrame) -> str:
    sparse, dense = _pair(here, "f32")
    if sparse is None or dense is None:
        return "Only one of the two Transformers has a checked time."
    ratio, paper = dense.us / sparse.us, sparse.paper_per_second / dense.paper_per_second
    text = (
        f"In fp32 the sparse Transformer passes {sparse.per_second:,.0f} tokens per second, **{ratio:.2f}×** the "
        f"dense one's {dense.per_second:,.0f}, with Sputnik's kernels at its heuristics; the paper reports "
        f"{paper:.2f}× on a V100."
    )
    fast, quick = _pair(here, "tf32")
    if fast is not None and quick is not None:
        text += f" With the dense products of both in TF32 it is {quick.us / fast.us:.2f}×."
    together = here[here["variant"].str.endswith("_together") & (here["math"] == "f32")]
    held = {row.model: row.memory_bytes for row in each(together)}
    if not math.isnan(held.get("sparse", math.nan)) and not math.isnan(held.get("dense", math.nan)):
        text += (
            f" With the scores of all heads held it takes {held['sparse'] / GB:.2f} GB where the dense one takes "
            f"{held['dense'] / GB:.2f}, **{held['dense'] / held['sparse']:.1f}×** less (the paper: "
            f"{dense.paper_memory_gb / sparse.paper_memory_gb:.1f}×, of a dense model that holds the scores before and "
            "after the softmax; here the dense softmax works in place, the sparse one does not)."
        )
    return text


def _between(here: pd.DataFrame) -> str:
    """How much of the graphs' time is between launches; empty where that is not recorded."""
    known = here[here["busy_us"].notna()]
    if known.empty:
        return ""
    share = known["busy_us"] / known["whole_us"]
    gaps = (known["whole_us"] - known["busy_us"]) / known["launches"]
    return (
        f" Its kernels' own times, traced within the graph, add up to {share.min():.1%} to {share.max():.1%} of the "
        f"graph's: {max(gaps.max(), 0.0):.2f} µs per launch at most are between them."
    )


def _mobilenet(view: View[Networks]) -> Shown | None:
    lines = view.data.lines
    here = lines[(lines["network"] == "mobilenet") & (lines["policy"] == view.policy)]
    if here.empty:
        return None
    rows = [
        [
            row.model,
            f"{row.width:g}",
            row.kernel.partition("_")[0],
            f"`{row.variant}`",
            number(row.us, 1),
            f"{row.per_second:,.0f}",
            number(row.memory_bytes / GB, 3),
            GAP if math.isnan(row.paper_per_second) else f"{row.paper_per_second:,.0f}",
        ]
        for row in each(here.sort_values(["model", "width", "us"], kind="stable"))
    ]
    header = ["weights", "width", "computed", "variant", "µs", "images per second", "GB, measured"]
    table = markdown([*header, "paper's images per second, V100"], rows, left=4)
    return Shown(_figure(here, view), _mobilenet_finding(here) + _between(here), (table, *_parts(here, 1, 1.0, "µs")))


def _parts(here: pd.DataFrame, digits: int, unit: float, word: str) -> Iterator[str]:
    """What the hot time of each network is made of: its kernels within the graph, the gaps, the steps by themselves."""
    known = here[(here["policy"] == "hot") & (here["busy_us"].notna() | here["steps_us"].notna())]
    if known.empty:
        return
    rows = [
        [
            f"{row.model}{'' if math.isnan(row.width) else f' {row.width:g}'}",
            row.kernel.partition("_")[0],
            f"`{row.variant}`",
            number(row.us / unit, digits),
            number(row.whole_us / unit, digits),
            number(row.busy_us / unit, digits),
            GAP if math.isnan(row.launches) else f"{row.launches:.0f}",
            number((row.whole_us - row.busy_us) / row.launches),
            number(row.steps_us / unit, digits),
        ]
        for row in each(known.sort_values(["model", "width", "us"], kind="stable"))
    ]
    header = ["weights", "computed", "variant", f"recorded, {word}", f"a graph of it, {word}", f"its kernels, {word}"]
    header += ["launches", "difference per launch, µs", f"its steps by themselves, {word}"]
    lead = (
        "What the time is made of: a replay of the graph in a session of its own, the sum of its kernels' times within "
        "the graph (CUPTI, a traced replay), and the difference per launch, below 0 where tracing adds more than that."
    )
    yield f"{lead}\n\n{markdown(header, rows, left=3)}"


def _mobilenet_finding(here: pd.DataFrame) -> str:
    words = []
    for dense_width, sparse_width in EQUAL_ACCURACY:
        dense = _fastest(here, width=dense_width, model="dense", kernel="dense_mobilenet", math="f32")
        sparse = _fastest(here, width=sparse_width, kernel="sparse_mobilenet", variant="f32_heuristic")
        if dense is not None and sparse is not None:
            paper = sparse.paper_per_second / dense.paper_per_second
            words.append(
                f"{dense.us / sparse.us:.2f}× at widths {dense_width:g} and {sparse_width:g} (the paper {paper:.2f}×)"
            )
    lead = (
        "Images per second of the sparse network, Sputnik's kernels at its heuristic, over the dense one in fp32 of "
        "the same accuracy: "
    )
    return f"{lead}{', '.join(words)}." if words else "No pair of networks of one accuracy has a checked time."


def _figure(here: pd.DataFrame, view: View[Networks]) -> Figure:
    """Images per second by width, every way to compute a network, and the paper's."""
    figure = layout.headed(4.6, view.title, f"One image of 224×224; higher is better.\n{view.policy_sentence}")
    axis = figure.add_axes((0.075, 0.25, 0.91, 0.54))
    axis.grid()
    curves = (
        ("dense", "dense_mobilenet", "f32", "dense, cuBLAS fp32", style.INK, "s"),
        ("dense", "dense_mobilenet", "tf32", "dense, cuBLAS TF32", style.MUTED, "s"),
        ("sparse", "sparse_mobilenet", "f32_heuristic", "90 % zeros, Sputnik at its heuristic", style.BLUE, "o"),
        ("sparse", "sparse_mobilenet", "f32_rule", "the same at this project's rule's tiles", style.ORANGE, "o"),
        ("sparse", "dense_mobilenet", "f32", "90 % zeros multiplied by cuBLAS fp32", style.INK, "D"),
    )
    handles: list[Line2D] = []
    for model, kernel, variants, label, colour, marker in curves:
        mine = here[(here["model"] == model) & (here["kernel"] == kernel) & here["variant"].str.match(variants)]
        best = mine.groupby("width", sort=True)["per_second"].max()
        if len(best):
            line = Line2D(best.index, best, color=colour, marker=marker, mec="white", lw=1.4, label=label)
            handles.append(axis.add_line(line))
    for model, marker in (("dense", "s"), ("sparse", "D")):
        printed = here[here["model"] == model].drop_duplicates("width").dropna(subset=["paper_per_second"])
        if len(printed):
            printed = printed.sort_values("width")
            line = Line2D(printed["width"], printed["paper_per_second"], color=PAPER_COLOUR, ls=":", marker=marker)
            line.set(mfc="none", lw=1.1, label=f"{model}: the paper, V100")
            handles.append(axis.add_line(line))
    axis.autoscale_view()
    axis.set_ylim(bottom=0)
    axis.set_xlabel("width multiplier")
    axis.set_ylabel("images per second")
    layout.legend_below(figure, handles, [str(handle.get_label()) for handle in handles], columns=3)
    return figure


def _gaps(view: View[Networks]) -> Iterator[str]:
    lines = view.data.lines
    for network, words in (("transformer", "the Transformer"), ("mobilenet", "MobileNetV1")):
        if not (lines["network"] == network).any():
            yield f"No time of {words} as a whole is recorded."
    if not view.data.layers:
        yield f"MobileNet's layers by themselves are rows of `{networks.MOBILENET}`, which is not recorded here."
    if not lines["busy_us"].notna().any():
        yield f"For how long kernels run within a network's graph is not recorded ({busy.FILE})."
    yield "No network is run in fp16: layer norm, masked softmax, bias and depthwise convolution are fp32 kernels."


def _intro(view: View[Networks]) -> str:
    return (
        "Whole networks of *Sparse GPU Kernels for Deep Learning* (SC 2020) at batch 1, every launch captured in one "
        "CUDA graph (hot) or launched one by one after L2 was overwritten (cold); outputs are checked against a "
        "float64 reference of the whole network. The Transformer (table III): 12,288 tokens, 3 layers of 8 heads of "
        "128 features, the norm before each part, ReLU, without embedding and output layer, which the paper does not "
        "describe; heads run one after another. MobileNetV1 (table IV, figure 12): first convolution, depthwise and "
        "1×1 convolutions with bias and ReLU, pooling and classifier. Nothing was trained. *Its steps by themselves* "
        "is the sum of single hot timings, each step's operands where its last launch left them: of the Transformer "
        "without norms and ReLU, of MobileNet the 26 depthwise and 1×1 layers (recorded in `sputnik_mobilenet`)."
    )


PAGE = PageSpec(
    lead=leads.WHOLE_NETWORKS,
    title="Sputnik's whole networks",
    intro=_intro,
    data=collect,
    sections=(
        SectionSpec("transformer", "The sparse Transformer as a whole", _transformer, heading="Transformer"),
        SectionSpec("mobilenet", "MobileNetV1 as a whole", _mobilenet, heading="MobileNetV1", group=1),
    ),
    by_section=True,
    gaps=_gaps,
    summary=lambda view: view.data.lines,
)
