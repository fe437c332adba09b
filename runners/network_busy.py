"""Measures for how much of a whole network's time a kernel runs: writes busy.csv beside the records of whole_networks.

    python runners/network_busy.py --out results [--problem 'sparse_*']

Every launch of a network is captured in one graph, which is timed and then replayed under CUPTI (through PyTorch, which
brings it along): the sum of what its kernels took as they ran there, caches as the launch before left them, is what the
network keeps the GPU busy; the rest of the graph's time is between the launches. Needs PyTorch with CUDA beside
nnzbench's own GPU extra.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nnzbench import paths
from nnzbench.devices import open_device
from nnzbench.kernels.registry import candidates, kernels
from nnzbench.measure.trial import failure
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.papers.sputnik.whole_networks import COLUMNS, FILE
from nnzbench.plans.plan import Prepared
from nnzbench.problems.operands import make_operands
from nnzbench.problems.problem import NETWORKS

EXPERIMENT = "whole_networks"
REPLAYS = 15


def kernels_us(trace: Path) -> list[float]:
    """Microseconds of every kernel of a trace in Chrome's format, in the order in which they began."""
    events: list[dict[str, Any]] = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    found = sorted((event["ts"], event["dur"]) for event in events if event.get("cat") == "kernel")
    return [float(us) for _, us in found]


def traced(replay: Callable[[], None], wait: Callable[[], None]) -> list[float]:
    """Microseconds of every kernel of one replay."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            replay()
            wait()
        trace = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(trace))
        return kernels_us(trace)


def busy(prepared: Prepared, device: Any) -> dict[str, float]:
    """Launches of a network, and medians of the graph's time and of the sum of its kernels', microseconds."""
    prepared.run()
    device.synchronise()
    timer = device.timer
    replay = timer.capture(prepared.run, 1)
    for _ in range(3):
        timer.elapsed_us(replay)
    whole = statistics.median(timer.elapsed_us(replay) for _ in range(REPLAYS))
    found = [traced(replay, device.synchronise) for _ in range(REPLAYS)]
    return {
        "launches": statistics.median(len(one) for one in found),
        "whole_us": round(whole, 3),
        "busy_us": round(statistics.median(sum(one) for one in found), 3),
    }


def measured(device: Any, patterns: list[str]) -> Iterator[dict[str, object]]:
    """A line per candidate of every network; one that can't run is told and left out."""
    known = kernels()
    for problem in EXPERIMENTS[EXPERIMENT].problems():
        if problem.op not in NETWORKS or not any(fnmatch.fnmatchcase(problem.name, one) for one in patterns):
            continue
        operands = make_operands(problem)
        for name in EXPERIMENTS[EXPERIMENT].kernels:
            if problem.op not in known[name].ops:
                continue
            try:
                for candidate in candidates(known[name], problem, operands, device):
                    prepared = candidate.prepare()
                    names = {"problem": problem.name, "kernel": name, "variant": candidate.variant}
                    yield {**names, **busy(prepared, device)}
                    prepared.close()
            except Exception as error:
                print(f"{problem.name} {name}: {failure(error).reason}", file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    """Writes OUT/<gpu>/whole_networks/busy.csv."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--problem", action="append", help="Shell pattern over problems; repeatable. Default: all.")
    given = parser.parse_args(arguments)
    import torch

    torch.cuda.init()
    device = open_device("cupy")
    folder = given.out / device.gpu / EXPERIMENT
    folder.mkdir(parents=True, exist_ok=True)
    with paths.appending(folder / FILE) as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        for line in measured(device, given.problem or ["*"]):
            writer.writerow(line)
            file.flush()
            print(*line.values(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
