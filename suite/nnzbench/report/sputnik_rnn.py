"""Sputnik's figure 10 redrawn: SpMM and SDDMM of recurrent layers against cuSPARSE, one bar per problem."""

from __future__ import annotations

import pandas as pd

from nnzbench import tables as problem_tables
from nnzbench.problem_names import case_of
from nnzbench.report import baselines, context, layout, style, tables
from nnzbench.report.figures import SpeedupTable, speedup_figure
from nnzbench.report.frames import ResultSet, each, percent, size_of
from nnzbench.report.pages import Page, Section
from nnzbench.report.series import geometric_means, speedup_series, speedups
from nnzbench.report.sputnik_speedups import SDDMM, SPMM, Kind, paper_rows, peak, statistics, table

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
    )


def _label(label: str) -> str:
    """`1k` of `sddmm_rnn1k_b32`; sizes and model stand beside it."""
    words = label.removeprefix("sddmm_").partition("_")[0]
    return "".join(words.partition(model)[2] for model in MODELS if words.startswith(model)) or words


def build(results: ResultSet) -> tuple[Page, pd.DataFrame]:
    """Draws one figure per operation and policy and describes the page."""
    gpu = context.gpu_name(results.gpu, results.environment)
    sections, drawn, gaps = [], [], []
    for kind in (SPMM, SDDMM):
        if not kind.rows(results.frame)["median_us"].notna().any():
            gaps.append(f"{kind.title}: no time is recorded, so nothing of it is drawn.")
            continue
        found, beside = tabulate(results, kind), tabulate(results, kind, beside=True)
        drawn += [tables.drawn_rows(one).assign(op=kind.op) for one in (found, beside) if len(one.problems)]
        for policy in context.policies(kind.rows(results.frame)):
            sections.append(_section(results, kind, found, beside, policy, gpu))
            gaps += _gaps(kind, found, policy)
    if not drawn:
        drawn = [pd.DataFrame(columns=["op", *tables.POINT_COLUMNS])]
    return Page(
        title=f"Sputnik figure 10 on {gpu}",
        intro=(
            "Products with the weights of RNN, GRU and LSTM layers, state sizes 1k to 8k, batch 32 and 128, uniformly "
            "random patterns with 70, 80 and 90 % zeros: SpMM as in the forward pass and SDDMM as in the gradient of "
            "the weights (figure 10 of *Sparse GPU Kernels for Deep Learning*, SC 2020). Sizes are M×K×N; for SDDMM "
            "the pattern is M×N and K the length of the dot products. The paper's other rivals, MergeSpmm and ASpT, "
            "are not part of this suite."
        ),
        sections=tuple(sections),
        gaps=tuple(gaps),
    ), pd.concat(drawn, ignore_index=True)


def _section(
    results: ResultSet, kind: Kind, found: SpeedupTable, beside: SpeedupTable, policy: str, gpu: str
) -> Section:
    stem = layout.stem(kind.op, policy)
    title = f"{kind.title.partition(',')[0]} of recurrent layers on {gpu}, {policy} policy"
    caption = f"Speed-up over {found.baseline_text}.\n{context.sentence(context.policy_text(policy))}"
    own_sizes = len(found.problems) > 0
    if own_sizes:
        with style.styled():
            style.save(speedup_figure(found, policy, title, caption), results.folder / stem)
    mine = results.frame[results.frame["problem"].isin(set(found.problems["problem"]))]
    levels = dict.fromkeys(found.problems["level"])
    parts = [f"{percent(level)} zeros:\n\n{tables.speedups(found, policy, level)}" for level in levels]
    if len(beside.problems):
        more = dict.fromkeys(beside.problems["level"])
        parts += [
            f"Further sizes, not the paper's, {percent(level)} zeros:\n\n{tables.speedups(beside, policy, level)}"
            for level in more
        ]
    against = baselines.against(found, policy) if own_sizes else ""
    return Section(
        heading=f"{kind.title.partition(',')[0]}, {policy} policy",
        figure=stem if own_sizes else "",
        figure_alt=title,
        text=_finding(kind, mine, policy) if own_sizes else "None of the paper's own sizes is recorded yet.",
        tables=(
            table(statistics(kind, mine, policy), paper_rows(kind)) if own_sizes else "",
            f"By share of zeros:\n\n{against}" if against else "",
            *parts,
        ),
    )


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


def _gaps(kind: Kind, found: SpeedupTable, policy: str) -> list[str]:
    points = found.points[found.points["policy"] == policy]
    out = []
    for key, label in ((kind.cusparse.key, "cuSPARSE"), ("best", "this project's kernels")):
        have = set(points.loc[points["series"] == key, "problem"])
        lost = [row for row in each(found.problems) if row.problem not in have]
        if lost:
            words = ", ".join(f"{row.size} at {percent(row.level)}" for row in lost[:6])
            more = f" and {len(lost) - 6} more" if len(lost) > 6 else ""
            out.append(f"{kind.title} ({policy}): no time of {label} for {words}{more}.")
    return out
