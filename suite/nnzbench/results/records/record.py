"""One row of records: the fixed contract that every report and outside tool reads, as CSV and as Parquet.

Field order is column order. A time can't exist without a passed check: `Record` refuses it.
"""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nnzbench.core import paths
from nnzbench.kernels.registry import about
from nnzbench.results.records import schema1
from nnzbench.results.records.table_files import RecordError as RecordError
from nnzbench.results.records.table_files import append_rows, cells_of, plain, read_parquet, schema_of

SCHEMA = "nnzbench/2"

Status = Literal["ok", "wrong", "unsupported", "compile-error", "launch-error", "timeout"]
Choice = Literal["default", "first", "search", "fixed"]
"""Who chose a candidate: the library's or the paper's heuristic, by its name; this project's rule, or whatever else a
kernel tries first; a search among many; nobody, as there is nothing to tune."""
Search = Literal["", "first", "some", "all"]
"""What of a kernel's candidates its run tried on the problem (`describe.searched`)."""
NOT_TIMED = "not timed: "
"""What the reason of a row begins with whose candidate is right, and too far behind others to be timed."""
SHORTEST_US, LONGEST_US = 1e-6, 1e12
"""What a time can be at all: a millionth of the finest clock's step, and eleven days."""
FLOORS = 0.2
"""Share by which empty launches of one kind of machine don't differ: cold they take half as long again (1.5 us) on some
machines of a GPU as on others, which short products have in their times."""
_COUNTS = (
    "m", "k", "n", "nnz", "samples", "registers", "shared_bytes", "spill_bytes", "code_bytes", "batch", "count",
    "place",
)  # fmt: skip
_AMOUNTS = (
    "flops", "bytes", "limit_us", "floor_us", "prepare_ms", "compile_ms", "relative_error", "sm_clock_mhz", "level",
)  # fmt: skip
Verdict = Literal["right", "wrong", "refused", "failed", "unsupported"]
Key = tuple[str, ...]


def apart(ours: Any, theirs: Any, share: float) -> Any:
    """Whether two numbers, or columns of them, differ by that share of the larger; NaN differs from nothing."""
    return np.abs(ours - theirs) > share * np.maximum(ours, theirs)


def verdict(status: str, kernel: str) -> Verdict:
    """What a row's status says of its kernel.

    A kernel must not be `wrong`, and must not crash or fail to compile (`failed`). A library that does so has `refused`
    one of its own algorithms, which is an answer, as is giving up at a time limit.
    """
    if status == "ok" or status == "wrong":
        return "right" if status == "ok" else "wrong"
    if status == "unsupported":
        return "unsupported"
    return "refused" if status == "timeout" or about(kernel).role == "library" else "failed"


def is_fault(status: str, kernel: str) -> bool:
    """Whether a row tells of a wrong result or of a kernel that failed, for which a run ends with status 1."""
    return verdict(status, kernel) in ("wrong", "failed")


