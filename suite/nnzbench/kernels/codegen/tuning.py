"""The tuning cache: the fastest tiling found for a pattern on an architecture, kept on disk between runs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from nnzbench import paths
from nnzbench.kernels.codegen.tiling import Tiling
from nnzbench.problems.problem import Problem


@dataclass(frozen=True)
class Tuned:
    """A finished search and its price."""

    tiling: Tiling
    median_us: float
    candidates: int
    correct: int
    generate_s: float
    """Inspection and code generation of all candidates."""
    assemble_s: float
    """Wall time of the parallel assembly."""
    measure_s: float


def key(pattern: str, problem: Problem, arch: str) -> str:
    """File name of a search: what the best tiling depends on."""
    return f"{arch}-{pattern}-{problem.shape or problem.n}-{problem.dtype}"


def recall(name: str) -> Tuned | None:
    """The stored result, None where there is none or it can't be read."""
    try:
        entry = json.loads(_file(name).read_bytes())
        return Tuned(**{**entry, "tiling": Tiling(**entry["tiling"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def remember(name: str, tuned: Tuned) -> Path:
    """Stores a result by one rename, so that a reader sees all of it or none."""
    path = _file(name)
    with paths.replacing(path) as partial:
        partial.write_text(json.dumps(asdict(tuned)), encoding="utf-8")
    return path


def _file(name: str) -> Path:
    return paths.cache() / "tuning" / f"{name}.json"
