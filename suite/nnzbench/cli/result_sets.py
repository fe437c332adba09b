"""`nnzbench compare`, `validate`, `export` and `predict`: what is asked of recorded runs, as they lie in folders."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from nnzbench.advise.layer import EXPERIMENT
from nnzbench.cli import options
from nnzbench.core import paths
from nnzbench.core.progress import progress_bar
from nnzbench.data.problems.experiment import POLICIES, Policy, unknown
from nnzbench.report.text import markdown, number
from nnzbench.results.records import folder as files
from nnzbench.results.records.folder import refuse_links
from nnzbench.results.records.record import RecordError
from nnzbench.results.records.table_files import Form
from nnzbench.results.result_set import each
from nnzbench.results.runs import changed, compare_files, compare_with_results
from nnzbench.site.contribute.validate import Finding, find_sets
from nnzbench.site.contribute.validate import validate as findings_of

SHOWN = 20
"""Sentences per result set that `validate` prints; `--json` has all."""
THERE = click.Path(exists=True, path_type=Path)


@click.command("compare")
@click.argument("before", type=THERE)
@click.argument("after", type=THERE, required=False)
@click.option("--all", "everything", is_flag=True, help="Show rows that are the SAME too.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output, all rows.")
@click.pass_context
def compare(ctx: click.Context, before: Path, after: Path | None, everything: bool, as_json: bool) -> None:
    """Compare run AFTER with run BEFORE (records files, or folders with some below them), row by row.

    Without AFTER: what results/ has of the same GPU and experiments.

    A row is FASTER or SLOWER only where the medians are further apart than their uncertainty plus 15 %, in time and in
    clock cycles: more than this suite's kernels differ by in two runs of one build (library algorithms of one column
    may, hot); SAME within 4 % (hot) or 7 % (cold); UNCLEAR between; FAILED where it was timed before and no longer
    passes. Brackets hold the bounds of the change.
    Where the snapshots of two runs differ in one library, or the driver, alone, a table by kernel ends it.
    Exit status 1 if any row is SLOWER or FAILED, 2 where the runs have no row in common.
    """
    result = compare_files(before, after) if after else compare_with_results(before, paths.results())
    if result.rows.empty:
        raise RecordError(
            f"nothing to compare: none of the {result.only_before} times of {before} has its row in "
            f"{after or paths.results()}"
        )
    if as_json:
        counts = {**result.counts, "only_before": result.only_before, "only_after": result.only_after}
        click.echo(json.dumps({"counts": counts, "rows": [_row(row) for row in each(result.rows)]}, indent=2))
    else:
        for row in each(result.rows):
            if everything or row.verdict != "SAME":
                click.echo(_line(row))
        for which, counts in (("", result.counts), ("of each kernel's fastest: ", result.fastest)):
            click.echo(which + ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
        if result.only_before or result.only_after:
            click.echo(f"in one run only: {result.only_before} before, {result.only_after} after")
        differ = changed(before, after) if after else {}
        if len(differ) == 1:
            ((name, versions),) = differ.items()
            click.echo(f"\nWhat moved with {name} {' -> '.join(versions)} (times after over before):\n")
            rows = [
                (kernel, str(n), *(f"{one:.3f}" for one in by), str(other)) for kernel, n, *by, other in result.moved()
            ]
            click.echo(markdown(["kernel", "rows", "geometric mean", "least", "most", "not the SAME"], rows))
    if result.regressed:
        ctx.exit(1)


def _row(row: Any) -> dict[str, Any]:
    names = ("experiment", "problem", "dtype", "kernel", "variant", "policy")
    told = {"before_us": row.median_us, "after_us": row.median_us_after, "ratio": row.ratio}
    told |= {"ratio_low": row.low, "ratio_high": row.high}
    return {name: getattr(row, name) for name in names} | {
        **{name: None if math.isnan(one) else one for name, one in told.items()},
        "verdict": row.verdict,
        "reason": row.reason_after if row.verdict == "FAILED" else "",
    }


def _line(row: Any) -> str:
    of = f"{row.experiment} {row.problem} {row.dtype} {row.kernel} {row.variant} {row.policy}"
    where = f"{row.verdict:8}{of}: {row.median_us:g} us"
    if row.verdict == "FAILED":
        return f"{where} -> {row.status_after}: {row.reason_after}"
    change, low, high = (f"{100 * (ratio - 1):+.1f} %" for ratio in (row.ratio, row.low, row.high))
    return f"{where} -> {row.median_us_after:g} us ({change}, {low} to {high})"


@click.command("validate")
@click.argument("folders", nargs=-1, metavar="[PATH]...", type=THERE)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output, all findings.")
@click.pass_context
def validate(ctx: click.Context, folders: tuple[Path, ...], as_json: bool) -> None:
    """Check each result set at or below PATH (default: results/) and say what is wrong in it.

    Faults make a set unfit; notes say what its readers should know, missing problems included. What `best` wrote of
    your own matrices is no such set. Exit status 0 without faults, 1 with any, 2 where PATH holds no result set.
    """
    sets: dict[Path, None] = {}
    for path in folders or (paths.results(),):  # a user's own matrices nobody else can measure again
        some = [folder for folder in find_sets(path) if folder == path or folder.name != EXPERIMENT]
        if not some:
            raise RecordError(f"{path} is not a result set: it holds your own matrices alone")
        sets |= dict.fromkeys(some)
    found = {folder: findings_of(folder) for folder in sets}
    unfit = sum(any(one.fault for one in findings) for findings in found.values())
    if as_json:
        click.echo(json.dumps([_set(folder, findings) for folder, findings in found.items()], indent=2))
    else:
        for folder, findings in found.items():
            _print(folder, findings)
        click.echo(f"{len(found)} result set{'s' if len(found) != 1 else ''}, {unfit} unfit")
    if unfit:
        ctx.exit(1)


def _set(folder: Path, findings: list[Finding]) -> dict[str, object]:
    sentences = {fault: [one.sentence for one in findings if one.fault == fault] for fault in (True, False)}
    return {"folder": str(folder), "fit": not sentences[True], "faults": sentences[True], "notes": sentences[False]}


def _print(folder: Path, findings: list[Finding]) -> None:
    faults = sum(one.fault for one in findings)
    verdict = "fit" if not faults else f"unfit, {faults} fault{'s' if faults > 1 else ''}"
    click.echo(f"{folder}: {verdict}")
    for one in findings[:SHOWN]:
        click.echo(f"  {'fault' if one.fault else 'note'}: {one.sentence}.")
    if len(findings) > SHOWN:
        click.echo(f"  ... and {len(findings) - SHOWN} more (--json shows all).")


@click.command("export")
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", type=THERE)
@click.option("--to", "form", type=click.Choice(["csv", "parquet"]), required=True, help="What to write.")
@click.option(
    "--out",
    type=options.FOLDER,
    help="Write below this folder and leave FOLDER as it is [default: in place of what is there].",
)
@click.option("--json", "as_json", is_flag=True, help="What was written, as JSON.")
def export(folders: tuple[Path, ...], form: Form, out: Path | None, as_json: bool) -> None:
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


@click.command("predict")
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
def predict(
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
    from nnzbench.papers import catalogue
    from nnzbench.papers.predict import records

    folder = reports or paths.published()
    if not files.folders(folder, f"*/{experiment}"):
        catalogue.experiment(experiment)  # refuses a name that there is not
    made = records.predict(folder, experiment, target, source)
    rows = made.rows[made.rows["policy"] == policy]
    if rows.empty:
        others = ", ".join(sorted(set(made.rows["policy"]))) or "none"
        raise RecordError(f"no {policy} time of {experiment} is recorded on {made.source.slug}: there are {others}")
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
