"""For how much of a whole network's time a kernel runs: rows of busy.csv, which `runners/network_busy.py` writes."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from nnzbench.records.record import RecordError

FILE = "busy.csv"
COLUMNS = ("problem", "kernel", "variant", "launches", "whole_us", "busy_us")
Key = tuple[str, str, str]
"""Problem, kernel and variant."""


@dataclass(frozen=True)
class Busy:
    """One network captured in one graph."""

    launches: int
    whole_us: float
    """Of a replay."""
    busy_us: float
    """Sum of its kernels' own times within a replay."""


def read(folder: Path) -> dict[Key, Busy]:
    """By candidate, none where there is no file; of two rows the later counts.

    Raises `RecordError` for another table.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    found: dict[Key, Busy] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                one = Busy(int(float(row["launches"])), float(row["whole_us"]), float(row["busy_us"]))
                if one.launches < 1 or not 0 < one.busy_us < float("inf") or not 0 < one.whole_us < float("inf"):
                    raise ValueError("a network without launches or time")
                found[row["problem"], row["kernel"], row["variant"]] = one
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise RecordError(f"{path}: not a table of busy times ({error})") from None
    return found
