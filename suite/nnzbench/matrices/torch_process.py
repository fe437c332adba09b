"""PyTorch's loader in a process of its own: what it does with a hostile file ends that process, and not the caller's.

Run as `python -m nnzbench.matrices.torch_process FILE`. It answers on standard output: first a JSON object of
the names, then to each line of standard input, a JSON name, an object with shape and type and the array's bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
from typing import Any

from nnzbench.plans.plan import one_line

MAX_BYTES = 1 << 31
"""Largest tensor read."""
_LEAST_AXES = 2
_WRAPPERS = ("state_dict", "model")
"""What training scripts put a state dict in."""


def main(path: str) -> None:
    """Loads the file and answers until its input ends."""
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
    main(sys.argv[1])
