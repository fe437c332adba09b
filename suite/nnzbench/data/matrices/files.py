"""Matrices of one's own, from whatever file holds them: one reader for each format, and no trust in any of them.

`docs/own-matrices.md` lists them. Sizes are compared with the file's own before anything is allocated. Weights of more
than two axes become the matrix of filters by everything else, `c_in*(r*s) + tap` for the usual order of a convolution.

DLMC's `.smtx` is CSR as text without values, three lines: `rows, cols, nnz`; row offsets; column indices. pandas reads
the numbers of a Matrix Market file: SciPy's reader ends the whole process on some damaged ones (1.17).

Of compressed-tensors' `sparse-bitmask` (SparseML's `transformers/compression/README.md`): of a tensor `<name>` with
`rows` x `columns` weights, `<name>.compressed` holds the nonzeros row by row, `<name>.bitmask` (rows,
ceil(columns / 8)) uint8 a bit for each weight, the first in the lowest, `<name>.shape` the two sizes, and
`<name>.row_offsets` (rows,) where each row's nonzeros start. `sparse-24-bitmask` has no offsets, and its nonzeros as a
matrix.
"""

from __future__ import annotations

import csv
import fnmatch
import io
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import scipy  # its parts are loaded when they are first used
from numpy.typing import NDArray

from nnzbench.core import host
from nnzbench.data.matrices import checkpoints
from nnzbench.data.matrices.checkpoints import FLOATS, MAX_BYTES, array_names, load_array, reading
from nnzbench.data.matrices.formats import CSR, MatrixError, prefix_sums, require_memory

MASK = ".bitmask"
NONZEROS, SHAPE, STARTS = ".compressed", ".shape", ".row_offsets"
PARTS = (NONZEROS, MASK, SHAPE, STARTS)


def pack_bitmask(matrix: CSR) -> dict[str, NDArray[Any]]:
    """The parts of a matrix by their endings; all its values must be nonzeros."""
    there = np.zeros(matrix.m * matrix.k, bool)
    there[matrix.rows.astype(np.int64) * matrix.k + matrix.indices] = True  # by one index, which is twice as fast
    mask = np.packbits(there.reshape(matrix.m, matrix.k), axis=1, bitorder="little")
    shape, starts = np.array([matrix.m, matrix.k], np.int64), matrix.offsets[:-1].astype(np.int64)
    return {NONZEROS: matrix.values, MASK: mask, SHAPE: shape, STARTS: starts}


