"""What `make bench` does: finds the GPU, installs what it needs, runs, draws the reports and says where they are.

A GPU's rows and pages go to results/, those of a first look (--quick) to build/quick/, where no later run takes them
for whole ones. Without a GPU it does what can be done without one: each kernel of the experiments runs on the processor
and is checked against float64 (its first candidate on the smallest problems), a sample of programs is compiled for
every architecture, and the experiments' pages are redrawn from a copy of their published runs: a few minutes in all.
`make test`, `make compile` and `nnzbench report` do it all. Nothing that is committed changes.
Exit status: 0 done, 1 something computed wrong or did not compile, 2 an experiment can't be run (told before any work).
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "suite"))  # nothing may be installed yet

from nnzbench.core.host import extra_for, visible_gpus  # noqa: E402

UNFINISHED = ROOT / "build" / "bench.unfinished"
"""Present while a GPU run is under way: the next `make bench` then goes on instead of starting again."""
CPU_RESULTS = ROOT / "build" / "bench"
QUICK_RESULTS = ROOT / "build" / "quick"
REDRAWN = ROOT / "build" / "reports"
"""The copy of the published runs that is redrawn where there is no GPU."""
SAMPLE = "4"
"""Programs compiled for each architecture; `make compile` compiles everything."""
BAD_INPUT = 2
"""Exit status of `nnzbench` for what the user must change."""
INTERRUPTED = 130
GRACE_S = 30.0
"""For a run to put its last rows in place after it was told to end."""


def missing(extra: str) -> bool:
    """Whether packages of the extra are absent. A CuPy of any CUDA version counts: two of them break each other."""
    needed = ["cuda"] if extra == "compile" else ["cuda", "cupy", "pynvml"]
    return any(importlib.util.find_spec(name) is None for name in needed)


def install(extra: str) -> None:
    print(f"Installing nnzbench[{extra}] ...", flush=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--editable", f".[{extra}]"]
    subprocess.run(command, cwd=ROOT, check=True)


def nnzbench(*arguments: str, seconds: float | None = None) -> int:
    """Runs the command in a process of its own; its exit status, 0 where it was ended tidily as its time was over."""
    print(f"$ nnzbench {' '.join(arguments)}", flush=True)
    child = subprocess.Popen([sys.executable, "-m", "nnzbench", *arguments], cwd=ROOT)
    interrupted = over = False
    while True:
        try:
            status = child.wait(seconds)
            return INTERRUPTED if interrupted else 0 if over else status
        except KeyboardInterrupt:  # the child has it too, and ends tidily
            interrupted = True
        except subprocess.TimeoutExpired:
            (child.kill if over else child.terminate)()  # told so it ends as by Ctrl-C: rows are kept
            over, seconds = True, GRACE_S


def check(experiments: Sequence[str]) -> str:
    """Why these experiments can't be run, empty where they can: told before anything is run or compiled."""
    from nnzbench.cli.chosen import choose_experiments
    from nnzbench.core.plan import Unsupported
    from nnzbench.data.problems.experiment import UnknownExperiment

    try:
        choose_experiments(tuple(experiments) or ("all",), False)
    except (UnknownExperiment, Unsupported) as error:
        return str(error)
    return ""


def on_gpu(experiments: Sequence[str], quick: bool, budget: str = "") -> dict[str, int]:
    """Runs the experiments; statuses by step.

    With a budget each run goes on where the last one ended, a few typical problems first, on all GPUs with several
    processes each where Dask is installed. Without, an interrupted run is gone on with and a finished one done again, a
    quick one always.
    """
    names = experiments or ["all"]
    options = ["--quick", "--out", str(QUICK_RESULTS)] if quick else []
    report = ["report", *(["--reports", str(QUICK_RESULTS)] if quick else [])]
    if budget:
        cluster = ["--cluster", "local"] if importlib.util.find_spec("distributed") else []
        status = nnzbench("run", *names, *options, "--budget", budget, *cluster, "--resume")
        return {"run": status} if status in (BAD_INPUT, INTERRUPTED) else {"run": status, "report": nnzbench(*report)}
    if quick:
        return {"run": nnzbench("run", *names, *options, "--overwrite", "--yes"), "report": nnzbench(*report)}
    going_on = UNFINISHED.exists()
    UNFINISHED.parent.mkdir(exist_ok=True)
    UNFINISHED.touch()
    status = nnzbench("run", *names, "--resume" if going_on else "--overwrite")
    if status in (0, 1) or (status == 2 and not going_on):  # 2: refused before anything ran
        UNFINISHED.unlink()
    return {"run": status} if status == INTERRUPTED else {"run": status, "report": nnzbench("report")}


