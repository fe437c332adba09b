"""Sparse matrices from files: DLMC's `.smtx` patterns, Matrix Market files and SciPy's `.npz`.

`.smtx` is CSR as text without values, three lines: `rows, cols, nnz`; row offsets; column indices. Sizes are checked
before arrays are made. pandas reads the numbers of a Matrix Market file: SciPy's reader ends the whole process on some
damaged ones (1.17).
"""

from __future__ import annotations

import csv
import io
import os
import re
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import scipy  # its parts are loaded when they are first used
from numpy.typing import NDArray

from nnzbench.matrices.checkpoints import FLOATS, MAX_BYTES, load_array, reading
from nnzbench.matrices.formats import CSR, MatrixError, require_memory

SMTX_BYTES = 1 << 30
"""Largest file read; the largest DLMC matrix is below 100 MB."""

_HEADER = re.compile(rb"(\d{1,12}), *(\d{1,12}), *(\d{1,12}) *\r?\n")
_HEADER_BYTES = 64
_LONG = re.compile(rb"\d{11}")
_NUMBER_BYTES = 48
"""Memory for each number at most, while they are checked."""


def read_smtx(path: str | os.PathLike[str]) -> CSR:
    """The pattern in `path`, with all values 1.0 (float32).

    Raises `MatrixError` naming the file and the field that is wrong. Sizes in the header are believed only after they
    fit the size of the file, so a forged header cannot cause a large allocation.
    """
    name = os.fspath(path)
    with reading(name), Path(path).open("rb") as stream:
        return _parse(name, stream, os.fstat(stream.fileno()).st_size)


def _parse(name: str, stream: BinaryIO, size: int) -> CSR:
    if size > SMTX_BYTES:
        raise MatrixError(f"{name}: file of {size} bytes is larger than the {SMTX_BYTES} bytes allowed.")
    header = stream.readline(_HEADER_BYTES)
    match = _HEADER.fullmatch(header)
    if match is None:
        raise MatrixError(f"{name}: header must read 'rows, cols, nnz'.")
    rows, columns, nnz = (int(group) for group in match.groups())
    if rows < 1 or columns < 1:
        raise MatrixError(f"{name}: header gives an empty matrix of {rows} x {columns}.")
    if max(rows, columns, nnz) >= 2**31:
        raise MatrixError(f"{name}: header size {max(rows, columns, nnz)} does not fit 32-bit indices.")
    if nnz > rows * columns:
        raise MatrixError(f"{name}: header gives nnz {nnz} for only {rows} x {columns} positions.")
    # Every number takes a digit and a separator, but for the last on a line without its trailing space.
    if size - len(header) < 2 * (rows + 1 + nnz) - 2:
        raise MatrixError(f"{name}: file is truncated, {size} bytes cannot hold nnz {nnz} and {rows + 1} offsets.")
    require_memory(name, _NUMBER_BYTES * (rows + 1 + nnz))
    offsets = _numbers(name, "row offsets", stream.readline(), rows + 1)
    indices = _numbers(name, "column indices", stream.readline(), nnz)
    if stream.read(1):
        raise MatrixError(f"{name}: unexpected data after the line of column indices.")
    _check(name, offsets, indices, columns)
    return CSR(rows, columns, offsets.astype(np.int32), indices.astype(np.int32), np.ones(nnz, dtype=np.float32))


def _numbers(name: str, field: str, line: bytes, count: int) -> NDArray[np.int64]:
    if line.translate(None, b"0123456789 \r\n"):
        raise MatrixError(f"{name}: {field} hold something other than decimal numbers and spaces.")
    if _LONG.search(line):
        raise MatrixError(f"{name}: {field} hold a number that does not fit 32 bits.")
    numbers = np.fromstring(line, dtype=np.int64, sep=" ") if line.strip() else np.empty(0, dtype=np.int64)
    if numbers.size != count:
        raise MatrixError(f"{name}: expected {count} {field}, found {numbers.size}.")
    return numbers


def _check(name: str, offsets: NDArray[np.int64], indices: NDArray[np.int64], columns: int) -> None:
    if offsets[0] != 0 or offsets[-1] != indices.size:
        raise MatrixError(f"{name}: row offsets must run from 0 to nnz {indices.size}.")
    falls = np.flatnonzero(np.diff(offsets) < 0)
    if falls.size:
        raise MatrixError(f"{name}: row offsets decrease at row {falls[0]}.")
    if indices.size and indices.max() >= columns:
        raise MatrixError(f"{name}: column index {indices.max()} is out of range for {columns} columns.")
    rows = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    bad = np.flatnonzero((np.diff(indices) <= 0) & (np.diff(rows) == 0))
    if bad.size:
        kind = "repeated" if indices[bad[0]] == indices[bad[0] + 1] else "not ascending"
        raise MatrixError(f"{name}: column indices are {kind} in row {rows[bad[0]]}.")


