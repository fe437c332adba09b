"""Joules of candidates, as measured (`measure.energy`): the table beside the records, a row for each window of time."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from nnzbench import paths
from nnzbench.records.record import RecordError

FILE = "energy.csv"
Status = Literal["ok", "refused"]
Key = tuple[str, str, str, str, str]
_KINDS: dict[Any, Callable[[str], Any]] = {
    int: int,
    float: float,
    float | None: lambda cell: float(cell) if cell else None,
}


@dataclass(frozen=True)
class Window:
    """One row of energy.csv: launches back to back over rotated weights, from one tick of the counter to another.

    Raises `ValueError` for what can't be.
    """

    problem: str
    dtype: str
    kernel: str
    variant: str
    device: str
    trial: int
    """From 1: in each trial all candidates of a problem have a window, and another one in reverse order."""
    place: int
    """From 1, in the trial."""
    status: Status
    reason: str
    """Why the window is refused, with both readings; empty where it is ok."""
    launches: int
    seconds: float
    joules: float
    """By the board's own counter: everything on it, idle power included."""
    integral_joules: float
    """The same from readings of the instantaneous power."""
    tick_ms: float
    """Mean time between ticks of the counter."""
    idle_watts: float
    """By the counter, before the run's first window: a context, and nothing to do."""
    temperature_c: float | None
    """At the window's end; None where not told, as the clock."""
    sm_clock_mhz: float | None
    throttled: str
    """Reasons seen, separated by spaces."""
    environment: str

    def __post_init__(self) -> None:
        amounts = (self.seconds, self.joules, self.integral_joules, self.idle_watts)
        if self.status not in get_args(Status) or (self.status == "refused") != bool(self.reason):
            raise ValueError(f"status '{self.status}' with the reason '{self.reason}'")
        if not all(math.isfinite(one) and one >= 0 for one in amounts) or self.trial < 1 or self.place < 1:
            raise ValueError("an amount is not a number above zero")
        if self.status == "ok" and not (self.launches > 0 and self.seconds > 0 and self.joules > 0):
            raise ValueError("a window that is ok has launches, seconds and joules")

    @property
    def candidate(self) -> Key:
        """Whose window it is."""
        return (self.problem, self.dtype, self.kernel, self.variant, self.device)


def add(path: Path, windows: Iterable[Window]) -> None:
    """Appends rows to energy.csv, all of them at once."""
    with paths.appending(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(field.name for field in fields(Window))
        writer.writerows(
            [f"{cell:.6g}" if isinstance(cell, float) else cell for cell in astuple(window)] for window in windows
        )


def read(path: Path) -> list[Window]:
    """The rows of energy.csv, none where there is no file. Raises `RecordError` for another table."""
    if not path.is_file():
        return []
    kinds = {name: _KINDS.get(hint, str) for name, hint in get_type_hints(Window).items()}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows: list[dict[str, Any]] = list(csv.DictReader(file))
        return [Window(**{name: kind(row[name]) for name, kind in kinds.items()}) for row in rows]
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise RecordError(f"{path}: not a table of energy ({error})") from None
