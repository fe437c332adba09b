"""Tensors by name out of checkpoints: safetensors files and PyTorch state dicts, by their own libraries."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import subprocess
import sys
import threading
import weakref
import zipfile
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.formats import MatrixError, require_memory
from nnzbench.matrices.readers import torch_process
from nnzbench.matrices.readers.weights import MAX_BYTES, reading

INSTALL = "pip install 'nnzbench[{}]'"
_TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "|i1", "U8": "|u1", "BOOL": "|b1", "BF16": "<u2"}
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

    def names(self) -> list[str]:
        """Those of two axes or more and a type that is read."""
        return [
            name
            for name, one in self._tensors.items()
            if len(one["shape"]) >= _LEAST_AXES and one["dtype"] in _TYPES and math.prod(one["shape"])
        ]

    def read(self, name: str) -> tuple[NDArray[Any], str]:
        """The tensor, bf16 as the float32 of the same value, and its type's name."""
        where = f"{self._path}: '{name}'"
        if name not in self._tensors:
            raise MatrixError(f"{where}: is not in the file.")
        one = self._tensors[name]
        if one["dtype"] not in _TYPES:
            raise MatrixError(f"{where}: values are {one['dtype']}, which is not read here.")
        stored = np.dtype(_TYPES[one["dtype"]])
        begin, end = one["data_offsets"]
        if end - begin != math.prod(one["shape"]) * stored.itemsize:  # the library has checked it too
            raise MatrixError(f"{where}: {end - begin} bytes do not hold the shape {one['shape']}.")
        if end - begin > MAX_BYTES:
            raise MatrixError(f"{where}: {end - begin} bytes are more than the {MAX_BYTES} allowed.")
        require_memory(where, (end - begin) * (3 if one["dtype"] == "BF16" else 1))
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._start + begin)
                data = stream.read(end - begin)
        except OSError as error:
            raise MatrixError(f"{where}: cannot be read ({error.strerror or error}).") from error
        if len(data) != end - begin:
            raise MatrixError(f"{where}: is truncated.")
        array = np.frombuffer(data, stored).reshape(one["shape"])
        if one["dtype"] == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        return array, _NAMES.get(one["dtype"], array.dtype.name)


class Torch:
    """A PyTorch state dict, loaded with `weights_only=True` by a process of its own (`torch_process`)."""

    def __init__(self, path: Path) -> None:
        if importlib.util.find_spec("torch") is None:
            raise MatrixError(f"{path}: reading it needs PyTorch: {INSTALL.format('torch')}.")
        _require_plain(path)
        self._path = path
        command = [sys.executable, "-m", torch_process.__name__, os.fspath(path.absolute())]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._child = subprocess.Popen(command, env=environment, **pipes)
        weakref.finalize(self, _end, self._child)
        self._names: list[str] = self._answer(str(path), None)[0]["names"]

    def names(self) -> list[str]:
        """Those of two axes or more with plain numbers."""
        return self._names

    def read(self, name: str) -> tuple[NDArray[Any], str]:
        """The tensor, bf16 as the float32 of the same value, and its type's name."""
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
