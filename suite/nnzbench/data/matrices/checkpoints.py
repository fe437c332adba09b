"""Tensors by name out of checkpoints (safetensors, PyTorch state dicts), and weights from `.npz` and `.npy` files.

All are read without trusting the file: no pickles, no unbounded allocation.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import lzma
import math
import os
import pickle
import struct
import subprocess
import sys
import threading
import weakref
import zipfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.plan import from_bf16, one_line
from nnzbench.data.matrices.formats import MatrixError, require_memory

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


def load_array(
    path: str | os.PathLike[str], name: str | None = None, allowed: Collection[np.dtype[Any]] = FLOATS
) -> NDArray[Any]:
    """The array of a `.npy` file, or array `name` of a `.npz` file, as it is stored; its type must be in `allowed`.

    Text (`<U...`, `|S...`) is taken where `allowed` is empty. Raises `MatrixError` for what is missing, pickled,
    truncated or oversized.
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
    where = os.fspath(path)

    def has_axes(archive: zipfile.ZipFile, name: str) -> bool:
        with archive.open(f"{name}.npy") as stream:
            return len(_header(stream, f"{where}: array '{name}'")[0]) >= axes

    with reading(where, _KIND, _FAULTS), zipfile.ZipFile(path) as archive:
        found = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        return [name for name in found if not axes or has_axes(archive, name)]


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
        floats = "floating point" if set(allowed) <= set(FLOATS) else "numbers of a kind that is read here"
        raise MatrixError(f"{where}: values are {dtype}, not {floats if allowed else 'text'}.")
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


INSTALL = "pip install 'nnzbench[{}]'"
_TYPES = {
    "F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "|i1", "U8": "|u1", "I32": "<i4", "I64": "<i8", "BOOL": "|b1",
    "BF16": "<u2",
}  # fmt: skip
"""Types of safetensors that are read, by NumPy's; bf16 as its bits."""
_NAMES = {"BF16": "bfloat16"}
_LEAST_AXES = 2
LONGEST_S = 300.0
"""For PyTorch to load a file, or to hand one tensor over."""


class Safetensors:
    """A `.safetensors` file: the library checks header and offsets, tensors are then read one by one."""

    def __init__(self, path: Path) -> None:
        try:
            from safetensors import safe_open
        except ImportError:
            raise MatrixError(f"{path}: reading it needs safetensors: {INSTALL.format('safetensors')}.") from None
        self._path = path
        # the library raises a class of its own that is no subclass of another
        with reading(path, "a safetensors file", (Exception,)):
            with safe_open(path, framework="numpy") as file:
                known = set(file.keys())
            with path.open("rb") as stream:
                size = int.from_bytes(stream.read(8), "little")
                header = json.loads(stream.read(size))
        self._start = 8 + size
        self._tensors: dict[str, dict[str, Any]] = {name: one for name, one in header.items() if name in known}
        self.metadata: dict[str, str] = dict(header.get("__metadata__") or {})
        """Texts that the file has beside its tensors."""

    def names(self) -> list[str]:
        return [
            name
            for name, one in self._tensors.items()
            if len(one["shape"]) >= _LEAST_AXES and one["dtype"] in _TYPES and math.prod(one["shape"])
        ]

    def read(self, name: str) -> tuple[NDArray[Any], str]:
        where = f"{self._path}: '{name}'"
        if name not in self._tensors:
            raise MatrixError(f"{where}: is not in the file.")
        kind, shape, (begin, end) = (self._tensors[name][field] for field in ("dtype", "shape", "data_offsets"))
        if kind not in _TYPES:
            raise MatrixError(f"{where}: values are {kind}, which is not read here.")
        if end - begin > MAX_BYTES:
            raise MatrixError(f"{where}: {end - begin} bytes are more than the {MAX_BYTES} allowed.")
        require_memory(where, (end - begin) * (3 if kind == "BF16" else 1))
        with reading(where, "whole", (ValueError,)):
            array = np.fromfile(self._path, _TYPES[kind], math.prod(shape), offset=self._start + begin).reshape(shape)
        if kind == "BF16":
            array = from_bf16(array)
        return array, _NAMES.get(kind, array.dtype.name)


