"""What a training step of one sparse layer costs against a dense one: forward, gradients of input and weights."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from nnzbench.facts.results import ResultSet, each, geometric_mean, percent
from nnzbench.papers.nnzbench import leads
from nnzbench.papers.nnzbench.leads import FASTEST_STEP, SPUTNIK_STEP, STEPS
from nnzbench.problems import tables as problem_tables
from nnzbench.problems.names import parse
from nnzbench.report.data import context
from nnzbench.report.data.series import Series, pick
from nnzbench.report.data.sessions import WHOLE
from nnzbench.report.draw import layout, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, View
from nnzbench.report.text import marks
from nnzbench.report.text.tables import GAP, markdown, number

COLOURS = {"forward": style.BLUE, "input": style.SKY, "weights": style.ORANGE}
COLUMNS = (
    "row", "policy", "layer", "batch", "level", "way", "step", "problem", "kernel", "variant", "median_us", "q1_us",
    "q3_us", "over", "speedup", "count", "of", "faster",
)  # fmt: skip


@dataclass(frozen=True)
class Way:
    """One way to compute all three steps: its kernels, each of which does one of them or all, in one arithmetic."""

    key: str
    label: str
    math: str
    kernels: tuple[str, ...]
    dense: bool = False

    @property
    def series(self) -> Series:
        """The rows that compete in its steps."""
        return Series(self.key, self.label, self.kernels, self.math)

    def level(self, level: float, step: str) -> float:
        """The level of its problem: the dense gradient of the weights is the same at any."""
        return 0.0 if self.dense and step == "weights" else level


def _dense(math: str, label: str) -> Way:
    return Way(f"dense-{math}", label, math, ("cublas", "cublaslt"), dense=True)


BEST = Way("best-f32", "best kernel of each step, fp32", "f32", FASTEST_STEP)
SPUTNIK = Way("sputnik-f32", "Sputnik's kernels, fp32", "f32", SPUTNIK_STEP)
SPUTNIK_F16 = Way("sputnik-f16", "Sputnik's kernels, fp16", "f16", SPUTNIK_STEP)
CUSPARSE = Way("cusparse-f32", "cuSPARSE, fp32", "f32", ("cusparse",))
DENSE, TF32, F16 = _dense("f32", "best dense fp32"), _dense("tf32", "best dense TF32"), _dense("f16", "best dense fp16")
WAYS = (BEST, SPUTNIK, SPUTNIK_F16, CUSPARSE, DENSE, TF32, F16)
RATIOS = ((BEST, DENSE), (BEST, TF32), (BEST, CUSPARSE), (SPUTNIK, DENSE), (SPUTNIK_F16, F16))
"""What the first table divides: the sparse way, and whose time over its own."""
DRAWN = (BEST, DENSE, TF32)
"""Those of the figure."""
LAYER = ["policy", "layer", "batch", "level"]


def times(results: ResultSet) -> pd.DataFrame:
    """One row per policy, layer, batch, level, way and step that has a time: the fastest of its kernels' variants."""
    frame = results.frame
    parsed = [parse(name) for name in frame["problem"]]
    frame = frame.assign(
        label=[one.label if one else "" for one in parsed],
        zeros=[float(one.level) / 100 if one else -1.0 for one in parsed],
    )
    table = [row.problem for row in problem_tables.rows(results.experiment)]
    levels = sorted({problem.sparsity for problem in table} - {0.0})
    cases = dict.fromkeys(tuple(one.label.split("_")[:2]) for one in table)
    out = []
    for way in WAYS:
        found = pick(frame, way.series, by=("label", "zeros", "policy"))
        fastest = {(row.label, row.zeros, row.policy): row for row in each(found)}
        for step in STEPS:
            for policy, (layer, batch), level in itertools.product(context.policies(frame), cases, levels):
                name = f"{layer}_{batch}_{'dense_' if way.dense and step == 'weights' else ''}{step}"
                row = fastest.get((name, way.level(level, step), policy))
                if row is not None:
                    line = dict(zip(LAYER, (policy, layer, int(batch[1:]), level), strict=True))
                    line |= {"way": way.key, "step": step, **{one: getattr(row, one) for one in COLUMNS[7:13]}}
                    out.append(line)
    return pd.DataFrame(out, columns=list(COLUMNS[1:13])).assign(row="step")


def totals(found: pd.DataFrame) -> pd.DataFrame:
    """Microseconds of the whole step by policy, layer, batch, level and way, where all three parts have a time."""
    groups = found.groupby([*LAYER, "way"], sort=False)["median_us"]
    whole = groups.agg(["sum", "count"]).reset_index()
    return whole[whole["count"] == len(STEPS)].rename(columns={"sum": "median_us"}).drop(columns="count")


