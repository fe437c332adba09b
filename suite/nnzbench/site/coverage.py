"""What a GPU's records have of what the catalogue runs: every cell is timed, refused, failed or missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from nnzbench import paths
from nnzbench.facts.results import each
from nnzbench.kernels.registry import kernels
from nnzbench.matrices.formats import MatrixError
from nnzbench.measure.sweep import Choice, plan_work
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.problems.problem import case_of
from nnzbench.records import shown
from nnzbench.records.files import records_file
from nnzbench.records.folder import refuse_links
from nnzbench.records.record import frame_of, is_fault
from nnzbench.records.selection import few
from nnzbench.report.data import context
from nnzbench.report.data.text import folded, markdown

FILE = "coverage.md"
REASONS = 3
"""Reasons that the page prints per kernel and dtype, most frequent first; the records have all."""

INTRO = """\
A cell is a problem of an experiment's table (of its sample, where the default run is one) in one type, a kernel that
the experiment runs on it, and a policy. It is *timed* where a checked candidate has a time, *refused* where
every row says why the kernel can't, *failed* where something else came of it, and *missing* where there is no row.
Whether a pattern is the real one or a stand-in makes no difference here. `coverage.csv` counts the cells.
"""


class Cell(NamedTuple):
    """What is to be measured once."""

    case: str
    dtype: str
    kernel: str
    policy: str


@cache
def expected(experiment: str) -> tuple[Cell, ...]:
    """The cells of one experiment, in the order of its table; none for what is not listed or runs nothing."""
    listed = EXPERIMENTS.get(experiment)
    if listed is None or not listed.kernels:
        return ()
    try:
        work = plan_work(listed, kernels(), Choice())
    except MatrixError:  # no problem table, as for what a test or a user declares
        return ()
    return tuple(
        Cell(case_of(problem.name), problem.dtype, kernel, policy)
        for problem, names in work
        for kernel in names
        for policy in listed.policies
    )


def states(experiment: str, records: pd.DataFrame) -> dict[Cell, str]:
    """`timed`, `refused`, `failed` or `missing` of every expected cell."""
    found: dict[Cell, set[str]] = {}
    columns = ["problem", "dtype", "kernel", "policy", "status"]
    for problem, dtype, kernel, policy, status in records[columns].drop_duplicates().itertuples(index=False):
        found.setdefault(Cell(case_of(problem), dtype, kernel, policy), set()).add(status)
    return {cell: _state(cell.kernel, found.get(cell, set())) for cell in expected(experiment)}


def _state(kernel: str, statuses: set[str]) -> str:
    if "ok" in statuses:
        return "timed"
    if any(is_fault(status, kernel) for status in statuses):
        return "failed"
    return "refused" if statuses else "missing"


class Counted(NamedTuple):
    """What one experiment's records have of its cells."""

    cells: pd.DataFrame
    """A row per kernel, dtype and policy with the number of cells in each state."""
    reasons: list[list[str]]
    """Experiment, kernel, dtype and the reasons of rows without a time, most frequent first."""


def count(experiment: str, records: pd.DataFrame) -> Counted:
    """Counts the cells of one experiment once, for its page and for the GPU's."""
    return Counted(_counts(states(experiment, records)), _reasons(experiment, records))


def gaps(counted: Counted) -> list[str]:
    """A sentence for the experiment's page: which kernels lack a policy, or several, on how many of their problems."""
    lacking: dict[str, list[str]] = {}
    for policy, cells in counted.cells.groupby("policy", sort=False):
        mine = cells[cells["missing"] > 0]
        if mine.empty:
            continue
        if len(cells) > 1 and (cells["missing"] == cells["expected"]).all():
            what = "any kernel on any problem"
        else:
            what = few([f"`{row.kernel}` {row.dtype} on {_share(row.missing, row.expected)}" for row in each(mine)])
        lacking.setdefault(what, []).append(str(policy))
    return [
        f"Not measured {', '.join(policies)} ([coverage](../{FILE})): {what}." for what, policies in lacking.items()
    ]


def _share(missing: int, expected: int) -> str:
    return f"{'all' if missing == expected else missing} of {expected}"


def _counts(found: dict[Cell, str]) -> pd.DataFrame:
    names = ["timed", "refused", "failed", "missing"]
    counted: dict[tuple[str, str, str], Counter[str]] = {}
    for cell, state in found.items():
        counted.setdefault((cell.kernel, cell.dtype, cell.policy), Counter())[state] += 1
    rows = [[*key, sum(count.values()), *(count[name] for name in names)] for key, count in counted.items()]
    return pd.DataFrame(rows, columns=["kernel", "dtype", "policy", "expected", *names])