class Torch:
    """A PyTorch state dict, loaded with `weights_only=True` by a process of its own (`_serve`)."""

    def __init__(self, path: Path) -> None:
        if importlib.util.find_spec("torch") is None:
            raise MatrixError(f"{path}: reading it needs PyTorch: {INSTALL.format('torch')}.")
        _require_plain(path)
        self._path, self._turn = path, threading.Lock()
        command = [sys.executable, "-m", "nnzbench.data.matrices.checkpoints", os.fspath(path.absolute())]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._child = subprocess.Popen(command, env=environment, **pipes)
        weakref.finalize(self, _end, self._child)
        self._names: list[str] = self._answer(str(path), None)[0]["names"]

    def names(self) -> list[str]:
        return self._names

    def read(self, name: str) -> tuple[NDArray[Any], str]:
        with self._turn:
            told, array = self._answer(f"{self._path}: '{name}'", name)
        return array, told["kind"]

    def _answer(self, where: str, name: str | None) -> tuple[dict[str, Any], NDArray[Any]]:
        """The process's next answer. Raises `MatrixError` for its error, its end, or `LONGEST_S` without one."""
        late = threading.Timer(LONGEST_S, self._child.kill)
        late.start()
        stdin, stdout = cast("IO[bytes]", self._child.stdin), cast("IO[bytes]", self._child.stdout)
        try:
            if name is not None:
                stdin.write(json.dumps(name).encode() + b"\n")
                stdin.flush()
            told = json.loads(stdout.readline())
            if "error" in told:
                raise MatrixError(f"{where}: {told['error']}.")
            kind, shape = np.dtype(told.get("type", "u1")), told.get("shape", (0,))
            size = math.prod(shape) * kind.itemsize
            require_memory(where, size)
            return told, np.frombuffer(stdout.read(size), kind).reshape(shape)
        except MatrixError:
            raise
        except (OSError, ValueError) as error:  # a pipe that is closed, or an answer that is cut off
            self._child.kill()
            how = f"no answer within {LONGEST_S:g} s" if late.finished.is_set() else f"status {self._child.wait()}"
            raise MatrixError(f"{where}: PyTorch's loader ended without an answer ({how}).") from error
        finally:
            late.cancel()


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _require_plain(path: Path) -> None:
    """Refuses what is not the zip archive that PyTorch writes since 1.6, whose members are stored as they are."""
    kind = "a PyTorch archive; older files must be saved anew, or as safetensors"
    faults = (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, OverflowError)
    with reading(path, kind, faults), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    if any(one.compress_type != zipfile.ZIP_STORED for one in members):
        raise MatrixError(f"{path}: has compressed members, which PyTorch does not write.")


_WRAPPERS = ("state_dict", "model")
"""What training scripts put a state dict in."""


def _serve(path: str) -> None:
    """PyTorch's loader in a process of its own: what a hostile file does to it ends that process, not the caller's.

    Run as `python -m nnzbench.data.matrices.checkpoints FILE`. It answers on standard output: first a JSON object of
    the names, then to each line of standard input, a JSON name, an object with shape and type and the array's bytes.
    """
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    tensors: dict[str, Any] = {}

    def answer(told: dict[str, Any], data: Any = b"") -> None:
        out.write(json.dumps(told).encode() + b"\n")
        out.write(data)
        out.flush()

    try:
        tensors = _load(path)
        answer({"names": [name for name, one in tensors.items() if one.dim() >= _LEAST_AXES and one.numel()]})
        for line in sys.stdin.buffer:
            try:
                array, kind = _read(tensors, json.loads(line))
            except ValueError as error:
                answer({"error": str(error)})
                continue
            answer({"shape": array.shape, "type": array.dtype.str, "kind": kind}, memoryview(array).cast("B"))
    except ValueError as error:
        answer({"error": str(error)})


def _load(path: str) -> dict[str, Any]:
    """Tensors by name. Raises `ValueError` that goes on a sentence beginning with the file's name."""
    import torch

    _limit(os.path.getsize(path) + 4 * MAX_BYTES)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror or error})") from error
    except pickle.UnpicklingError as error:
        raise ValueError(
            "holds other things than tensors by name, which are not loaded from a file that is not trusted: save the "
            "model's state_dict()"
        ) from error
    except Exception as error:  # pickles raise whatever their opcodes lead to
        raise ValueError(f"is not a state dict that loads with weights_only ({one_line(error)})") from error
    for key in _WRAPPERS:
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, dict):
        found = {"": found}
    return {str(name): one for name, one in found.items() if isinstance(one, torch.Tensor)}


def _read(tensors: dict[str, Any], name: str) -> tuple[Any, str]:
    """The tensor as an array, bf16 as the float32 of the same value. Raises `ValueError` as `_load` does."""
    import numpy as np

    if name not in tensors:
        raise ValueError("is not in the file")
    tensor = tensors[name].detach()
    kind = str(tensor.dtype).removeprefix("torch.")
    if tensor.numel() * tensor.element_size() > MAX_BYTES:
        raise ValueError(f"shape {tuple(tensor.shape)} is larger than is read here")
    try:
        if tensor.is_sparse:
            _require_inside(tensor)
            tensor = tensor.to_dense()
        array = np.ascontiguousarray(tensor.float().numpy() if kind == "bfloat16" else tensor.numpy())
    except Exception as error:
        raise ValueError(f"is no array of numbers ({one_line(error)})") from error
    if array.dtype.kind not in "fbiu":
        raise ValueError(f"values are {kind}, which is not read here")
    return array, kind


def _require_inside(tensor: Any) -> None:
    """PyTorch writes to wherever the indices of a sparse tensor lead."""
    places, sizes = tensor._indices(), tensor.shape[: tensor.sparse_dim()]
    for axis, size in enumerate(sizes):
        if places.shape[1] and not (places[axis].min() >= 0 and places[axis].max() < size):
            raise ValueError(f"an index is outside 0..{size - 1}")


def _limit(more_bytes: int) -> None:
    """No more memory of its own than that, no files written, no core dumped."""
    with contextlib.suppress(ImportError, OSError, ValueError, StopIteration):
        import resource

        with open("/proc/self/status", encoding="ascii") as status:
            used = 1024 * int(next(line for line in status if line.startswith("VmData:")).split()[1])
        for what, most in (("DATA", used + more_bytes), ("FSIZE", 0), ("CORE", 0)):
            resource.setrlimit(getattr(resource, f"RLIMIT_{what}"), (most, most))


if __name__ == "__main__":
    _serve(sys.argv[1])
