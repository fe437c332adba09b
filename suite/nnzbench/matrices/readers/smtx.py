"""DLMC `.smtx` files: CSR patterns as text, three lines (`rows, cols, nnz`; row offsets; column indices), no values."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.formats import CSR, MatrixError, require_memory
from nnzbench.matrices.readers.weights import reading

MAX_BYTES = 1 << 30
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
    if size > MAX_BYTES:
        raise MatrixError(f"{name}: file of {size} bytes is larger than the {MAX_BYTES} bytes allowed.")
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
