"""Matrices of one's own, from whatever file holds them: one reader for each format, and no trust in any of them.

`docs/own-matrices.md` lists them. Sizes are compared with the file's own before anything is allocated. Weights of more
than two axes become the matrix of filters by everything else, `c_in*(r*s) + tap` for the usual order of a convolution.
"""

from __future__ import annotations

import fnmatch
import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices import bitmask, checkpoints
from nnzbench.matrices.checkpoints import FLOATS, MAX_BYTES, array_names, load_array, reading
from nnzbench.matrices.formats import CSR, MatrixError, require_memory
from nnzbench.matrices.sparse_files import read_market, read_scipy, read_smtx

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

    @property
    def valued(self) -> bool:
        """Whether the file gives values, and not only where they are."""
        return self.dtype != "pattern"


class Source(Protocol):
    """A file that holds arrays by name."""

    def names(self) -> list[str]:
        """Those with two axes and more, in the file's order."""

    def read(self, name: str) -> tuple[NDArray[Any], str]:
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
    source = _Masked(_Bitmasks(path, _source(path)))
    return [_from_array(path, one, *source.read(one)) for one in _chosen(path, source.names(), name, match)]


def holds_many(text: str) -> bool:
    """Whether it names a whole file of a format that may hold several matrices."""
    path, name = split(text)
    return not name and (path.suffix in _CHECKPOINTS or path.name.endswith(_INDEX))


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
    flat = array.reshape(-1)
    nnz = 0
    for _, piece in _pieces(flat):
        if not np.isfinite(piece).all():
            raise MatrixError(f"{where}: values hold NaN or infinity, or do not fit float32.")
        nnz += int(np.count_nonzero(piece))
    require_memory(where, 8 * nnz + 12 * rows)
    offsets, indices, values = np.zeros(rows + 1, np.int64), np.empty(nnz, np.int32), np.empty(nnz, np.float32)
    at = 0
    for start, piece in _pieces(flat):
        places = np.flatnonzero(piece)
        end = at + places.size
        values[at:end] = piece[places]
        row, indices[at:end] = np.divmod(places + start, columns)
        if places.size:
            offsets[row[0] + 1 : row[-1] + 2] += np.bincount(row - row[0])
        at = end
    return CSR(rows, columns, np.cumsum(offsets).astype(np.int32), indices, values)


def _pieces(flat: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """An array's stretches as float32, each with its start: the whole would take several times its file."""
    with np.errstate(over="ignore"):
        for start in range(0, flat.size, _PIECE):
            yield start, flat[start : start + _PIECE].astype(np.float32)


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


class _Arrays:
    """A `.npz` file, or a `.npy` file, which has one array without a name."""

    def __init__(self, path: Path) -> None:
        self._path, self._named = path, path.suffix == ".npz"

    def names(self) -> list[str]:
        return array_names(self._path, 2) if self._named else [""]

    def read(self, name: str) -> tuple[NDArray[Any], str]:
        if name and not self._named:
            raise MatrixError(f"{self._path}: holds one array, there is no '{name}' in it.")
        array = load_array(self._path, name if self._named else None, (*FLOATS, *WHOLE))
        return array, array.dtype.name


class _Shards:
    """An index of Hugging Face's: JSON whose `weight_map` tells of each tensor which file beside it has it."""

    def __init__(self, path: Path) -> None:
        with reading(path, "an index of shards", (ValueError, KeyError, TypeError, AttributeError, RecursionError)):
            if path.stat().st_size > _LONGEST_INDEX:
                raise MatrixError(f"{path}: is too long for an index of shards.")
            self._files: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
            files = dict.fromkeys(self._files.values())
            strange = [one for one in files if not one or Path(one).name != one or one.endswith(_INDEX)]
        if strange:
            raise MatrixError(f"{path}: a shard is a file beside it, and '{strange[0][:_LONGEST_NAME]}' is none.")
        for one in files:
            require_file(path.with_name(one))
        self._path, self._shards = path, {one: _source(path.with_name(one)) for one in files}

    def names(self) -> list[str]:
        return [name for file, shard in self._shards.items() for name in shard.names() if self._files.get(name) == file]

    def read(self, name: str) -> tuple[NDArray[Any], str]:
        if name not in self._files:
            raise MatrixError(f"{self._path}: '{name}': is not in the file.")
        return self._shards[self._files[name]].read(name)


class _Bitmasks:
    """A file in which the parts of `bitmask.pack`, as compressed-tensors keeps them, are one array `<name>`."""

    def __init__(self, path: Path, source: Source) -> None:
        self._path, self._source, self._kept = path, source, source.names()
        self._packed = {name.removesuffix(bitmask.MASK) for name in self._kept if name.endswith(bitmask.MASK)}

    def names(self) -> list[str]:
        whole = {f"{name}{bitmask.MASK}": name for name in self._packed}
        hidden = {f"{name}{bitmask.VALUES}" for name in self._packed}
        return [whole.get(name, name) for name in self._kept if name not in hidden]

    def read(self, name: str) -> tuple[NDArray[Any], str]:
        if name not in self._packed:
            return self._source.read(name)
        parts, kind = {}, ""
        for part in bitmask.PARTS:
            try:
                parts[part], found = self._source.read(f"{name}{part}")
            except MatrixError:
                if part != bitmask.STARTS:  # two of four have none
                    raise
            else:
                kind = found if part == bitmask.VALUES else kind
        return bitmask.unpack(f"{self._path}: '{name}'", parts), kind


class _Masked:
    """A file in which `<name>_orig` and `<name>_mask`, as `torch.nn.utils.prune` keeps them, are one array `<name>`."""

    def __init__(self, source: Source) -> None:
        self._source, self._kept = source, source.names()
        found = {name.removesuffix("_orig") for name in self._kept if name.endswith("_orig")}
        self._pruned = {name for name in found if f"{name}_mask" in self._kept}

    def names(self) -> list[str]:
        hidden = {f"{name}_mask" for name in self._pruned}
        whole = {f"{name}_orig": name for name in self._pruned}
        return [whole.get(name, name) for name in self._kept if name not in hidden]

    def read(self, name: str) -> tuple[NDArray[Any], str]:
        if name not in self._pruned:
            return self._source.read(name)
        (array, kind), (mask, _) = (self._source.read(f"{name}_{part}") for part in ("orig", "mask"))
        if array.shape != mask.shape:
            raise MatrixError(f"'{name}': its mask has the shape {mask.shape}, its weights {array.shape}.")
        return np.where(mask != 0, array, array.dtype.type(0)), kind


def _source(path: Path) -> Source:
    if path.suffix in (".npy", ".npz"):
        return _Arrays(path)
    if path.suffix in _CHECKPOINTS:
        return checkpoints.Safetensors(path) if path.suffix == ".safetensors" else checkpoints.Torch(path)
    if path.name.endswith(_INDEX):
        return _Shards(path)
    endings = ", ".join([*_SINGLE, ".npy", ".npz", ".safetensors", ".pt", _INDEX])
    raise MatrixError(f"{path}: its ending tells no format that is read here: {endings}.")


_SINGLE: dict[str, Callable[[Path], tuple[CSR, str]]] = {
    ".smtx": lambda path: (read_smtx(path), "pattern"),
    ".mtx": read_market,
}
"""Of files that hold one matrix: it and its values' type."""
