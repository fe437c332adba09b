"""Pruned weights from `.npz` and `.npy` files, read without trusting the file: no pickles, no unbounded allocation."""

from __future__ import annotations

import lzma
import math
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.formats import MatrixError

MAX_BYTES = 1 << 31
"""Largest array read, uncompressed."""

_AXES = 32
"""Most axes that every supported version of NumPy has."""
_ARCHIVE_FAULTS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error)
_FLOATS = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))


def load_weights(path: str | os.PathLike[str], name: str | None = None) -> NDArray[np.float32]:
    """The 2-D weight matrix (filters, rest) of a `.npy` file or of array `name` of a `.npz` file, as float32.

    Arrays of more axes are flattened behind the first: OIHW filters give columns `c_in*(r*s) + tap`. Raises
    `MatrixError` for pickled, truncated or oversized arrays, other types than floats, fewer than 2 axes, NaN and Inf.
    """
    where = os.fspath(path) if name is None else f"{os.fspath(path)}: array '{name}'"
    try:
        array = _load(Path(path), name, where)
    except OSError as error:
        raise MatrixError(f"{where}: cannot be read ({error.strerror or error}).") from error
    except MatrixError:
        raise
    except (*_ARCHIVE_FAULTS, EOFError, NotImplementedError, RuntimeError, ValueError, OverflowError) as error:
        raise MatrixError(f"{where}: is not a readable archive ({error}).") from error
    if array.ndim < 2 or array.size == 0:
        raise MatrixError(f"{where}: shape {array.shape} is not a weight matrix.")
    with np.errstate(over="ignore"):
        matrix = array.reshape(array.shape[0], -1).astype(np.float32)
    if not np.isfinite(matrix).all():
        raise MatrixError(f"{where}: values hold NaN or infinity.")
    return matrix


def _load(path: Path, name: str | None, where: str) -> NDArray[Any]:
    if name is None:
        with path.open("rb") as stream:
            return _read_npy(stream, os.fstat(stream.fileno()).st_size, where)
    with zipfile.ZipFile(path) as archive:
        try:
            info = archive.getinfo(f"{name}.npy")
        except KeyError:
            raise MatrixError(f"{where}: is not in the file.") from None
        with archive.open(info) as member:
            return _read_npy(member, info.file_size, where)


def _read_npy(stream: IO[bytes], size: int, where: str) -> NDArray[Any]:
    """Reads one array of `size` bytes in all; the header must agree with that size before anything is allocated."""
    if size > MAX_BYTES:
        raise MatrixError(f"{where}: {size} bytes are more than the {MAX_BYTES} allowed.")
    try:
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = read(stream)
    except OSError:
        raise
    except Exception as error:  # NumPy parses the text as Python: a hostile one raises from its tokenizer and compiler
        raise MatrixError(f"{where}: has no valid array header.") from error
    if len(shape) > _AXES or any(isinstance(one, bool) or not 0 <= one < 2**63 for one in shape):
        raise MatrixError(f"{where}: header gives an impossible shape.")
    if dtype.hasobject:
        raise MatrixError(f"{where}: holds pickled Python objects, which are never loaded.")
    if dtype.newbyteorder("=") not in _FLOATS:
        raise MatrixError(f"{where}: values are {dtype}, not floating point.")
    payload = math.prod(shape) * dtype.itemsize
    if payload != size - stream.tell():
        raise MatrixError(f"{where}: header shape {shape} needs {payload} bytes, the file has {size - stream.tell()}.")
    data = stream.read(payload)
    if len(data) != payload:
        raise MatrixError(f"{where}: is truncated, {len(data)} of {payload} bytes found.")
    return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C")
