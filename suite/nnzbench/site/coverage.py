"""What a GPU's records have of what the catalogue runs: every cell is timed, refused, failed or missing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from nnzbench.bench.sweep import Choice, plan_work
from nnzbench.core import paths
from nnzbench.core.gpus import sheet_peaks
from nnzbench.data.matrices.formats import MatrixError
from nnzbench.data.problems.problem import Problem, case_of
from nnzbench.kernels.registry import about, kernels, of_study
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.report.text import document, folded, gpu_name, markdown
from nnzbench.results.records import sanitise
from nnzbench.results.records.folder import records_file, refuse_links
from nnzbench.results.records.record import frame_of, is_fault
from nnzbench.results.records.selection import few, listed
from nnzbench.results.result_set import each

FILE = "coverage.md"
REASONS = 3
"""Reasons that the page prints per kernel and dtype, most frequent first; the records have all."""

INTRO = """\
A cell is a problem of an experiment's table (of its sample, where the default run is one) in one type, a kernel that
the experiment runs on it, and a policy. A study that sets variants of a kernel against each other, such as those that
leave one of its parts out, has a cell for each of them: `variant` is what their names begin with. A cell is *timed*
where a checked candidate has a time, *refused* where every row says why the kernel can't, *failed* where something else
came of it, and *missing* where there is no row. Of the timed ones those are *untuned* whose run stopped short of the
kernel's candidates. Whether a pattern is the real one or a stand-in makes no difference here. `coverage.csv` counts the
cells.
"""


_OF_KERNEL = ["case", "dtype", "kernel", "policy"]
CELL = [*_OF_KERNEL, "variant"]
"""What is to be measured once: of a study each of its variants by how it begins, of other kernels whichever, empty."""
STATES = ["timed", "refused", "failed", "missing"]
NUMBERS = ["expected", *STATES, "untuned"]


@cache
def expected(experiment: str) -> pd.DataFrame:
    """The cells of one experiment (columns `CELL`), in the order of its table; none for what is not listed or runs
    nothing."""
    declared, work = EXPERIMENTS.get(experiment), []
    if declared is not None and declared.kernels:
        with suppress(MatrixError):  # no problem table, as for what a test or a user declares
            work = plan_work(declared, kernels(), Choice())
    cells = [
        (case_of(problem.name), problem.dtype, kernel, policy, variant)
        for problem, names in work
        for kernel in names
        for variant in _variants(kernel, problem)
        for policy in (declared.policies if declared else ())
    ]
    return pd.DataFrame([*dict.fromkeys(cells)], columns=CELL)


def _variants(kernel: str, problem: Problem) -> tuple[str, ...]:
    named = about(kernel).study_variants
    return named(problem) if named else ("",)


def states(experiment: str, records: pd.DataFrame) -> pd.DataFrame:
    """Every expected cell with its `state`, one of `STATES`, and whether it is `untuned`: timed, but before all
    candidates were tried. A row without a variant is of all of a study's."""
    cells = expected(experiment)
    named = cells.loc[cells["variant"] != "", ["kernel", "variant"]].drop_duplicates()
    studies = named.groupby("kernel")["variant"].agg(tuple).to_dict()
    rows = records.assign(variant=records["variant"].where(records["kernel"].isin(list(studies)), ""))
    rows = rows.assign(untuned=rows["search"].isin(["first", "some"]))
    rows = rows[["problem", *CELL[1:], "status", "untuned"]].drop_duplicates()
    of = [
        [one for one in studies[kernel] if of_study(variant, one)] if kernel in studies else ""
        for kernel, variant in zip(rows["kernel"], rows["variant"], strict=True)
    ]
    said = [
        "timed" if status == "ok" else "failed" if is_fault(status, kernel) else "refused"
        for status, kernel in zip(rows["status"], rows["kernel"], strict=True)
    ]
    best = pd.Categorical(said, ["timed", "failed", "refused"], ordered=True)
    rows = rows.assign(case=rows["problem"].map(case_of), variant=pd.Series(of, rows.index, dtype=object), state=best)
    rows = rows.explode("variant").sort_values(["state", "untuned"], kind="stable").drop_duplicates(CELL)
    found = cells.merge(rows[[*CELL, "state", "untuned"]], how="left", on=CELL)
    untuned = (found["state"] == "timed") & found["untuned"].eq(True)
    return found.assign(state=found["state"].astype(object).fillna("missing"), untuned=untuned)


class Counted(NamedTuple):
    """What one experiment's records have of its cells."""

    cells: pd.DataFrame
    """A row per kernel, variant, dtype and policy with the number of cells in each state."""
    reasons: list[list[str]]
    """Experiment, kernel, dtype and the reasons of rows without a time, most frequent first."""


def count(experiment: str, records: pd.DataFrame) -> Counted:
    """Counts the cells of one experiment once, for its page and for the GPU's."""
    return Counted(_counts(states(experiment, records)), _reasons(experiment, records))


def gaps(counted: Counted) -> list[str]:
    """A sentence for the experiment's page: which kernels, or variants of a study, lack a policy, or several, on how
    many of their problems."""
    lacking: dict[str, list[str]] = {}
    for policy, cells in counted.cells.groupby("policy", sort=False):
        mine = cells[cells["missing"] > 0]
        if mine.empty:
            continue
        if len(cells) > 1 and (cells["missing"] == cells["expected"]).all():
            what = "any kernel on any problem"
        else:
            alike = mine.groupby(["kernel", "dtype", "missing", "expected"], sort=False)["variant"].agg(list)
            what = few([_lacking(row) for row in each(alike.reset_index())])
        lacking.setdefault(what, []).append(str(policy))
    return [
        f"Not measured {', '.join(policies)} ([coverage](../{FILE})): {what}." for what, policies in lacking.items()
    ]


