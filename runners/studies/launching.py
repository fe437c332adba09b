"""Tells what the way of launching, and two choices of the published program, change in times that others published.

    python runners/gpu_studies.py launching [--out FOLDER] [--problem GLOB ...]

SSpMM's authors timed Sputnik and cuBLAS on four GPUs with a pair of events around each launch of an idle GPU, called
Sputnik with the rows in their order (no row swizzle), and had cuBLAS sum in fp16. This study times matrices of
`dlmc_n512` in fp16 so, and as this suite does. Writes FOLDER/<gpu>/launching/: launching.csv, a row per problem,
program and way, README.md and environment.json (default: results/). Exit status: 2 without a GPU.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pandas as pd

from nnzbench.bench.timing import QUICK, measure, warm_up
from nnzbench.bench.trial import fresh_result
from nnzbench.core import paths
from nnzbench.core.plan import Prepared
from nnzbench.data.problems.check import relative_error
from nnzbench.data.problems.operands import Operands, make_operands
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import reference
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.sputnik.spmm import Switches, heuristic_tile, spmm_plan
from nnzbench.kernels.vendor.cublas import GemmCase, prepare_gemm
from nnzbench.kernels.vendor.support import Inputs
from nnzbench.papers.catalogue import experiment
from nnzbench.papers.nnzbench import dlmc_n512
from nnzbench.papers.predict.launching import CHANGES, FILE, FOLDER, PROGRAMS, WAYS, over
from nnzbench.report.text import markdown, number
from studies import chosen, gpu_for, write_environment

PAIRS = (10, 200)
"""Not timed and timed, each in a pair of events of its own."""
LARGEST_ERROR = {"cublas_f16_sums": 0.02}
"""Largest error, relative to the sum of magnitudes, of a result that is timed."""


def published_programs(device: GpuDevice, operands: Operands) -> Iterator[tuple[str, Prepared]]:
    a, b = operands.sparse, operands.dense["b"]
    tile = heuristic_tile(b.shape[1], b.dtype.itemsize)
    for name, switches in (
        ("sputnik", Switches()),
        ("sputnik_unscaled", Switches(prescale=False)),
        ("sputnik_unsorted", Switches(prescale=False, load_balancing=False)),
    ):
        yield name, device.prepare(spmm_plan(a, b, tile, switches=switches))
    inputs = Inputs(device, a)
    for name, math in (("cublas", "f16"), ("cublas_f16_sums", "f16_sums")):
        case = GemmCase(math, transposed=False)
        yield name, prepare_gemm(inputs, case, a.m, case.weights(a), b)


def in_pairs(device: GpuDevice, run: Callable[[], None]) -> list[float]:
    """Microseconds of launches of an idle GPU, each between two events that the host waits for."""
    backend, found = device.backend, []
    for _ in range(sum(PAIRS)):
        start, stop = backend.event(), backend.event()
        backend.record(start)
        run()
        backend.record(stop)
        found.append(backend.elapsed_ms(start, stop) * 1e3)
    return found[PAIRS[0] :]


def timed_ways(device: GpuDevice, problem: Problem) -> Iterator[dict[str, object]]:
    """A row per program and way; a wrong program is told and left out."""
    operands = make_operands(problem)
    truth = reference(problem, operands)
    for name, prepared in published_programs(device, operands):
        with closing(prepared):
            error = relative_error(fresh_result(prepared), truth)
            if not error <= LARGEST_ERROR.get(name, 1e-3):
                print(f"{problem.name} {name}: wrong, relative error {error:.3g}", file=sys.stderr)
                continue
            warm_up(device.timer, prepared.run, least=0.02, most=0.2)
            for way in WAYS:
                if way == "pair":
                    us = statistics.median(in_pairs(device, prepared.run))
                else:
                    us = measure(device.timer, prepared.run, way, QUICK, prepared.capturable).median
                sizes = {one: getattr(problem, one) for one in ("source", "m", "k", "n")}
                known = {"problem": problem.name, **sizes, "nnz": operands.sparse.nnz, "error": error}
                yield {**known, "program": name, "way": way, "us": round(us, 3)}


def page(gpu: str, table: pd.DataFrame) -> str:
    launched = []
    for name, way in itertools.product(PROGRAMS, WAYS[1:]):
        ratio, longer = over(table, (name, way), (name, "hot"))
        launched.append([PROGRAMS[name], way, number(ratio), f"{longer:+.1f}"])
    changed = []
    methods = table["problem"].map(lambda name: dlmc_n512.stratum(name)[0].replace("_", " "))
    for (new, old), method in itertools.product(CHANGES, methods.unique()):
        some = table[methods == method]
        ratio, _ = over(some, (new, "hot"), (old, "hot"))
        changed.append([PROGRAMS[new], PROGRAMS[old], method, str(some["problem"].nunique()), number(ratio)])
    count = table["problem"].nunique()
    real = table.loc[table["source"].str.startswith("dlmc:"), "problem"].nunique()
    return f"""# Published ways of launching, on {gpu}

**Is it the way of launching that makes published times of Sputnik longer than this suite's?**

{count} matrices of `dlmc_n512` ({real} real, the others calibrated synthetic ones) times 512 columns in fp16. *hot* and
*loop* as [docs/measuring.md](../../../docs/measuring.md) has them; *pair*: an event, a launch, an event that the host
waits for, {PAIRS[1]} times after {PAIRS[0]}, as the four GPUs' times were taken; here the host launches from
Python, which takes longer than theirs did.

{markdown(["program", "way", "over hot", "µs longer"], launched, left=2)}

What the published program does otherwise (hot, times as long):

{markdown(["program", "over", "pruned by", "matrices", "times as long"], changed, left=3)}

`python runners/gpu_studies.py launching` measures it on your GPU; every time is a row of
[{FILE}]({FILE}).
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=paths.results())
    parser.add_argument("--problem", action="append", help="Shell pattern over problems; repeatable. Default: all.")


def study(asked: argparse.Namespace) -> int:
    device = gpu_for("launches are timed")
    folder = asked.out / device.gpu / FOLDER
    write_environment(device, folder)
    found: list[dict[str, object]] = []
    for problem in chosen(experiment(dlmc_n512.NAME).problems(), asked.problem):
        found += timed_ways(device, problem)
        paths.write_csv(pd.DataFrame(found), folder / FILE)  # stays where the rest is stopped
        print(f"{len(found)} rows: {problem.name}", flush=True)
    paths.write_text(folder / "README.md", page(device.facts.name, pd.DataFrame(found)))
    device.close()
    return 0
