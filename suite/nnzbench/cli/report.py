"""`nnzbench report`: figures, tables and pages from recorded runs; needs no GPU."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from nnzbench.cli import options
from nnzbench.core import paths
from nnzbench.core.host import processors
from nnzbench.core.progress import progress_bar
from nnzbench.data.problems.experiment import unknown
from nnzbench.results.records.folder import JOURNAL, PUBLISHED, folders


@click.command("report", short_help="Redraw every figure, table and page from recorded runs.")
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...", shell_complete=options.experiments)
@click.option(
    "--reports",
    type=options.FOLDER,
    help="Folder of recorded runs, as `run --out` was given it [default: results/; with --readme reports/].",
)
@click.option(
    "--gpu", metavar="SLUG", help="Only the runs of this GPU, such as nvidia-h200.", shell_complete=options.gpus
)
@click.option("--readme", is_flag=True, help="Also renew the headline of the README.md beside that folder.")
@click.option("--json", "as_json", is_flag=True, help="Print what was built as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Name every page, and what is not recorded.")
def command(
    experiments: tuple[str, ...],
    reports: Path | None = None,
    gpu: str | None = None,
    readme: bool = False,
    as_json: bool = False,
    verbose: bool = False,
) -> None:
    """Rebuild the page of each EXPERIMENT (default: all) from the records in <reports>/<gpu>/<experiment>/.

    Everything is written below that folder, and nothing elsewhere without --readme. `--reports reports` redraws the
    published runs.
    """
    from nnzbench.papers.catalogue import EXPERIMENTS
    from nnzbench.site.build import build, find  # matplotlib takes a second to load
    from nnzbench.site.index.page import NAME as INDEX

    folder = reports or (paths.reports() if readme else paths.results())
    if reports is not None and not reports.is_dir():
        raise click.UsageError(f"{reports} is not a folder")
    recorded = find(folder)
    for name in experiments:
        if name not in EXPERIMENTS and name not in recorded:
            raise click.UsageError(unknown("experiment", name, EXPERIMENTS))
    slugs = sorted({path.parent.name for paths_ in recorded.values() for path in paths_})
    if gpu is not None and gpu not in slugs:
        known = f"recorded are {', '.join(slugs)}" if slugs else "none is recorded"
        raise click.UsageError(f"no run of GPU '{gpu}' is in {folder}: {known}")
    if not recorded and not (experiments and all(not EXPERIMENTS[name].kernels for name in experiments)):
        raise click.UsageError(_nothing(folder))
    with progress_bar(verbose=verbose) as progress:
        built = build(folder, experiments, gpu, progress, processors(), readme)
    if as_json:
        names = ("experiment", "gpu", "status", "page")
        rows = [[one.experiment, one.gpu, one.status, str(one.page or "")] for one in built]
        click.echo(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2))
        return
    pages = [one for one in built if one.page]
    for one in built if verbose else ():
        which = f"{one.experiment} on {one.gpu}" if one.page and one.gpu else one.experiment
        click.echo(f"{which}: {one.page or one.status}")
    rest = f", {len(built) - len(pages)} not recorded yet" if len(built) > len(pages) else ""
    index = pages[0].page if len(pages) == 1 else folder / INDEX
    click.echo(f"done: {len(pages)} page{'s' * (len(pages) != 1)} drawn{rest}: {index}")


def _nothing(folder: Path) -> str:
    """Why there is nothing to draw in `folder`, and what to do: records may lie one level off."""
    whole = folder.resolve()
    near: Sequence[tuple[str, Path]] = (("*", whole.parent), (".", whole.parent.parent))
    for pattern, root in near:
        if folders(folder, pattern):
            return (
                f"{folder} holds records, and not in <gpu>/<experiment>/ as `nnzbench run` lays them out: "
                f"if they lie so in {root}, give --reports {root}"
            )
    if below := sorted({f"{path.name}/" for path in folders(folder, "*/*/*")}):
        return (
            f"{folder} holds records in {', '.join(below)} alone, which have no page without those of the folder above "
            "them: run the experiment without --standin, --uniform and --as too"
        )
    return (
        f"no run is recorded in {folder} (<gpu>/<experiment>/{JOURNAL} or {PUBLISHED}): "
        f"`nnzbench run EXPERIMENT` records one, and "
        f"`nnzbench report --reports {paths.reports().name}` redraws the published runs"
    )
