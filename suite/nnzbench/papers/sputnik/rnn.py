"""Sputnik's figure 10 redrawn: SpMM and SDDMM of recurrent layers against cuSPARSE, one bar per problem."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd

from nnzbench.papers.sputnik import leads
from nnzbench.papers.sputnik.speedups import (
    SDDMM,
    SPMM,
    Kind,
    paper_rows,
    peak,
    published_rows,
    statistics,
    table,
    times,
)
from nnzbench.problems import tables as problem_tables
from nnzbench.problems.names import case_of
from nnzbench.report import generic
from nnzbench.report.data import context
from nnzbench.facts.results import ResultSet, each, geometric_mean, percent, size_of
from nnzbench.report.data.series import COLUMN_DEFAULT, geometric_means, kernel_label, speedup_series, speedups
from nnzbench.report.draw.figures import SpeedupTable, drawn_times, names_of, speedup_figure
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, TableOf, View
from nnzbench.report.text import baselines, tables

RIVALS = {"merge_spmm": "mergespmm", "aspt": "aspt", "aspt_sddmm": "aspt"}
"""What the published table calls another paper's kernel, in lower case."""
AS_CALLED = {"spmm": COLUMN_DEFAULT, "sddmm": "sddmm_default"}
"""Variant of cuSPARSE that the paper's call stands for, by operation."""
MODELS = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM"}
BESIDE = "extra"
"""Model of the table's further sizes, which are not the paper's."""


def tabulate(results: ResultSet, kind: Kind, beside: bool = False) -> SpeedupTable:
    """The recorded problems of the paper (or those beside them) in its order, against the best cuSPARSE algorithm."""
    known = {case_of(row.problem.name): row for row in problem_tables.rows(results.experiment)}
    order = {case: place for place, case in enumerate(known)}
    frame = kind.rows(results.frame)
    problems = frame[["problem", "m", "k", "n", "shape", "sparsity", "source"]].drop_duplicates("problem")
    problems = problems.assign(case=problems["problem"].map(case_of))
    wanted = [case for case, row in known.items() if (row.model == BESIDE) == beside]
    problems = problems[problems["case"].isin(wanted)]
    problems = problems.sort_values("case", key=lambda cases: cases.map(order), kind="stable", ignore_index=True)
    problems["level"] = [known[case].problem.sparsity for case in problems["case"]]
    problems["model"] = [MODELS.get(known[case].model, "") for case in problems["case"]]
    problems["label"] = [_label(known[case].problem.label) for case in problems["case"]]
    problems["size"] = [size_of(row) for row in each(problems)]
    problems = problems.sort_values("level", kind="stable", ignore_index=True)
    series = speedup_series(frame, kind.cusparse)
    place = {name: at for at, name in enumerate(problems["problem"])}
    (paper,) = (one for one in each(published_rows(kind)) if one.baseline == "cuSPARSE")
    rows = speedups(frame, series, kind.cusparse)
    points = rows.merge(problems[["problem", "label", "level", "model"]], on="problem")
    points["place"] = points["problem"].map(place)
    points = points.sort_values(["policy", "place", "position"], kind="stable", ignore_index=True)
    return SpeedupTable(
        problems=problems,
        points=points,
        means=geometric_means(points, problems),
        series=tuple(series),
        baseline=kind.cusparse,
        baseline_text="the fastest of cuSPARSE's algorithms",
        subject=kind.kernel,
        paper_mean=(f"the paper, {paper.gpu}: mean of all", float(paper.geomean_speedup)),
    )


def _label(label: str) -> str:
    """`1k` of `sddmm_rnn1k_b32`; sizes and model stand beside it."""
    words = label.removeprefix("sddmm_").partition("_")[0]
    return "".join(words.partition(model)[2] for model in MODELS if words.startswith(model)) or words


Operations = dict[str, tuple[SpeedupTable, SpeedupTable]]
"""By operation: the table of the paper's problems and that of the ones beside them; none for what has no time."""


def collect(results: ResultSet) -> Operations:
    """The tables of both operations."""
    known = [kind for kind in (SPMM, SDDMM) if kind.rows(results.frame)["median_us"].notna().any()]
    return {kind.op: (tabulate(results, kind), tabulate(results, kind, beside=True)) for kind in known}


def _section(kind: Kind) -> SectionSpec[Operations]:
    word = kind.title.partition(",")[0]
    group = int(kind is SDDMM)
    return SectionSpec(kind.op, f"{word} of recurrent layers", partial(_show, kind), heading=word, group=group)


