"""`nnzbench compare`: two runs on one GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from nnzbench import paths
from nnzbench.facts.runs import Comparison, compare_files, compare_with_results
from nnzbench.records.record import RecordError


@click.command("compare")
@click.argument("before", type=click.Path(exists=True, path_type=Path))
@click.argument("after", type=click.Path(exists=True, path_type=Path), required=False)
@click.option("--all", "everything", is_flag=True, help="Show rows that are the SAME too.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output, all rows.")
@click.pass_context
def command(ctx: click.Context, before: Path, after: Path | None, everything: bool, as_json: bool) -> None:
    """Compare run AFTER with run BEFORE (records files, or folders with some below them), row by row.

    Without AFTER: what results/ has of the same GPU and experiments.

    A row is FASTER or SLOWER only where the medians are further apart than their uncertainty plus 15 %, which is more
    than two runs of one build have differed by, in time and in clock cycles; SAME within 4 % (hot) or 7 % (cold);
    UNCLEAR between; FAILED where it was timed before and no longer passes. Brackets hold the bounds of the change.
    Exit status 1 if any row is SLOWER or FAILED, 2 where the runs have no row in common.
    """
    result = compare_files(before, after) if after else compare_with_results(before, paths.results())
    if not result.rows:
        raise RecordError(
            f"nothing to compare: none of the {result.only_before} times of {before} has its row in "
            f"{after or paths.results()}"
        )
    if as_json:
        counts = {**result.counts, "only_before": result.only_before, "only_after": result.only_after}
        click.echo(json.dumps({"counts": counts, "rows": [_row(row) for row in result.rows]}, indent=2))
    else:
        for row in result.rows:
            if everything or row.verdict != "SAME":
                click.echo(_line(row))
        parts = [f"{count} {verdict}" for verdict, count in sorted(result.counts.items())]
        click.echo(", ".join(parts))
        if result.only_before or result.only_after:
            click.echo(f"in one run only: {result.only_before} before, {result.only_after} after")
    if result.regressed:
        ctx.exit(1)


def _row(row: Comparison) -> dict[str, Any]:
    a, b = row.before, row.after
    return {
        "experiment": a.experiment,
        "problem": a.problem,
        "dtype": a.dtype,
        "kernel": a.kernel,
        "variant": a.variant,
        "policy": a.policy,
        "before_us": a.median_us,
        "after_us": b.median_us,
        "ratio": row.ratio,
        "ratio_low": row.low,
        "ratio_high": row.high,
        "verdict": row.verdict,
        "reason": b.reason if row.verdict == "FAILED" else "",
    }


def _line(row: Comparison) -> str:
    a, b = row.before, row.after
    where = f"{row.verdict:8}{a.experiment} {a.problem} {a.dtype} {a.kernel} {a.variant} {a.policy}: {a.median_us:g} us"
    if row.ratio is None or row.low is None or row.high is None:
        return f"{where} -> {b.status}: {b.reason}"
    change, low, high = (f"{100 * (ratio - 1):+.1f} %" for ratio in (row.ratio, row.low, row.high))
    return f"{where} -> {b.median_us:g} us ({change}, {low} to {high})"
