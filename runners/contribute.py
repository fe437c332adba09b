"""What `make contribute` does: ten minutes on this machine's GPU, checked and packed into one archive to send.

    python runners/contribute.py [--minutes M] [--no-install]

Measures the GPU's peaks, 20 problems that calibrate predictions, and a few of every paper, all checked against float64.
Each step may take its share of the time and what earlier ones left; what is recorded is whole, the rest is left out.
Run again, it goes on where it stopped. Exit status: 0 an archive is there, 1 something computed wrong or is unfit,
2 there is no GPU.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import bench

from nnzbench.host import extra_for, visible_gpus

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "contribute"
MINUTES = 10.0
GRACE_S = 30.0
"""For a run to put its last rows in place after it was told to end."""
LEAST_S = 5.0
"""A step with less is left out: starting takes as long."""
CLOSING_S = 10.0
"""Of the time, kept for validating and packing."""


def run(arguments: Sequence[str], seconds: float) -> int:
    """`nnzbench` in a process of its own, ended tidily when its time is over; its status, 0 where that ended it."""
    print(f"\n$ nnzbench {' '.join(arguments)}", flush=True)
    child = subprocess.Popen([sys.executable, "-m", "nnzbench", *arguments], cwd=ROOT)
    try:
        return child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGTERM)  # as Ctrl-C: rows are kept
    try:
        child.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    return 0


def measure(minutes: float, run: Callable[[Sequence[str], float], int], clock: Callable[[], float]) -> list[str]:
    """Runs the steps, each with its share of the time left; names of those whose status tells of something wrong."""
    from nnzbench.contribute import kit

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
        if run(["run", experiment, *problems, "--resume", "--out", str(RESULTS)], seconds):
            failed.append(experiment)
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Finds the GPU, installs what it needs, measures, validates, packs and says what to do with the archive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--no-install", action="store_true", help="use the packages that are there")
    asked = parser.parse_args(arguments)
    gpus = visible_gpus()
    if not gpus:
        print("Error: make contribute measures a GPU, and the CUDA driver finds none here", file=sys.stderr)
        return bench.BAD_INPUT
    extra = extra_for(gpus)
    if bench.missing(extra) and not asked.no_install:
        bench.install(extra)
    from nnzbench.contribute import kit

    failed = measure(asked.minutes, run, time.monotonic)
    shutil.rmtree(RESULTS / "cpu", ignore_errors=True)
    archives = [kit.archive(RESULTS, gpu) for gpu in kit.gpus(RESULTS)]
    unfit = run(["validate", *(str(RESULTS / gpu) for gpu in kit.gpus(RESULTS))], 600)
    print()
    if failed:
        print(f"Something computed wrong in {', '.join(failed)}: the reasons are above, and a report is welcome.")
    for archive in archives:
        size = archive.stat().st_size / 2**20
        print(f"Send this file ({size:.1f} MiB): {archive.relative_to(ROOT)}. How: docs/contributing-results.md")
    return 1 if failed or unfit else 0


if __name__ == "__main__":
    raise SystemExit(main())