def unpack_bitmask(where: str, parts: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """The dense array (rows, columns) of `pack_bitmask`'s parts; offsets may lack. Raises `MatrixError`."""
    values, mask, shape = parts[NONZEROS].reshape(-1), parts[MASK], parts[SHAPE]
    rows, columns = map(int, shape) if shape.shape == (2,) and shape.dtype.kind in "iu" else (0, 0)
    if min(rows, columns) < 1 or mask.dtype != np.uint8 or mask.shape != (rows, -(-columns // 8)):
        raise MatrixError(f"{where}: a bitmask of {mask.shape} is none of the shape {shape.tolist()}.")
    require_memory(where, rows * columns * (1 + values.itemsize))
    bits = np.unpackbits(mask, axis=1, bitorder="little")
    counts = bits.sum(axis=1, dtype=np.int64)
    ends = np.cumsum(counts)
    if ends[-1] != values.size or bits[:, columns:].any():
        raise MatrixError(f"{where}: its bitmask counts {ends[-1]} nonzeros, and {values.size} are there.")
    if STARTS in parts and not np.array_equal(parts[STARTS], ends - counts):
        raise MatrixError(f"{where}: its row offsets are not those of its bitmask.")
    dense = np.zeros(rows * columns, values.dtype)
    dense[np.flatnonzero(bits[:, :columns].view(bool))] = values  # by numbers: a mask takes five times as long
    return dense.reshape(rows, columns)


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
    with reading(path, "a readable Matrix Market file", _FAULTS), path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > MAX_BYTES:
            raise MatrixError(f"{path}: {size} bytes are more than the {MAX_BYTES} allowed.")
        words = _banner(path, stream)
        rows, columns, entries = _market_sizes(path, stream, words, size)
        whole = entries if words["format"] == "coordinate" else rows * columns
        require_memory(str(path), size + _ENTRY_BYTES * whole)
        found = _market_matrix(stream.read(), words, rows, columns, entries)
    pattern = words["field"] == "pattern"
    return _checked(str(path), found, pattern), "pattern" if pattern else "float64"


def _banner(path: Path, stream: BinaryIO) -> dict[str, str]:
    """The first line's words: format, field and symmetry. Zeros and ones without values stand in coordinates alone."""
    banner = stream.readline(_LINE).decode("ascii", "replace").lower().split()
    if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"]:
        raise MatrixError(f"{path}: does not begin with '%%MatrixMarket matrix FORMAT FIELD SYMMETRY'.")
    words = dict(zip(_WORDS, banner[2:], strict=True))
    for name, allowed in _WORDS.items():
        if words[name] not in allowed:
            raise MatrixError(f"{path}: its {name} is '{words[name][:40]}', not one of {', '.join(allowed)}.")
    return words if words["format"] == "coordinate" else {**words, "field": "real"}


def _market_sizes(path: Path, stream: BinaryIO, words: Mapping[str, str], size: int) -> tuple[int, int, int]:
    """Rows, columns and entries, compared with the file's own size."""
    line = b"%"
    while line.lstrip()[:1] in (b"%", b"") and line:
        line = stream.readline(_LINE)
    text, coordinate = line.decode("ascii", "replace").split(), words["format"] == "coordinate"
    wanted = 3 if coordinate else 2
    if len(text) != wanted or not all(one.isdecimal() and len(one) <= 19 for one in text):
        raise MatrixError(f"{path}: the line of sizes must hold {wanted} whole numbers.")
    rows, columns, *given = map(int, text)
    _require_sides(str(path), rows, columns)
    symmetry = words["symmetry"]
    if symmetry != "general" and rows != columns:
        raise MatrixError(f"{path}: is {symmetry}, and {rows} x {columns} is not square.")
    half = rows * (rows + (-1 if symmetry == "skew-symmetric" else 1)) // 2
    count = given[0] if given else rows * columns if symmetry == "general" else half
    least = 4 if coordinate else 2  # "1 1\n", or a digit and its line end
    if count * least > 2 * size + 2 * least:
        raise MatrixError(f"{path}: is truncated, {size} bytes cannot hold {count} entries.")
    if coordinate and count > rows * columns:
        raise MatrixError(f"{path}: gives {count} entries for only {rows} x {columns} positions.")
    return rows, columns, count


def _market_matrix(text: bytes, words: Mapping[str, str], rows: int, columns: int, entries: int) -> Any:
    """The matrix of the numbers after the sizes. Raises `ValueError` for what is not so many good entries."""
    coordinate, pattern = words["format"] == "coordinate", words["field"] == "pattern"
    general, skew = (words["symmetry"] == one for one in ("general", "skew-symmetric"))
    fields = (2 if pattern else 3) if coordinate else 1
    if b"\0" in text:
        raise ValueError("holds a zero byte")
    table = np.empty((0, fields))
    if text.strip():
        import pandas as pd  # takes half a second to load

        options: Any = {"sep": r"\s+", "header": None, "dtype": np.float64, "quoting": csv.QUOTE_NONE}
        table = pd.read_csv(io.BytesIO(text), **options).to_numpy()
    if table.shape != (entries, fields):
        raise ValueError(f"holds {table.shape[0]} lines of {table.shape[1]} numbers, not {entries} of {fields}")
    if coordinate:
        places = table[:, :2]
        if not ((places >= 1) & (places <= (rows, columns)) & (places == np.floor(places))).all():
            raise ValueError(f"a place is not one of {rows} x {columns}")
        row, column = (places - 1).astype(np.int64).T
    elif general:
        column, row = np.divmod(np.arange(entries), rows)
    else:
        column, row = np.triu_indices(rows, k=int(skew))
    values = np.ones(len(table)) if pattern else table[:, -1]
    if not general:
        if (row < column).any():
            raise ValueError("stores more than the lower half of a symmetric matrix")
        below = row != column
        row, column = np.append(row, column[below]), np.append(column, row[below])
        values = np.append(values, values[below] * (-1 if skew else 1))
    return scipy.sparse.coo_array((values, (row, column)), shape=(rows, columns))


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
    with np.errstate(over="ignore"):
        values: NDArray[Any] = np.ones(found.nnz, np.float32) if pattern else found.data.astype(np.float32)
    if not np.isfinite(values).all():
        raise MatrixError(f"{where}: values hold NaN or infinity, or do not fit float32.")
    made = scipy.sparse.coo_array((values, found.coords), shape=found.shape).tocsr()  # adds up what is given twice
    if made.nnz != values.size:
        raise MatrixError(f"{where}: gives an entry twice.")
    made.eliminate_zeros()
    made.sort_indices()
    rows, columns = found.shape
    return CSR(rows, columns, made.indptr.astype(np.int32), made.indices.astype(np.int32), made.data)


WHOLE = tuple(np.dtype(kind) for kind in (np.bool_, *np.sctypeDict.values()) if np.dtype(kind).kind in "biu")
"""Masks and quantised weights: what counts is which of them are zero."""
_SPARSE_MEMBERS = frozenset({"format", "shape", "data"})
_SHOWN = 5
"""Names that an error lists."""
_LONGEST_NAME = 100
_INDEX = ".index.json"
_CHECKPOINTS = (".safetensors", ".pt", ".pth", ".bin")
_LONGEST_INDEX = 64 << 20
_PIECE = 1 << 20
"""Elements that are looked through at a time."""


@dataclass(frozen=True)
class Matrix:
    """One matrix out of a file."""

    label: str
    """File name without its folder and ending, with the array's or tensor's name where the file has several."""
    csr: CSR
    """Values are 1.0 where the file has none (`valued` is False)."""
    shape: tuple[int, ...]
    """As in the file: of more than two axes for the weights of a convolution."""
    dtype: str
    """Type of its values in the file, such as `float16`; `pattern` where there are none."""
    name: str = ""
    """Of the array or tensor in its file, empty where that holds one."""
    bitmask: bool = False
    """Whether it was kept as compressed-tensors' `sparse-bitmask`."""

    @property
    def valued(self) -> bool:
        """Whether the file gives values, and not only where they are."""
        return self.dtype != "pattern"


Read = Callable[[str], tuple[NDArray[Any], str]]


class Source(NamedTuple):
    """A file that holds arrays by name."""

    names: list[str]
    """Those with two axes and more, in the file's order."""
    read: Read
    """The array, NaN and all, bf16 as the float32 of the same value, and its type's name.

    Raises `MatrixError` where there is none of that name.
    """


def split(text: str) -> tuple[Path, str]:
    """`FILE::name` as path and name, an empty one where there is none."""
    if os.path.lexists(text):
        return Path(text), ""
    file, mark, name = text.rpartition("::")
    return (Path(file), name) if mark else (Path(text), "")


def read(text: str, match: Sequence[str] = ()) -> list[Matrix]:
    """The matrices that `FILE` or `FILE::name` names; with `match`, all of the file whose names fit a shell pattern.

    Raises `MatrixError`, one sentence, for what is missing, damaged, of another format or not a matrix.
    """
    path, name = split(text)
    require_file(path)
    if name and match:
        raise MatrixError(f"{text}: names one matrix already, and patterns choose several: give one of the two.")
    reader = _SINGLE.get(path.suffix)
    if reader is None and path.suffix == ".npz" and set(array_names(path)) >= _SPARSE_MEMBERS:
        reader = read_scipy
    if reader is not None:
        if name or match:
            raise MatrixError(f"{path}: holds one matrix, there is nothing to choose in it.")
        csr, dtype = reader(path)
        return [Matrix(path.stem, csr, (csr.m, csr.k), dtype)]
    kept = _source(path)
    packed = _packed(kept)
    source = _masked(_bitmasks(path, kept))
    chosen = _chosen(path, source.names, name, match)

    def made(one: str) -> Matrix:
        return replace(_from_array(path, one, *source.read(one)), bitmask=one in packed)

    with ThreadPoolExecutor(host.processors()) as pool:  # NumPy's loops release the interpreter's lock
        return list(pool.map(made, chosen))


def names(text: str) -> list[str]:
    """Of the matrices of a whole checkpoint; none of what is no such file."""
    path, name = split(text)
    if name or not (path.suffix in _CHECKPOINTS or path.name.endswith(_INDEX)):
        return []
    require_file(path)
    return _masked(_bitmasks(path, _source(path))).names


def require_file(path: Path) -> None:
    """Raises `MatrixError` for a path that is missing or not a plain file: a pipe is never waited for."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise MatrixError(f"{path}: cannot be read ({reason}).") from error
    if not stat.S_ISREG(mode):
        raise MatrixError(f"{path}: is not a plain file.")


def from_array(where: str, array: NDArray[Any]) -> CSR:
    """The matrix (first axis, all others) of an array, zeros left out. Raises `MatrixError` for NaN and Inf."""
    if array.ndim < 2 or array.size == 0:
        raise MatrixError(f"{where}: shape {array.shape} is not a weight matrix.")
    if max(array.shape[0], array.size // array.shape[0]) >= 2**31 or array.size >= 2**31 or array.nbytes > MAX_BYTES:
        raise MatrixError(f"{where}: shape {array.shape} is larger than is read here.")
    rows, columns = array.shape[0], array.size // array.shape[0]
    array = array.reshape(rows, columns)
    lengths = np.empty(rows, np.int64)
    for band in _bands(array):
        lengths[band] = np.count_nonzero(_filled(array[band]), axis=1)
    offsets = prefix_sums(lengths)
    require_memory(where, 8 * int(offsets[-1]) + 12 * rows)
    indices, values = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.float32)
    for band in _bands(array):
        places = np.flatnonzero(_filled(array[band]))
        into = slice(offsets[band.start], offsets[band.stop])
        indices[into] = places - np.repeat(np.arange(band.stop - band.start) * columns, lengths[band])
        with np.errstate(over="ignore"):
            values[into] = array[band].reshape(-1)[places]
    if not np.isfinite(values).all():
        raise MatrixError(f"{where}: values hold NaN or infinity, or do not fit float32.")
    return CSR(rows, columns, offsets.astype(np.int32), indices, values)


def _bands(array: NDArray[Any]) -> Iterator[slice]:
    """Of rows: what is made of the whole at once would take several times its file."""
    step = max(1, _PIECE // array.shape[1])
    for start in range(0, len(array), step):
        yield slice(start, min(start + step, len(array)))


def _filled(array: NDArray[Any]) -> Any:
    """Where there are nonzeros in float32; of half precision by its bits, as NumPy compares those slowly."""
    if array.dtype == np.float16:
        return (array.view(np.uint16) & 0x7FFF) != 0
    with np.errstate(over="ignore"):
        return (array.astype(np.float32) if array.dtype == np.float64 else array) != 0


def _from_array(path: Path, name: str, array: NDArray[Any], dtype: str) -> Matrix:
    where = f"{path}: '{name}'" if name else str(path)
    csr = from_array(where, array)
    if array.dtype == np.bool_:
        dtype = "pattern"
    stem = path.name.removesuffix(_INDEX).removesuffix(".safetensors") if path.name.endswith(_INDEX) else path.stem
    return Matrix(f"{stem}.{name}" if name else stem, csr, tuple(map(int, array.shape)), dtype, name)


def _chosen(path: Path, names: list[str], name: str, match: Sequence[str]) -> list[str]:
    if name:
        return [name]
    if match:
        found = [one for one in names if any(fnmatch.fnmatchcase(one, pattern) for pattern in match)]
        if not found:
            raise MatrixError(f"{path}: none of its {len(names)} matrices is named like {', '.join(match)}.")
        return found
    if len(names) == 1:
        return names
    if not names:
        raise MatrixError(f"{path}: holds no array of two axes or more.")
    shown = ", ".join(one[:_LONGEST_NAME] for one in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    raise MatrixError(
        f"{path}: holds {len(names)} matrices ({shown}{more}): choose one by FILE::NAME, or several by --match."
    )


def _arrays(path: Path) -> Source:
    """A `.npz` file, or a `.npy` file, which has one array without a name."""
    named = path.suffix == ".npz"

    def read(name: str) -> tuple[NDArray[Any], str]:
        if name and not named:
            raise MatrixError(f"{path}: holds one array, there is no '{name}' in it.")
        array = load_array(path, name if named else None, (*FLOATS, *WHOLE))
        return array, array.dtype.name

    return Source(array_names(path, 2) if named else [""], read)


def _shards(path: Path) -> Source:
    """An index of Hugging Face's: JSON whose `weight_map` tells of each tensor which file beside it has it."""
    with reading(path, "an index of shards", (ValueError, KeyError, TypeError, AttributeError, RecursionError)):
        if path.stat().st_size > _LONGEST_INDEX:
            raise MatrixError(f"{path}: is too long for an index of shards.")
        where: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        files = dict.fromkeys(where.values())
        strange = [one for one in files if not one or Path(one).name != one or one.endswith(_INDEX)]
    if strange:
        raise MatrixError(f"{path}: a shard is a file beside it, and '{strange[0][:_LONGEST_NAME]}' is none.")
    for one in files:
        require_file(path.with_name(one))
    shards = {one: _source(path.with_name(one)) for one in files}

    def read(name: str) -> tuple[NDArray[Any], str]:
        if name not in where:
            raise MatrixError(f"{path}: '{name}': is not in the file.")
        return shards[where[name]].read(name)

    return Source([name for file, one in shards.items() for name in one.names if where.get(name) == file], read)


def _joined(source: Source, ends: tuple[str, str], wholes: set[str], join: Read) -> Source:
    """A file in which some arrays are kept in parts: in the first part's place the whole, which `join` reads.

    Only the parts with these two ends have two axes: the second is hidden.
    """
    listed = {f"{name}{ends[0]}": name for name in wholes}
    hidden = {f"{name}{ends[1]}" for name in wholes}
    names = [listed.get(name, name) for name in source.names if name not in hidden]
    return Source(names, lambda name: join(name) if name in wholes else source.read(name))


def _packed(source: Source) -> set[str]:
    """The names of arrays that are kept in the parts of `pack_bitmask`."""
    return {name.removesuffix(MASK) for name in source.names if name.endswith(MASK)}


def _bitmasks(path: Path, source: Source) -> Source:
    """The parts of `pack_bitmask`, as compressed-tensors keeps them, as one array `<name>`."""

    def join(name: str) -> tuple[NDArray[Any], str]:
        parts, kind = {}, ""
        for part in PARTS:
            try:
                parts[part], found = source.read(f"{name}{part}")
            except MatrixError:
                if part != STARTS:  # two of four have none
                    raise
            else:
                kind = found if part == NONZEROS else kind
        return unpack_bitmask(f"{path}: '{name}'", parts), kind

    return _joined(source, (MASK, NONZEROS), _packed(source), join)


def _masked(source: Source) -> Source:
    """`<name>_orig` and `<name>_mask`, as `torch.nn.utils.prune` keeps them, as one array `<name>`."""

    def join(name: str) -> tuple[NDArray[Any], str]:
        (array, kind), (mask, _) = (source.read(f"{name}_{part}") for part in ("orig", "mask"))
        if array.shape != mask.shape:
            raise MatrixError(f"'{name}': its mask has the shape {mask.shape}, its weights {array.shape}.")
        return np.where(mask != 0, array, array.dtype.type(0)), kind

    pruned = {name.removesuffix("_orig") for name in source.names if name.endswith("_orig")}
    return _joined(source, ("_orig", "_mask"), {one for one in pruned if f"{one}_mask" in source.names}, join)


def _source(path: Path) -> Source:
    if path.suffix in (".npy", ".npz"):
        return _arrays(path)
    if path.suffix in _CHECKPOINTS:
        file = checkpoints.Safetensors(path) if path.suffix == ".safetensors" else checkpoints.Torch(path)
        return Source(file.names(), file.read)
    if path.name.endswith(_INDEX):
        return _shards(path)
    endings = ", ".join([*_SINGLE, ".npy", ".npz", ".safetensors", ".pt", _INDEX])
    raise MatrixError(f"{path}: its ending tells no format that is read here: {endings}.")


_SINGLE: dict[str, Callable[[Path], tuple[CSR, str]]] = {
    ".smtx": lambda path: (read_smtx(path), "pattern"),
    ".mtx": read_market,
}
"""Of files that hold one matrix: it and its values' type."""