def _lacking(row: Any) -> str:
    variants = f" ({listed(row.variant)})" if any(row.variant) else ""
    share = "all" if row.missing == row.expected else row.missing
    return f"`{row.kernel}` {row.dtype}{variants} on {share} of {row.expected}"


def _counts(found: pd.DataFrame) -> pd.DataFrame:
    counted = found.assign(
        expected=1,
        untuned=found["untuned"].astype(int),
        **{name: (found["state"] == name).astype(int) for name in STATES},
    )
    return counted.groupby(["kernel", "variant", "dtype", "policy"], sort=False)[NUMBERS].sum().reset_index()


def of_gpu(reports: Path, gpu: str, known: Mapping[Path, Counted]) -> Counted:
    """What one GPU's records have of every experiment of the catalogue, `cells` with a column `experiment`.

    `known` has what is counted already, by folder; the others' records are read.
    """
    tables, reasons = [], []
    for name in EXPERIMENTS:
        if expected(name).empty:
            continue
        folder = reports / gpu / name
        counted = known.get(folder) or count(name, _records(folder))
        tables.append(counted.cells.assign(experiment=name)[["experiment", *counted.cells]])
        reasons += counted.reasons
    return Counted(pd.concat(tables, ignore_index=True), reasons)


def write(reports: Path, gpu: str, counted: Counted) -> Path:
    """Writes `<reports>/<gpu>/coverage.md` and `coverage.csv`."""
    path = reports / gpu / FILE
    paths.write_csv(counted.cells, path.with_suffix(".csv"))
    paths.write_text(path, _page(gpu_name(gpu, {}), *counted))
    return path


def rank(gpu: str, cells: pd.DataFrame) -> tuple[float, float]:
    """What a GPU comes by, the least first: how many whole percent of its `cells` have no row, or a time before tuning
    only; of equals the fastest memory, so that few cells don't change what README shows."""
    bandwidth, sums = sheet_peaks(gpu).copy_gbs or 0.0, cells[["expected", "missing", "untuned"]].sum()
    lacking = 100 * (sums["missing"] + sums["untuned"]) // sums["expected"] if sums["expected"] else math.inf
    return lacking, -bandwidth


def _records(folder: Path) -> pd.DataFrame:
    source = records_file(folder)
    refuse_links(source, folder)
    return sanitise.read(source) if source.is_file() else frame_of([])


def _reasons(experiment: str, records: pd.DataFrame) -> list[list[str]]:
    rows = records[records["status"] != "ok"]
    said = rows["reason"].where(rows["reason"] != "", rows["status"])
    rows = rows.assign(case=rows["problem"].map(case_of), said=said)
    lines = []
    cells = expected(experiment)[_OF_KERNEL].drop_duplicates()
    for key, some in rows.merge(cells, on=_OF_KERNEL).groupby(["kernel", "dtype"], sort=False)["said"]:
        count = Counter(some)
        told = [f"{reason} ({times} rows)" for reason, times in count.most_common(REASONS)]
        rest = len(count) - len(told)
        lines.append([experiment, *map(str, key), "; ".join(told) + (f"; {rest} more" if rest else "")])
    return lines


def _page(gpu: str, whole: pd.DataFrame, reasons: list[list[str]]) -> str:
    sums = whole.groupby("experiment", sort=False)[["missing", "expected"]].sum()
    none = sums["missing"] == sums["expected"]
    unrecorded = [f"`{name}`" for name in none.index[none]]
    whole = whole[~whole["experiment"].map(none)]
    total, cold = whole[NUMBERS].sum(), whole[whole["policy"] == "cold"][NUMBERS].sum()
    head = (
        f"Of {total['expected']:,} cells {total['timed']:,} are timed, {total['refused']:,} refused with a reason and "
        f"{total['failed']:,} failed; {total['missing']:,} are missing ({_percent(total)}), {cold['missing']:,} of "
        f"them under the cold policy ({_percent(cold)} of those). {total['untuned']:,} of the timed ones are untuned."
    )
    per = whole.groupby(["experiment", "policy"], sort=False)[NUMBERS].sum().reset_index()
    overview = [[*line, _percent(row)] for line, (_, row) in zip(_lines(per), per.iterrows(), strict=True)]
    lacking = _lines(whole[whole["missing"] > 0])
    missing = markdown(["experiment", "kernel", "variant", "inputs", "policy", *NUMBERS], lacking, left=5)
    refused = markdown(["experiment", "kernel", "inputs", "why not"], reasons, left=4)
    cells = markdown(["experiment", "policy", *NUMBERS, "missing, %"], overview, left=2)
    return document(
        f"# Coverage on {gpu}",
        f"**{head}**",
        f"Not recorded on this GPU, and not counted here: {', '.join(unrecorded)}." if unrecorded else "",
        INTRO.rstrip(),
        "## By experiment",
        folded(cells, "Cells of each experiment"),
        "## Where cells are missing",
        folded(missing, "By kernel") if lacking else "Nowhere.",
        "## Reasons",
        folded(refused, "Why kernels were refused") if reasons else "None.",
    )


def _lines(table: pd.DataFrame) -> list[list[str]]:
    return [[f"{one:,}" if isinstance(one, int) else one for one in row] for row in table.itertuples(index=False)]


def _percent(row: pd.Series[int]) -> str:
    return f"{100 * row['missing'] / row['expected']:.1f} %" if row["expected"] else "0 %"