def on_processor(experiments: Sequence[str]) -> dict[str, int]:
    """Checks the kernels on the processor, compiles a sample, redraws copies of these pages; statuses by step."""
    names = list(experiments or ["sparsert_table1"])
    options = ["--device", "cpu", "--quick", "--candidates", "1", "--overwrite", "--yes"]
    statuses = {"run": nnzbench("run", *names, *options, "--out", str(CPU_RESULTS))}
    if statuses["run"] == BAD_INPUT:  # nothing ran; the sentence should not drown in what follows
        return statuses
    statuses["compile"] = nnzbench("compile", "--sample", SAMPLE)
    shutil.rmtree(REDRAWN, ignore_errors=True)
    from nnzbench.results.records.folder import folders

    recorded = [folder for name in names for folder in folders(ROOT / "reports", f"*/{name}")]
    for folder in recorded:
        shutil.copytree(folder, REDRAWN / folder.relative_to(ROOT / "reports"))
    if recorded:
        statuses["report"] = nnzbench("report", *names, "--reports", str(REDRAWN))
    return statuses


def told(results: Path) -> list[str]:
    """From how many zeros on pruning pays on the GPU that was run last: three lines at most; else what was answered."""
    from nnzbench.results.records.folder import folders, records_file
    from nnzbench.results.records.record import RecordError
    from nnzbench.site.index.headlines import answers, crossing_points

    found = sorted(folders(results, "*/*"), key=lambda folder: records_file(folder).stat().st_mtime)
    try:
        gpu = found[-1].parent if found else results
        lines = [*crossing_points(gpu)] or [f"{one.layers}: {one.text.replace('**', '')}" for one in answers(gpu)]
        return [line[:1].upper() + line[1:] for line in lines[:3]]
    except RecordError as error:
        return [str(error)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the experiments on what this machine has.")
    parser.add_argument("experiments", nargs="*", help="default: all on a GPU, sparsert_table1 without one")
    parser.add_argument("--quick", action="store_true", help="a first look (always so without a GPU)")
    parser.add_argument("--budget", default="", metavar="15m", help="on a GPU: about how long; all of it without")
    parser.add_argument("--no-install", action="store_true", help="use the packages that are there")
    arguments = parser.parse_args()

    gpus = visible_gpus()
    extra = extra_for(gpus)
    if missing(extra) and not arguments.no_install:
        install(f"{extra},cluster" if gpus else extra)
    if reason := check(arguments.experiments):
        print(f"Error: {reason}", file=sys.stderr)
        return BAD_INPUT
    if not gpus:
        print("No GPU found: checking the kernels on the processor, which gives no times.")
        statuses = on_processor(arguments.experiments)
    else:
        statuses = on_gpu(arguments.experiments, arguments.quick, arguments.budget)

    failed = [step for step, status in statuses.items() if status]
    results = QUICK_RESULTS if arguments.quick else ROOT / "results"
    index = (results if gpus else REDRAWN) / "index.html"
    for line in told(results) if gpus else ():
        print(line)
    if INTERRUPTED in statuses.values():
        print("Interrupted: what is recorded is whole, and the next `make bench` goes on.")
    elif failed:
        print(f"Failed: nnzbench {', nnzbench '.join(failed)}; the reasons are above.")
    if not gpus:
        print(f"Checked on the processor: {CPU_RESULTS.relative_to(ROOT)}/cpu/<experiment>/")
    print(f"Figures and tables:       {index.relative_to(ROOT) if index.exists() else 'none: no page was drawn'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
