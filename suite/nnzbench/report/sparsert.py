"""SparseRT's Table 1 and figures 4 to 6 redrawn: products of the layers of three pruned networks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from nnzbench.record import RecordError
from nnzbench.report import baselines, context, layout, published, sparsert_figures, standin, style, tables
from nnzbench.report.figures import SpeedupTable, speedup_figure
from nnzbench.report.frames import GPU_DEVICES, ResultSet, each, geometric_mean, load, percent, size_of
from nnzbench.report.pages import Page, Section
from nnzbench.report.series import BEST, Series, geometric_means, speedup_series, speedups
from nnzbench.report.sparsert_values import COLUMNS, PAPER_GPU, Measured, drawn

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
        raise RecordError(f"{results.folder / 'records.csv'}: {error}") from None
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
    )


def build_table1(results: ResultSet) -> tuple[Page, pd.DataFrame]:
    """Draws the figures and tables beside the records and describes the page."""
    table = table1(results)
    gpu = context.gpu_name(results.gpu, results.environment)
    here, others = Measured(results.gpu, gpu, table), _others(results)
    policies = context.policies(results.frame)
    paper_form = drawn(here, others, policies)
    sections = []
    for policy in policies:
        stem = layout.stem("speedup", policy)
        with style.styled():
            title = f"Sparse × dense products of pruned layers on {gpu}, {policy} policy"
            caption = (
                f"Speed-up over {BASELINE_TEXT}. Sizes are M×K×N.\n{context.sentence(context.policy_text(policy))}"
            )
            style.save(speedup_figure(table, policy, title, caption), results.folder / stem)
        sections.append(_section(table, policy, stem, gpu))
        sections += sparsert_figures.sections(here, others, paper_form, policy, results.folder)
    standin_section = _standin(results, table)
    page = Page(
        title=f"SparseRT Table 1 on {gpu}",
        intro=(
            "31 products of a pruned weight matrix (M×K) with a dense activation matrix (K×N): the 20 layer shapes of "
            "ResNet-50, Transformer and MobileNet V1 in Table 1 of *SparseRT: Accelerating Unstructured Sparsity on "
            "GPUs for Deep Learning Inference* (PACT 2020) with 90 % zeros, and 11 of them with 95 %. "
            f"Weights: {_sources(results.frame)}."
        ),
        sections=(*sections, *standin_section),
        gaps=(
            *_gaps(table, results.frame),
            *(gap for policy in policies for gap in sparsert_figures.gaps(here, policy)),
        ),
        problem_names=_names(table.problems),
    )
    summary = pd.concat([_speedup_rows(table, results.gpu), paper_form.dropna(axis=1, how="all")], ignore_index=True)
    return page, summary.reindex(columns=list(COLUMNS))


def _speedup_rows(table: SpeedupTable, gpu: str) -> pd.DataFrame:
    """The rows of the speed-up figure in the columns that all figures of the page share."""
    rows = tables.drawn_rows(table)
    gpus = [PAPER_GPU if series == "paper" else gpu for series in rows["series"]]
    return rows.assign(figure="speedup", gpu=gpus, baseline=table.baseline.key)


def _others(results: ResultSet) -> Sequence[Measured]:
    """The same experiment on every other GPU that has times of it, by slug."""
    found = []
    for path in sorted(results.folder.parent.parent.glob(f"*/{results.experiment}/records.csv")):
        if path.parent == results.folder:
            continue
        other = load(path.parent)
        if other.device in GPU_DEVICES and other.experiment == results.experiment and other.gpu != results.gpu:
            found.append(Measured(other.gpu, context.gpu_name(other.gpu, other.environment), table1(other)))
    return found


def _section(table: SpeedupTable, policy: str, stem: str, gpu: str) -> Section:
    levels = list(dict.fromkeys(table.problems["level"]))
    per_level = [f"{percent(level)} zeros:\n\n{tables.speedups(table, policy, level)}" for level in levels]
    return Section(
        heading=f"{policy.capitalize()} policy",
        figure=stem,
        figure_alt=f"Speed-up over cuBLAS fp32 per problem on {gpu}, {policy} policy",
        text=_finding(table, policy)
        + "\n\nThe same best sparse kernel against each rival (geometric mean of the ratio of times per problem):",
        tables=(
            baselines.against(table, policy),
            f"Every series against {BASELINE_TEXT}:\n\n{tables.means(table, policy)}",
            *per_level,
        ),
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


def _standin(results: ResultSet, table: SpeedupTable) -> list[Section]:
    folder = results.folder / "standin"
    if not (folder / "records.csv").is_file():
        return []
    other = load(folder)
    if (other.gpu, other.experiment) != (results.gpu, results.experiment):
        raise RecordError(f"{folder / 'records.csv'}: not a run of {results.experiment} on {results.gpu}")
    policy = context.policies(results.frame)[0]
    found = standin.compare(table, table1(other), policy)
    if found is None:
        return []
    return [Section("Real patterns and stand-ins", text=found.paragraph, tables=(found.table,))]


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


def _gaps(table: SpeedupTable, frame: pd.DataFrame) -> list[str]:
    """Problems not recorded, records outside the table, and times that the figure can't place."""
    out = []
    for row in each(table.problems):
        if not isinstance(row.problem, str):
            out.append(f"Problem {row.label} at {percent(row.level)} ({row.m}×{row.k}×{row.n}) has no records.")
    known = set(_names(table.problems))
    for name in sorted(set(frame["problem"]) - known):
        out.append(f"`{name}` is in the records but not in the paper's table; it is not drawn.")
    for policy, group in table.points.groupby("policy", sort=True):
        lost = group[group["speedup"].map(math.isnan)].drop_duplicates("problem")
        names = ", ".join(f"{row.label} at {percent(row.level)}" for row in each(lost))
        if names:
            out.append(f"No {BASELINE.label} time ({policy}) for problem {names}: no speed-up is stated there.")
        sparse = group[group["series"] == BEST.key]["problem"]
        without = [name for key, name in _names(table.problems).items() if key not in set(sparse)]
        if without:
            out.append(f"No kernel of this project has a checked time ({policy}) for problem {', '.join(without)}.")
    return out
