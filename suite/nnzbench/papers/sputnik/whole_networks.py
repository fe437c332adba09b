"""Sputnik's tables III and IV of whole networks: every launch in one graph, memory measured, steps' times beside.

For how much of a network's time a kernel runs is in busy.csv, which `runners/gpu_studies.py` writes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from nnzbench.data.problems import tables
from nnzbench.papers.sputnik import EQUAL_ACCURACY, networks
from nnzbench.report import published
from nnzbench.report.page import Answer, Drawn, Lines, Made, Page, Printed, Rows, View
from nnzbench.results.groups import Group
from nnzbench.results.records.beside import Table
from nnzbench.results.records.folder import has_records
from nnzbench.results.records.record import RecordError
from nnzbench.results.result_set import ResultSet, each, load
from nnzbench.results.selector import DEFAULT, Selector, kernel, pick
from nnzbench.results.table import Comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Traced:
    """A network captured in one graph. Raises `ValueError` for what is none."""

    problem: str
    kernel: str
    variant: str
    launches: int
    whole_us: float
    """Of a replay."""
    busy_us: float
    """Sum of its kernels' own times within one."""

    def __post_init__(self) -> None:
        if not all(0 < one < math.inf for one in (self.launches, self.whole_us, self.busy_us)):
            raise ValueError("a network without launches or time")


BUSY = Table("busy.csv", Traced, "a table of busy times")
"""Of two rows of one network and variant the later counts."""


TRANSFORMER = Group(words="the Transformer", like="transformer")
EQUAL = tuple(
    Group(words=f"MobileNetV1 of equal accuracy, sparse of width {sparse} against dense of {dense}",
          like=f"sparse_w{sparse}", baseline_like=f"dense_w{dense}")
    for dense, sparse in EQUAL_ACCURACY
)  # fmt: skip
MOBILENETS = Group(words="MobileNetV1", where="weights != ''")
SPARSE_STEPS = {
    "gemm_project": "cublas", "gemm_output": "cublas", "gemm_up": "cublas", "gemm_down": "cublas",
    "step_scores": "sputnik_sddmm", "step_softmax": "sparse_softmax", "step_context": "sputnik",
}  # fmt: skip
"""What the sparse Transformer is made of, and who computes it; norms and ReLU have no time of their own."""
DENSE_STEPS = {**dict.fromkeys(list(SPARSE_STEPS)[:4], "cublas"), "step_attention": "dense_attention"}
HEURISTIC = frozenset({"sputnik_sddmm", "sputnik"})
"""Whose step is the one with the paper's own choice, as in the network."""
PARTS = (
    "What the hot time is made of, µs: a graph replayed in a session of its own, its kernels' times within it (CUPTI), "
    "and single timings of its steps added up, without norms and ReLU"
)


def _whole(view: View) -> pd.DataFrame:
    """Every variant that computed a whole network, fastest first in each."""
    frame = view.frame[view.frame["median_us"].notna() & view.frame["shape"].isin(["transformer", "mobilenet"])]
    frame = frame.assign(policy=pd.Categorical(frame["policy"], view.policies))
    return frame.sort_values(["label", "policy", "median_us"], kind="stable")


def _every(view: View, shape: str) -> pd.DataFrame:
    """Times of every variant, what it passes in a second, and the memory that it takes."""
    rows = _whole(view).query("shape == @shape and policy == @view.policy")
    if rows.empty:
        return rows
    items, name = (rows["m"], "tokens/s") if shape == "transformer" else (1, "images/s")
    return pd.DataFrame(
        {
            "network": rows["label"],
            "computed": rows["kernel"].str.partition("_")[0],
            "variant": "`" + rows["variant"] + "`",
            "µs": rows["median_us"],
            name: (1e6 * items / rows["median_us"]).round().astype(int),
            "MB measured": rows["memory_bytes"] / 1e6,
        }
    )


def _parts(view: View) -> Rows:
    """What the hot time of each network is made of: its kernels within the graph, and its steps by themselves."""
    inside = {(one.problem, one.kernel, one.variant): one for one in BUSY.read(view.results.folder)}
    layers = _layers(view.results)
    for row in each(_whole(view).query("policy == 'hot'")):
        found = inside.get((row.problem, row.kernel, row.variant))
        steps = _steps(view.frame, row) if row.shape == "transformer" else _layers_us(layers, row)
        if found or not math.isnan(steps):
            whole, busy, launches = (found.whole_us, found.busy_us, found.launches) if found else (math.nan,) * 3
            yield {
                "network": row.label, "computed": row.kernel.partition("_")[0], "variant": f"`{row.variant}`",
                "recorded": row.median_us, "a graph of it": whole, "its kernels": busy, "launches": launches,
                "difference per launch": (whole - busy) / launches, "its steps by themselves": steps,
            }  # fmt: skip


