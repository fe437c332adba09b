"""The results folder of one experiment while a run writes into it: records.csv and the files beside it.

In `reports/`, and where a published set is gone on with, the journal becomes records.parquet when the run ends.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import itertools
import json
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from filelock import FileLock, Timeout

from nnzbench.core import paths
from nnzbench.core.gpus import named, peaks_of
from nnzbench.results.records.beside import (
    MEASURED,
    MEMORY,
    TABLES,
    TUNING,
    Memory,
    Scope,
    Tuning,
    beside,
    outgrown,
    tunings,
)
from nnzbench.results.records.describe import searched
from nnzbench.results.records.older import OLDER, bring_back, set_aside
from nnzbench.results.records.record import (
    COLUMNS,
    FLOORS,
    Key,
    Record,
    RecordError,
    apart,
    append,
    read_frame,
    read_records,
    read_table,
    renewed,
    rewrite,
)
from nnzbench.results.records.selection import fastest
from nnzbench.results.records.table_files import Form, write_parquet
from nnzbench.results.records.table_files import refuse_links as refuse_links

JOURNAL, PUBLISHED = "records.csv", "records.parquet"
BELOW = "as-"
"""Start of the folder below an experiment's that holds another architecture's code, checked and never timed."""
LOCK = ".lock"
"""Held by the one run that writes into a folder. In the folder, so that it counts whatever the cache and the host."""


def records_file(folder: Path) -> Path:
    """The records of a folder: the published file where it is, else the journal, which need not be there.

    Raises `RecordError` where both are, as nothing says which one counts.
    """
    journal, published = folder / JOURNAL, folder / PUBLISHED
    if not published.exists():
        return journal
    if journal.exists():
        raise RecordError(f"{folder} holds {JOURNAL} and {PUBLISHED}: keep the one that counts and delete the other")
    return published


def has_records(folder: Path) -> bool:
    """Whether a folder holds records, in either form."""
    return records_file(folder).is_file()


def folders(root: Path, pattern: str = "**") -> list[Path]:
    """The folders with records at or below `root` that the glob matches, sorted: `*/*` are a results folder's sets."""
    return sorted({file.parent for name in (JOURNAL, PUBLISHED) for file in root.glob(f"{pattern}/{name}")})


def gpus_of(*roots: Path) -> list[str]:
    """The GPUs that have rows in results folders, sorted; what was checked on the processor is of none."""
    return sorted({one.parent.name for root in roots for one in folders(root, "*/*")} - {"cpu"})


def gpu_among(name: str, slugs: Iterable[str]) -> str | None:
    """The slug of that name, or the only one that has all its words (`h200`); None where none has.

    Raises `RecordError` naming them where several have.
    """
    hits = named(name, slugs)
    if len(hits) > 1:
        raise RecordError(f"'{name}' may be any of {', '.join(hits)}")
    return hits[0] if hits else None


def export(folder: Path, form: Form, out: Path | None = None) -> Path:
    """Writes the records of `folder` in the other form, or the same one, into `out`; in place of the old ones without,
    and then also gives the tables beside them that form.

    A CSV file in place of a published one is byte for byte the journal that it was made of. Raises `RecordError`.
    """
    source = records_file(folder)
    target = (out or folder) / (PUBLISHED if form == "parquet" else JOURNAL)
    if out is None:
        for table in TABLES:
            table.convert(folder, form)
    if target == source or not source.exists():
        return target
    if form == "parquet":
        write_parquet(target, read_table(source))
    else:
        rows = read_records(source)
        with paths.replacing(target) as partial:
            append(partial, rows)
    if out is None:
        source.unlink()
    return target


def checked_arch(folder: Path) -> str:
    """`sm_75` for a folder `as-sm_75/` or one below it, else empty."""
    names = (folder.resolve().name, folder.resolve().parent.name)
    return next((name.removeprefix(BELOW) for name in names if name.startswith(f"{BELOW}sm_")), "")


