"""Where the records of a folder lie, and how they change their form.

A run writes its journal, `records.csv`, row by row; what is published is `records.parquet`, a twentieth of that. A
folder has one of them. The tables beside it have the same form; in older published folders they are CSV and JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nnzbench.core import paths
from nnzbench.core.gpus import named
from nnzbench.results.records.beside import TABLES
from nnzbench.results.records.record import RecordError, append, read_records, read_table
from nnzbench.results.records.table_files import Form, write_parquet

JOURNAL, PUBLISHED = "records.csv", "records.parquet"


def records_file(folder: Path) -> Path:
    """The records of a folder: the published file where it is, else the journal, which need not be there.

    Raises `RecordError` where both are, as nothing says which one counts.
    """
    journal, published = folder / JOURNAL, folder / PUBLISHED
    if not published.exists():
        return journal
    if journal.exists():
        raise RecordError(f"{folder} holds {JOURNAL} and {PUBLISHED}: keep the one that counts and delete the other")
    return published


def has_records(folder: Path) -> bool:
    """Whether a folder holds records, in either form."""
    return records_file(folder).is_file()


def folders(root: Path, pattern: str = "**") -> list[Path]:
    """The folders with records at or below `root` that the glob matches, sorted: `*/*` are a results folder's sets."""
    return sorted({file.parent for name in (JOURNAL, PUBLISHED) for file in root.glob(f"{pattern}/{name}")})


def gpus_of(*roots: Path) -> list[str]:
    """The GPUs that have rows in results folders, sorted; what was checked on the processor is of none."""
    return sorted({one.parent.name for root in roots for one in folders(root, "*/*")} - {"cpu"})


def gpu_among(name: str, slugs: Iterable[str]) -> str | None:
    """The slug of that name, or the only one that has all its words (`h200`); None where none has.

    Raises `RecordError` naming them where several have.
    """
    hits = named(name, slugs)
    if len(hits) > 1:
        raise RecordError(f"'{name}' may be any of {', '.join(hits)}")
    return hits[0] if hits else None


def export(folder: Path, form: Form, out: Path | None = None) -> Path:
    """Writes the records of `folder` in the other form, or the same one, into `out`; in place of the old ones without,
    and then also gives the tables beside them that form.

    A CSV file in place of a published one is byte for byte the journal that it was made of. Raises `RecordError`.
    """
    source = records_file(folder)
    target = (out or folder) / (PUBLISHED if form == "parquet" else JOURNAL)
    if out is None:
        for table in TABLES:
            table.convert(folder, form)
    if target == source or not source.exists():
        return target
    if form == "parquet":
        write_parquet(target, read_table(source))
    else:
        rows = read_records(source)
        with paths.replacing(target) as partial:
            append(partial, rows)
    if out is None:
        source.unlink()
    return target
