"""An operator ready to run, and the folder it is kept in: weights and the choice of a kernel, but no program.

| file | what |
| --- | --- |
| `operator.json` | `Facts`, and the SHA-256 of all that ran when it was made (`digest`) |
| `matrix.npz` | the weights in CSR: `offsets` (m+1), `indices` (nnz), `values` (nnz), rounded to their type |

Loading packs the weights again and compiles this project's own sources.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import scipy.sparse

from nnzbench import paths
from nnzbench.build.cache import Job
from nnzbench.matrices.checkpoints import load_array
from nnzbench.matrices.formats import CSR, MatrixError
from nnzbench.operators.arrays import ITEM_BYTES, OperatorError
from nnzbench.operators.tokens import Layout
from nnzbench.plans.plan import Array, Launch, Plan
from nnzbench.problems.problem import DType

FORMAT = "nnzbench-operator/2"
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

    def shapes(self, rows: int | None = None) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of operand and result; `rows` are those of tokens where they may be fewer than n."""
        if self.layout == "columns":
            return (self.k, self.n), (self.m, self.n)
        rows = self.n if rows is None else rows
        return (rows, self.k), (rows, self.m)


@dataclass(frozen=True)
class Packed:
    """All of an operator but a device. `cubins` is empty on the processor, which runs `plan` instead."""

    facts: Facts
    buffers: Mapping[str, Array]
    saved: Saved
    """What `save` writes."""
    steps: tuple[Step, ...] = ()
    cubins: tuple[bytes, ...] = ()
    plan: Plan | None = None
    rows_at: tuple[tuple[int, int], ...] = ()
    """Launch and argument that tell the rows of tokens, where these may be fewer than n."""


@dataclass(frozen=True)
class Saved:
    """What an operator is made of again."""

    facts: Facts
    matrix: CSR
    digest: str

    def save(self, folder: Path) -> None:
        """Writes the folder, the JSON last, so that a folder with one is whole. Raises `OSError`."""
        folder.mkdir(parents=True, exist_ok=True)
        with paths.replacing(folder / "matrix.npz") as partial, partial.open("wb") as file:
            np.savez(file, **{name: getattr(self.matrix, name) for name in _MATRIX})
        text = {"format": FORMAT, **asdict(self.facts), "digest": self.digest}
        paths.write_text(folder / "operator.json", json.dumps(text, indent=1) + "\n")


def digest(plan: Plan, arch: str, kept: Mapping[str, Array]) -> str:
    """SHA-256 over programs with what they include and are told, launches, and packed weights."""
    found = hashlib.sha256()
    for stage in plan.stages():
        told = [[one.entry, *one.grid, *one.block, *one.args, one.shared_bytes, *one.cluster] for one in stage.launches]
        parts = (Job.of(stage, arch).program().ptx_key(), stage.cpu_source, [list(map(str, one)) for one in told])
        found.update(json.dumps(parts).encode())
    for name, array in sorted(kept.items()):
        found.update(f"{name} {array.dtype.str} {array.shape};".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def load(folder: Path) -> Saved:
    """Reads what `save` wrote. Raises `OperatorError` for a folder that is no operator, or a damaged one."""
    path = folder / "operator.json"
    try:
        if path.stat().st_size > MOST_JSON:
            raise OperatorError(f"{path}: too long for the description of an operator")
        text = json.loads(path.read_text(encoding="utf-8"))
        if text.get("format") != FORMAT:
            raise OperatorError(f"{path}: its format is not {FORMAT}: make the operator again")
        facts = facts_of(text)
        if foreign := sorted(text.keys() - {"format", "digest", *vars(facts)}):
            raise OperatorError(f"{path}: holds what no operator has: {', '.join(foreign)[:90]}")
        return Saved(facts, _matrix(folder / "matrix.npz", facts), str(text["digest"]))
    except OSError as error:
        raise OperatorError(f"{folder}: is no saved operator ({error.strerror or error})") from error
    except (MatrixError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, OperatorError):
            raise
        raise OperatorError(f"{folder}: is a damaged operator ({type(error).__name__}: {error})") from error


def facts_of(text: Mapping[str, Any]) -> Facts:
    """What `asdict` gave, out of a longer text. Raises `ValueError` and `KeyError` for what it does not give."""
    facts = Facts(**{name: text[name] for name in Facts.__dataclass_fields__ if name in text or name != "layout"})
    sizes = (facts.m, facts.k, facts.n, facts.weights_bytes + 1)
    words = (facts.kernel, facts.variant, facts.op, facts.arch, facts.input, facts.output)
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
