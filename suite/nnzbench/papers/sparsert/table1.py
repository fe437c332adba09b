"""SparseRT's Table 1 and figures 4 to 6 redrawn: products of the layers of three pruned networks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from nnzbench.papers.sparsert import figures as sparsert_figures
from nnzbench.papers.sparsert import leads, standin
from nnzbench.papers.sparsert.tables import named
from nnzbench.papers.sparsert.values import COLUMNS, PAPER_GPU, SPARSERT, Compared, Measured, drawn
from nnzbench.records.files import folders, has_records, records_file
from nnzbench.records.record import RecordError
from nnzbench.report import generic
from nnzbench.report.data import context, published
from nnzbench.report.data.frames import GPU_DEVICES, ResultSet, each, geometric_mean, load, percent, size_of
from nnzbench.report.data.series import BEST, Series, geometric_means, speedup_series, speedups
from nnzbench.report.draw.figures import SpeedupTable, drawn_times, speedup_figure
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, TableOf, View
from nnzbench.report.text import baselines, tables

BASELINE = Series("cublas-f32", "cuBLAS fp32", ("cublas",), "f32")
BASELINE_TEXT = "cuBLAS fp32, its default algorithm, better of both weight layouts"
MODELS = {"resnet50": "ResNet-50", "transformer": "Transformer", "mobilenet_v1": "MobileNet V1"}


def table1(results: ResultSet) -> SpeedupTable:
    """Matches the records to the paper's 31 rows by size and sparsity level and computes every speed-up."""
    frame = results.frame
    recorded = frame[["problem", "m", "k", "n", "sparsity", "source"]].drop_duplicates("problem")
    try:
        problems = published.match(recorded, published.sparsert_table1())
    except RecordError as error:
        raise RecordError(f"{records_file(results.folder)}: {error}") from None
    problems["model"] = [MODELS.get(model, model) for model in problems["model"]]
    problems["size"] = [size_of(row) for row in each(problems)]
    series = speedup_series(frame, BASELINE)
    rows = speedups(frame, series, BASELINE)
    points = rows.merge(problems[["problem", "label", "level", "model"]].dropna(subset=["problem"]), on="problem")
    points = points.sort_values(["policy", "level", "label", "position"], kind="stable", ignore_index=True)
    return SpeedupTable(
        problems=problems,
        points=points,
        means=geometric_means(points, problems),
        series=tuple(series),
        baseline=BASELINE,
        baseline_text=BASELINE_TEXT,
        paper_label="SparseRT paper, T4",
        told=SPARSERT,
    )


def collect(results: ResultSet) -> Compared:
    """This GPU's Table 1, and all that figures 4 to 6 draw of it and of other GPUs."""
    gpu = context.gpu_name(results.gpu, results.environment)
    here, others = Measured(results.gpu, gpu, table1(results)), _others(results)
    return Compared(here, others, drawn(here, others, context.policies(results.frame)))


def _speedup_rows(table: SpeedupTable, gpu: str) -> pd.DataFrame:
    """The rows of the speed-up figure in the columns that all figures of the page share."""
    rows = tables.drawn_rows(table)
    gpus = [PAPER_GPU if series == "paper" else gpu for series in rows["series"]]
    return rows.assign(figure="speedup", gpu=gpus, baseline=table.baseline.key)


def _others(results: ResultSet) -> Sequence[Measured]:
    """The same experiment on every other GPU that has times of it, by slug."""
    found = []
    for folder in folders(results.folder.parent.parent, f"*/{results.experiment}"):
        if folder == results.folder:
            continue
        other = load(folder)
        if other.device in GPU_DEVICES and other.experiment == results.experiment and other.gpu != results.gpu:
            found.append(Measured(other.gpu, context.gpu_name(other.gpu, other.environment), table1(other)))
    return found


def _show(view: View[Compared]) -> Shown:
    table, policy = view.data.here.table, view.policy
    caption = f"Speed-up over {BASELINE_TEXT}. Sizes are M×K×N.\n{view.policy_sentence}"
    drawn = table.points[table.points["policy"] == policy]
    return Shown(
        speedup_figure(table, policy, view.title, caption),
        _finding(table, policy)
        + "\n\nThe same best sparse kernel against each rival (geometric mean of the ratio of times per problem):",
        (
            TableOf(baselines.against(table, policy), drawn),
            TableOf(f"Every series against {BASELINE_TEXT}:\n\n{tables.means(table, policy)}", drawn),
            *generic.by_level(table, view),
        ),
        drawn=[drawn_times(table, policy)],
    )


