"""Tables in a results folder: CSV that a run appends to, and Parquet as they are published; the columns of either are
the fields of a dataclass. And the error of one that is not as it should be.
"""

from __future__ import annotations

import csv
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nnzbench.core import paths

Form = Literal["csv", "parquet"]
MOST_BYTES, SNAPSHOT_BYTES = 1 << 30, 1 << 20
"""Longer than any file of a result set, and than any snapshot of a machine in it."""
MOST_ROWS, MOST_LETTERS = 1 << 20, 1 << 29
"""Of a file; of the largest published one 67,000 and 20 million."""
_ARROW = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


class RecordError(ValueError):
    """A records file breaks the schema; the message names file, line and column in one sentence."""


def plain(path: Path, most: int = MOST_BYTES) -> None:
    """Raises `RecordError` for what is no plain file (a pipe is waited for, a device has no end) or is too long."""
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise RecordError(f"{path} is not a plain file")
    if state.st_size > most:
        raise RecordError(f"{path} is longer than {most} bytes")


def refuse_links(*paths: Path) -> None:
    """Raises `RecordError` where one of the paths is a symbolic link: a results folder holds its files itself."""
    for path in paths:
        if path.is_symlink():
            raise RecordError(f"{path} is a link: nothing outside a results folder is read or written for it")


def append_rows(path: Path, header: Iterable[str], rows: Iterable[Sequence[object]]) -> None:
    """Appends rows to a CSV file whose folder is there, the header first in a new one; on an error none of them."""
    with paths.appending(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(header)
        writer.writerows(rows)


def cells_of(kind: type[Any]) -> dict[str, tuple[type, bool]]:
    """The fields of a dataclass: the type of a column's cells, and whether an empty one is None."""
    hints, out = get_type_hints(kind), {}
    for name in (field.name for field in fields(kind)):
        options = get_args(hints[name])  # of a union its members, of a `Literal` its words
        found = next((one for one in (hints[name], *options) if one in _ARROW), str)
        out[name] = (found, type(None) in options)
    return out


def schema_of(kind: type[Any]) -> Any:
    """The same as Arrow types; a column that may be empty is nullable."""
    cells = cells_of(kind).items()
    return pa.schema([pa.field(name, _ARROW[one], nullable=optional) for name, (one, optional) in cells])


def read_parquet(path: Path, what: str, *schemas: Any, columns: Sequence[str] | None = None) -> Any:
    """The rows of a file that has the columns of one of these schemas, and is `what`. Raises `RecordError`.

    With `columns`, these alone where it has the first schema, texts as dictionaries.
    """
    try:
        file = pq.ParquetFile(path)
        found = [(one.name, one.type) for one in file.schema_arrow]
        schema = next((some for some in schemas if found == [(one.name, one.type) for one in some]), None)
        if schema is None:
            raise RecordError(f"{path}: its columns are not {what}")
        some = columns if schema is schemas[0] else None
        texts = [one.name for one in schema if one.type == pa.string() and (some is None or one.name in some)]
        if file.metadata.num_rows > MOST_ROWS:
            raise RecordError(f"{path}: {file.metadata.num_rows} rows are more than the {MOST_ROWS} allowed")
        table = pq.ParquetFile(path, read_dictionary=texts).read(columns=some)
        table.validate(full=True)
        # a few bytes can stand for any number of equal rows, and for equal texts
        lengths = (pc.binary_length(one.dictionary).take(one.indices) for name in texts for one in table[name].chunks)
        if sum(pc.sum(one).as_py() or 0 for one in lengths) > MOST_LETTERS:
            raise RecordError(f"{path}: its texts are longer than the {MOST_LETTERS} letters allowed")
        table = table.cast(file.schema_arrow) if some is None else table.select(list(some))
    except (pa.ArrowException, OSError, OverflowError, UnicodeDecodeError) as error:
        said = "".join(one if one.isprintable() else " " for one in str(error)[:200])
        raise RecordError(f"{path}: not a readable Parquet file ({' '.join(said.split())})") from None
    needed = [field.name for field in schema if not field.nullable and field.name in table.column_names]
    if empty := [name for name in needed if table[name].null_count]:
        raise RecordError(f"{path}: column '{empty[0]}' has an empty cell")
    return table


def write_parquet(path: Path, table: Any) -> None:
    """Writes a table; equal rows make equal bytes. On disk before it stands under its name."""
    with paths.replacing(path) as partial, partial.open("wb") as file:
        pq.write_table(
            table.replace_schema_metadata(None),
            file,
            compression="zstd",
            compression_level=19,
            use_dictionary=[one.name for one in table.schema if one.type == pa.string()],  # numbers are smaller as is
            write_statistics=False,
            store_schema=False,
        )
        file.flush()
        os.fsync(file.fileno())