def ratios(whole: pd.DataFrame) -> pd.DataFrame:
    """Per policy, level and pair of `RATIOS`: geometric mean of rival's over sparse time, and on how many faster."""
    out = []
    for (policy, level), here in whole.groupby(["policy", "level"], sort=False):
        table = here.pivot_table(index=["layer", "batch"], columns="way", values="median_us")
        for way, rival in RATIOS:
            if not {way.key, rival.key} <= set(table.columns):
                continue
            gains = (table[rival.key] / table[way.key]).dropna()
            out.append(
                {
                    **{"row": "ratio", "policy": policy, "level": level, "way": way.key, "over": rival.key},
                    **{"speedup": geometric_mean(gains), "count": len(gains), "of": len(table)},
                    "faster": int((gains > 1).sum()),
                }
            )
    return pd.DataFrame(out, columns=["row", "policy", "level", "way", "over", "speedup", "count", "of", "faster"])


@dataclass(frozen=True)
class Steps:
    """Times of the parts, of the whole step, and what the first table says of them."""

    parts: pd.DataFrame
    whole: pd.DataFrame
    gains: pd.DataFrame


def collect(results: ResultSet) -> Steps:
    """Computes what the page shows."""
    parts = times(results)
    whole = totals(parts)
    return Steps(parts, whole, ratios(whole))


def _show(view: View[Steps]) -> Shown | None:
    parts, whole, gains = (
        rows[rows["policy"] == view.policy] for rows in (view.data.parts, view.data.whole, view.data.gains)
    )
    if parts.empty:
        return None
    figure = _figure(parts, whole, view) if (whole["way"] == DENSE.key).any() else None
    tables = (_gains(gains), _whole(parts))
    drawn = [_rows(parts, view)]
    headline = _headline(gains, view)
    return Shown(figure, _finding(gains), tables, tuple(_lost(whole)), headline=headline, drawn=drawn, unit="steps")


def _rows(parts: pd.DataFrame, view: View[Steps]) -> pd.DataFrame:
    """The recorded rows of the ways that the figure shows, by the step that their times are added to."""
    drawn = parts[parts["way"].isin([way.key for way in DRAWN])]
    steps = [f"{row.layer} {row.batch} {row.level}" for row in each(drawn)]
    key = ["policy", "problem", "kernel", "variant"]
    return drawn[key].assign(**{WHOLE: steps}).merge(view.frame, on=key)


def _headline(gains: pd.DataFrame, view: View[Steps]) -> str:
    """Title of the figure: the whole step at the highest level, against dense fp32 and TF32; empty for no ratio."""
    mine = gains[(gains["way"] == BEST.key) & (gains["level"] == gains["level"].max())]
    said = [
        f"{row.speedup:.2f}× as fast as {rival.label}"
        for rival in (DENSE, TF32)
        for row in each(mine[mine["over"] == rival.key])
    ]
    competing = (way.series for way in DRAWN)
    cut = f", {marks.WORDS}" if marks.cuts(view.frame, *competing).get(view.policy) else ""
    if not said:
        return ""
    return f"A whole step at {percent(mine['level'].iloc[0])} zeros: sparse is {' and '.join(said)}{cut}"


def _finding(gains: pd.DataFrame) -> str:
    pairs = (
        (BEST, DENSE, "the sparse fp32 kernels are, against dense fp32, "),
        (BEST, TF32, "against TF32 "),
        (SPUTNIK_F16, F16, "those for fp16 against dense fp16 "),
    )
    words = []
    for way, rival, text in pairs:
        mine = gains[(gains["way"] == way.key) & (gains["over"] == rival.key)]
        cells = [f"{row.speedup:.2f}× at {percent(row.level)}" for row in each(mine.sort_values("level"))]
        if cells:
            words.append(f"{text}{', '.join(cells)} zeros")
    lead = "Speed of a whole step over that of the dense one (below 1× dense is faster): "
    return lead + "; ".join(words) + "." if words else ""


def _gains(gains: pd.DataFrame) -> str:
    levels = sorted(set(gains["level"]))
    labels = {way.key: way.label for way in WAYS}
    rows = []
    for way, rival in RATIOS:
        mine = gains[(gains["way"] == way.key) & (gains["over"] == rival.key)].set_index("level")
        if len(mine):
            rows.append([labels[way.key], labels[rival.key], *(_gain(mine, level) for level in levels)])
    return markdown(["a step by", "over a step by", *(f"{percent(one)} zeros" for one in levels)], rows, left=2)


def _gain(mine: pd.DataFrame, level: float) -> str:
    if level not in mine.index:
        return GAP
    (row,) = each(mine[mine.index == level])
    return f"**{number(row.speedup)}×** ({row.faster} of {row.count} faster)"


def _whole(parts: pd.DataFrame) -> str:
    """Microseconds of every layer: forward + input + weights = step, of the ways that the finding compares."""
    shown = [way for way in (BEST, SPUTNIK_F16, DENSE, TF32, F16) if (parts["way"] == way.key).any()]
    rows = []
    for key, here in parts.groupby(["layer", "batch", "level"], sort=False):
        layer, batch, level = cast("tuple[str, int, float]", key)
        cells = []
        for way in shown:
            us = here[here["way"] == way.key].set_index("step")["median_us"]
            held = [float(us.get(step, float("nan"))) for step in STEPS]
            whole = f" = **{number(sum(held), 1)}**" if sum(held) == sum(held) else ""
            cells.append(" + ".join(number(one, 1) for one in held) + whole)
        rows.append([layer, str(batch), percent(level), *cells])
    header = ["layer", "batch", "zeros", *(way.label for way in shown)]
    return f"Microseconds, {' + '.join(STEPS.values())}:\n\n{markdown(header, rows, left=1)}"


