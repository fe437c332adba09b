"""The tables beside the records of a folder: what tuning took, the memory and joules of candidates, as measured, and on
what.

Each folder of a published set has its own: it is what is run, gone on with, sent, validated and read by itself.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Iterable
from dataclasses import MISSING, Field, astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args

import pyarrow as pa

from nnzbench.core import paths
from nnzbench.results.records.table_files import (
    MOST_BYTES,
    SNAPSHOT_BYTES,
    Form,
    RecordError,
    append_rows,
    cells_of,
    plain,
    read_parquet,
    refuse_links,
    schema_of,
    write_parquet,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Scope = Literal["first", "some", "all"]
"""Of a kernel's candidates: those of its rule and its paper, untuned; as many as `--quick` or `--candidates` let be
tried; or all."""
Status = Literal["ok", "refused"]
Key = tuple[str, str, str, str, str]
STEP = 2 << 20
"""Bytes in which the driver hands out memory: what it says moves by no less."""


@dataclass(frozen=True)
class Tuning:
    """What it took to find a kernel's best candidate on one problem: the price of tuning."""

    problem: str
    dtype: str
    kernel: str
    device: str
    policies: str
    candidates: int
    ok: int
    seconds: float
    """Of wall clock, without what was waited for other processes on the GPU."""
    scope: Scope = "all"
    """Files of before there were first choices have no such column."""
    gpu_seconds: float = 0.0
    """Of `seconds`, in which the GPU was this process's own; 0 in files of before it was counted."""
    untuned: str = ""
    """Variants among those tried that run untuned (the rule's, the paper's, a library's defaults), separated by spaces;
    empty in files of before they were named."""

    @property
    def key(self) -> tuple[str, ...]:
        """Whose candidates; resuming skips a kernel whose row is there, of this scope or of all, and where few are
        asked for again also of some."""
        return (self.problem, self.dtype, self.kernel, self.device, self.policies)


def outgrown(rows: Iterable[Any]) -> set[tuple[str, ...]]:
    """Problems, dtypes, kernels and devices, by the rows of a tuning.csv in their order, with a first choice that came
    after the last search to the end and that none of these names: the kernel has more candidates since.

    What a search names after a first choice is none: parts of a network are of the products that its run chose.
    """
    searched: dict[tuple[str, ...], set[str]] = {}
    since: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        key, names = (row.problem, row.dtype, row.kernel, row.device), set(row.untuned.split())
        if names and row.scope == "all":
            searched.setdefault(key, set()).update(names)
            since.pop(key, None)
        elif key in searched:
            since.setdefault(key, set()).update(names - searched[key])
    return {key for key, names in since.items() if names - searched[key]}


@dataclass(frozen=True)
class _OfCandidate:
    problem: str
    dtype: str
    kernel: str
    variant: str
    device: str

    @property
    def candidate(self) -> Key:
        """Whose row it is."""
        return (self.problem, self.dtype, self.kernel, self.variant, self.device)


@dataclass(frozen=True)
class Use:
    """Bytes of the GPU in use, by all programs on it, as the driver counts them."""

    before_bytes: int
    """Before the candidate is prepared."""
    peak_bytes: int
    """The most by the end of its first run."""
    after_bytes: int
    """When it is gone."""

    @property
    def steady(self) -> bool:
        """Whether nothing else came or went meanwhile, another program's memory for one."""
        return abs(self.after_bytes - self.before_bytes) <= STEP

    @property
    def taken_bytes(self) -> int:
        """What the candidate took at most, inputs and output included."""
        return self.peak_bytes - self.before_bytes


@dataclass(frozen=True)
class Memory(Use, _OfCandidate):
    """One row of memory.csv; of two of one candidate the later one counts. Raises `ValueError` for what can't be."""

    def __post_init__(self) -> None:
        if min(self.before_bytes, self.peak_bytes, self.after_bytes) < 0:
            raise ValueError("a number of bytes is below zero")