def _steps(frame: pd.DataFrame, row: Any) -> float:
    """Microseconds of all steps of a Transformer that were timed by themselves; NaN where one was not."""
    counts = {one.label: one.count for one in tables.rows("whole_networks")}
    mine = frame[frame["policy"] == row.policy]
    total = 0.0
    for label, name in (SPARSE_STEPS if row.kernel == "sparse_transformer" else DENSE_STEPS).items():
        math_class = row.math if name in ("cublas", "dense_attention") else "f32"
        one = Selector(label, (name,), math_class, DEFAULT if name in HEURISTIC else "")
        found = pick(mine[mine["label"] == label], one, by=("label",))["median_us"]
        total += counts[label] * float(found.iloc[0]) if len(found) else math.nan
    return total


def _layers(results: ResultSet) -> ResultSet | None:
    """MobileNet's layers by themselves: rows of `sputnik_mobilenet` beside this experiment's."""
    folder = results.folder.parent / networks.MOBILENET
    try:
        return load(folder) if has_records(folder) else None
    except RecordError:
        return None


def _layers_us(layers: ResultSet | None, row: Any) -> float:
    """Sum of the 26 layers of a MobileNetV1, each timed by itself; NaN where one was not."""
    if layers is None:
        return math.nan
    if row.kernel == "sparse_mobilenet":
        found = networks.mobilenets(layers.frame, row.policy, sparse=kernel("sputnik_bias_relu", variants=DEFAULT))
    else:
        dense = kernel("cublas_bias_relu", row.math)
        found = networks.mobilenets(layers.frame, row.policy, sparse=dense, dense=dense)
    return float(found.set_index("name")["us"].get(row.label, math.nan))


def _accuracy(view: View, title: str) -> Figure | None:
    sides = (kernel("dense_mobilenet"), kernel("dense_mobilenet", "tf32"), kernel("sparse_mobilenet"),
             kernel("sparse_mobilenet", variants=DEFAULT))  # fmt: skip
    curves = {one.label: curve for one, curve in zip(sides, networks.CURVES, strict=True)}
    cells, known = view.cells(sides, MOBILENETS), networks.accuracies()
    found = cells.assign(curve=cells["subject"].map(curves), us=cells["median_us"])
    found = found[[networks.CURVES[row.curve][0] == row.weights for row in each(found)]]
    accuracy = [known.get((row.weights, row.width), math.nan) for row in each(found)]
    return networks.tradeoff(view, title, found.assign(accuracy=accuracy))


def _printed(view: View) -> pd.DataFrame:
    """The paper's microseconds of an image on a V100."""
    table = published.read("sputnik_table4_sparse_mobilenet", ("model", "width", "throughput_fps"))
    return table.assign(weights=table["model"], value=1e6 / table["throughput_fps"])[["weights", "width", "value"]]


def whole_networks() -> Page:
    """The page of `whole_networks`."""
    rule, best = kernel("sparse_transformer", variants=DEFAULT), kernel("sparse_transformer")
    rule_tf32, best_tf32 = kernel("sparse_transformer", "tf32", DEFAULT), kernel("sparse_transformer", "tf32")
    dense, dense_tf32 = kernel("dense_transformer"), kernel("dense_transformer", "tf32")
    net_rule, net_best = kernel("sparse_mobilenet", variants=DEFAULT), kernel("sparse_mobilenet")
    net, net_tf32 = kernel("dense_mobilenet"), kernel("dense_mobilenet", "tf32")
    return Page(
        attributes=r"(?P<weights>dense|sparse)_w(?P<width>[\d.]+)",
        answers=(
            Answer(TRANSFORMER, rule_tf32, dense_tf32, (best_tf32, rule)),
            Answer(TRANSFORMER, rule, dense, (best,), claim="sputnik-attention-time"),
            Answer(EQUAL[1], net_rule, net_tf32, (net_best,), net, "sputnik-mobilenet-1.2"),
        ),
        comparison=Comparison(
            (rule, best, rule_tf32, best_tf32, net_rule, net_best),
            (dense_tf32, dense, net_tf32, net),
            (TRANSFORMER, *EQUAL),
        ),
        figures=(
            Drawn("accuracy", "MobileNetV1 as a whole: accuracy and time of one image (Sputnik's figure 12)", _accuracy,
                  "a paper's accuracies against our times"),
            Lines("mobilenet", "MobileNetV1 as a whole, one image, by width", (net, net_tf32, net_rule, net_best),
                  x="width", panels="weights", group=MOBILENETS, value="time",
                  printed=Printed("the paper, V100", _printed)),
        ),
        tables=(
            Made("The Transformer by variant: tokens a second and memory", lambda view: _every(view, "transformer"),
                 "one kernel's variants side by side"),
            Made("MobileNetV1 by variant: images a second and memory", lambda view: _every(view, "mobilenet"),
                 "one kernel's variants side by side"),
            Made(PARTS, _parts, "traced times are in no record"),
        ),
        facts=(Comparison((net_rule, net_best), (net_tf32, net), (Group(words="of MobileNetV1", level=90,
                                                                        where="weights == 'sparse'"),)),),
        baseline=dense,
    )  # fmt: skip
