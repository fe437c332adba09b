"""Pruned weights from `.npz` and `.npy` files, read without trusting the file: no pickles, no unbounded allocation."""

from __future__ import annotations

import contextlib
import io
import lzma
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.formats import MatrixError, require_memory
from nnzbench.plans.plan import one_line

MAX_BYTES = 1 << 31
"""Largest array read, uncompressed."""

_PIECE = 1 << 22
"""Bytes read at a time: zipfile joins longer pieces in quadratic time."""
_LONGEST_HEADER = 1 << 14
_AXES = 32
"""Most axes that every supported version of NumPy has."""
_KIND = "a readable archive"
_FAULTS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, NotImplementedError, RuntimeError,
    ValueError, OverflowError,
)  # fmt: skip
FLOATS = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))


def load_weights(path: str | os.PathLike[str], name: str | None = None) -> NDArray[np.float32]:
    """The 2-D weight matrix (filters, rest) of a `.npy` file or of array `name` of a `.npz` file, as float32.

    Arrays of more axes are flattened behind the first: OIHW filters give columns `c_in*(r*s) + tap`. Raises
    `MatrixError` for pickled, truncated or oversized arrays, other types than floats, fewer than 2 axes, NaN and Inf.
    """
    where = os.fspath(path) if name is None else f"{os.fspath(path)}: array '{name}'"
    array = load_array(path, name)
    if array.ndim < 2 or array.size == 0:
        raise MatrixError(f"{where}: shape {array.shape} is not a weight matrix.")
    with np.errstate(over="ignore"):
        matrix = array.reshape(array.shape[0], -1).astype(np.float32)
    if not np.isfinite(matrix).all():
        raise MatrixError(f"{where}: values hold NaN or infinity.")
    return matrix


def load_array(
    path: str | os.PathLike[str], name: str | None = None, allowed: Collection[np.dtype[Any]] = FLOATS
) -> NDArray[Any]:
    """The array of a `.npy` file, or array `name` of a `.npz` file, as it is stored; its type must be in `allowed`.

    Text (`<U...`, `|S...`) is taken where `allowed` is empty. Raises `MatrixError` as `load_weights` does.
    """
    where = os.fspath(path) if name is None else f"{os.fspath(path)}: array '{name}'"
    with reading(where, _KIND, _FAULTS):
        if name is None:
            with Path(path).open("rb") as stream:
                return _read_npy(stream, os.fstat(stream.fileno()).st_size, where, allowed)
        with zipfile.ZipFile(path) as archive:
            try:
                info = archive.getinfo(f"{name}.npy")
            except KeyError:
                raise MatrixError(f"{where}: is not in the file.") from None
            with archive.open(info) as member:
                return _read_npy(member, info.file_size, where, allowed)


def array_names(path: str | os.PathLike[str], axes: int = 0) -> list[str]:
    """Names of the arrays in a `.npz` file that have so many axes or more, in its order.

    Raises `MatrixError` where the file is not one, or an array's header is damaged.
    """
    where, found = os.fspath(path), []
    with reading(where, _KIND, _FAULTS), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.endswith(".npy"):
                name = member.filename.removesuffix(".npy")
                if axes:
                    with archive.open(member) as stream:
                        shape, _, _ = _header(stream, f"{where}: array '{name}'")
                        if len(shape) < axes:
                            continue
                found.append(name)
    return found


@contextlib.contextmanager
def reading(where: object, kind: str = "", faults: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turns what an unreadable file (`OSError`) or a damaged one (`faults`) raises into a `MatrixError` that names it.

    `kind` is what a damaged one is not.
    """
    try:
        yield
    except OSError as error:
        raise MatrixError(f"{where}: cannot be read ({error.strerror or error}).") from error
    except MatrixError:
        raise
    except faults as error:
        raise MatrixError(f"{where}: is not {kind} ({one_line(error)}).") from error


def _read_npy(stream: IO[bytes], size: int, where: str, allowed: Collection[np.dtype[Any]]) -> NDArray[Any]:
    """Reads one array of `size` bytes in all; the header must agree with that size before anything is allocated."""
    if size > MAX_BYTES:
        raise MatrixError(f"{where}: {size} bytes are more than the {MAX_BYTES} allowed.")
    shape, fortran, dtype = _header(stream, where)
    if dtype.hasobject:
        raise MatrixError(f"{where}: holds pickled Python objects, which are never loaded.")
    if dtype.newbyteorder("=") not in allowed and (allowed or dtype.kind not in "SU"):
        raise MatrixError(f"{where}: values are {dtype}, not {_words(allowed)}.")
    payload = math.prod(shape) * dtype.itemsize
    if payload != size - stream.tell():
        raise MatrixError(f"{where}: header shape {shape} needs {payload} bytes, the file has {size - stream.tell()}.")
    require_memory(where, payload)
    data = np.empty(payload, np.uint8)
    found = 0
    while found < payload and (piece := stream.read(min(_PIECE, payload - found))):
        data[found : found + len(piece)] = np.frombuffer(piece, np.uint8)
        found += len(piece)
    if found != payload:
        raise MatrixError(f"{where}: is truncated, {found} of {payload} bytes found.")
    return data.view(dtype).reshape(shape, order="F" if fortran else "C")


def _header(stream: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether the first axis changes fastest, and type."""
    try:
        start = stream.read(10)
        if start[6] > 1:
            start += stream.read(2)
        text = io.BytesIO(start + stream.read(min(_LONGEST_HEADER, int.from_bytes(start[8:], "little"))))
        version = np.lib.format.read_magic(text)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = read(text)
    except OSError:
        raise
    except Exception as error:  # NumPy parses the text as Python: a hostile one raises from its tokenizer and compiler
        raise MatrixError(f"{where}: has no valid array header.") from error
    if len(shape) > _AXES or any(isinstance(one, bool) or not 0 <= one < 2**63 for one in shape):
        raise MatrixError(f"{where}: header gives an impossible shape.")
    return shape, fortran, dtype


def _words(allowed: Collection[np.dtype[Any]]) -> str:
    if not allowed:
        return "text"
    return "floating point" if set(allowed) <= set(FLOATS) else "numbers of a kind that is read here"