@dataclass(frozen=True)
class Window(_OfCandidate):
    """One row of energy.csv: launches back to back over rotated weights, from one tick of the counter to another.

    Raises `ValueError` for what can't be.
    """

    trial: int
    """From 1: in each trial all candidates of a problem have a window, and another one in reverse order."""
    place: int
    """From 1, in the trial."""
    status: Status
    reason: str
    """Why the window is refused, with both readings; empty where it is ok."""
    launches: int
    seconds: float
    joules: float
    """By the board's own counter: everything on it, idle power included."""
    integral_joules: float
    """The same from readings of the instantaneous power."""
    tick_ms: float
    """Mean time between ticks of the counter."""
    idle_watts: float
    """By the counter, before the run's first window: a context, and nothing to do."""
    temperature_c: float | None
    """At the window's end; None where not told, as the clock."""
    sm_clock_mhz: float | None
    throttled: str
    """Reasons seen, separated by spaces."""
    environment: str

    def __post_init__(self) -> None:
        amounts = (self.seconds, self.joules, self.integral_joules, self.idle_watts)
        if self.status not in get_args(Status) or (self.status == "refused") != bool(self.reason):
            raise ValueError(f"status '{self.status}' with the reason '{self.reason}'")
        if not all(math.isfinite(one) and one >= 0 for one in amounts) or self.trial < 1 or self.place < 1:
            raise ValueError("an amount is not a number above zero")
        if self.status == "ok" and not (self.launches > 0 and self.seconds > 0 and self.joules > 0):
            raise ValueError("a window that is ok has launches, seconds and joules")


@dataclass(frozen=True)
class Environment:
    """What rows were measured on: a snapshot as JSON, by the name in their `environment` cells.

    Raises `ValueError` for a name that no run gives: a file is written under it.
    """

    name: str
    text: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name[:60]!r} is not the name of a snapshot")
        if len(self.text) > SNAPSHOT_BYTES:
            raise ValueError(f"{self.name} is longer than {SNAPSHOT_BYTES} bytes")


_NAME = re.compile(r"environment[\w-]{0,60}\.json")
Row = TypeVar("Row", bound="DataclassInstance")


@dataclass(frozen=True)
class Table(Generic[Row]):
    """A table whose columns are the fields of a dataclass: CSV in the folder of a run, Parquet in a published one."""

    file: str
    kind: type[Row]
    what: str
    """In the sentence on another file of that name."""
    digits: str = ""
    """Format of its floats."""

    def published(self, folder: Path) -> Path:
        """The published file, which need not be there."""
        return (folder / self.file).with_suffix(".parquet")

    def written(self, folder: Path) -> list[Path]:
        """The files that a run has written."""
        return [path for path in (folder / self.file,) if os.path.lexists(path)]

    def files(self, folder: Path) -> list[Path]:
        """All that are there, in either form."""
        return [*self.written(folder), *(path for path in (self.published(folder),) if os.path.lexists(path))]

    def add(self, folder: Path, *rows: Row) -> None:
        """Appends rows to the table of a run, all of them at once."""
        self.append(folder / self.file, rows)

    def append(self, path: Path, rows: Iterable[Row]) -> None:
        """The same of a file of any name."""
        names = [field.name for field in fields(self.kind)]
        cells = (
            [f"{cell:{self.digits}}" if isinstance(cell, float) else cell for cell in astuple(row)] for row in rows
        )
        append_rows(path, names, cells)

    def read(self, folder: Path) -> list[Row]:
        """The rows of the folder's table, none where there is no file. Raises `RecordError` for another file."""
        refuse_links(*self.files(folder))
        published = self.published(folder)
        files = [published] if published.exists() else self.written(folder)
        return [row for path in files if path.is_file() for row in self._rows(path)]

    def _rows(self, path: Path) -> list[Row]:
        plain(path, SNAPSHOT_BYTES if path.suffix == ".json" else MOST_BYTES)
        published = path.suffix == ".parquet"
        cells = read_parquet(path, f"those of {self.what}", schema_of(self.kind)).to_pylist() if published else []
        try:
            return [self.kind(**row) for row in cells] if published else list(self._read(path))
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise RecordError(f"{path}: not {self.what} ({error})") from None

    def _read(self, path: Path) -> Iterable[Row]:
        kinds = cells_of(self.kind)

        def cell(row: dict[str, str], one: Field[Any]) -> Any:
            text = row[one.name] if one.default is MISSING else row.get(one.name) or one.default
            kind, optional = kinds[one.name]
            return None if optional and not text else kind(text)

        with path.open(newline="", encoding="utf-8") as file:
            yield from (self.kind(*(cell(row, one) for one in fields(self.kind))) for row in csv.DictReader(file))

    def write(self, folder: Path, rows: Iterable[Row]) -> None:
        """Replaces the table of a run."""
        with paths.replacing(folder / self.file) as partial:
            self.append(partial, rows)

    def convert(self, folder: Path, form: Form) -> None:
        """Gives the table that form, if it is there; the old files go when the new ones are on disk.

        Where both are there, as a crash leaves them, nothing was appended since: the published one, written at once,
        is whole.
        """
        published = self.published(folder)
        if form == "csv" and published.exists():
            self.write(folder, self.read(folder))
            published.unlink()
        elif form == "parquet" and (files := self.written(folder)):
            if not published.exists():
                write_parquet(published, pa.Table.from_pylist(list(map(vars, self.read(folder))), schema_of(self.kind)))
            for path in files:
                path.unlink()


