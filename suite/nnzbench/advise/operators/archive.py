"""What is kept of operators: one in a folder, and a pruned model's layers in one file; never a program.

An operator's folder has its `Facts` in `operator.json`, and in `matrix.npz` the weights in CSR: `offsets` (m+1),
`indices` (nnz), `values` (nnz), rounded to their type. Loading packs them again and compiles this project's sources.

A safetensors file: the weights of each packed layer as compressed-tensors' `sparse-bitmask` (`matrices.files`), so
that readers of that format read it, and in its header the text `nnzbench`, JSON with the choices. Layers that stay
dense are named there, and have no weights.

And what was chosen for one layer, kept on disk (`keep`, `recall`): by all that it depends on (`Key`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import ml_dtypes
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from nnzbench.advise.operators.arrays import ITEM_BYTES, OperatorError
from nnzbench.advise.operators.tokens import Layout
from nnzbench.core import paths
from nnzbench.core.plan import Array, Launch, Plan
from nnzbench.data.matrices import checkpoints, files
from nnzbench.data.matrices.checkpoints import load_array
from nnzbench.data.matrices.formats import CSR, MatrixError
from nnzbench.data.problems.buffers import stored
from nnzbench.data.problems.operands import round_to
from nnzbench.data.problems.problem import DType
from nnzbench.devices.build.cache import Job

OPERATOR_FORMAT = "nnzbench-operator/2"
MOST_JSON = 64 << 20
_MATRIX = {"offsets": (np.dtype("i4"),), "indices": (np.dtype("i4"),), "values": (np.dtype("f2"), np.dtype("f4"))}


@dataclass(frozen=True)
class Step:
    """One launch and the number of its program."""

    program: int
    launch: Launch


@dataclass(frozen=True)
class Facts:
    """What an operator is, as its JSON file tells."""

    kernel: str
    variant: str
    op: str
    m: int
    k: int
    n: int
    dtype: DType
    """`f32`, `f16` or `bf16`: of weights, dense operand and result."""
    arch: str
    """Architecture of the programs, such as `sm_90`."""
    input: str
    """Buffer of the dense operand."""
    output: str
    """Buffer of the result."""
    relative_error: float | None
    """Of the check that it passed, against float64; None where none could be made yet."""
    weights_bytes: int
    """Device memory beside the caller's arrays."""
    hot_us: float | None
    """What a call took when it was chosen, microseconds in a CUDA graph; None on the processor, which is not timed."""
    layout: Layout = "columns"
    """`columns`: the operand is (k, n) and the result (m, n); `tokens`: (n, k) and (n, m)."""
    digest: str = ""
    """SHA-256 of all that ran when it was made (`digest_of`)."""
    sms: int = 0
    """Multiprocessors that it was planned for; 0: those of the part that the architecture is best known by."""

    def shapes(self, rows: int | None = None) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of operand and result; `rows` are those of tokens where they may be fewer than n."""
        if self.layout == "columns":
            return (self.k, self.n), (self.m, self.n)
        rows = self.n if rows is None else rows
        return (rows, self.k), (rows, self.m)


@dataclass(frozen=True)
class Saved:
    """What an operator is made of again."""

    facts: Facts
    matrix: CSR

    def save(self, folder: Path) -> None:
        """Writes the folder, the JSON last, so that a folder with one is whole. Raises `OSError`."""
        folder.mkdir(parents=True, exist_ok=True)
        with paths.replacing(folder / "matrix.npz") as partial, partial.open("wb") as file:
            np.savez(file, **{name: getattr(self.matrix, name) for name in _MATRIX})
        text = {"format": OPERATOR_FORMAT, **asdict(self.facts)}
        paths.write_text(folder / "operator.json", json.dumps(text, indent=1) + "\n")


@dataclass(frozen=True)
class Packed:
    """All of an operator but a device. `cubins` is empty on the processor, which runs `plan` instead."""

    saved: Saved
    buffers: Mapping[str, Array]
    steps: tuple[Step, ...] = ()
    cubins: tuple[bytes, ...] = ()
    plan: Plan | None = None
    rows_at: tuple[tuple[int, int], ...] = ()
    """Launch and argument that tell the rows of tokens, where these may be fewer than n."""


def digest_of(plan: Plan, arch: str, kept: Mapping[str, Array]) -> str:
    """SHA-256 over programs with what they include and are told, launches, and packed weights."""
    found = hashlib.sha256()
    for stage in plan.stages():
        told = [[one.entry, *one.grid, *one.block, *one.args, one.shared_bytes, *one.cluster] for one in stage.launches]
        parts = (Job.of(stage, arch).program().ptx_key(), stage.cpu_source, [list(map(str, one)) for one in told])
        found.update(json.dumps(parts).encode())
    for name, array in sorted(kept.items()):
        found.update(f"{name} {array.dtype.str} {array.shape};".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def load_operator(folder: Path) -> Saved:
    """Reads what `Saved.save` wrote. Raises `OperatorError` for a folder that is no operator, or a damaged one."""
    path = folder / "operator.json"
    try:
        if path.stat().st_size > MOST_JSON:
            raise OperatorError(f"{path}: too long for the description of an operator")
        text = json.loads(path.read_text(encoding="utf-8"))
        if text.get("format") != OPERATOR_FORMAT:
            raise OperatorError(f"{path}: its format is not {OPERATOR_FORMAT}: make the operator again")
        facts = facts_of(text)
        if foreign := sorted(text.keys() - {"format", *vars(facts)}):
            raise OperatorError(f"{path}: holds what no operator has: {', '.join(foreign)[:90]}")
        return Saved(facts, _matrix(folder / "matrix.npz", facts))
    except OSError as error:
        raise OperatorError(f"{folder}: is no saved operator ({error.strerror or error})") from error
    except (MatrixError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, OperatorError):
            raise
        raise OperatorError(f"{folder}: is a damaged operator ({type(error).__name__}: {error})") from error


def facts_of(text: Mapping[str, Any]) -> Facts:
    """What `asdict` gave, out of a longer text. Raises `ValueError` and `KeyError` for what it does not give."""
    needed = Facts.__dataclass_fields__.keys() - {"layout", "sms"}
    facts = Facts(**{name: text[name] for name in Facts.__dataclass_fields__ if name in text or name in needed})
    sizes = (facts.m, facts.k, facts.n, facts.weights_bytes + 1, facts.sms + 1)
    words = (facts.kernel, facts.variant, facts.op, facts.arch, facts.input, facts.output, facts.digest)
    numbers = [0.0 if one is None else one for one in (facts.relative_error, facts.hot_us)]
    if any(not isinstance(one, int) or not 0 < one < 2**40 for one in sizes) or max(sizes[:3]) >= 2**31:
        raise ValueError("its sizes are impossible")
    if any(not isinstance(one, str) for one in words) or facts.dtype not in ITEM_BYTES or facts.op != "spmm":
        raise ValueError("its names are no names")
    if any(not isinstance(one, int | float) or not math.isfinite(one) for one in numbers):
        raise ValueError("its numbers are no numbers")
    if facts.layout not in get_args(Layout):
        raise ValueError("its layout is none")
    return facts


def _matrix(path: Path, facts: Facts) -> CSR:
    offsets, indices, values = (load_array(path, name, kinds) for name, kinds in _MATRIX.items())
    found = scipy.sparse.csr_array((values.astype(np.float32), indices, offsets), shape=(facts.m, facts.k))
    found.check_format()  # which allows more indices than the offsets count
    if offsets[-1] != indices.size or not found.has_canonical_format or not np.isfinite(values).all():
        raise ValueError(f"the arrays of {path.name} are no matrix of {facts.m} x {facts.k}")
    return CSR(facts.m, facts.k, offsets, indices, values)


FORMAT = "nnzbench-packed/1"
FILE = "packed.safetensors"
"""Of a folder that an archive is saved in."""
_HEADER = "nnzbench"


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
    widths: Mapping[int, Facts | None]
    """By the most tokens that an operator is for, ascending; None: dense. Wider than all of them is dense, too."""

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
        return {n: Saved(one, matrix) for n, one in chosen.items()}

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
            parts = files.pack_bitmask(matrix)
            if packing.dtype == "bf16":
                parts[files.NONZEROS] = stored(parts[files.NONZEROS], True).view(ml_dtypes.bfloat16)
            tensors |= {f"{name}{part}": array for part, array in parts.items()}
        text = {
            "format": FORMAT, "gpu": self.gpu, "arch": self.arch, "driver": self.driver,
            "layers": {name: asdict(one) for name, one in self.layers.items()},
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


def packing_of(text: Mapping[str, Any]) -> Packing:
    """Raises `ValueError`, `KeyError` or `TypeError` for what `asdict` does not give, read from JSON."""
    m, k, dtype = text["m"], text["k"], text["dtype"]
    if not all(isinstance(size, int) and 0 < size < 2**31 for size in (m, k)) or dtype not in ITEM_BYTES:
        raise ValueError("a layer has impossible sizes")
    widths: dict[int, Facts | None] = {}
    for n, one in sorted(text["widths"].items(), key=lambda pair: int(pair[0])):
        facts = widths[int(n)] = None if one is None else facts_of(one)
        if facts and (facts.m, facts.k, facts.n, facts.dtype, facts.layout) != (m, k, int(n), dtype, "tokens"):
            raise ValueError("a choice is not its layer's")
    return Packing(m, k, dtype, str(text["pattern"]), widths)


def memory_bytes(layers: Iterable[Packing]) -> int:
    """Of the packed weights of all choices together, in a GPU's memory."""
    return sum(one.weights_bytes for layer in layers for one in layer.widths.values() if one is not None)


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
    paths.write_text(key.path(), json.dumps(asdict(packing)))