def _lost(whole: pd.DataFrame) -> Iterator[str]:
    every = whole.drop_duplicates(["layer", "batch", "level"])
    for way in WAYS:
        count = int((whole["way"] == way.key).sum())
        if count < len(every):
            yield f"{way.label}: {len(every) - count} of {len(every)} steps lack a time of one of their parts."


def _figure(parts: pd.DataFrame, whole: pd.DataFrame, view: View[Steps]) -> Figure:
    """A panel per batch; a group per layer: the sparse step at each level, and the dense one, which is 1."""
    words = "Time over that of the dense fp32 step; sparse bars by their share of zeros, the line is dense TF32."
    caption = f"{words}\n{view.policy_sentence}"
    figure = layout.headed(4.6, view.title, caption)
    batches = sorted(set(parts["batch"]))
    width = 0.91 / len(batches)
    for place, batch in enumerate(batches):
        axis = figure.add_axes((0.065 + place * width, 0.24, width - 0.03, 0.515))
        here = parts[parts["batch"] == batch]
        _bars(axis, here, whole[whole["batch"] == batch])
        axis.set_title(f"batch {batch}")
        axis.grid(axis="y")
        if not place:
            axis.set_ylabel("time over dense fp32")
        else:
            axis.tick_params(labelleft=False)
    top = max((axis.get_ylim()[1] for axis in figure.axes), default=1.0)
    for axis in figure.axes:
        axis.set_ylim(0, top)
    handles = [Patch(color=COLOURS[step]) for step in STEPS]
    layout.legend_below(figure, handles, [words.capitalize() for words in STEPS.values()], columns=3)
    return figure


def _bars(axis: Axes, parts: pd.DataFrame, whole: pd.DataFrame) -> None:
    layers, levels = list(dict.fromkeys(parts["layer"])), sorted(set(parts["level"]))
    each_width = 0.8 / (len(levels) + 1)
    ticks, names = [], []
    for place, layer in enumerate(layers):
        mine = whole[(whole["layer"] == layer)].set_index(["way", "level"])["median_us"]
        for number_, (way, level) in enumerate([*((BEST, level) for level in levels), (DENSE, levels[-1])]):
            x = place + (number_ - len(levels) / 2) * each_width
            if (DENSE.key, level) not in mine.index:
                continue
            rows = parts[(parts["layer"] == layer) & (parts["way"] == way.key) & (parts["level"] == level)]
            us = rows.set_index("step")["median_us"]
            base = 0.0
            for step in STEPS:
                height = float(us.get(step, 0.0)) / float(mine[DENSE.key, level])
                axis.bar([x], [height], 0.92 * each_width, bottom=base, color=COLOURS[step])
                base += height
            ticks.append(x)
            names.append("dense" if way is DENSE else f"{100 * level:g}")
        if (TF32.key, levels[-1]) in mine.index and (DENSE.key, levels[-1]) in mine.index:
            ratio = float(mine[TF32.key, levels[-1]]) / float(mine[DENSE.key, levels[-1]])
            axis.plot([place - 0.45, place + 0.45], [ratio, ratio], color=style.INK, lw=1.2)
        if not any((DENSE.key, level) in mine.index for level in levels):
            axis.text(place, 0.05, "not recorded", rotation=90, ha="center", va="bottom", color=style.MUTED)
        axis.text(
            place, -0.235, layer, transform=axis.get_xaxis_transform(), ha="center", va="top", fontsize=8.5
        )  # fmt: skip
    axis.axhline(1, color=style.MUTED, lw=0.8)
    axis.set_xticks(ticks, names, rotation=90, fontsize=7.5)
    axis.set_xlim(-0.55, len(layers) - 0.45)


def _intro(view: View[Steps]) -> str:
    return (
        "What does a training step of one sparse layer cost? Three products of a recurrent layer's weights W (M×K, "
        "uniformly random pattern) with a batch: Y = W X forward, Wᵀ times the gradient of Y backward, and the "
        "gradient of W at its nonzeros (SDDMM; of all weights where W is dense). Kernels take W as data, because it "
        "changes with every step: `sputnik_transposed` reads W through a cached transposed structure (section IX of "
        "*Sparse GPU Kernels for Deep Learning*), while cuSPARSE is given Wᵀ stored, whose making is not timed. Each "
        "part is the fastest variant's own time; a step is their sum, without the update of the weights. There are "
        "no published numbers."
    )


def _summary(view: View[Steps]) -> pd.DataFrame:
    parts = [part.reindex(columns=list(COLUMNS)) for part in (view.data.parts, view.data.gains) if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(COLUMNS))


PAGE = PageSpec(
    lead=leads.TRAINING_STEP,
    title="A training step of one sparse layer",
    intro=_intro,
    data=collect,
    sections=(SectionSpec("step", "Training step of recurrent layers, sparse over dense", _show),),
    summary=_summary,
    series=lambda view: [way.series for way in WAYS],
)