class Results:
    """Rows are on disk as soon as they are added; leaving the `with` block marks the selected ones.

    `not_again` says how many of the rows that `overwrite` would delete the run does not bring again; None deletes all.
    `stale` says, of a row and of its snapshot, whether `resume` is to measure it again.

    Raises `RecordError` where another run holds the folder, where records are there and neither `resume` nor
    `overwrite` is asked for, where `overwrite` would lose rows, where they can't be read, or where they are links.
    """

    def __init__(
        self,
        folder: Path,
        resume: bool,
        overwrite: bool,
        environment: Mapping[str, Any],
        note: Callable[[str], None],
        not_again: Callable[[Sequence[Record]], int] | None = None,
        stale: Callable[[Record, Mapping[str, Any]], bool] | None = None,
    ) -> None:
        self.folder = folder
        self.records_path = folder / JOURNAL
        self._published = folder / PUBLISHED
        self._publishes = paths.reports().resolve() in folder.resolve().parents
        self._beside = tuple(folder / table.file for table in MEASURED)
        self._resume, self._overwrite, self._note = resume, overwrite, note
        self._lock = FileLock(folder / LOCK)
        self._not_again, self._stale = not_again, stale
        self._snapshot, self._environment = environment, ""
        self._written: dict[str, str] = {}
        self.done: dict[Key, float | None] = {}
        """Rows that there are, with their medians."""
        self.of_kernel: defaultdict[Key, list[Key]] = defaultdict(list)
        """The same rows by experiment, problem, dtype and kernel."""
        self._told = False  # of another machine
        self.measured_in: dict[tuple[str, str], str] = {}
        """Snapshot that the rows of a problem and dtype named when the folder was opened."""
        self.tuned: dict[tuple[str, ...], Scope] = {}
        self.outgrown: set[tuple[str, ...]] = set()
        """Problems, dtypes, kernels and devices that are searched to the end of fewer candidates than there are."""

    def __enter__(self) -> Results:
        self.folder.mkdir(parents=True, exist_ok=True)
        refuse_links(
            self.folder / LOCK,
            self.folder / OLDER,
            self.records_path,
            self._published,
            *self._beside,
            *beside(self.folder),
        )
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise RecordError(f"another run is writing to {self.folder}") from None
        with contextlib.ExitStack() as undo:
            undo.callback(self._lock.release)
            found = records_file(self.folder)
            if self._resume or self._overwrite or not found.exists():
                if found == self._published:
                    self._publishes = True
                    undo.callback(self._publish)
                export(self.folder, "csv")
            self._open()
            undo.pop_all()
        return self

    def _publish(self) -> None:
        if self._publishes and self.records_path.exists():
            export(self.folder, "parquet")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.records_path.exists():
                bring_back(self.records_path)
                rows = read_frame(self.records_path)
                marked = searched(rows, tunings(self.folder)).assign(selected=fastest(rows))
                rewrite(self.records_path, {str(name): column for name, column in marked.items()})
                self._publish()
        finally:
            self._lock.release()

    def _open(self) -> None:
        cut: dict[Path, str] = {}
        if self._resume or self._overwrite:
            cut = {path: drop_cut_off_line(path) for path in (self.records_path, *self._beside)}
            bring_back(self.records_path)
        if self._overwrite:
            self._delete()
        found = records_file(self.folder)
        if not found.exists():
            for path in self._beside:
                path.unlink(missing_ok=True)
            return
        if not self._resume:
            raise RecordError(f"{found} exists already: add --resume to go on or --overwrite to start anew")
        for path in filter(cut.get, cut):
            self._note(f"{path.name}: dropped a last line that was cut off")
        last: tuple[str, ...] = ()
        if self.records_path.stat().st_size:
            renewed(self.records_path)
            self._set_aside()
            for record in read_records(self.records_path):
                self._has(record.key, record.median_us)
                self.measured_in[record.problem, record.dtype] = record.environment
                last = (record.problem, record.dtype, record.kernel)
        rows = TUNING.read(self.folder)
        whole = self._whole(rows, _reason_of(cut[self.records_path]), last)
        if len(whole) < len(rows):
            lost = f"{len(rows) - len(whole)} of {len(rows)} lines of {TUNING.file}"
            self._note(f"{self.records_path.name} lacks rows of {lost}: they are run again")
        if rows:  # with the columns that are appended
            TUNING.write(self.folder, whole)
        for row in whole:
            self._tuned(row)
        self.outgrown = outgrown(whole)

    def _whole(self, rows: Sequence[Tuning], cut: tuple[str, ...], last: tuple[str, ...]) -> list[Tuning]:
        """Those of tuning.csv whose candidates all have their records.

        A kernel may end with a row that is of no candidate but says why no further one came. Nothing counts these, so
        where such a row was `cut`, or others are lost behind the `last` one, that kernel is asked again too.
        """
        found: dict[tuple[str, ...], set[str]] = {}
        for _, problem, dtype, kernel, variant, device, policy in self.done:
            found.setdefault((problem, dtype, kernel, device, policy), set()).add(variant)

        def has_all(row: Tuning) -> bool:
            for policy in row.policies.split("+"):
                have = found.get((*row.key[:-1], policy), set())
                candidates = len(have - {""}) or len(have)  # a user's kernel may name its only one so
                if not have or candidates < row.candidates:
                    return False
            return True

        whole = [row for row in rows if has_all(row)]
        doubtful = (cut, last) if len(whole) < len(rows) else (cut,)
        return [row for row in whole if row.key[:3] not in doubtful]

    def _set_aside(self) -> None:
        stale, known = self._stale, functools.cache(self.snapshot)
        if stale is not None:
            count = set_aside(self.records_path, lambda row: stale(row, known(row.environment)))
            self._note(f"{self.folder}: {count:,} rows are measured again")

    def _delete(self) -> None:
        """Deletes what was recorded, and says what; refuses where more is recorded than the run can bring anew."""
        gone = [path for path in (self.records_path, *beside(self.folder)) if path.exists()]
        if not gone:
            return
        count = max(self.records_path.read_bytes().count(b"\n") - 1, 0) if self.records_path.exists() else 0
        if count and self._not_again is not None:
            lost = self._not_again(read_records(self.records_path))
            if lost:
                raise RecordError(
                    f"{self.records_path}: --overwrite would delete {count:,} rows, {lost:,} of which this "
                    f"run does not bring again: add --yes to replace them all the same, or --out FOLDER to keep both"
                )
        self._note(f"{self.folder}: --overwrite deletes {count:,} rows ({', '.join(path.name for path in gone)})")
        for path in gone:
            path.unlink()

    def snapshot(self, name: str) -> dict[str, Any]:
        """One that rows name, empty where there is none that can be read."""
        path = self.folder / name
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(path.read_text(encoding="utf-8")) if name and not path.is_symlink() else None
            return found if isinstance(found, dict) else {}
        return {}

    @property
    def environment(self) -> str:
        """File name of the environment's snapshot, written when the first row asks for it."""
        if not self._environment:
            self._environment = self.add_environment(self._snapshot)
        return self._environment

    def add_environment(self, snapshot: Mapping[str, Any]) -> str:
        """File name of a snapshot, written once however often the same one is given."""
        text = json.dumps(snapshot, indent=2, sort_keys=True, default=str) + "\n"
        if text not in self._written and (alike := self._alike(text)):
            self._written[text] = alike
        if text not in self._written:
            names = ("environment.json" if at == 1 else f"environment-{at}.json" for at in itertools.count(1))
            name = next(name for name in names if not (self.folder / name).exists())
            self._note_other_machine(snapshot)
            with paths.replacing(self.folder / name) as partial:
                partial.write_text(text, encoding="utf-8")
            self._written[text] = name
        return self._written[text]

    def _note_other_machine(self, snapshot: Mapping[str, Any]) -> None:
        """Says so where rows are of a machine with the same GPU whose empty launch takes another time."""
        if self._told:
            return
        here = peaks_of(snapshot).floor_cold_us or math.nan
        names = sorted(path.name for path in self.folder.glob("environment*.json"))
        others = (peaks_of(self.snapshot(name)).floor_cold_us or math.nan for name in names)
        there = next((us for us in others if apart(us, here, FLOORS)), None)
        if there is not None:
            self._told = True
            self._note(
                f"{self.folder}: an empty launch takes {here:.1f} us here, cold, and {there:.1f} us where other rows "
                "were recorded: cold times of short products don't compare (--out FOLDER keeps them apart)"
            )

    def _alike(self, text: str) -> str:
        """The same snapshot, written when this session had the folder before; or where no GPU is, as nothing is timed
        there, one that differs in its date alone.
        """
        wanted = _undated(text)
        untimed = "missing" in (wanted.get("gpu") or {})
        for path in sorted(self.folder.glob("environment*.json")):
            with contextlib.suppress(OSError, ValueError):
                there = "" if path.is_symlink() else path.read_text(encoding="utf-8")
                if there == text or (untimed and there and _undated(there) == wanted):
                    return path.name
        return ""

    def add(self, records: Iterable[Record]) -> None:
        rows = list(records)
        append(self.records_path, rows)
        for record in rows:
            self._has(record.key, record.median_us)

    def _has(self, key: Key, median_us: float | None) -> None:
        self.done[key] = median_us
        self.of_kernel[key[:4]].append(key)

    def add_tuning(self, tuning: Tuning) -> None:
        TUNING.add(self.folder, tuning)
        self._tuned(tuning)

    def _tuned(self, tuning: Tuning) -> None:
        if self.tuned.get(tuning.key) != "all":
            self.tuned[tuning.key] = tuning.scope
        if tuning.scope == "all":
            self.outgrown.discard(tuning.key[:4])

    def add_memory(self, row: Memory) -> None:
        MEMORY.add(self.folder, row)


