"""What `make contribute` and `make take-in` do: an archive of ten minutes on a GPU is made to be sent, and taken in.

    python runners/contribute.py [--minutes M] [--no-install]
    python runners/contribute.py --take-in ARCHIVE [--reports reports]

Measures the GPU's peaks, 20 problems that calibrate predictions, and a few of every paper, all checked against float64.
Each step may take its share of the time and what earlier ones left; what is recorded is whole, the rest is left out.
Run again, it goes on where it stopped. Exit status: 0 an archive is there, 1 something computed wrong or is unfit,
2 there is no GPU.

--take-in makes of an archive what a pull request of results consists of: unpacks it aside, validates every result set,
and only if all are fit puts them into reports/ as Parquet, draws their pages and the one of all GPUs, and says how to
open the pull request. A set that is there of this GPU already is reproduced by this one, which goes to
reports/repeated/: the page then says how many times are the same. Exit status: 0 it is there, 1 it is unfit and nothing
was changed, 2 the file is no such archive.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import bench

from nnzbench.core.host import extra_for, visible_gpus

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "contribute"
MINUTES = 10.0
LEAST_S = 5.0
"""A step with less is left out: starting takes as long."""
CLOSING_S = 10.0
"""Of the time, kept for validating and packing."""


def measure(minutes: float, run: Callable[..., int], clock: Callable[[], float]) -> list[str]:
    """Runs the steps, each with its share of the time left; names of those whose status tells of something wrong.

    Raises `KeyboardInterrupt` where a step was interrupted.
    """
    from nnzbench.site.contribute import kit

    end = clock() + 60 * minutes - CLOSING_S
    failed = []
    waiting = sum(kit.STEPS.values())
    for experiment, count in kit.STEPS.items():
        seconds = (end - clock()) * count / waiting
        waiting -= count
        if seconds < LEAST_S:
            print(f"No time is left for {experiment}.")
            continue
        problems = [word for name in kit.chosen(experiment, count) for word in ("--problem", name)]
        status = run("run", experiment, *problems, "--resume", "--out", str(RESULTS), seconds=seconds)
        if status == bench.INTERRUPTED:
            raise KeyboardInterrupt
        failed += [experiment] * bool(status)
    return failed


def unpacked(archive: Path, aside: Path) -> list[Path]:
    """The result sets of the archive, below `aside`. Raises `RecordError` for a file that is none."""
    from nnzbench.results.records.record import RecordError
    from nnzbench.site.contribute import kit
    from nnzbench.site.contribute.validate import find_sets

    kit.unpack(archive, aside)
    if len(list(aside.glob(f"*/{kit.NAME}"))) != 1:
        raise RecordError(f"{archive} is no archive of make contribute: one folder with a {kit.NAME} is expected")
    return find_sets(aside)


def take_in(archive: Path, reports: Path) -> int:
    """Puts the sets of an archive into `reports`, in the form that is published there, if all are fit; the status."""
    from nnzbench.cli import main as nnzbench
    from nnzbench.results.records.beside import ENVIRONMENTS
    from nnzbench.results.records.folder import export
    from nnzbench.results.records.record import RecordError
    from nnzbench.results.runs import REPEATED
    from nnzbench.site.contribute import kit
    from nnzbench.site.contribute.validate import validate
    from nnzbench.site.generations import page as generations

    with tempfile.TemporaryDirectory(prefix="nnzbench-take-in-") as scratch:
        aside = Path(scratch)
        try:
            targets = {folder: reports / folder.relative_to(aside) for folder in unpacked(archive, aside)}
            again = {folder: target for folder, target in targets.items() if target.exists()}
            targets |= {folder: reports / REPEATED / target.relative_to(reports) for folder, target in again.items()}
            own = {folder: {one.text for one in ENVIRONMENTS.read(folder)} for folder in again}
            copies = [one for one, target in again.items() if own[one] & {it.text for it in ENVIRONMENTS.read(target)}]
        except RecordError as error:
            print(f"Error: {error}", file=sys.stderr)
            return bench.BAD_INPUT
        faults = [f"{one.folder.name}: {one.sentence}" for folder in targets for one in validate(folder) if one.fault]
        faults += [f"{one.name}: the published set is of the same run" for one in copies]
        faults += [
            f"{folder.name}: reports/ has records of it on this GPU already, and another machine's"
            for folder, target in targets.items()
            if target.exists()
        ]
        if faults:
            print("Nothing was taken in:", *faults, sep="\n  ", file=sys.stderr)
            return 1
        for folder, target in targets.items():
            target.mkdir(parents=True)
            for file in kit.files(folder):
                shutil.copy(file, target)
            export(target, "parquet")
    gpu, names = next(iter(targets)).relative_to(aside).parts[0], sorted({folder.name for folder in targets})
    nnzbench.main(["report", *names, "--reports", str(reports)], standalone_mode=False)
    generations.write(reports)
    print(f"{len(targets)} result sets of {gpu} are in {reports}, their pages and the one of all GPUs are drawn;")
    print(f"{len(again)} of them reproduce one that was there.")
    print("The pull request:")
    print(f"  git switch -c results-{gpu} && git add {reports.name} && git commit -m 'Results of {gpu}'")
    print(f"  git push -u origin results-{gpu}, and open it where the forge asks to")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Takes an archive in; else finds the GPU, installs what it needs, measures, packs and says what to do with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--no-install", action="store_true", help="use the packages that are there")
    parser.add_argument("--take-in", type=Path, metavar="ARCHIVE", help="measure nothing, take this one in")
    parser.add_argument("--reports", type=Path, default=ROOT / "reports", help="where --take-in puts it")
    asked = parser.parse_args(arguments)
    if asked.take_in:
        return take_in(asked.take_in, asked.reports)
    gpus = visible_gpus()
    if not gpus:
        print("Error: make contribute measures a GPU, and the CUDA driver finds none here", file=sys.stderr)
        return bench.BAD_INPUT
    extra = extra_for(gpus)
    if bench.missing(extra) and not asked.no_install:
        bench.install(extra)
    from nnzbench.site.contribute import kit

    failed = measure(asked.minutes, bench.nnzbench, time.monotonic)
    shutil.rmtree(RESULTS / "cpu", ignore_errors=True)
    archives = [kit.archive(RESULTS, gpu) for gpu in kit.gpus(RESULTS)]
    unfit = bench.nnzbench("validate", *(str(RESULTS / gpu) for gpu in kit.gpus(RESULTS)), seconds=600)
    print()
    if failed:
        print(f"Something computed wrong in {', '.join(failed)}: the reasons are above, and a report is welcome.")
    for archive in archives:
        size = archive.stat().st_size / 2**20
        print(f"Send this file ({size:.1f} MiB): {archive.relative_to(ROOT)}. How: docs/contributing-results.md")
    return 1 if failed or unfit else 0


if __name__ == "__main__":
    raise SystemExit(main())