@dataclass(frozen=True)
class Record:
    """One experiment, problem, kernel, variant and policy. None is an empty cell."""

    schema: str
    experiment: str
    problem: str
    op: str
    m: int
    k: int
    n: int
    shape: str
    dtype: str
    sparsity: float
    nnz: int
    pattern: str
    source: str
    kernel: str
    variant: str
    selected: bool
    device: str
    gpu: str
    arch: str
    policy: str
    status: Status
    reason: str
    median_us: float | None
    q1_us: float | None
    q3_us: float | None
    samples: int | None
    sm_clock_mhz: float | None
    flops: float
    bytes: float
    limit_us: float | None
    floor_us: float | None
    prepare_ms: float | None
    compile_ms: float | None
    registers: int | None
    shared_bytes: int | None
    spill_bytes: int | None
    code_bytes: int | None
    relative_error: float | None
    environment: str
    label: str
    """Of the problem in its table; its name where it has none."""
    level: float | None
    """Sparsity asked for, percent; None where none was."""
    kind: str
    """Where the pattern is from: the first word of `source`."""
    batch: int
    """As the label says; 0 where it does not."""
    count: int
    """Times the layer occurs in `model`."""
    model: str
    place: int | None
    """Line of the problem in its table, from 0."""
    step: str
    """The operation computed, of which `op` is the product that it is named by."""
    pattern_hash: str
    role: str
    math: str
    layout: str
    choice: Choice
    weights: Literal["pruned", "unpruned"]
    work: Literal["sparse", "dense"]
    """`dense` where every weight is multiplied."""
    part: str
    settled: bool
    """Whether the median is as sure as was asked for; false also without a time."""
    throttled: str
    """What kept the clock down, separated by commas; empty for nothing."""
    captured: bool
    """Whether launches were replayed as a graph."""
    search: Search
    metric: Literal["us", "joules", "bytes"]

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if (count := getattr(self, name)) is not None and not 0 <= count < 2**63:
                raise RecordError(f"column '{name}': {count} is not a count")
        for name in _AMOUNTS:
            if (amount := getattr(self, name)) is not None and amount < 0:
                raise RecordError(f"column '{name}': {amount:g} is below zero")
        for name, words in _WORDS.items():
            if getattr(self, name) not in words:
                raise RecordError(f"{name} '{getattr(self, name)}' is not one of {', '.join(filter(None, words))}")
        timed = (self.median_us, self.q1_us, self.q3_us)
        if self.status != "ok":
            if any(value is not None for value in timed) or self.selected:
                raise RecordError(f"a row with status '{self.status}' can't hold a time or be selected")
            if not self.reason:
                raise RecordError(f"a row with status '{self.status}' needs a reason")
            return
        if self.relative_error is None or not math.isfinite(self.relative_error):
            raise RecordError("a row with status 'ok' needs the finite error of its check")
        if any(value is not None and not SHORTEST_US <= value <= LONGEST_US for value in timed):
            raise RecordError(f"times must be finite and above zero, from {SHORTEST_US:g} to {LONGEST_US:g} us")
        if self.median_us is not None and self.samples is not None and self.samples < 1:
            raise RecordError("column 'samples': a time needs at least one sample")

    @property
    def key(self) -> Key:
        """What makes a row unique within a results folder; resuming skips keys already present."""
        return (self.experiment, self.problem, self.dtype, self.kernel, self.variant, self.device, self.policy)


KEY = ("experiment", "problem", "dtype", "kernel", "variant", "device", "policy")
"""The columns of `Record.key`."""
COLUMNS = tuple(field.name for field in dataclasses.fields(Record))
_TYPES = get_type_hints(Record)
_WORDS: dict[str, tuple[str, ...]] = {name: get_args(one) for name, one in _TYPES.items() if get_origin(one) is Literal}
"""By column, what its cells must be one of."""


def _write_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(str(value).split())  # a compiler's log may have newlines; a cell has none


def to_row(record: Record) -> list[str]:
    """The record as CSV cells, in column order."""
    return [_write_cell(getattr(record, name)) for name in COLUMNS]


_CELLS = tuple((name, *kind) for name, kind in cells_of(Record).items())
TABLE = schema_of(Record)
"""The columns of records as Arrow types."""
_TABLE_1 = pa.schema([TABLE.field(name) for name in schema1.COLUMNS])
_CHANGED = ("schema", "pattern")
"""Columns of the first schema that mean another thing now."""
_JUDGED = list(
    dict.fromkeys(
        (
            *_COUNTS, *_AMOUNTS, "sparsity", "median_us", "q1_us", "q3_us", "samples", "status", "relative_error",
            "selected", "reason", "schema", *_WORDS,
        )
    )
)  # fmt: skip
"""What `Record` refuses rows by."""
_PLAIN = {
    pa.bool_(): r"^(true|false)$",
    pa.int64(): r"^-?\d{1,18}$",
    pa.float64(): r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$",
}
"""What a whole column is read as at once; `_refuse` says what is wrong with other cells."""


def _read_cell(text: str, kind: type) -> Any:
    """Raises `ValueError` also for what Python alone reads as a number: `1_000`, blanks, digits of other scripts."""
    if kind is bool and text not in ("true", "false"):
        raise ValueError(f"'{text}' is not true or false")
    if kind in (str, bool):
        return text if kind is str else text == "true"
    if "_" in text or not text.isascii() or text != text.strip():
        raise ValueError(f"{text!r} is not a plain number")
    if not math.isfinite(value := kind(text)):
        raise ValueError(f"'{text}' is not a finite number")
    return value


def read_records(path: Path) -> list[Record]:
    """The rows of `read_table`."""
    return records_of(read_table(path))


