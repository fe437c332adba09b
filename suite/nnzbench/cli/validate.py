"""`nnzbench validate`: is a result set fit to be contributed?"""

from __future__ import annotations

import json
from pathlib import Path

import click

from nnzbench import paths
from nnzbench.advise.layer import EXPERIMENT
from nnzbench.contribute.validate import Finding, find_sets, validate
from nnzbench.records.record import RecordError

SHOWN = 20
"""Sentences per result set on the terminal; `--json` has all."""


@click.command("validate")
@click.argument("folders", nargs=-1, metavar="[PATH]...", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output, all findings.")
@click.pass_context
def command(ctx: click.Context, folders: tuple[Path, ...], as_json: bool) -> None:
    """Check each result set at or below PATH (default: results/) and say what is wrong in it.

    Faults make a set unfit; notes say what its readers should know, missing problems included. What `best` wrote of
    your own matrices is no such set. Exit status 0 without faults, 1 with any, 2 where PATH holds no result set.
    """
    sets = list(dict.fromkeys(folder for path in folders or (paths.results(),) for folder in _sets(path)))
    found = {folder: validate(folder) for folder in sets}
    if as_json:
        click.echo(json.dumps([_set(folder, findings) for folder, findings in found.items()], indent=2))
    else:
        for folder, findings in found.items():
            _print(folder, findings)
        unfit = sum(any(one.fault for one in findings) for findings in found.values())
        click.echo(f"{len(found)} result set{'s' if len(found) != 1 else ''}, {unfit} unfit")
    if any(one.fault for findings in found.values() for one in findings):
        ctx.exit(1)


def _sets(path: Path) -> list[Path]:
    """Those at or below `path`, less a user's own matrices, which nobody else can measure again."""
    found = [folder for folder in find_sets(path) if folder == path or folder.name != EXPERIMENT]
    if not found:
        raise RecordError(f"{path} is not a result set: it holds your own matrices alone")
    return found


def _set(folder: Path, findings: list[Finding]) -> dict[str, object]:
    return {
        "folder": str(folder),
        "fit": not any(one.fault for one in findings),
        "faults": [one.sentence for one in findings if one.fault],
        "notes": [one.sentence for one in findings if not one.fault],
    }


def _print(folder: Path, findings: list[Finding]) -> None:
    faults = sum(one.fault for one in findings)
    verdict = "fit" if not faults else f"unfit, {faults} fault{'s' if faults > 1 else ''}"
    click.echo(f"{folder}: {verdict}")
    for one in findings[:SHOWN]:
        click.echo(f"  {'fault' if one.fault else 'note'}: {one.sentence}.")
    if len(findings) > SHOWN:
        click.echo(f"  ... and {len(findings) - SHOWN} more (--json shows all).")
