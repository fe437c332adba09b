"""Device memory that candidates take, as measured (`measure.memory`): the table beside the records."""

from __future__ import annotations

import csv
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from nnzbench import paths
from nnzbench.records.record import RecordError

STEP = 2 << 20
"""Bytes in which the driver hands out memory: what it says moves by no less."""

FILE = "memory.csv"
Key = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Use:
    """Bytes of the GPU in use, by all programs on it, as the driver counts them."""

    before_bytes: int
    """Before the candidate is prepared."""
    peak_bytes: int
    """The most by the end of its first run."""
    after_bytes: int
    """When it is gone."""

    @property
    def steady(self) -> bool:
        """Whether nothing else came or went meanwhile, another program's memory for one."""
        return abs(self.after_bytes - self.before_bytes) <= STEP

    @property
    def taken_bytes(self) -> int:
        """What the candidate took at most, inputs and output included."""
        return self.peak_bytes - self.before_bytes


@dataclass(frozen=True)
class Memory:
    """One row of memory.csv."""

    problem: str
    dtype: str
    kernel: str
    variant: str
    device: str
    before_bytes: int
    peak_bytes: int
    after_bytes: int

    @property
    def key(self) -> Key:
        """What names the candidate; of two rows the later one counts."""
        return (self.problem, self.dtype, self.kernel, self.variant, self.device)

    @property
    def use(self) -> Use:
        """The three numbers."""
        return Use(self.before_bytes, self.peak_bytes, self.after_bytes)


def add(path: Path, memory: Memory) -> None:
    """Appends one row to memory.csv."""
    with paths.appending(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(field.name for field in fields(Memory))
        writer.writerow(astuple(memory))


def read(path: Path) -> dict[Key, Use]:
    """The rows of memory.csv by candidate, none where there is no file. Raises `RecordError` for another table."""
    if not path.is_file():
        return {}
    found: dict[Key, Use] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                words = (row["problem"], row["dtype"], row["kernel"], row["variant"], row["device"])
                sizes = (int(row["before_bytes"]), int(row["peak_bytes"]), int(row["after_bytes"]))
                if min(sizes) < 0:
                    raise ValueError("a number of bytes is below zero")
                found[words] = Use(*sizes)
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise RecordError(f"{path}: not a table of memory ({error})") from None
    return found
