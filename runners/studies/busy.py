"""Measures for how much of a whole network's time a kernel runs, into busy.csv beside the records of whole_networks.

    python runners/gpu_studies.py busy --out FOLDER [--problem GLOB ...]

Every launch of a network is captured in one graph, which is timed and then replayed under CUPTI (through PyTorch, which
brings it along): the sum of what its kernels took as they ran there, caches as the launch before left them, is what the
network keeps the GPU busy; the rest of the graph's time is between the launches. Needs PyTorch with CUDA beside
nnzbench's own GPU extra.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from nnzbench.bench.trial import failure
from nnzbench.core.plan import Prepared, Unsupported, one_line
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import NETWORKS
from nnzbench.devices import open_device
from nnzbench.kernels.registry import candidates, kernels
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.papers.sputnik.whole_networks import BUSY, Traced
from studies import chosen

WHOLE = "whole_networks"
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


def busy(prepared: Prepared, device: Any) -> tuple[int, float, float]:
    """Launches of a network, and medians of the graph's time and of the sum of its kernels', microseconds."""
    prepared.run()
    device.synchronise()
    timer = device.timer
    replay = timer.capture(prepared.run, 1)
    for _ in range(3):
        timer.elapsed_us(replay)
    whole = statistics.median(timer.elapsed_us(replay) for _ in range(REPLAYS))
    found = [traced(replay, device.synchronise) for _ in range(REPLAYS)]
    busy_us = statistics.median(map(sum, found))
    return statistics.median_low(map(len, found)), round(whole, 3), round(busy_us, 3)


def measured_networks(device: Any, patterns: list[str] | None) -> Iterator[Traced]:
    """A row per candidate of every network; one that can't run is told and left out."""
    known = kernels()
    for problem in chosen(EXPERIMENTS[WHOLE].problems(), patterns):
        if problem.op not in NETWORKS:
            continue
        operands = make_operands(problem)
        for name in EXPERIMENTS[WHOLE].kernels:
            if problem.op not in known[name].ops:
                continue
            try:
                for candidate in candidates(known[name], problem, operands, device):
                    with closing(candidate.prepare()) as prepared:
                        yield Traced(problem.name, name, candidate.variant, *busy(prepared, device))
            except Exception as error:
                print(f"{problem.name} {name}: {failure(error).reason}", file=sys.stderr)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--problem", action="append", help="Shell pattern over problems; repeatable. Default: all.")


def study(asked: argparse.Namespace) -> int:
    try:
        import torch

        torch.cuda.init()
    except (ImportError, RuntimeError, AssertionError) as error:  # the last where it was built without CUDA
        raise Unsupported(f"kernels are traced by PyTorch with CUDA ({one_line(error)})") from None
    device = open_device("cupy")
    folder = asked.out / device.gpu / WHOLE
    folder.mkdir(parents=True, exist_ok=True)
    for row in measured_networks(device, asked.problem):
        BUSY.add(folder, row)
        print(*vars(row).values(), flush=True)
    return 0