def _show(kind: Kind, view: View[Operations]) -> Shown | None:
    rows, policy = kind.rows(view.frame), view.policy
    if kind.op not in view.data or policy not in context.policies(rows):
        return None
    found, beside = view.data[kind.op]
    own_sizes = len(found.problems) > 0
    more = [*generic.by_level(found, view), *generic.by_level(beside, view, "Further sizes, not the paper's, ")]
    if not own_sizes:
        return Shown(None, "None of the paper's own sizes is recorded yet.", more)
    mine = view.frame[view.frame["problem"].isin(set(found.problems["problem"]))]
    caption = f"Speed-up over {found.baseline_text}.\n{view.policy_sentence}"
    against = baselines.against(found, policy)
    products = view.frame[view.frame["op"] == kind.op]
    levels = dict(zip(found.problems["problem"], found.problems["level"], strict=True))
    drawn = found.points[found.points["policy"] == policy]
    half = baselines.in_half(products, policy, levels)
    rivals = _over_cusparse(kind, mine, policy)
    return Shown(
        speedup_figure(found, policy, view.title, caption) if drawn["speedup"].notna().any() else None,
        " ".join(filter(None, (_finding(kind, mine, policy), _rivals_finding(rivals)))),
        (
            TableOf(table(statistics(kind, mine, policy), paper_rows(kind)), drawn),
            TableOf(f"By share of zeros:\n\n{against}" if against else "", drawn),
            TableOf(f"The same products with fp16 values and fp32 sums:\n\n{half}" if half else "", products),
            *more,
        ),
        _gaps(kind, found, policy),
        drawn=[drawn_times(found, policy)],
        names=names_of(found),
    )


def _summary(view: View[Operations]) -> pd.DataFrame:
    parts = [
        tables.drawn_rows(one).assign(op=op) for op, both in view.data.items() for one in both if len(one.problems)
    ]
    return pd.concat(parts or [pd.DataFrame(columns=["op", *tables.POINT_COLUMNS])], ignore_index=True)


def _finding(kind: Kind, frame: pd.DataFrame, policy: str) -> str:
    stats = statistics(kind, frame, policy)
    (paper,) = (row for row in paper_rows(kind) if row[1] == "cuSPARSE")
    row = next(each(stats[(stats["rival"] == kind.cusparse.key) & (stats["series"] == "best")]))
    if not row.count:
        return "No problem has a checked time of both this project's kernels and cuSPARSE."
    return (
        f"Over {row.count} problems the best of this project's kernels is {row.geometric_mean:.2f}× as fast as "
        f"cuSPARSE's fastest algorithm in geometric mean and {peak(row.peak)} at best; the paper reports {paper[2]} "
        f"and {paper[3]} over the cuSPARSE of CUDA 10.1 on a V100."
    )


@dataclass(frozen=True)
class Rival:
    """Another paper's kernel as figure 10 shows it, against cuSPARSE, in geometric mean; NaN where nothing is known."""

    name: str
    default: float
    """Over what the paper calls: the library's default algorithm, of SpMM on column-major operands."""
    best: float
    """Over the fastest of all algorithms and layouts."""
    paper: float
    """What the paper's own kernel gains over cuSPARSE, over what it gains over this one."""


def _over_cusparse(kind: Kind, frame: pd.DataFrame, policy: str) -> list[Rival]:
    rows = kind.rows(frame)
    rows = rows[rows["policy"] == policy]
    called = replace(kind.cusparse, variants=AS_CALLED[kind.op])
    default, best = times(rows, called), times(rows, kind.cusparse)
    printed = {row[1].lower(): float(row[2].removesuffix("×")) for row in paper_rows(kind)}
    return [
        Rival(
            one.kernel,
            geometric_mean((default / own).dropna()),
            geometric_mean((best / own).dropna()),
            printed["cusparse"] / printed[RIVALS[one.kernel]],
        )
        for one in kind.rivals
        for own in [times(rows, one)]
    ]


def _rivals_finding(rivals: Sequence[Rival]) -> str:
    known = [one for one in rivals if not math.isnan(one.default)]
    if not known:
        return ""
    words = (
        f"{kernel_label(one.name)} is {one.default:.2f}× as fast as cuSPARSE's default algorithm as the paper calls it "
        f"(in its figure {one.paper:.2f}×) and {one.best:.2f}× as its fastest algorithm of today"
        for one in known
    )
    return f"{'; '.join(words)}."


def _gaps(kind: Kind, found: SpeedupTable, policy: str) -> Iterator[str]:
    points = found.points[found.points["policy"] == policy]
    for key, label in ((kind.cusparse.key, "cuSPARSE"), ("best", "this project's kernels")):
        have = set(points.loc[points["series"] == key, "problem"])
        lost = [row for row in each(found.problems) if row.problem not in have]
        if lost:
            words = ", ".join(f"{row.size} at {percent(row.level)}" for row in lost[:6])
            more = f" and {len(lost) - 6} more" if len(lost) > 6 else ""
            yield f"{kind.title} ({policy}): no time of {label} for {words}{more}."


PAGE = PageSpec(
    lead=leads.RNN,
    title="Sputnik figure 10",
    intro=(
        "Products with the weights of RNN, GRU and LSTM layers, state sizes 1k to 8k, batch 32 and 128, uniformly "
        "random patterns with 70, 80 and 90 % zeros: SpMM as in the forward pass and SDDMM as in the gradient of "
        "the weights (figure 10 of *Sparse GPU Kernels for Deep Learning*, SC 2020). Sizes are M×K×N; for SDDMM "
        "the pattern is M×N and K the length of the dot products. MergeSpMM and ASpT, the paper's other rivals, "
        "are written anew after their papers and the authors' code; ASpT's inspection is outside its times."
    ),
    data=collect,
    sections=(_section(SPMM), _section(SDDMM)),
    by_section=True,
    gaps=lambda view: [
        f"{kind.title}: no time is recorded, so nothing of it is drawn."
        for kind in (SPMM, SDDMM)
        if kind.op not in view.data
    ],
    summary=_summary,
    series=lambda view: [*SPMM.named, *SDDMM.named],
)
