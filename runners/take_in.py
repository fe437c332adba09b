"""Takes an archive of `make contribute` in: what a pull request of results consists of.

    python runners/take_in.py ARCHIVE [--reports reports]

Unpacks it aside, validates every result set, and only if all are fit puts them into reports/ as Parquet, draws their
pages and the one of all GPUs, and says how to open the pull request. Exit status: 0 it is there, 1 it is unfit and
nothing was changed, 2 the file is no such archive.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from nnzbench.cli import main as nnzbench
from nnzbench.contribute import kit
from nnzbench.contribute.validate import find_sets, validate
from nnzbench.records.files import export
from nnzbench.records.record import RecordError
from nnzbench.site.generations import page as generations

ROOT = Path(__file__).resolve().parent.parent
BAD_INPUT = 2


def unpacked(archive: Path, aside: Path) -> list[Path]:
    """The result sets of the archive, below `aside`. Raises `RecordError` for a file that is none."""
    try:
        with tarfile.open(archive) as packed:
            packed.extractall(aside, filter="data")  # refuses links and paths that lead out
    except (OSError, tarfile.TarError) as error:
        raise RecordError(f"{archive} is no archive of make contribute ({error})") from None
    if len(list(aside.glob(f"*/{kit.NAME}"))) != 1:
        raise RecordError(f"{archive} is no archive of make contribute: one folder with a {kit.NAME} is expected")
    return find_sets(aside)


def place(found: Sequence[Path], aside: Path, reports: Path) -> list[Path]:
    """Puts the sets into `reports`, in the form that is published there; their folders."""
    placed = []
    for folder in found:
        target = reports / folder.relative_to(aside)
        target.mkdir(parents=True)
        for file in kit.files(folder):
            shutil.copy(file, target)
        export(target, "parquet")
        placed.append(target)
    return placed


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks, places and draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--reports", type=Path, default=ROOT / "reports")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="nnzbench-take-in-") as scratch:
        aside = Path(scratch)
        try:
            found = unpacked(asked.archive, aside)
        except RecordError as error:
            print(f"Error: {error}", file=sys.stderr)
            return BAD_INPUT
        there = [folder for folder in found if (asked.reports / folder.relative_to(aside)).exists()]
        faults = [f"{one.folder.name}: {one.sentence}" for folder in found for one in validate(folder) if one.fault]
        faults += [f"{folder.name}: reports/ has records of it on this GPU already" for folder in there]
        if faults:
            print("Nothing was taken in:", *faults, sep="\n  ", file=sys.stderr)
            return 1
        placed = place(found, aside, asked.reports)
    gpu, names = placed[0].relative_to(asked.reports).parts[0], sorted({folder.name for folder in placed})
    nnzbench.main(["report", *names, "--reports", str(asked.reports)], standalone_mode=False)
    generations.write(asked.reports)
    print(f"{len(placed)} result sets of {gpu} are in {asked.reports}, their pages and the one of all GPUs are drawn.")
    print("The pull request (`nnzbench report` would redraw index.html too):")
    print(f"  git switch -c results-{gpu} && git add {asked.reports.name} && git commit -m 'Results of {gpu}'")
    print(f"  git push -u origin results-{gpu}, and open it where the forge asks to")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