class Kept(Results):
    """Stands where a results folder is asked for: what is added stays in memory."""

    def __init__(self, done: Mapping[Key, float | None] = MappingProxyType({})) -> None:
        self.done, self.of_kernel, self.tuned, self.outgrown = {}, defaultdict(list), {}, set()
        for key, median_us in done.items():
            self._has(key, median_us)
        self.records: list[Record] = []
        self.tunings: list[Tuning] = []
        self.memories: list[Memory] = []

    @property
    def environment(self) -> str:
        return ""

    def add(self, records: Iterable[Record]) -> None:
        rows = list(records)
        self.records += rows
        for record in rows:
            self._has(record.key, record.median_us)

    def add_tuning(self, tuning: Tuning) -> None:
        self.tunings.append(tuning)

    def add_memory(self, row: Memory) -> None:
        self.memories.append(row)


def _undated(snapshot: str) -> dict[str, Any]:
    """What a snapshot says but for when it was taken. Raises `ValueError` for what is none."""
    found = json.loads(snapshot)
    if not isinstance(found, dict):
        raise ValueError("a snapshot is a JSON object")
    return {name: value for name, value in found.items() if name != "recorded_at"}


def drop_cut_off_line(path: Path) -> str:
    """Cuts a last line without its line end, as a crash leaves it, and returns it; empty where there was none."""
    if not path.exists():
        return ""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole == len(data):
        return ""
    os.truncate(path, whole)
    return data[whole:].decode("utf-8", errors="replace")


def _reason_of(cut: str) -> tuple[str, ...]:
    """Problem, dtype and kernel of a cut-off record that is of no candidate; empty for any other line."""
    with contextlib.suppress(csv.Error):
        row = dict(zip(COLUMNS, next(csv.reader([cut]), []), strict=False))
        if row.get("variant") == "" and "selected" in row:
            return (row["problem"], row["dtype"], row["kernel"])
    return ()
