"""Tensors by name out of checkpoints: safetensors files and PyTorch state dicts, by their own libraries."""

from __future__ import annotations

import json
import math
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.formats import MatrixError
from nnzbench.matrices.readers.weights import MAX_BYTES, reading
from nnzbench.plans.plan import one_line

INSTALL = "pip install 'nnzbench[{}]'"
_TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "|i1", "U8": "|u1", "BOOL": "|b1", "BF16": "<u2"}
"""Types of safetensors that are read, by NumPy's; bf16 as its bits."""
_NAMES = {"BF16": "bfloat16"}
_LEAST_AXES = 2


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
        with reading(where), self._path.open("rb") as stream:
            stream.seek(self._start + begin)
            data = stream.read(end - begin)
        if len(data) != end - begin:
            raise MatrixError(f"{where}: is truncated.")
        array = np.frombuffer(data, stored).reshape(one["shape"])
        if one["dtype"] == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        return array, _NAMES.get(one["dtype"], array.dtype.name)


class Torch:
    """A PyTorch state dict, loaded with `weights_only=True` and mapped from the file, never unpickled freely."""

    def __init__(self, path: Path) -> None:
        try:
            import torch
        except ImportError:
            raise MatrixError(f"{path}: reading it needs PyTorch: {INSTALL.format('torch')}.") from None
        self._path = path
        _require_plain(path)
        # pickles raise whatever their opcodes lead to
        with reading(path, "a state dict that loads with weights_only", (Exception,)):
            try:
                found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            except pickle.UnpicklingError as error:
                raise MatrixError(
                    f"{path}: holds other things than tensors by name, which are not loaded from a file that is not "
                    "trusted: save the model's state_dict()."
                ) from error
        for key in ("state_dict", "model"):  # what training scripts wrap it in
            if isinstance(found, dict) and isinstance(found.get(key), dict):
                found = found[key]
        if not isinstance(found, dict):
            found = {"": found}
        self._tensors = {str(name): one for name, one in found.items() if isinstance(one, torch.Tensor)}

    def names(self) -> list[str]:
        """Those of two axes or more with plain numbers."""
        return [name for name, one in self._tensors.items() if one.dim() >= _LEAST_AXES and one.numel()]

    def read(self, name: str) -> tuple[NDArray[Any], str]:
        """The tensor, bf16 as the float32 of the same value, and its type's name."""
        where = f"{self._path}: '{name}'"
        if name not in self._tensors:
            raise MatrixError(f"{where}: is not in the file.")
        tensor = self._tensors[name].detach()
        if math.prod(tensor.shape) * tensor.element_size() > MAX_BYTES:
            raise MatrixError(f"{where}: shape {tuple(tensor.shape)} is larger than is read here.")
        kind = str(tensor.dtype).removeprefix("torch.")
        try:
            dense = tensor.to_dense() if tensor.is_sparse else tensor
            array = dense.float().numpy() if kind == "bfloat16" else dense.numpy()
        except Exception as error:
            raise MatrixError(f"{where}: is no array of numbers ({one_line(error)}).") from error
        if array.dtype.kind not in "fbiu":
            raise MatrixError(f"{where}: values are {kind}, which is not read here.")
        return array, kind


def _require_plain(path: Path) -> None:
    """Refuses what is not the zip archive that PyTorch writes since 1.6, whose members are stored as they are."""
    kind = "a PyTorch archive; older files must be saved anew, or as safetensors"
    faults = (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, OverflowError)
    with reading(path, kind, faults), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    if any(one.compress_type != zipfile.ZIP_STORED for one in members):
        raise MatrixError(f"{path}: has compressed members, which PyTorch does not write.")
