"""Runs experiments on all GPUs of this host at once, one process per GPU, then redraws the reports.

    python runners/all_gpus.py [EXPERIMENT...] [options of `nnzbench run`]      default: every experiment

GPUs of one model share the experiments out; each model runs all of them. An experiment stays on one GPU, so that its
rows can be compared. Rows and pages go to results/, or to the folder that `--out` names.

CUDA_VISIBLE_DEVICES narrows the choice of GPUs; each process writes a log below build/.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

from nnzbench.cluster.gpus import visible_gpus
from nnzbench.kernels.registry import kernels
from nnzbench.papers.catalogue import EXPERIMENTS, experiment

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "all_gpus"
PROGRAM = "from nnzbench.cli import main; main(prog_name='nnzbench')"


def run_one(gpu: str, experiment: str, options: Sequence[str]) -> int:
    """`nnzbench run` of one experiment on one GPU; its exit status. What it prints goes to a log."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{experiment}-{gpu}.log"
    with log.open("wb") as stream:
        status = subprocess.run(
            [sys.executable, "-c", PROGRAM, "run", experiment, *options],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu},
            stdout=stream,
            stderr=subprocess.STDOUT,
        ).returncode
    print(f"{experiment} on {gpu}: exit status {status}, {log.relative_to(ROOT)}", flush=True)
    return status


def share_out(gpus: Sequence[tuple[str, str]], experiments: Sequence[str], options: Sequence[str]) -> list[int]:
    """Runs the experiments once per model, each on the next GPU of that model that is free; exit statuses."""
    waiting: dict[str, SimpleQueue[str]] = defaultdict(SimpleQueue)
    for model in dict.fromkeys(model for model, _ in gpus):
        for name in experiments:
            waiting[model].put(name)
    statuses: list[int] = []
    interrupted = threading.Event()

    def work(model: str, gpu: str) -> None:
        while not interrupted.is_set():
            try:
                name = waiting[model].get_nowait()
            except Empty:
                return
            statuses.append(run_one(gpu, name, options))

    workers = [threading.Thread(target=work, args=gpu) for gpu in gpus]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except KeyboardInterrupt:  # the processes got it too: they keep their rows and end
        interrupted.set()
        raise
    return statuses


def report_options(options: Sequence[str]) -> list[str]:
    """What `nnzbench report` needs to draw the folder that the runs write to: `--reports` for the last `--out`."""
    found: list[str] = []
    for at, word in enumerate(options):
        if word.startswith("--out="):
            found = ["--reports", word.removeprefix("--out=")]
        elif word == "--out" and at + 1 < len(options):
            found = ["--reports", options[at + 1]]
    return found


def main() -> int:
    """Parses the command line, runs, redraws; 0 where everything is right."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    named = list(itertools.takewhile(lambda word: not word.startswith("-"), sys.argv[1:]))
    options = sys.argv[1 + len(named) :]
    known = kernels()
    runnable = [one.name for one in EXPERIMENTS.values() if any(name in known for name in one.kernels)]
    gpus = visible_gpus()
    if not gpus:
        print("no GPU: the CUDA driver shows none to this process", file=sys.stderr)
        return 2
    statuses = share_out(gpus, [experiment(name).name for name in named] or runnable, options)
    statuses.append(subprocess.run([sys.executable, "-c", PROGRAM, "report", *report_options(options)]).returncode)
    return 1 if any(statuses) else 0


if __name__ == "__main__":
    sys.exit(main())
