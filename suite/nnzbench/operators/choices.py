"""What was chosen for a layer, kept on disk: by pattern, sizes, type, tokens asked about, GPU and driver."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from nnzbench import paths
from nnzbench.operators.archive import FORMAT, Packing, as_json, packing_of
from nnzbench.problems.problem import DType


def folder() -> Path:
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
        return folder() / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


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