def _finding(table: SpeedupTable, policy: str) -> str:
    sentences = []
    for level in dict.fromkeys(table.problems["level"]):
        found = table.means[
            (table.means["policy"] == policy) & (table.means["level"] == level) & (table.means["series"] == BEST.key)
        ]
        paper = table.problems.loc[table.problems["level"] == level, "paper_speedup"].dropna()
        if found.empty or not found["count"].iloc[0]:
            sentences.append(f"At {percent(level)} zeros no speed-up can be stated: {_why_not(table, policy, level)}.")
            continue
        row = found.iloc[0]
        sentences.append(
            f"At {percent(level)} zeros the best of this project's kernels is {row['geometric_mean']:.2f}× as fast as "
            f"cuBLAS fp32 in geometric mean over {row['count']} problems ({row['faster']} of them faster); the paper "
            f"reports {geometric_mean(paper):.1f}× on a T4."
        )
    return " ".join(sentences)


def _why_not(table: SpeedupTable, policy: str, level: float) -> str:
    points = table.points[(table.points["policy"] == policy) & (table.points["level"] == level)]
    if not (points["series"] == BEST.key).any():
        return "no kernel of this project has a checked time"
    return "the baseline has no checked time"


def _standin(view: View[Compared]) -> Shown | None:
    results, folder = view.results, view.results.folder / "standin"
    if not has_records(folder):
        return None
    other = load(folder)
    if (other.gpu, other.experiment) != (results.gpu, results.experiment):
        raise RecordError(f"{records_file(folder)}: not a run of {results.experiment} on {results.gpu}")
    found = standin.compare(view.data.here.table, table1(other), view.policies[0])
    return None if found is None else Shown(None, found.paragraph, (found.table,))


def _intro(view: View[Compared]) -> str:
    return (
        "31 products of a pruned weight matrix (M×K) with a dense activation matrix (K×N): the 20 layer shapes of "
        "ResNet-50, Transformer and MobileNet V1 in Table 1 of *SparseRT: Accelerating Unstructured Sparsity on "
        "GPUs for Deep Learning Inference* (PACT 2020) with 90 % zeros, and 11 of them with 95 %. "
        f"Weights: {_sources(view.frame)}."
    )


def _summary(view: View[Compared]) -> pd.DataFrame:
    own = _speedup_rows(view.data.here.table, view.data.here.gpu)
    both = pd.concat([own, view.data.drawn.dropna(axis=1, how="all")], ignore_index=True)
    return both.reindex(columns=list(COLUMNS))


def _sources(frame: pd.DataFrame) -> str:
    words = {
        "dlmc": "real pruned patterns of the Deep Learning Matrix Collection",
        "weights": "real pruned weights",
        "standin": "calibrated stand-ins",
        "uniform": "uniformly random patterns",
    }
    kinds = frame.drop_duplicates("problem")["source"].str.partition(":")[0]
    counts = kinds.value_counts().sort_index()
    return ", ".join(f"{words.get(str(kind), str(kind))} ({count} problems)" for kind, count in counts.items())


def _names(problems: pd.DataFrame) -> dict[str, str]:
    return {
        row.problem: f"{row.label} at {percent(row.level)}" for row in each(problems) if isinstance(row.problem, str)
    }


def _gaps(view: View[Compared]) -> Iterator[str]:
    """Problems not recorded, and times that the figures can't place."""
    table = view.data.here.table
    for row in each(table.problems):
        if not isinstance(row.problem, str):
            yield f"Problem {row.label} at {percent(row.level)} ({row.m}×{row.k}×{row.n}) has no records."
    for policy, group in table.points.groupby("policy", sort=True):
        lost = group[group["speedup"].map(math.isnan)].drop_duplicates("problem")
        names = ", ".join(f"{row.label} at {percent(row.level)}" for row in each(lost))
        if names:
            yield f"No {BASELINE.label} time ({policy}) for problem {names}: no speed-up is stated there."
        sparse = group[group["series"] == BEST.key]["problem"]
        without = [name for key, name in _names(table.problems).items() if key not in set(sparse)]
        if without:
            yield f"No kernel of this project has a checked time ({policy}) for problem {', '.join(without)}."


PAGE = PageSpec(
    lead=leads.TABLE1,
    title="SparseRT Table 1",
    intro=_intro,
    data=collect,
    table=table1,
    sections=(
        SectionSpec(
            "speedup",
            "Sparse × dense products of pruned layers",
            _show,
            alt="Speed-up over cuBLAS fp32 per problem",
        ),
        *sparsert_figures.SECTIONS,
        SectionSpec("", "Real patterns and stand-ins", _standin, heading="Real patterns and stand-ins", once=True),
    ),
    gaps=_gaps,
    summary=_summary,
    problem_names=lambda view: _names(view.data.here.table.problems),
    series=lambda view: named(),
)
