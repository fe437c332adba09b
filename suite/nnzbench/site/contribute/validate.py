"""Whether a result set is fit to be published: rules that readers of `reports/` rely on, one sentence per breach."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from nnzbench.bench.attempts import CHECK
from nnzbench.bench.sweep import QUICK_PROBLEMS
from nnzbench.data.problems import tables
from nnzbench.data.problems.problem import case_of
from nnzbench.kernels.registry import kernels
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.results.records import describe, selection
from nnzbench.results.records.beside import ENERGY, ENVIRONMENTS, MEMORY, TUNING, Window
from nnzbench.results.records.folder import BELOW, JOURNAL, PUBLISHED, checked_arch, folders, records_file
from nnzbench.results.records.record import KEY, Record, RecordError, read_table, records_of
from nnzbench.results.records.selection import fastest
from nnzbench.results.result_set import division
from nnzbench.site.contribute import kit, physics, published, snapshots

PER_PROBLEM = ("op", "m", "k", "n", "shape", "sparsity", "nnz", "pattern_hash", "source")
"""What all rows of one problem have in common."""
BESIDE = ("standin", "uniform")
"""Folders below a result set that hold the same experiment on generated patterns."""
_SPARSITY_DIGITS = 1.5e-6
"""Cells have six digits."""


@dataclass(frozen=True)
class Finding:
    """One sentence on one result set. A set with a fault is unfit; a note is for its readers."""

    folder: Path
    fault: bool
    sentence: str


def find_sets(path: Path) -> list[Path]:
    """The result sets at or below `path`, or that of a records file. Raises `RecordError` where there is none."""
    if path.is_file() and path.name in (JOURNAL, PUBLISHED):
        return [path.parent]
    found = folders(path) if path.is_dir() else []
    if not found:
        raise RecordError(f"{path} is not a result set: there is no {JOURNAL} or {PUBLISHED} in it")
    return found


def validate(folder: Path) -> list[Finding]:
    """Everything that is to be said of the result set in `folder`, faults first."""
    faults, notes = _check(folder)
    return [*(Finding(folder, True, text) for text in faults), *(Finding(folder, False, text) for text in notes)]


def _check(folder: Path) -> tuple[list[str], list[str]]:
    """Faults and notes. What is not even in the alphabet of its column ends the search: no other rule is for it."""
    faults = list(kit.not_plain(folder))
    if faults:
        return faults, []
    try:
        table = read_table(records_file(folder))
        rows, frame = records_of(table), table.to_pandas()
        tuned = TUNING.read(folder)
        windows = ENERGY.read(folder)
        environments = {one.name: one.text for one in ENVIRONMENTS.read(folder)}
    except RecordError as error:
        return [str(error).replace(f"{folder}/", "")], []
    if not rows:
        return ["it has no rows"], []
    faults = [*snapshots.rows(rows), *snapshots.tuning(tuned), *snapshots.energy(windows)]
    if faults:
        return faults, []
    arch = checked_arch(folder)
    found, faults = snapshots.read(environments, (*rows, *windows))
    faults += [
        *_place(folder, rows),
        *_rows(rows, frame, bool(arch)),
        *snapshots.errors(rows),
        *physics.faults(frame, found),
        *physics.sources(rows),
        *published.faults(folder, frame),
        *_beside(folder, rows, windows),
        *snapshots.faults(found, rows[0].gpu),
        *kit.faults(folder),
        *(_checked(rows, arch) if arch else _quick(rows)),
    ]
    if arch:  # a part of the experiment is enough to check it
        return faults, []
    named = {row.environment for row in rows} | {one.environment for one in windows}
    unused = sorted(environments.keys() - named)
    told = f"its division is {division(frame)}"
    return faults, [told, *_incomplete(rows, frame), *published.notes(folder, frame), *snapshots.notes(found, unused)]


def _place(folder: Path, rows: Sequence[Record]) -> Iterator[str]:
    """Folder names against the rows': `<gpu>/<experiment>/`, and below it `as-sm_XY/`, `standin/` or `uniform/`."""
    whole = folder.resolve()
    below = whole.name if whole.name in BESIDE else ""
    if checked_arch(folder):
        whole = whole.parents[1] / below if below else whole.parent
    experiment, gpu = (whole.parent.name, whole.parent.parent.name) if below else (whole.name, whole.parent.name)
    for name, wanted in (("experiment", experiment), ("gpu", gpu)):
        other = sorted({str(getattr(row, name)) for row in rows} - {wanted})
        if other:
            yield f"its folder is of {name} '{wanted}' and its rows are of {selection.listed(other)}"
    real = sorted({row.source for row in rows if row.source.startswith(published.REAL)})
    if below and real:
        yield f"it lies in {below}/ and has rows on real patterns: {selection.listed(real)}"


def _checked(rows: Sequence[Record], arch: str) -> Iterator[str]:
    """Another architecture's code is checked on the GPU at hand, and never timed."""
    if any(row.policy != CHECK or row.median_us is not None for row in rows):
        yield f"it lies in {BELOW}{arch}/ and has rows that are timed"
    other = sorted({row.arch for row in rows} - {arch})
    if other:
        yield f"it lies in {BELOW}{arch}/ and has rows of {selection.listed(other)}"