def write(reports: Path, gpu: str, known: Mapping[Path, Counted]) -> Path:
    """Writes `<reports>/<gpu>/coverage.md` and `coverage.csv` from the records of every experiment of the catalogue.

    `known` has what is counted already, by folder; the others' records are read.
    """
    path = reports / gpu / FILE
    tables, reasons = [], []
    for name in EXPERIMENTS:
        if not expected(name):
            continue
        counted = known.get(reports / gpu / name) or count(name, _records(reports / gpu / name))
        tables.append(counted.cells.assign(experiment=name)[["experiment", *counted.cells]])
        reasons += counted.reasons
    whole = pd.concat(tables, ignore_index=True)
    paths.write_csv(whole, path.with_suffix(".csv"))
    paths.write_text(path, _page(context.gpu_name(gpu, {}), whole, reasons))
    return path


def _records(folder: Path) -> pd.DataFrame:
    source = records_file(folder)
    refuse_links(source, folder)
    return shown.read(source) if source.is_file() else frame_of([])


def _reasons(experiment: str, records: pd.DataFrame) -> list[list[str]]:
    wanted = set(expected(experiment))
    found: dict[tuple[str, str], Counter[str]] = {}
    for row in each(records[records["status"] != "ok"]):
        if Cell(case_of(row.problem), row.dtype, row.kernel, row.policy) in wanted:
            found.setdefault((row.kernel, row.dtype), Counter())[row.reason or row.status] += 1
    lines = []
    for (kernel, dtype), count in found.items():
        said = [f"{reason} ({times} rows)" for reason, times in count.most_common(REASONS)]
        rest = len(count) - len(said)
        lines.append([experiment, kernel, dtype, "; ".join(said) + (f"; {rest} more" if rest else "")])
    return lines


def _page(gpu: str, whole: pd.DataFrame, reasons: list[list[str]]) -> str:
    numbers = ["expected", "timed", "refused", "failed", "missing"]
    sums = whole.groupby("experiment", sort=False)[["missing", "expected"]].sum()
    none = sums["missing"] == sums["expected"]
    unrecorded = [f"`{name}`" for name in whole["experiment"].unique() if none[name]]
    whole = whole[~whole["experiment"].map(none)]
    total = whole[numbers].sum()
    cold = whole[whole["policy"] == "cold"][numbers].sum()
    head = (
        f"Of {total['expected']:,} cells {total['timed']:,} are timed, {total['refused']:,} refused with a reason and "
        f"{total['failed']:,} failed; {total['missing']:,} are missing ({_percent(total)}), {cold['missing']:,} of "
        f"them under the cold policy ({_percent(cold)} of those)."
    )
    per = whole.groupby(["experiment", "policy"], sort=False)[numbers].sum().reset_index()
    overview = [
        [row["experiment"], row["policy"], *(f"{row[name]:,}" for name in numbers), _percent(row)]
        for _, row in per.iterrows()
    ]
    lacking = whole[whole["missing"] > 0]
    lines = [
        [row["experiment"], row["kernel"], row["dtype"], row["policy"], *(f"{row[name]:,}" for name in numbers)]
        for _, row in lacking.iterrows()
    ]
    missing = markdown(["experiment", "kernel", "inputs", "policy", *numbers], lines, left=4)
    refused = markdown(["experiment", "kernel", "inputs", "why not"], reasons, left=4)
    parts = [
        f"# Coverage on {gpu}",
        f"**{head}**",
        *([f"Not recorded on this GPU, and not counted here: {', '.join(unrecorded)}."] if unrecorded else []),
        INTRO.rstrip(),
        "## By experiment",
        folded(
            markdown(["experiment", "policy", *numbers, "missing, %"], overview, left=2), "Cells of each experiment"
        ),
        "## Where cells are missing",
        folded(missing, "By kernel") if lines else "Nowhere.",
        "## Reasons",
        folded(refused, "Why kernels were refused") if reasons else "None.",
    ]
    return "\n\n".join(parts) + "\n"


def _percent(row: pd.Series[int]) -> str:
    return f"{100 * row['missing'] / row['expected']:.1f} %" if row["expected"] else "0 %"
