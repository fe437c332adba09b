"""Rows that a run measures again lie in a folder below until it ends, so that an interrupted one loses none of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from nnzbench.core import paths
from nnzbench.results.records.beside import MEMORY, TUNING, Memory, Tuning
from nnzbench.results.records.record import Record, append, read_records

OLDER = "older"
"""Name of that folder: it has what was tuned and the memory taken, too."""
Cell = tuple[str, ...]
"""Problem, dtype, kernel, device and policy."""


def set_aside(journal: Path, stale: Callable[[Record], bool]) -> int:
    """Moves the rows that `stale` names below the folder of the journal, and returns their number.

    They are written there before they go here, and here what was tuned goes first, as that says of rows that they need
    not come back: a crash leaves rows twice and never none. Raises `RecordError`.
    """
    folder, old, kept = journal.parent, list[Record](), list[Record]()
    for row in read_records(journal):
        (old if stale(row) else kept).append(row)
    if old:
        cells, candidates = {_cell(row) for row in old}, {row.key[1:-1] for row in old}
        tuned, memory = TUNING.read(folder), MEMORY.read(folder)
        for place, is_old, rows in ((folder / OLDER, True, old), (folder, False, kept)):
            _write_tables(
                place,
                [one for one in tuned if bool(_cells(one) & cells) == is_old],
                [one for one in memory if (one.candidate in candidates) == is_old],
            )
            _write_rows(place / journal.name, rows)
    return len(old)


def bring_back(journal: Path) -> None:
    """Ends what `set_aside` began: the rows come back but those that there are again, and those of kernels that were
    searched to the end again. Raises `RecordError`.
    """
    folder = journal.parent
    if not (folder / OLDER / journal.name).exists():  # or nothing had gone yet
        shutil.rmtree(folder / OLDER, ignore_errors=True)
        return
    rows = read_records(journal) if journal.exists() else []
    tuned, memory = TUNING.read(folder), MEMORY.read(folder)
    here = {row.key for row in rows}
    whole = {cell for one in tuned if one.scope == "all" for cell in _cells(one)}
    old = [
        one for one in read_records(folder / OLDER / journal.name) if one.key not in here and _cell(one) not in whole
    ]
    candidates = {row.key[1:-1] for row in old}
    _write_rows(journal, [*rows, *old])
    _write_tables(
        folder,
        [*(one for one in TUNING.read(folder / OLDER) if _cells(one) - whole), *tuned],
        [*(one for one in MEMORY.read(folder / OLDER) if one.candidate in candidates), *memory],
    )
    shutil.rmtree(folder / OLDER)


def _cell(row: Record) -> Cell:
    return (row.problem, row.dtype, row.kernel, row.device, row.policy)


def _cells(one: Tuning) -> set[Cell]:
    return {(*one.key[:-1], policy) for policy in one.policies.split("+")}


def _write_rows(journal: Path, rows: Iterable[Record]) -> None:
    with paths.replacing(journal) as partial:
        append(partial, rows)


def _write_tables(folder: Path, tuned: list[Tuning], memory: list[Memory]) -> None:
    if tuned or TUNING.files(folder):
        TUNING.write(folder, tuned)
    if memory or MEMORY.files(folder):
        MEMORY.write(folder, memory)