def _beside(folder: Path, rows: Sequence[Record], windows: Sequence[Window]) -> Iterator[str]:
    """Memory and energy are of candidates that computed the right thing, so each has its row."""
    right = {(row.problem, row.dtype, row.kernel, row.variant, row.device) for row in rows if row.status == "ok"}
    measured = {ENERGY.file: [one.candidate for one in windows]}
    try:
        measured[MEMORY.file] = [one.candidate for one in MEMORY.read(folder)]
    except RecordError as error:
        yield str(error).replace(f"{folder}/", "")
    for name, keys in measured.items():
        strange = [" ".join(key) for key in dict.fromkeys(keys) if key not in right]
        if strange:
            what = name.removesuffix(".csv")
            yield f"{name} has {what} of what has no row that is ok: {selection.listed(strange, 2)}"


def _rows(rows: Sequence[Record], frame: pd.DataFrame, untimed: bool) -> Iterator[str]:
    if any(row.device == "cpu" for row in rows):
        yield f"{sum(row.device == 'cpu' for row in rows)} rows are from the processor, whose times say nothing"
    for experiment in sorted({row.experiment for row in rows}):
        extra = selection.unknown(experiment, [row.problem for row in rows if row.experiment == experiment])
        if extra:
            yield f"{experiment} has no problem {selection.listed(extra)}"
    twice = [key for key, count in Counter(row.key for row in rows).items() if count > 1]
    if twice:
        yield f"{len(twice)} rows are there more than once: {selection.listed([' '.join(key) for key in twice], 2)}"
    made = frame.loc[frame["pattern_hash"] != "", ["problem", *PER_PROBLEM]].drop_duplicates()  # others know less
    if len(ambiguous := made.loc[made["problem"].duplicated(), "problem"].unique()):
        yield f"the rows of one problem disagree on what it is: {selection.listed(sorted(ambiguous))}"
    if (fastest(frame) != frame["selected"]).any():
        yield "`selected` does not mark the fastest correct row of each kernel"
    yield from itertools.islice(_claimed(frame), 3)
    for at, row in enumerate(rows, start=2):  # a cell never holds a newline
        yield from (f"line {at}: {text}" for text in _one(row, untimed))


def _claimed(frame: pd.DataFrame) -> Iterator[str]:
    """What rows say that their kernels are, against what this version knows of them: whose a row is decides claims."""
    names = ("role", "math", "weights", "work")
    for row in frame[["kernel", "variant", "dtype", *names]].drop_duplicates().itertuples(index=False):
        known = describe.of_candidate(str(row.kernel), str(row.variant), str(row.dtype))
        for name in names:
            if (said := getattr(row, name)) != (wanted := getattr(known, name)):
                yield f"rows of {row.kernel} {row.variant} have the {name} '{said}', which is '{wanted}'"


def _one(row: Record, untimed: bool) -> Iterator[str]:
    if not untimed and row.device != "cpu" and row.status == "ok" and row.median_us is None:
        yield "a row with status 'ok' has no time"
    if row.pattern_hash:
        elements = row.m * (row.n if row.op == "sddmm" else row.k)
        counted = 1 - row.nnz / elements if elements else math.nan
        if not abs(row.sparsity - counted) <= _SPARSITY_DIGITS:
            yield f"`sparsity` is {row.sparsity:g} and {row.nnz} nonzeros make {counted:g}"
    yield from physics.numbers(row)
    what = snapshots.private(f"{row.reason} {row.variant}")
    if what:
        yield f"`reason` or `variant` holds {what}"


def _quick(rows: Sequence[Record]) -> Iterator[str]:
    """A quick run leaves its mark in what it has: the smallest problems of the table and no other."""
    for experiment in sorted({row.experiment for row in rows} & set(EXPERIMENTS)):
        every = tables.rows(experiment) if selection.cases(experiment) else []
        smallest = sorted(every, key=lambda p: p.m * p.k * p.n)[:QUICK_PROBLEMS]
        have = {case_of(row.problem) for row in rows if row.experiment == experiment}
        if len(every) > QUICK_PROBLEMS and have == {case_of(problem.name) for problem in smallest}:
            yield f"it has the {QUICK_PROBLEMS} smallest problems of {experiment} and no other, as a --quick run has"


def _incomplete(rows: Sequence[Record], frame: pd.DataFrame) -> Iterator[str]:
    """What a whole run would have and this one lacks, each with names."""
    for experiment in sorted({row.experiment for row in rows} & set(EXPERIMENTS)):
        mine = [row for row in rows if row.experiment == experiment]
        lacking = selection.missing(experiment, [row.problem for row in mine])
        if lacking:
            of = len(selection.cases(experiment))
            yield f"{len(lacking)} of {of} problems of {experiment} are missing: {selection.listed(lacking)}"
        absent = sorted(set(EXPERIMENTS[experiment].kernels) & set(kernels()) - {row.kernel for row in mine})
        if absent:
            yield f"no row is of kernel {selection.listed(absent, len(absent))}, which {experiment} runs"
    # no row, not even one with a reason, though the kernel has some of the same op and type
    same = {alike: set(some) for alike, some in frame.groupby(["op", "dtype"])["problem"]}
    for (kernel, op, dtype), have in frame.groupby(["kernel", "op", "dtype"])["problem"]:
        if gone := same[op, dtype] - set(have):
            yield f"kernel `{kernel}` ({dtype}) has no row for {selection.listed(sorted(gone))}"
    candidates = frame.groupby(list(KEY[:-1]), sort=False)["policy"].agg(set)
    for policy in sorted(frame["policy"].unique()):
        without = candidates[[policy not in have for have in candidates]]
        if len(without):
            yield f"{len(without)} candidates have no {policy} row, such as {' '.join(map(str, without.index[0]))}"