class _Environments(Table[Environment]):
    """In the folder of a run each snapshot is a file of its own, which says what it is to whoever opens it."""

    def written(self, folder: Path) -> list[Path]:
        return [path for path in sorted(folder.glob("environment*.json")) if _NAME.fullmatch(path.name)]

    def _read(self, path: Path) -> Iterable[Environment]:
        yield Environment(path.name, path.read_text(encoding="utf-8"))

    def write(self, folder: Path, rows: Iterable[Environment]) -> None:
        for row in rows:
            paths.write_text(folder / row.name, row.text)

    def names(self, folder: Path) -> list[str]:
        """Of all that are there. Raises `RecordError`."""
        return [one.name for one in self.read(folder)]

    def texts(self, folder: Path, names: Iterable[str]) -> dict[str, str]:
        """Of the snapshots of these names, those that are there. Raises `RecordError`."""
        if self.published(folder).exists():
            there = {one.name: one.text for one in self.read(folder)}
            return {name: there[name] for name in names if name in there}
        found = {}
        for path in (folder / name for name in names):
            refuse_links(path)
            if path.is_file():
                plain(path, SNAPSHOT_BYTES)
                try:
                    found[path.name] = path.read_text(encoding="utf-8")
                except UnicodeDecodeError as error:
                    raise RecordError(f"{path}: not valid JSON ({error})") from None
        return found


TUNING = Table("tuning.csv", Tuning, "a tuning table", ".3f")


def tunings(folder: Path) -> list[Tuning] | None:
    """What the searches of a folder came to; None where nothing was written of them."""
    return TUNING.read(folder) if TUNING.files(folder) else None


MEMORY = Table("memory.csv", Memory, "a table of memory")
ENERGY = Table("energy.csv", Window, "a table of energy", ".6g")
ENVIRONMENTS = _Environments("environments.csv", Environment, "a table of environments")
MEASURED: tuple[Table[Any], ...] = (TUNING, MEMORY, ENERGY)
"""Tables that say nothing without their records."""
TABLES = (*MEASURED, ENVIRONMENTS)


def beside(folder: Path) -> list[Path]:
    """The files of all these tables that are in a folder."""
    return [path for table in TABLES for path in table.files(folder)]