def records_of(table: Any) -> list[Record]:
    """The rows of a table that `read_table` gave."""
    return [Record(*cells) for cells in zip(*(column.to_pylist() for column in table.columns), strict=True)]


def read_frame(path: Path) -> pd.DataFrame:
    """The rows of `read_table`, NaN for an empty number; counts are floats in a column that has one."""
    frame: pd.DataFrame = read_table(path).to_pandas()
    return frame


def read_some(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Some columns of the rows of `read_frame` that stand for their kernel and have come out right, a tenth of all.

    Of a published file nothing else is read. Where a number in it is none, the whole file is read, and refused.
    """
    plain(path)
    if path.suffix == ".parquet":
        some = list(dict.fromkeys([*columns, "selected", "status"]))
        table = read_parquet(path, f"the {SCHEMA} column list", TABLE, _TABLE_1, columns=some)
        if table.column_names == some:
            table = table.filter(pc.and_(table["selected"], pc.equal(table["status"].cast(pa.string()), "ok")))
            frame: pd.DataFrame = (
                table.select(list(columns)).cast(pa.schema([TABLE.field(name) for name in columns])).to_pandas()
            )
            numbers = frame[[name for name in (*_COUNTS, *_AMOUNTS) if name in columns]]
            if (numbers.isna() | (numbers >= 0) & (numbers < np.inf)).all(axis=None):
                return frame
    frame = read_frame(path)
    return frame[frame["selected"].eq(True) & (frame["status"] == "ok")][list(columns)]


def frame_of(records: Iterable[Record]) -> pd.DataFrame:
    """The records as `read_frame` gives them."""
    frame: pd.DataFrame = pa.Table.from_pylist([vars(record) for record in records], TABLE).to_pandas()
    return frame


def read_table(path: Path) -> Any:
    """Reads a records file, a Parquet file or else a CSV file, as an Arrow table with the columns of `TABLE`.

    Raises `RecordError` naming file, line (of Parquet: row) and column; a cut-off last line is an error too.
    """
    plain(path)
    if path.suffix != ".parquet":
        return _read_csv(path)
    table = read_parquet(path, f"the {SCHEMA} column list", TABLE, _TABLE_1)
    if table.column_names == _TABLE_1.names:
        table = _migrated(table, path)
    for at in np.flatnonzero(_doubtful(table)):
        _refuse(_cells(table, int(at)), place(path, int(at)))
    return table


def place(path: Path, at: int) -> str:
    """File and line, or row, of the row at `at`; line numbers are exact because a cell never holds a newline."""
    return f"{path}, row {at + 1}" if path.suffix == ".parquet" else f"{path}, line {at + 2}"


def _read_csv(path: Path) -> Any:
    rows: list[list[str]] = []
    lines: list[int] = []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(_whole_lines(file, path), strict=True)
        try:
            header = tuple(next(reader, ()))
            if header not in (COLUMNS, schema1.COLUMNS):
                raise RecordError(f"{path}: the header is not the {SCHEMA} column list")
            for row in filter(None, reader):
                if len(row) != len(header):
                    raise RecordError(f"{path}, line {reader.line_num}: expected {len(header)} cells")
                rows.append(row)
                lines.append(reader.line_num)
        except csv.Error as error:
            raise RecordError(f"{path}, line {reader.line_num}: {error}") from None
        except UnicodeDecodeError as error:
            raise RecordError(f"{path}: not a UTF-8 file ({error.reason})") from None
    columns, doubtful = [], np.zeros(len(rows), bool)
    schema = TABLE if header == COLUMNS else _TABLE_1
    for cells, field in zip(zip(*rows, strict=True) if rows else [()] * len(header), schema, strict=True):
        column = pa.array(cells, pa.string())
        if field.type in _PLAIN:
            plain = pc.match_substring_regex(column, _PLAIN[field.type])
            read = pc.or_(plain, pc.equal(column, "")) if field.nullable else plain
            doubtful |= ~read.to_numpy(zero_copy_only=False)
            column = pc.if_else(plain, column, None).cast(field.type)
        columns.append(column)
    table = pa.Table.from_arrays(columns, schema=schema)
    if schema is _TABLE_1:
        table = _migrated(table, path)
    for at in np.flatnonzero(doubtful | _doubtful(table)):
        found = dict(zip(header, rows[at], strict=True))
        if schema is _TABLE_1:
            told = _cells(table, int(at))
            found = {**told, **found, **{name: told[name] for name in _CHANGED}}
        _refuse(found, f"{path}, line {lines[at]}")
    return table


def _migrated(table: Any, path: Path) -> Any:
    """A table of the first schema with today's columns."""
    found = schema1.columns(table.to_pandas(), path)
    arrays = [
        pa.array(found[one.name], one.type, from_pandas=True) if one.name in found else table[one.name] for one in TABLE
    ]
    return pa.Table.from_arrays(arrays, schema=TABLE)


def _cells(table: Any, at: int) -> dict[str, str]:
    """A row as CSV cells by column."""
    return {name: _write_cell(value) for name, value in table.slice(at, 1).to_pylist()[0].items()}


def _whole_lines(lines: Iterable[str], path: Path) -> Iterator[str]:
    """The lines; one without its end was cut off, if only within its last cell."""
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            raise RecordError(f"{path}, line {number}: the line is cut off")
        if "\0" in line:
            raise RecordError(f"{path}, line {number}: it holds a NUL byte")
        yield line


def _doubtful(table: Any) -> NDArray[np.bool_]:
    """The rows that `Record` refuses, at once for all."""
    frame = table.select(_JUDGED).to_pandas()
    amounts = frame[[*_COUNTS, *_AMOUNTS]]
    finite = (amounts.isna() | (amounts >= 0) & (amounts < np.inf)).all(axis=1) & (frame["sparsity"].abs() < np.inf)
    times = frame[["median_us", "q1_us", "q3_us"]]
    possible = (times.isna() | (times >= SHORTEST_US) & (times <= LONGEST_US)).all(axis=1)
    sampled = frame["median_us"].isna() | frame["samples"].isna() | (frame["samples"] >= 1)
    ok = (frame["status"] == "ok") & frame["relative_error"].notna() & possible & sampled
    untimed = times.isna().all(axis=1) & frame["selected"].eq(False) & (frame["reason"] != "")
    failed = frame["status"].isin(set(get_args(Status)) - {"ok"}) & untimed
    named = np.logical_and.reduce([frame[name].isin(words) for name, words in _WORDS.items()])
    sound = (frame["schema"] == SCHEMA) & finite & named & (ok | failed)
    doubtful: NDArray[np.bool_] = ~sound.to_numpy(dtype=bool)
    return doubtful


def _refuse(row: dict[str, str], where: str) -> NoReturn:
    """Raises `RecordError` that says what is wrong with the cells of a row, naming the column."""
    cells: dict[str, Any] = {}
    try:
        for name, kind, optional in _CELLS:
            try:
                cells[name] = None if optional and row[name] == "" else _read_cell(row[name], kind)
            except ValueError as error:
                raise RecordError(f"column '{name}': {error}") from None
        if cells["schema"] != SCHEMA:
            raise RecordError(f"column 'schema': '{cells['schema']}' is not {SCHEMA}")
        Record(**cells)
    except RecordError as error:
        raise RecordError(f"{where}: {error}") from None
    raise RecordError(f"{where}: a number is not written plainly")


def append(path: Path, records: Iterable[Record]) -> None:
    """Appends rows and flushes them to disk, the header first in a new file; all of them or, on an error, none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    append_rows(path, COLUMNS, map(to_row, records))


def renewed(path: Path) -> None:
    """Rewrites a journal of the first schema with today's columns, for rows to be appended to."""
    with path.open(newline="", encoding="utf-8") as file:
        header = tuple(next(csv.reader(file), ()))
    if header == schema1.COLUMNS:
        rows = read_records(path)
        with paths.replacing(path) as partial:
            append(partial, rows)


def rewrite(path: Path, columns: Mapping[str, Iterable[Any]]) -> None:
    """Rewrites some columns of a file that `read_records` takes, a value a row, and nothing else.

    The file is replaced at once: readers see the old rows or the new ones, never half of each.
    """
    at = [COLUMNS.index(name) for name in columns]
    with path.open(newline="", encoding="utf-8") as file, paths.replacing(path) as partial:
        rows = (row for row in csv.reader(file, strict=True) if row)
        with paths.appending(partial) as marked:
            writer = csv.writer(marked, lineterminator="\n")
            writer.writerow(next(rows))
            for row, *values in zip(rows, *columns.values(), strict=True):
                for place, value in zip(at, values, strict=True):
                    row[place] = _write_cell(value)
                writer.writerow(row)
