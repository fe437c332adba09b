"""Sputnik's table II redrawn: speed without one optimisation as a percentage of the complete kernel's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from nnzbench.papers.sputnik import leads
from nnzbench.problems import tables as problem_tables
from nnzbench.problems.names import case_of, parse
from nnzbench.report.data import context, published
from nnzbench.facts.results import ResultSet, each
from nnzbench.report.data.series import Series, pick
from nnzbench.report.draw import layout, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, View
from nnzbench.report.text.tables import GAP, markdown, number

KERNELS = {"spmm": "sputnik_ablation", "sddmm": "sputnik_sddmm_ablation"}
TITLES = {"spmm": "SpMM", "sddmm": "SDDMM"}
PARTS = {
    "-load_balancing": ("no_load_balancing", "load balancing"),
    "-vector_inst": ("no_vector", "vector instructions"),
    "-residue_unroll": ("no_residue_unroll", "residue unrolling"),
    "-index_prescale": ("no_prescale", "index pre-scaling"),
}
"""The paper's name of each part left out: how its variant starts, and in words."""
SETS = (("transformer", 1), ("transformer", 8), ("resnet50", 1), ("resnet50", 256))
COLOURS = (style.SKY, style.BLUE, style.ORANGE, style.VERMILLION)
NAMES = {"transformer": "Transformer", "resnet50": "ResNet-50"}
NOTHING = 2.0
"""Percentage points round 100 within which leaving a part out counts as no effect."""


def shares(results: ResultSet) -> pd.DataFrame:
    """Per policy, op, part and set: `percent` of the complete kernel's speed, averaged over layers, and the paper's.

    Every layer counts for as many of the paper's matrices as have its shape and level (`count` of the table), so that
    this is the mean over all of them; claims use the same. `layers` have both times, `of` are in the table; `lowest`
    and `highest` are those of single layers.
    """
    layers = _layers()
    frame = results.frame
    timed = frame.assign(stem=frame["problem"].map(case_of))
    paper = published.read("sputnik_table2_ablation", ("kernel", "ablation", "model", "batch", "percent_of_full"))
    expected = layers.groupby(["op", "model", "batch"]).size().to_dict()
    out = []
    for policy in context.policies(frame):
        for printed in each(paper):
            rows = timed[timed["policy"] == policy]
            here = layers[(layers["model"] == printed.model) & (layers["batch"] == printed.batch)].set_index("stem")
            full, without = (
                _times(rows, KERNELS[printed.kernel], start) for start in ("complete", PARTS[printed.ablation][0])
            )
            ratios = (100 * full / without).dropna()
            ratios = ratios[ratios.index.isin(here.index)]
            weights = here["count"].reindex(ratios.index)
            known = len(ratios) > 0
            out.append(
                {
                    "policy": policy,
                    "op": printed.kernel,
                    "part": printed.ablation,
                    "model": printed.model,
                    "batch": printed.batch,
                    "percent": float((ratios * weights).sum() / weights.sum()) if known else math.nan,
                    "lowest": ratios.min(),
                    "highest": ratios.max(),
                    "layers": len(ratios),
                    "of": expected[printed.kernel, printed.model, printed.batch],
                    "paper_percent": printed.percent_of_full,
                }
            )
    found = pd.DataFrame(out)
    found["sign"] = [sign(row.percent, row.paper_percent) for row in each(found)]
    return found


def sign(ours: float, paper: float) -> str:
    """Whether a part helps here as it does in the paper: `same`, `opposite`, `only here`, `only there`, or a dash."""
    if math.isnan(ours):
        return GAP
    here, there = (0 if abs(value - 100) <= NOTHING else int(math.copysign(1, value - 100)) for value in (ours, paper))
    if here == there:
        return "same"
    if here and there:
        return "opposite"
    return "only here" if here else "only there"


def _layers() -> pd.DataFrame:
    """Every layer of the table: name without its source, op, model, batch and how many matrices it stands for."""
    rows = []
    for row in problem_tables.rows("sputnik_ablation"):
        parts = parse(row.problem.name)
        if parts is not None and parts.batch:
            rows.append((case_of(row.problem.name), row.problem.op, row.model, parts.batch, row.count))
    return pd.DataFrame(rows, columns=["stem", "op", "model", "batch", "count"])


def _times(rows: pd.DataFrame, kernel: str, start: str) -> pd.Series[float]:
    """Microseconds by layer of the variant that starts with that word."""
    series = Series(start, start, (kernel,), variants=f"{start}(_|$)")
    return pick(rows, series, by=("stem",)).set_index("stem")["median_us"]


def _show(view: View[pd.DataFrame]) -> Shown:
    here = view.data[view.data["policy"] == view.policy]
    tables = tuple(f"{TITLES[op]}:\n\n{_table(here[here['op'] == op], view.gpu)}" for op in KERNELS)
    return Shown(_figure(here, view.title), _finding(here), tables, _gaps(here), names=_sets(view.frame))


