"""One row of `records.csv`: the fixed contract that every report and outside tool reads.

Field order is column order. A time can't exist without a passed check: `Record` refuses it.
"""

from __future__ import annotations

import csv
import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from nnzbench import paths

SCHEMA = "nnzbench/1"

Status = Literal["ok", "wrong", "unsupported", "compile-error", "launch-error", "timeout"]
_STATUSES: tuple[str, ...] = get_args(Status)
SHORTEST_US, LONGEST_US = 1e-6, 1e12
"""What a time can be at all: a millionth of the finest clock's step, and eleven days."""
_COUNTS = ("m", "k", "n", "nnz", "samples", "registers", "shared_bytes", "spill_bytes", "code_bytes")
_AMOUNTS = ("flops", "bytes", "limit_us", "floor_us", "prepare_ms", "compile_ms", "relative_error", "sm_clock_mhz")
FAILURES: frozenset[Status] = frozenset({"wrong", "compile-error", "launch-error"})
"""What a kernel must not do, where `unsupported` and `timeout` are answers."""
Key = tuple[str, ...]


class RecordError(ValueError):
    """A records file breaks the schema; the message names file, line and column in one sentence."""


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

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if (count := getattr(self, name)) is not None and not 0 <= count < 2**63:
                raise RecordError(f"column '{name}': {count} is not a count")
        for name in _AMOUNTS:
            if (amount := getattr(self, name)) is not None and amount < 0:
                raise RecordError(f"column '{name}': {amount:g} is below zero")
        if self.status not in _STATUSES:
            raise RecordError(f"status '{self.status}' is not one of {', '.join(_STATUSES)}")
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


COLUMNS = tuple(field.name for field in dataclasses.fields(Record))
_TYPES = get_type_hints(Record)


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


def _read_bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"'{text}' is not true or false")
    return text == "true"


def _read_int(text: str) -> int:
    _require_plain(text)
    return int(text)


def _require_plain(text: str) -> None:
    """Refuses what Python alone reads as a number: `1_000`, blanks, digits of other scripts."""
    if "_" in text or not text.isascii() or text[:1].isspace() or text[-1:].isspace():
        raise ValueError(f"{text!r} is not a plain number")


def _read_float(text: str) -> float:
    _require_plain(text)
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"'{text}' is not a finite number")
    return value


_READ: dict[type, Callable[[str], Any]] = {bool: _read_bool, int: _read_int, float: _read_float, str: str}


def _reader(kind: Any) -> tuple[Callable[[str], Any], bool]:
    """What reads a cell of that type, and whether an empty one is None."""
    options = get_args(kind)  # of a union its members, of a `Literal` its words
    wanted = next((one for one in options if one in _READ), kind)
    return _READ.get(wanted, str), type(None) in options


_CELLS = tuple((name, *_reader(_TYPES[name])) for name in COLUMNS)
_NUMBERS = tuple(at for at, (_, read, _) in enumerate(_CELLS) if read in (_read_int, _read_float))
_PLAIN_READ: dict[Callable[[str], Any], Callable[[str], Any]] = {_read_int: int, _read_float: float}
_PLAIN_CELLS = tuple((_PLAIN_READ.get(read, read), optional) for _, read, optional in _CELLS)
_PLAIN = re.compile(r"[0-9eE.+-]*")


def _plain_record(cells: list[str]) -> Record | None:
    """The record of a whole row whose numbers are plain, in a third of the time; None where `from_row` must say more.

    Files have a hundred thousand rows, and a run that is gone on with reads them all.
    """
    if not _PLAIN.fullmatch("".join([cells[at] for at in _NUMBERS])):
        return None
    try:
        values: list[Any] = [
            None if optional and not cell else read(cell)
            for (read, optional), cell in zip(_PLAIN_CELLS, cells, strict=True)
        ]
        finite = math.isfinite(sum(values[at] or 0 for at in _NUMBERS))
    except (ValueError, OverflowError):
        return None
    return Record(*values) if finite and values[0] == SCHEMA else None


def from_row(row: dict[str, str]) -> Record:
    """Parses one CSV row. Raises `RecordError` naming the column."""
    cells: dict[str, Any] = {}
    for name, read, optional in _CELLS:
        try:
            cells[name] = None if optional and row[name] == "" else read(row[name])
        except (ValueError, TypeError) as error:
            raise RecordError(f"column '{name}': {error}") from None
    if cells["schema"] != SCHEMA:
        raise RecordError(f"column 'schema': '{cells['schema']}' is not {SCHEMA}")
    return Record(**cells)


def read_records(path: Path) -> list[Record]:
    """Reads a records file. Raises `RecordError` naming file, line and column; a cut-off last line is an error too."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(_whole_lines(file, path), strict=True)
        try:
            if tuple(next(reader, ())) != COLUMNS:
                raise RecordError(f"{path}: the header is not the {SCHEMA} column list")
            return list(_parse(path, reader))
        except csv.Error as error:
            raise RecordError(f"{path}, line {reader.line_num}: {error}") from None
        except UnicodeDecodeError as error:
            raise RecordError(f"{path}: not a UTF-8 file ({error.reason})") from None


def _whole_lines(lines: Iterable[str], path: Path) -> Iterator[str]:
    """The lines; one without its end was cut off, if only within its last cell."""
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            raise RecordError(f"{path}, line {number}: the line is cut off")
        if "\0" in line:
            raise RecordError(f"{path}, line {number}: it holds a NUL byte")
        yield line


def _parse(path: Path, reader: Any) -> Iterator[Record]:
    for row in reader:
        if not row:
            continue
        if len(row) != len(COLUMNS):
            raise RecordError(f"{path}, line {reader.line_num}: expected {len(COLUMNS)} cells")
        try:
            yield _plain_record(row) or from_row(dict(zip(COLUMNS, row, strict=True)))
        except RecordError as error:
            raise RecordError(f"{path}, line {reader.line_num}: {error}") from None


def append(path: Path, records: Iterable[Record]) -> None:
    """Appends rows and flushes them to disk, the header first in a new file; all of them or, on an error, none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with paths.appending(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(COLUMNS)
        writer.writerows(map(to_row, records))


def mark_selected(path: Path, selected: Iterable[bool]) -> None:
    """Rewrites the column `selected` of a file that `read_records` takes, a value a row, and nothing else.

    The file is replaced at once: readers see the old rows or the new ones, never half of each.
    """
    at = COLUMNS.index("selected")
    with path.open(newline="", encoding="utf-8") as file, paths.replacing(path) as partial:
        rows = (row for row in csv.reader(file, strict=True) if row)
        with paths.appending(partial) as marked:
            writer = csv.writer(marked, lineterminator="\n")
            writer.writerow(next(rows))
            for row, flag in zip(rows, selected, strict=True):
                writer.writerow([*row[:at], _write_cell(flag), *row[at + 1 :]])
