"""Recorded runs as trials: what `cost_rule` fits its constants to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.architectures import sm_count
from nnzbench.kernels.composed.untuned import KERNELS, untuned
from nnzbench.kernels.cost_rule import DENSE_BYTES, FAMILIES, Chosen, Features, Trial, family_features, family_rule
from nnzbench.kernels.sputnik.sddmm import Strip, candidates, heuristic_strip, strip_features
from nnzbench.kernels.sputnik.spmm import Tile, heuristic_tile, oracle_tiles, tile_features
from nnzbench.results.records.record import Record

LABELS = ("rule_", "heuristic_")

Lengths = Callable[[Record], NDArray[np.int64] | None]
"""Row lengths of a record's matrix; a record whose matrix can't be had again (None) is left out."""


def _timed(records: Iterable[Record], op: str) -> Iterator[Record]:
    for record in records:
        timed = record.status == "ok" and record.median_us is not None and record.policy == "hot"
        if timed and record.op == op and not record.shape and record.dtype in DENSE_BYTES:
            yield record


def _contest(record: Record) -> str:
    return f"{record.gpu}/{record.experiment}/{record.problem}/{record.dtype}/{record.pattern_hash}"


@dataclass(frozen=True)
class Tuning(Generic[Chosen]):
    """A kernel among whose configurations a rule chooses; `size` is what its functions take beside bytes per value."""

    kernel: str
    op: str
    size: Callable[[Record], int]
    heuristic: Callable[[int, int], Chosen]
    others: Callable[[int, int], list[Chosen]]
    features: Callable[[Chosen, NDArray[np.int64], int, int, int], Features]

    def named(self, variant: str, size: int, itemsize: int) -> Chosen | None:
        """The configuration that a variant of the kernel names; None for one that is not tried any more."""
        for label in LABELS:
            variant = variant.removeprefix(label)
        known = {one.name: one for one in (self.heuristic(size, itemsize), *self.others(size, itemsize))}
        name = max((name for name in known if variant == name or variant.startswith(f"{name}_i")), key=len, default="")
        return known.get(name)

    def _rows(self, records: Iterable[Record]) -> Iterator[Record]:
        return (record for record in _timed(records, self.op) if record.kernel == self.kernel)

    def trials(self, records: Iterable[Record], lengths: Lengths) -> list[Trial]:
        """One trial per timed configuration; one that was timed under two labels is two trials."""
        trials = []
        for record in self._rows(records):
            size, itemsize = self.size(record), DENSE_BYTES[record.dtype]
            one = self.named(record.variant, size, itemsize)
            rows = lengths(record) if one is not None else None
            if one is not None and rows is not None and record.median_us is not None:
                features = self.features(one, rows, size, itemsize, sm_count(record.arch))
                trials.append(Trial(_contest(record), record.pattern_hash, one.name, features, record.median_us))
        return trials

    def heuristic_choices(self, records: Iterable[Record]) -> dict[str, str]:
        """The configuration of the paper's heuristic in each contest."""
        return {
            _contest(record): self.heuristic(self.size(record), DENSE_BYTES[record.dtype]).name
            for record in self._rows(records)
            if record.variant.startswith("heuristic_")
        }


TILES: Tuning[Tile] = Tuning("sputnik", "spmm", lambda record: record.n, heuristic_tile, oracle_tiles, tile_features)
STRIPS: Tuning[Strip] = Tuning(
    "sputnik_sddmm", "sddmm", lambda record: record.k, heuristic_strip, candidates, strip_features
)


def family_trials(records: Iterable[Record], lengths: Lengths, rule: str = "family") -> list[Trial]:
    """One trial per family and problem of the types that `rule` is for: its selected row, that is, its tuned time."""
    trials = []
    for record in _timed(records, "spmm"):
        ours = record.kernel in FAMILIES and record.selected and family_rule(record.dtype) == rule
        rows = lengths(record) if ours else None
        if rows is not None and record.median_us is not None:
            size, sms = DENSE_BYTES[record.dtype], sm_count(record.arch)
            features = family_features(record.kernel, record.k, record.n, rows, itemsize=size, sms=sms)
            trials.append(Trial(_contest(record), record.pattern_hash, record.kernel, features, record.median_us))
    return trials


def untuned_trials(records: Iterable[Record]) -> list[Trial]:
    """Of problems on which `untuned` was timed its own time and the tuned ones of the kernels that it chooses among."""
    timed = [one for one in _timed(records, "spmm") if one.selected and one.kernel in (untuned.name, *KERNELS)]
    there = {_contest(record) for record in timed if record.kernel == untuned.name}
    return [
        Trial(_contest(record), record.pattern_hash, record.kernel, {}, record.median_us)
        for record in timed
        if record.median_us is not None and _contest(record) in there
    ]
