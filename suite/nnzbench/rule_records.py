"""Recorded runs as trials: what `cost_rule` fits its constants to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from nnzbench.arches import sm_count
from nnzbench.cost_rule import Trial
from nnzbench.families import FAMILIES, family_features
from nnzbench.kernels.sputnik import Tile, heuristic_tile, oracle_tiles, tile_features
from nnzbench.record import Record

LABELS = ("rule_", "heuristic_")

Lengths = Callable[[Record], NDArray[np.int64] | None]
"""Row lengths of a record's matrix; a record whose matrix can't be had again (None) is left out."""


def _timed(records: Iterable[Record], policy: str) -> Iterator[Record]:
    for record in records:
        timed = record.status == "ok" and record.median_us is not None and record.policy == policy
        if timed and record.op == "spmm" and not record.shape and record.dtype in ("f32", "f16"):
            yield record


def _contest(record: Record) -> str:
    return f"{record.gpu}/{record.experiment}/{record.problem}/{record.dtype}/{record.pattern}"


def _itemsize(record: Record) -> int:
    return 2 if record.dtype == "f16" else 4


def tile_of(variant: str, n: int, itemsize: int) -> Tile | None:
    """The tile that a variant of `sputnik` names; None for a tile that is not tried any more."""
    for label in LABELS:
        variant = variant.removeprefix(label)
    known = {tile.name: tile for tile in (heuristic_tile(n, itemsize), *oracle_tiles(n, itemsize))}
    name = max((name for name in known if variant == name or variant.startswith(f"{name}_i")), key=len, default=None)
    return None if name is None else known[name]


def tile_trials(records: Iterable[Record], lengths: Lengths, policy: str = "hot") -> list[Trial]:
    """One trial per timed tile of kernel `sputnik`; a tile timed under two labels is two trials."""
    trials = []
    for record in _timed(records, policy):
        itemsize = _itemsize(record)
        tile = tile_of(record.variant, record.n, itemsize) if record.kernel == "sputnik" else None
        rows = lengths(record) if tile is not None else None
        if tile is not None and rows is not None and record.median_us is not None:
            features = tile_features(tile, rows, record.n, itemsize, sm_count(record.arch))
            trials.append(Trial(_contest(record), record.pattern, tile.name, features, record.median_us))
    return trials


def heuristic_choices(records: Iterable[Record], policy: str = "hot") -> dict[str, str]:
    """The tile of the paper's heuristic in each contest."""
    chosen = {}
    for record in _timed(records, policy):
        if record.kernel == "sputnik" and record.variant.startswith("heuristic_"):
            chosen[_contest(record)] = heuristic_tile(record.n, _itemsize(record)).name
    return chosen


def family_trials(records: Iterable[Record], lengths: Lengths, policy: str = "hot") -> list[Trial]:
    """One trial per family and problem: its selected row, that is, its tuned time."""
    trials = []
    for record in _timed(records, policy):
        rows = lengths(record) if record.kernel in FAMILIES and record.selected else None
        if rows is not None and record.median_us is not None:
            features = family_features(
                record.kernel, record.k, record.n, rows, itemsize=_itemsize(record), sms=sm_count(record.arch)
            )
            trials.append(Trial(_contest(record), record.pattern, record.kernel, features, record.median_us))
    return trials
