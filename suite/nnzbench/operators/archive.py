"""A pruned model's layers in one file, with what was chosen for each of them and each number of tokens.

A safetensors file: the weights of each packed layer as compressed-tensors' `sparse-bitmask` (`matrices.bitmask`), so
that readers of that format read it, and in its header the text `nnzbench`, JSON with the choices. Layers that stay
dense are named there, and have no weights. As in a saved operator (`packed`), no program is kept.

And what was chosen for one layer, kept on disk (`keep`, `recall`): by all that it depends on (`Key`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from nnzbench import paths
from nnzbench.matrices import bitmask, checkpoints, files
from nnzbench.matrices.formats import CSR, MatrixError
from nnzbench.operators.arrays import ITEM_BYTES, OperatorError
from nnzbench.operators.packed import Facts, Saved, facts_of
from nnzbench.problems.buffers import stored
from nnzbench.problems.operands import round_to
from nnzbench.problems.problem import DType

FORMAT = "nnzbench-packed/1"
FILE = "packed.safetensors"
"""Of a folder that an archive is saved in."""
_HEADER = "nnzbench"


@dataclass(frozen=True)
class Choice:
    """A kernel for up to so many tokens, as `Saved` has it without the weights."""

    facts: Facts
    digest: str


@dataclass(frozen=True)
class Packing:
    """What was chosen for one layer."""

    m: int
    """Features that it gives."""
    k: int
    """Features that it takes."""
    dtype: DType
    pattern: str
    """Hash of where its weights are; empty of a layer that was not looked at for having too few zeros."""
    widths: Mapping[int, Choice | None]
    """By the most tokens that a choice is for, ascending; None: dense. Wider than all of them is dense, too."""

    @property
    def dense(self) -> bool:
        """Whether no choice leaves zeros out."""
        return not any(self.widths.values())


@dataclass(frozen=True)
class Archive:
    """The layers by their tensors' names, and what they were chosen for."""

    gpu: str
    arch: str
    driver: str
    layers: Mapping[str, Packing]
    weights: Mapping[str, CSR] | Path
    """Of the packed layers, rounded to their types and without zeros; or the file that has them."""

    def saved(self, name: str) -> dict[int, Saved]:
        """The layer's operators by the most tokens that each is for. Raises `OperatorError` for damaged weights."""
        layer = self.layers[name]
        chosen = {n: one for n, one in layer.widths.items() if one is not None}
        if not chosen:
            return {}
        matrix = self._read(name, layer) if isinstance(self.weights, Path) else self.weights[name]
        return {n: Saved(one.facts, matrix, one.digest) for n, one in chosen.items()}

    def _read(self, name: str, layer: Packing) -> CSR:
        try:
            (found,) = files.read(f"{self.weights}::{name}")
        except MatrixError as error:
            raise OperatorError(str(error)) from error
        matrix = found.csr.with_values(round_to(found.csr.values, layer.dtype))
        if (matrix.m, matrix.k, matrix.pattern_hash()) != (layer.m, layer.k, layer.pattern):
            raise OperatorError(f"{self.weights}: the weights of '{name}' are not those that were packed")
        return matrix

    def save(self, path: Path) -> Path:
        """Writes the file, or `FILE` in the folder `path`. Raises `OSError`, `OperatorError` without safetensors."""
        target = file_of(path)
        save_file = _writer(target)
        tensors: dict[str, NDArray[Any]] = {}
        for name, packing in self.layers.items():
            if packing.dense:
                continue
            matrix = next(iter(self.saved(name).values())).matrix
            parts = bitmask.pack(matrix)
            if packing.dtype == "bf16":
                parts[bitmask.VALUES] = stored(parts[bitmask.VALUES], True).view(ml_dtypes.bfloat16)
            tensors |= {f"{name}{part}": array for part, array in parts.items()}
        text = {
            "format": FORMAT, "gpu": self.gpu, "arch": self.arch, "driver": self.driver,
            "layers": {name: as_json(one) for name, one in self.layers.items()},
        }  # fmt: skip
        with paths.replacing(target) as partial:
            save_file(tensors, partial, {_HEADER: json.dumps(text)})
        return target


def _writer(target: Path) -> Any:
    """The function of safetensors that writes files."""
    try:
        from safetensors.numpy import save_file
    except ImportError:
        install = checkpoints.INSTALL.format("safetensors")
        raise OperatorError(f"{target}: writing it needs safetensors: {install}") from None
    return save_file