MOST_ROWS = 1 << 24
"""Rows or columns at most: a small file could otherwise ask for gigabytes of row offsets."""
_FAULTS = (ValueError, OverflowError, TypeError, EOFError, RuntimeError, IndexError)
_LINE = 1025
"""Longest line of a Matrix Market file, by its standard, and a line end."""
_WORDS = {
    "format": ("coordinate", "array"),
    "field": ("real", "double", "integer", "pattern"),
    "symmetry": ("general", "symmetric", "skew-symmetric"),
}
_ENTRY_BYTES = 120
"""Memory for each entry at most, while they are sorted and checked."""
_INDICES = tuple(np.dtype(kind) for kind in (np.int32, np.int64))
_VALUES: tuple[np.dtype[Any], ...] = (*FLOATS, *map(np.dtype, ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")))
_ARRAYS = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}
"""Arrays of each storage beside `format`, `shape` and `data`."""


def read_market(path: Path) -> tuple[CSR, str]:
    """A Matrix Market file and its type, `pattern` where it gives no values. Raises `MatrixError`."""
    with reading(path, "a readable Matrix Market file", _FAULTS):
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise MatrixError(f"{path}: {size} bytes are more than the {MAX_BYTES} allowed.")
        header = _require_market(path, size)
        whole = header.entries if header.coordinate else header.rows * header.columns
        require_memory(str(path), size + _ENTRY_BYTES * whole)
        with path.open("rb") as stream:
            stream.seek(header.end)
            found = _body(header, stream.read())
    csr = _checked(str(path), found, header.field == "pattern")
    return csr, "pattern" if header.field == "pattern" else "float64"


class _Header(NamedTuple):
    """What the lines before the numbers say."""

    coordinate: bool
    field: str
    symmetry: str
    rows: int
    columns: int
    entries: int
    end: int
    """Where the numbers begin, in bytes."""


def _body(header: _Header, text: bytes) -> Any:
    """The matrix of the numbers after the header. Raises `ValueError` for what is not `header.entries` good entries."""
    fields = (2 if header.field == "pattern" else 3) if header.coordinate else 1
    if b"\0" in text:
        raise ValueError("holds a zero byte")
    table = np.empty((0, fields))
    if text.strip():
        import pandas as pd  # takes half a second to load

        options: Any = {"sep": r"\s+", "header": None, "dtype": np.float64, "quoting": csv.QUOTE_NONE}
        table = pd.read_csv(io.BytesIO(text), **options).to_numpy()
    if table.shape != (header.entries, fields):
        raise ValueError(f"holds {table.shape[0]} lines of {table.shape[1]} numbers, not {header.entries} of {fields}")
    skew = header.symmetry == "skew-symmetric"
    if header.coordinate:
        places = table[:, :2]
        if not ((places >= 1) & (places <= (header.rows, header.columns)) & (places == np.floor(places))).all():
            raise ValueError(f"a place is not one of {header.rows} x {header.columns}")
        row, column = (places - 1).astype(np.int64).T
    elif header.symmetry == "general":
        column, row = np.divmod(np.arange(header.entries), header.rows)
    else:
        column, row = np.triu_indices(header.rows, k=int(skew))
    values = table[:, -1] if header.field != "pattern" else np.ones(len(table))
    if header.symmetry != "general":
        if header.rows != header.columns or (row < column).any():
            raise ValueError("stores more than the lower half of a symmetric matrix")
        below = row != column
        row, column = np.append(row, column[below]), np.append(column, row[below])
        values = np.append(values, values[below] * (-1 if skew else 1))
    return scipy.sparse.coo_array((values, (row, column)), shape=(header.rows, header.columns))


def _require_market(path: Path, size: int) -> _Header:
    """Checks banner and sizes against the file's own size."""
    with path.open("rb") as stream:
        banner = stream.readline(_LINE).decode("ascii", "replace").lower().split()
        if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"]:
            raise MatrixError(f"{path}: does not begin with '%%MatrixMarket matrix FORMAT FIELD SYMMETRY'.")
        words = dict(zip(_WORDS, banner[2:], strict=True))
        for name, allowed in _WORDS.items():
            if words[name] not in allowed:
                raise MatrixError(f"{path}: its {name} is '{words[name][:40]}', not one of {', '.join(allowed)}.")
        line = b"%"
        while line.lstrip()[:1] in (b"%", b"") and line:
            line = stream.readline(_LINE)
        end = stream.tell()
    text = line.decode("ascii", "replace").split()
    wanted = 3 if words["format"] == "coordinate" else 2
    if len(text) != wanted or not all(one.isdecimal() and len(one) <= 19 for one in text):
        raise MatrixError(f"{path}: the line of sizes must hold {wanted} whole numbers.")
    rows, columns, *rest = map(int, text)
    _require_sides(str(path), rows, columns)
    symmetry = words["symmetry"]
    if symmetry != "general" and rows != columns:
        raise MatrixError(f"{path}: is {symmetry}, and {rows} x {columns} is not square.")
    half = rows * (rows + (-1 if symmetry == "skew-symmetric" else 1)) // 2
    count = rest[0] if rest else rows * columns if symmetry == "general" else half
    least = 4 if wanted == 3 else 2  # "1 1\n", or a digit and its line end
    if count * least > 2 * size + 2 * least:
        raise MatrixError(f"{path}: is truncated, {size} bytes cannot hold {count} entries.")
    if wanted == 3 and count > rows * columns:
        raise MatrixError(f"{path}: gives {count} entries for only {rows} x {columns} positions.")
    field = words["field"] if wanted == 3 else "real"
    return _Header(wanted == 3, field, symmetry, rows, columns, count, end)


def read_scipy(path: Path) -> tuple[CSR, str]:
    """A SciPy sparse `.npz` file (CSR, CSC or COO) and its values' type. Raises `MatrixError`."""
    name = load_array(path, "format", ()).reshape(-1)
    kind = str(name[0].decode("ascii", "replace") if isinstance(name[0], bytes) else name[0]) if name.size else ""
    if kind not in _ARRAYS:
        raise MatrixError(f"{path}: is stored as '{kind[:20]}', not one of {', '.join(_ARRAYS)}.")
    shape = load_array(path, "shape", _INDICES).reshape(-1)
    if shape.size != 2:
        raise MatrixError(f"{path}: array 'shape' has {shape.size} numbers, not two.")
    rows, columns = map(int, shape)
    _require_sides(str(path), rows, columns)
    data = load_array(path, "data", _VALUES)
    require_memory(str(path), _ENTRY_BYTES * data.size)
    first, second = (load_array(path, one, _INDICES) for one in _ARRAYS[kind])
    with reading(path, "a readable sparse matrix", _FAULTS):
        if kind == "coo":
            found = scipy.sparse.coo_array((data, (first, second)), shape=(rows, columns))
        else:
            packed = getattr(scipy.sparse, f"{kind}_array")((data, first, second), shape=(rows, columns))
            packed.check_format(full_check=True)
            if packed.indptr[-1] != data.size:
                raise ValueError(f"{data.size} values for {packed.indptr[-1]} places")
            found = packed.tocoo()
    return _checked(str(path), found, data.dtype == np.bool_), "pattern" if data.dtype == np.bool_ else data.dtype.name


def from_scipy(where: str, matrix: Any) -> CSR:
    """A SciPy sparse matrix, entries given twice refused. Raises `MatrixError`."""
    _require_sides(where, *map(int, matrix.shape))
    if np.dtype(matrix.dtype).kind not in "fbiu":
        raise MatrixError(f"{where}: values are {matrix.dtype}, which is not read here.")
    return _checked(where, scipy.sparse.coo_array(matrix), False)


def _require_sides(where: str, rows: int, columns: int) -> None:
    if rows < 1 or columns < 1:
        raise MatrixError(f"{where}: sizes {rows} x {columns} are not those of a matrix.")
    if max(rows, columns) > MOST_ROWS:
        raise MatrixError(f"{where}: {max(rows, columns)} rows or columns are more than the {MOST_ROWS} allowed.")


def _checked(where: str, found: scipy.sparse.coo_array[Any, Any], pattern: bool) -> CSR:
    """Sorted by row and column, without stored zeros. Refuses entries given twice, NaN and Inf."""
    rows, columns = found.shape
    order = np.lexsort((found.col, found.row))
    row, column = found.row[order], found.col[order]
    if ((np.diff(row) == 0) & (np.diff(column) == 0)).any():
        raise MatrixError(f"{where}: gives an entry twice.")
    with np.errstate(over="ignore"):
        values: NDArray[Any] = np.ones(row.size, np.float32) if pattern else found.data[order].astype(np.float32)
    if not np.isfinite(values).all():
        raise MatrixError(f"{where}: values hold NaN or infinity, or do not fit float32.")
    kept = values != 0
    row, column, values = row[kept], column[kept], values[kept]
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(row, minlength=rows), out=offsets[1:])
    return CSR(rows, columns, offsets, column.astype(np.int32), values)
