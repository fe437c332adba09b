"""`nnzbench predict`: an experiment's times on a GPU that one does not have."""

from __future__ import annotations

import json
import math
from pathlib import Path

import click

from nnzbench import paths
from nnzbench.cli import options
from nnzbench.facts.results import each
from nnzbench.papers import catalogue
from nnzbench.problems.experiment import POLICIES, Policy, unknown
from nnzbench.records.files import folders
from nnzbench.report.data.text import number


@click.command()
@click.argument("experiment", shell_complete=options.experiments)
@click.option(
    "--gpu", "target", required=True, metavar="NAME", help="A GPU of datasets/gpus.csv.", shell_complete=options.gpus
)
@click.option(
    "--from", "source", metavar="NAME", help="The recorded GPU to predict from [default: the one most like it]."
)
@click.option(
    "--reports",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the records [default: the published ones].",
)
@click.option("--policy", type=click.Choice(POLICIES), default="hot", show_default=True)
@options.kernel_option()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def command(
    experiment: str,
    target: str,
    source: str | None,
    reports: Path | None,
    policy: Policy,
    kernels: tuple[str, ...],
    as_json: bool,
) -> None:
    """Predict EXPERIMENT's times on another GPU from recorded ones; no GPU needed.

    Records of that GPU, where there are some, calibrate the rest. Four in five times are to lie within the error bar
    told; how far they are off: reports/prediction/README.md.
    """
    from nnzbench.predict.records import predict

    folder = reports or paths.published()
    if not folders(folder, f"*/{experiment}"):
        catalogue.experiment(experiment)  # refuses a name that there is not
    made = predict(folder, experiment, target, source)
    rows = made.rows[made.rows["policy"] == policy]
    there = sorted(set(rows["kernel"]))
    for name in kernels:
        if name not in there:
            raise click.UsageError(unknown(f"kernel of {experiment}'s {policy} rows", name, there))
    if kernels:
        rows = rows[rows["kernel"].isin(kernels)]
    if as_json:
        known = rows.astype({"predicted_us": object, "within": object})
        told = known.where(known.notna(), None).to_dict("records")
        click.echo(json.dumps({"source": made.source.slug, "target": made.target.slug, "rows": told}, indent=2))
        return
    click.echo(f"{experiment}, {policy}: from {made.source.name} to {made.target.name}, microseconds")
    for row in each(rows):
        bar = "" if math.isnan(row.within) else f" ± {100 * row.within:.0f} %"
        us = row.how if math.isnan(row.predicted_us) else f"{number(row.predicted_us)}{bar} ({row.how})"
        click.echo(f"{row.problem}  {row.kernel} {row.math}  {number(row.source_us)} -> {us}")
    reasons = rows.loc[rows["predicted_us"].isna(), "how"].value_counts()
    why = "; ".join(f"{count} {reason}" for reason, count in reasons.items())
    click.echo(f"{len(rows)} times, {int(reasons.sum())} of them not predicted" + (f": {why}" if why else ""))