def file_of(path: Path) -> Path:
    """The file itself, or the one that an archive is saved in within a folder."""
    return path if path.suffix == ".safetensors" else path / FILE


def load(path: str | Path) -> Archive:
    """Reads what `Archive.save` wrote, but the weights. Raises `OperatorError` for what is no archive, or damaged."""
    target = file_of(Path(path))
    try:
        files.require_file(target)
        text = json.loads(checkpoints.Safetensors(target).metadata.get(_HEADER, "{}"))
        if text.get("format") != FORMAT:
            raise OperatorError(f"{target}: is not a file that nnzbench best --save wrote")
        layers = {name: packing_of(one) for name, one in text["layers"].items()}
        return Archive(str(text["gpu"]), str(text["arch"]), str(text["driver"]), layers, target)
    except MatrixError as error:
        raise OperatorError(str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, OperatorError):
            raise
        raise OperatorError(f"{target}: is damaged ({type(error).__name__}: {error})") from error


def require_place(path: Path) -> None:
    """Raises `OperatorError` where saving would replace another file than an archive, such as the checkpoint itself.

    And without safetensors: measuring before is not in vain.
    """
    _writer(file_of(path))
    there = path if path.is_file() else file_of(path)
    try:
        if there.exists():
            load(there)
    except OperatorError as error:
        raise OperatorError(f"{there} is there, and nothing that nnzbench best --save wrote: not replaced") from error


def canonical(matrix: CSR, dtype: DType) -> CSR:
    """The matrix rounded to a type, without what became zero by it: what an archive gives back."""
    values = round_to(matrix.values, dtype)
    there = values != 0
    if there.all():
        return matrix.with_values(values)
    before = np.concatenate([[0], np.cumsum(there)])
    return CSR(matrix.m, matrix.k, before[matrix.offsets].astype(np.int32), matrix.indices[there], values[there])


def as_json(packing: Packing) -> dict[str, Any]:
    """A layer's choices as JSON's types."""
    widths = {str(n): one and {**asdict(one.facts), "digest": one.digest} for n, one in packing.widths.items()}
    return {"m": packing.m, "k": packing.k, "dtype": packing.dtype, "pattern": packing.pattern, "widths": widths}


def packing_of(text: Mapping[str, Any]) -> Packing:
    """Raises `ValueError`, `KeyError` or `TypeError` for what `as_json` does not give."""
    m, k, dtype = text["m"], text["k"], text["dtype"]
    if not all(isinstance(size, int) and 0 < size < 2**31 for size in (m, k)) or dtype not in ITEM_BYTES:
        raise ValueError("a layer has impossible sizes")
    widths: dict[int, Choice | None] = {}
    for n, one in sorted(text["widths"].items(), key=lambda pair: int(pair[0])):
        choice = None if one is None else Choice(facts_of(one), str(one["digest"]))
        if choice is not None:
            facts = choice.facts
            if (facts.m, facts.k, facts.n, facts.dtype, facts.layout) != (m, k, int(n), dtype, "tokens"):
                raise ValueError("a choice is not its layer's")
        widths[int(n)] = choice
    return Packing(m, k, dtype, str(text["pattern"]), widths)


def memory_bytes(layers: Iterable[Packing]) -> int:
    """Of the packed weights of all choices together, in a GPU's memory."""
    return sum(one.facts.weights_bytes for layer in layers for one in layer.widths.values() if one is not None)


def choices_folder() -> Path:
    """Where choices are kept."""
    return paths.cache() / "choices"


@dataclass(frozen=True)
class Key:
    """All that a choice depends on; values of weights are checked where it is used."""

    pattern: str
    m: int
    k: int
    dtype: DType
    tokens: tuple[int, ...]
    """At most so many, ascending."""
    gpu: str
    driver: str

    def path(self) -> Path:
        """Of the file that holds the choice."""
        text = json.dumps([FORMAT, *asdict(self).values()])
        return choices_folder() / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def recall(key: Key) -> Packing | None:
    """What was kept under this key; None where nothing was, or the file is damaged."""
    try:
        found = packing_of(json.loads(key.path().read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    same = (found.m, found.k, found.dtype, found.pattern) == (key.m, key.k, key.dtype, key.pattern)
    return found if same else None


def keep(key: Key, packing: Packing) -> None:
    """Keeps it under this key. Raises `OSError`."""
    paths.write_text(key.path(), json.dumps(as_json(packing)))
