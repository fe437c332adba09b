"""`nnzbench report`: figures, tables and pages from the committed records; needs no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import click

from nnzbench import paths
from nnzbench.records.record import RecordError


@click.command("report", short_help="Redraw every figure, table and page from recorded runs.")
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("--reports", type=click.Path(file_okay=False, path_type=Path), help="Folder of recorded runs.")
@click.option("--gpu", metavar="SLUG", help="Only the runs of this GPU, such as nvidia-h200.")
@click.option("--json", "as_json", is_flag=True, help="Print what was built as JSON.")
def command(experiments: tuple[str, ...], reports: Path | None, gpu: str | None, as_json: bool) -> None:
    """Rebuild the page of each EXPERIMENT (default: all) from reports/<gpu>/<experiment>/records.csv."""
    from nnzbench.papers.catalogue import EXPERIMENTS
    from nnzbench.site.build import build, find  # matplotlib takes a second to load

    folder = reports or paths.reports()
    if reports is not None and not reports.is_dir():
        raise click.UsageError(f"{reports} is not a folder")
    recorded = find(folder)
    for name in experiments:
        if name not in EXPERIMENTS and name not in recorded:
            raise click.UsageError(f"there is no experiment '{name}': see nnzbench list experiments")
    slugs = sorted({path.parent.name for paths_ in recorded.values() for path in paths_})
    if gpu is not None and gpu not in slugs:
        known = f"recorded are {', '.join(slugs)}" if slugs else "none is recorded"
        raise click.UsageError(f"no run of GPU '{gpu}' is in {folder}: {known}")
    try:
        built = build(folder, experiments, gpu)
    except RecordError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        rows = [
            {"experiment": one.experiment, "gpu": one.gpu, "status": one.status, "page": str(one.page or "")}
            for one in built
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    for one in built:
        which = f"{one.experiment} on {one.gpu}" if one.page and one.gpu else one.experiment
        click.echo(f"{which}: {one.page or one.status}")
