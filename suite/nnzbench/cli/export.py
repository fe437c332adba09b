"""`nnzbench export`: records as CSV or as Parquet."""

from __future__ import annotations

import json
from pathlib import Path

import click

from nnzbench.progress import progress_bar
from nnzbench.records import files
from nnzbench.records.files import Form
from nnzbench.records.folder import refuse_links
from nnzbench.records.record import RecordError


@click.command("export")
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", type=click.Path(exists=True, path_type=Path))
@click.option("--to", "form", type=click.Choice(["csv", "parquet"]), required=True, help="What to write.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write below this folder and leave FOLDER as it is [default: in place of what is there].",
)
@click.option("--json", "as_json", is_flag=True, help="What was written, as JSON.")
def command(folders: tuple[Path, ...], form: Form, out: Path | None, as_json: bool) -> None:
    """Write the records of every result set at or below FOLDER as records.csv or as records.parquet.

    Runs write CSV, published sets are Parquet; both hold the same columns, and every command reads either.
    """
    targets: dict[Path | None, Path] = {}
    sets: list[tuple[Path, Path | None]] = []
    for root in folders:
        found = files.folders(root)
        if not found:
            raise RecordError(f"{root} holds no records")
        for folder in found:
            refuse_links(folder, files.records_file(folder))
            target = out / folder.relative_to(root) if out else None
            if target and targets.setdefault(target, folder) != folder:
                raise RecordError(f"{targets[target]} and {folder} would both be written to {target}")
            sets.append((folder, target))
    with progress_bar() as progress:
        progress.start(f"records as {form}", len(sets))
        written = []
        for folder, target in sets:
            progress.step(str(folder))
            written.append(files.export(folder, form, target))
            progress.advance()
    if as_json:
        click.echo(json.dumps([{"records": str(path), "bytes": path.stat().st_size} for path in written], indent=2))
        return
    size = sum(path.stat().st_size for path in written)
    click.echo(f"{len(written)} result sets as {form}, {size / 1e6:.1f} MB")