def _sets(frame: pd.DataFrame) -> dict[str, str]:
    """The bars that recorded layers are in: single layers have no name in the figure."""
    of = {row.stem: f"{TITLES[row.op]}, {_set(row.model, row.batch)}" for row in each(_layers())}
    return {name: of[case_of(name)] for name in set(frame["problem"]) if case_of(name) in of}


def _gaps(rows: pd.DataFrame) -> Iterator[str]:
    short = rows[rows["layers"] < rows["of"]]
    for _, group in short.groupby(["op", "model", "batch"], sort=False):
        row = group.iloc[0]
        words = ", ".join(f"{PARTS[one.part][1]} {one.layers} of {one.of}" for one in each(group))
        where = f"{TITLES[row['op']]}, {_set(row['model'], row['batch'])} ({row['policy']})"
        yield f"{where}: layers with both times: {words}."


def _set(model: str, batch: int) -> str:
    return f"{NAMES[model]}, batch {batch}"


def _finding(rows: pd.DataFrame) -> str:
    counts = rows["sign"].value_counts()
    judged = len(rows) - int(counts.get(GAP, 0))
    return (
        f"Of {judged} entries {counts.get('same', 0)} have the paper's sign and {counts.get('opposite', 0)} the "
        f"opposite one; {counts.get('only there', 0)} have an effect on the paper's V100 alone and "
        f"{counts.get('only here', 0)} here alone. Within {NOTHING:g} points of 100 % counts as no effect."
    )


def _table(rows: pd.DataFrame, gpu: str) -> str:
    cells = {(row.part, row.model, row.batch): row for row in each(rows)}
    header = ["without"]
    for model, batch in SETS:
        header += [f"{_set(model, batch)}, {gpu}", "the paper, V100", "sign"]
    out = []
    for part, (_, words) in PARTS.items():
        if not (rows["part"] == part).any():
            continue
        line = [words]
        for model, batch in SETS:
            cell = cells[part, model, batch]
            ours = GAP if math.isnan(cell.percent) else f"**{number(cell.percent, 1)} %**"
            line += [ours, f"{number(cell.paper_percent, 1)} %", cell.sign]
        out.append(line)
    return markdown(header, out)


def _figure(rows: pd.DataFrame, title: str) -> Figure:
    caption = (
        "Speed without the part, as a percentage of the complete kernel's; means over the matrices of a model.\n"
        "Thin lines span single layers. Hollow diamonds: the paper, V100."
    )
    caption += layout.HOLES_OF_BARS * bool(rows["percent"].isna().any())
    figure = layout.headed(4.6, title, caption)
    places: Sequence[tuple[float, float]] = ((0.062, 0.56), (0.69, 0.3))
    for (left, width), op in zip(places, KERNELS, strict=True):
        axis = figure.add_axes((left, 0.2, width, 0.57))
        here = rows[rows["op"] == op]
        parts = list(dict.fromkeys(here["part"]))
        axis.set_title(TITLES[op])
        axis.grid(axis="y")
        axis.axhline(100, color=style.INK, lw=1.2)
        for place, ((model, batch), colour) in enumerate(zip(SETS, COLOURS, strict=True)):
            for x, part in enumerate(parts):
                (row,) = each(here[(here["part"] == part) & (here["model"] == model) & (here["batch"] == batch)])
                at = x + 0.2 * (place - 1.5)
                axis.plot([at], [row.paper_percent], ls="", marker="D", ms=5, mfc="none", mec="#8250df", mew=1.1)
                if math.isnan(row.percent):
                    continue
                axis.bar([at], [row.percent - 100], 0.18, bottom=100, color=colour)
                axis.vlines(at, row.lowest, row.highest, color=style.MUTED, lw=0.8)
        axis.set_xticks(range(len(parts)), [PARTS[part][1].replace(" ", "\n", 1) for part in parts])
        axis.set_xlim(-0.5, len(parts) - 0.5)
        axis.set_ylabel("% of the complete kernel's speed")
    timed = rows[rows["percent"].notna()]
    have = set(zip(timed["model"], timed["batch"], strict=True))
    shown = [(Patch(color=colour), _set(*one)) for one, colour in zip(SETS, COLOURS, strict=True) if one in have]
    paper = Line2D([], [], ls="", marker="D", ms=5, mfc="none", mec="#8250df", mew=1.1), "the paper, V100"
    handles, labels = zip(*shown, paper, strict=True)
    layout.legend_below(figure, handles, labels, columns=5)
    return figure


PAGE = PageSpec(
    lead=leads.ABLATION,
    title="Sputnik table II",
    intro=(
        "What each optimisation of Sputnik's kernels is worth: the heuristic's kernel with one of them switched "
        "off, at inference and training batch sizes (table II of *Sparse GPU Kernels for Deep Learning*, SC 2020). "
        "The paper averages over all 3,012 matrices of its collection; here one matrix of every shape and level of "
        "zeros in it is timed and counts in the arithmetic mean as often as the collection has such matrices. "
        "100 % is the complete kernel's speed; below it, the part is worth having."
    ),
    data=shares,
    sections=(SectionSpec("ablation", "Sputnik without one optimisation at a time", _show),),
)
