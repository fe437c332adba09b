"""Plans as files of plain data, JSON and `.npy`: what a process that is not trusted hands over. Nothing is pickled."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnzbench.core.plan import Array, Launch, Plan, Unsupported, from_bf16

_DIGIT = 1024
"""Positions are probed in digits that every type of an output holds exactly, fp16 too."""


class ArrayFiles:
    """Writes arrays to a folder, each object once: the plans of a kernel share most of theirs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: list[Array] = []  # held, so that no other array takes their identity

    def write(self, array: Array) -> str:
        """The file's name."""
        for number, known in enumerate(self._written):
            if known is array:
                return f"array{number}.npy"
        name = f"array{len(self._written)}.npy"
        plain = np.ascontiguousarray(array)
        bits = plain.dtype.kind == "V"  # bf16 and e4m3, which a file has no names for
        np.save(self._folder / name, plain.view(f"u{plain.itemsize}") if bits else plain, allow_pickle=False)
        self._written.append(array)
        return name


def encode(plan: Plan, files: ArrayFiles) -> str:
    """The plan as one line of JSON, its arrays as files. Raises `Unsupported` where `unpermute` does more than move."""
    told = {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan) if f.name not in ("buffers", "unpermute")}
    told["launches"] = [dataclasses.asdict(launch) for launch in plan.launches]
    told["buffers"] = {name: files.write(array) for name, array in plan.buffers.items()}
    if plan.unpermute is not None:
        told["moved"] = files.write(_positions(plan))
    return json.dumps(told, default=_scalar)


def decode(line: str, folder: Path) -> Plan:
    """The plan of a line that `encode` wrote. Raises `ValueError`, `KeyError` or `TypeError` for anything else."""
    told = json.loads(line)
    buffers = {str(name): _load(folder, file) for name, file in told.pop("buffers").items()}
    launches = tuple(_launch(one) for one in told.pop("launches"))
    moved = told.pop("moved", None)
    unpermute = None if moved is None else _Moved(_load(folder, moved))
    return Plan(**told, buffers=buffers, launches=launches, unpermute=unpermute)


@dataclasses.dataclass(frozen=True)
class _Moved:
    """`Plan.unpermute` as data: for each element of the result its place in the output buffer plus one, 0 for none."""

    places: Array

    def __call__(self, raw: Array) -> Array:
        flat = raw.ravel()
        if flat.dtype.kind in "iu" and flat.itemsize == 2:  # bf16 is stored as its bits
            flat = from_bf16(flat)
        return np.concatenate([np.zeros(1, flat.dtype), flat])[self.places]


def _positions(plan: Plan) -> Array:
    """Which element of the output `unpermute` puts where, asked with positions in place of results."""
    output, move = np.asarray(plan.buffers[plan.output]), plan.unpermute
    assert move is not None
    places, count = np.arange(1, output.size + 1).reshape(output.shape), output.size + 1
    found: Any = 0
    weight = 1
    while weight < count:
        digits = move((places // weight % _DIGIT).astype(output.dtype))
        if output.dtype.kind in "iu" and output.itemsize == 2 and digits.dtype == np.float32:
            digits = digits.view(np.uint32) >> 16
        found = found + weight * np.asarray(digits).astype(np.int64)
        weight *= _DIGIT
    result: Array = np.asarray(found)
    if result.size and not (result.min() >= 0 and result.max() < count):
        raise Unsupported(f"{plan.variant}: `unpermute` computes; it may only move elements of the output")
    return result


def _scalar(value: object) -> object:
    """A NumPy scalar, which has a C type, as JSON; `_launch` makes it again."""
    if isinstance(value, np.generic):
        return {"type": value.dtype.str, "value": value.item()}
    raise TypeError(f"{type(value).__name__} is no plain data")


def _launch(told: Mapping[str, Any]) -> Launch:
    def argument(value: Any) -> Any:
        return np.dtype(value["type"]).type(value["value"]) if isinstance(value, dict) else value

    def three(value: Any) -> tuple[int, int, int]:
        x, y, z = (int(argument(one)) for one in value)
        return x, y, z

    sizes = {name: three(told[name]) for name in ("grid", "block", "cluster")}
    rest = {**told, **sizes, "args": tuple(argument(one) for one in told["args"])}
    return Launch(**{**rest, "shared_bytes": int(argument(told["shared_bytes"]))})


def _load(folder: Path, name: str) -> Array:
    if Path(name).name != name:
        raise ValueError(f"'{name}' is no file of the exchange")
    loaded: Array = np.load(folder / name, allow_pickle=False)
    return loaded
