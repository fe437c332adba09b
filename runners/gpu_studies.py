"""What is measured on a GPU and is no experiment: its libraries, block scheduler, idle time, and ways of launching.

    python runners/gpu_studies.py devices [--out FOLDER] [--kernel NAME ...]
    python runners/gpu_studies.py blocks [--out FOLDER]
    python runners/gpu_studies.py busy --out FOLDER [--problem GLOB ...]
    python runners/gpu_studies.py launching [--out FOLDER] [--problem GLOB ...]

`devices` runs every kernel through each GPU library that works here: same cubin, same bits, same times? For each
kernel, op and input type one program on its largest sample problem, through CuPy, PyCUDA and cuda.core in turn, and
again in the other order: what two measurements through one library differ by is the noise that the libraries are held
against. Writes FOLDER/<gpu>/devices/times.csv with its environment.json (default: reports/), from which `nnzbench
report` draws the page beside them. Exit status: 0 done, 1 bits or cubins differ, 2 fewer than two libraries work here.

`blocks` holds Sputnik's formula of the block scheduler against where and when blocks run: each writes its
multiprocessor (%smid) and when it began and ended (%globaltimer), and spins meanwhile. Grids of equal blocks, one or
several of which fit a multiprocessor, show the first wave; blocks of uneven length show what follows it. Writes
FOLDER/<gpu>/block_scheduler/: README.md and blocks.csv, every block (default: results/). Exit status: 2 without a GPU.

`busy` measures for how much of a whole network's time a kernel runs, into busy.csv beside the records of
whole_networks. Every launch of a network is captured in one graph, which is timed and then replayed under CUPTI
(through PyTorch, which brings it along): the sum of what its kernels took as they ran there, caches as the launch
before left them, is what the network keeps the GPU busy; the rest of the graph's time is between the launches. Needs
PyTorch with CUDA beside nnzbench's own GPU extra.

`launching` tells what the way of launching, and two choices of the published program, change in times that others
published: SSpMM's authors timed Sputnik and cuBLAS on four GPUs with a pair of events around each launch of an idle
GPU, called Sputnik with the rows in their order (no row swizzle), and had cuBLAS sum in fp16. It times matrices of
`dlmc_n512` in fp16 so, and as this suite does. Writes FOLDER/<gpu>/launching/: launching.csv, a row per problem,
program and way, README.md and environment.json (default: results/). Exit status: 2 without a GPU.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import hashlib
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnzbench import paths
from nnzbench.build.cache import Job
from nnzbench.build.pool import compile_many
from nnzbench.devices import open_device, open_gpu
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.registry import VendorKernel, about, candidates, kernels
from nnzbench.kernels.samples import PROBLEMS
from nnzbench.kernels.sputnik.spmm import Switches, heuristic_tile, spmm_plan
from nnzbench.kernels.vendor.cublas import GemmCase, prepare_gemm
from nnzbench.kernels.vendor.support import Inputs
from nnzbench.measure.session import snapshot
from nnzbench.measure.timing import QUICK, measure, warm_up
from nnzbench.measure.trial import failure, fresh_result
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.papers.nnzbench import dlmc_n512
from nnzbench.papers.sputnik.whole_networks import COLUMNS, FILE
from nnzbench.plans.plan import Launch, Plan, Prepared, Unsupported
from nnzbench.predict import launching
from nnzbench.problems.check import relative_error
from nnzbench.problems.experiment import OF_MODELS
from nnzbench.problems.operands import Operands, make_operands
from nnzbench.problems.problem import NETWORKS, DType, Problem
from nnzbench.problems.reference import reference
from nnzbench.report.data.text import markdown, number

LIBRARIES = ("cupy", "pycuda", "cuda-core")
ROUNDS = 2


@dataclass(frozen=True)
class Row:
    """One measurement; digests tell whether programs and results are the same to the bit."""

    kernel: str
    op: str
    inputs: str
    problem: str
    variant: str
    library: str
    round: int
    cubin: str
    bits: str
    policy: str
    median_us: float
    q1_us: float
    q3_us: float


def open_all() -> list[GpuDevice]:
    """The GPU through each library that works here; others are named on stderr."""
    opened = []
    for name in LIBRARIES:
        try:
            device = open_device(name)
        except Unsupported as reason:
            print(f"{name}: {reason}", file=sys.stderr)
            continue
        if isinstance(device, GpuDevice):
            opened.append(device)
    return opened


def programs(arch: str, names: Sequence[str] = ()) -> Iterator[tuple[str, Problem, Plan]]:
    """Each kernel's first plan for the largest sample problem that it takes, for each op and input type."""
    for name, kernel in kernels().items():
        if isinstance(kernel, VendorKernel) or (names and name not in names):
            continue
        samples = sorted((*PROBLEMS, *about(name).samples), key=lambda one: -one.m * one.k * one.n)
        for op in sorted(kernel.ops):
            for dtype in sorted(one for one in get_args(DType) if one in kernel.dtypes):
                for problem in (replace(one, dtype=dtype) for one in samples if one.op == op):
                    try:
                        plan = next(iter(kernel.plans(problem, make_operands(problem), arch)), None)
                    except Unsupported:
                        continue
                    if plan is not None:
                        yield name, problem, plan
                        break


def measured(opened: Sequence[GpuDevice], name: str, problem: Problem, plan: Plan) -> Iterator[Row]:
    for turn in range(1, ROUNDS + 1):
        for device in opened if turn % 2 else reversed(opened):  # what drifts is no library's
            cubins, _ = device.compiled(plan)
            with closing(device.prepare(plan)) as prepared:
                bits = digest(fresh_result(prepared).tobytes())
                for policy in OF_MODELS:
                    found = measure(device.timer, prepared.run, policy, capturable=prepared.capturable)
                    what = (name, problem.op, problem.dtype, problem.name, plan.variant, device.name, turn)
                    yield Row(*what, digest(*cubins), bits, policy, found.median, found.q1, found.q3)


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


def differing(rows: Sequence[Row]) -> list[str]:
    """Programs whose cubins or results are not the same through every library, each in every round."""
    seen: dict[str, set[tuple[str, str]]] = {}
    for row in rows:
        seen.setdefault(f"{row.kernel} {row.op} {row.inputs}", set()).add((row.cubin, row.bits))
    return [name for name, found in seen.items() if len(found) > 1]


SOURCE = """
extern "C" __global__ void where(long long* __restrict__ out, const int* __restrict__ spins) {
    extern __shared__ int unused[];
    if (threadIdx.x != 0) return;
    unsigned sm;
    unsigned long long began, now;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
    const long long until = clock64() + spins[blockIdx.x];
    while (clock64() < until) {}
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    out[3 * blockIdx.x] = sm;
    out[3 * blockIdx.x + 1] = static_cast<long long>(began);
    out[3 * blockIdx.x + 2] = static_cast<long long>(now);
}
"""
WAVES = 4
SPIN = 60_000
"""Cycles of a block, some 30 us: a step of the timer, a microsecond at most, is little beside it."""
STEP = 1100
"""Of the timer, ns."""
SIDES = (1, 2, 4)
"""Blocks that fit a multiprocessor at once, by the shared memory that each asks for."""


@dataclass(frozen=True)
class Grid:
    """One launch: what each block wrote, by its index."""

    name: str
    per_sm: int
    sm: NDArray[np.int64]
    began: NDArray[np.int64]
    """ns"""
    ended: NDArray[np.int64]


def formula(block: NDArray[np.int64], sms: int) -> NDArray[np.int64]:
    """The multiprocessor of a block of the first wave (section V-C1 of Sputnik, where the GPU is a V100 with 80)."""
    half = sms // 2
    return 2 * (block % half) + block // half % 2


def first_wave(grid: Grid) -> NDArray[np.int64]:
    """The indices of the blocks that begin before any block has ended."""
    return np.flatnonzero(grid.began < grid.ended.min())


def told(grid: Grid, sms: int) -> dict[str, str]:
    """What a grid says of the formula and of what it is used for."""
    wave = first_wave(grid)
    each = np.bincount(grid.sm[wave], minlength=sms)[:sms]
    right = np.mean(grid.sm[wave] == formula(wave, sms))
    rounds = [grid.sm[wave[at : at + sms]] for at in range(0, len(wave), sms)]
    robin = np.mean([len(set(some)) / len(some) for some in rounds])
    pairs = np.mean(grid.sm[wave[1::2]] - grid.sm[wave[: len(wave) // 2 * 2 : 2]][: len(wave[1::2])] == 1)
    later = np.setdiff1d(np.arange(len(grid.sm)), wave)
    return {
        "blocks": grid.name,
        "fit an SM": str(grid.per_sm),
        "first wave": str(len(wave)),
        "as the formula": f"{100 * right:.0f} %",
        "a round of SMs has each once": f"{100 * robin:.0f} %",
        "next block on the next SM": f"{100 * pairs:.0f} %",
        "blocks an SM has of it": f"{each.min()} to {each.max()}",
        "later blocks in order": f"{100 * in_order(grid.began[later]):.0f} %",
        "put where a block ended last": f"{100 * followed(grid, later):.0f} %",
    }


def in_order(began: NDArray[np.int64]) -> float:
    """Of neighbours by index, the share of which the later one does not begin earlier (by more than a timer's step)."""
    return float(np.mean(np.diff(began) >= -STEP)) if len(began) > 1 else 1.0


def followed(grid: Grid, later: NDArray[np.int64]) -> float:
    """The share of later blocks that begin on an SM within 5 us of the end of a block there."""
    if not len(later):
        return 1.0
    close = [bool(np.any(np.abs(grid.ended[grid.sm == grid.sm[at]] - grid.began[at]) <= 5000)) for at in later.tolist()]
    return float(np.mean(close))


def run(device: GpuDevice, name: str, per_sm: int, spins: NDArray[np.int32]) -> Grid:
    """One launch, the second of two: the first one loads the program."""
    shared = device.facts.shared_optin_bytes // per_sm - (1024 if per_sm > 1 else 0)
    count = len(spins)
    launch = Launch("where", (count, 1, 1), (32, 1, 1), ("out", "spins"), shared_bytes=shared // 128 * 128)
    plan = Plan(name, "cuda", SOURCE, {}, {"out": np.zeros((count, 3), np.int64), "spins": spins}, "out", (launch,))
    with closing(device.prepare(plan)) as prepared:
        prepared.run()
        device.synchronise()
        prepared.run()
        sm, began, ended = prepared.read().T
    return Grid(name, per_sm, sm, began - began.min(), ended - began.min())


def page(gpu: str, sms: int, grids: Sequence[Grid]) -> str:
    rows = [told(grid, sms) for grid in grids]
    table = markdown(list(rows[0]), [list(row.values()) for row in rows], left=1)
    right = rows[0]["as the formula"]
    return f"""# Where blocks run on {gpu}

**Does Sputnik's formula of the block scheduler hold here?**

It puts {right} of the first wave's blocks where they are, with {sms} multiprocessors in the place of a V100's 80
(section V-C1 of *Sparse GPU Kernels for Deep Learning*: block b of the first wave on 2 (b mod 40) + (b / 40) mod 2).
What the row swizzle needs of it is less: that a round of as many blocks as there are multiprocessors has each once, and
that later blocks begin in the order of their index, each where another one has ended.

{table}

Shared memory decides how many blocks fit. Each spins for about 30 µs, uneven ones for up to four times that, the
longest first as the swizzle sorts them. `python runners/gpu_studies.py blocks` measures it on your GPU;
every block is a row of [blocks.csv](blocks.csv).
"""


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


def measured_networks(device: Any, patterns: list[str]) -> Iterator[dict[str, object]]:
    """A line per candidate of every network; one that can't run is told and left out."""
    known = kernels()
    for problem in EXPERIMENTS[WHOLE].problems():
        if problem.op not in NETWORKS or not any(fnmatch.fnmatchcase(problem.name, one) for one in patterns):
            continue
        operands = make_operands(problem)
        for name in EXPERIMENTS[WHOLE].kernels:
            if problem.op not in known[name].ops:
                continue
            try:
                for candidate in candidates(known[name], problem, operands, device):
                    names = {"problem": problem.name, "kernel": name, "variant": candidate.variant}
                    with closing(candidate.prepare()) as prepared:
                        yield {**names, **busy(prepared, device)}
            except Exception as error:
                print(f"{problem.name} {name}: {failure(error).reason}", file=sys.stderr)


PAIRS = (10, 200)
"""Not timed and timed, each in a pair of events of its own."""
LARGEST_ERROR = {"cublas_f16_sums": 0.02}
"""Largest error, relative to the sum of magnitudes, of a result that is timed."""


def published_programs(device: GpuDevice, problem: Problem, operands: Operands) -> Iterator[tuple[str, Prepared]]:
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
    for name, prepared in published_programs(device, problem, operands):
        with closing(prepared):
            error = relative_error(fresh_result(prepared), truth)
            if not error <= LARGEST_ERROR.get(name, 1e-3):
                print(f"{problem.name} {name}: wrong, relative error {error:.3g}", file=sys.stderr)
                continue
            warm_up(device.timer, prepared.run, least=0.02, most=0.2)
            for way in launching.WAYS:
                if way == "pair":
                    us = statistics.median(in_pairs(device, prepared.run))
                else:
                    us = measure(device.timer, prepared.run, way, QUICK, prepared.capturable).median
                sizes = {one: getattr(problem, one) for one in ("source", "m", "k", "n")}
                known = {"problem": problem.name, **sizes, "nnz": operands.sparse.nnz, "error": error}
                yield {**known, "program": name, "way": way, "us": round(us, 3)}


def launching_page(gpu: str, table: pd.DataFrame) -> str:
    launched = []
    for name, way in itertools.product(launching.PROGRAMS, launching.WAYS[1:]):
        ratio, longer = launching.over(table, (name, way), (name, "hot"))
        launched.append([launching.PROGRAMS[name], way, number(ratio), f"{longer:+.1f}"])
    changed = []
    methods = table["problem"].map(lambda name: dlmc_n512.stratum(name)[0].replace("_", " "))
    for (new, old), method in itertools.product(launching.CHANGES, methods.unique()):
        some = table[methods == method]
        ratio, _ = launching.over(some, (new, "hot"), (old, "hot"))
        changed.append(
            [launching.PROGRAMS[new], launching.PROGRAMS[old], method, str(some["problem"].nunique()), number(ratio)]
        )
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
[{launching.FILE}]({launching.FILE}).
"""


def gpu_for(what: str) -> GpuDevice:
    """Raises `Unsupported` where none works here."""
    device = open_gpu()
    if not isinstance(device, GpuDevice):
        raise Unsupported(f"{what} on a GPU, and none works here")
    return device


def devices(asked: argparse.Namespace) -> int:
    opened = open_all()
    if len(opened) < 2:
        raise Unsupported("fewer than two GPU libraries work here (see above): nothing to compare")
    chosen = list(programs(opened[0].arch, asked.kernel))
    jobs = [Job.of(stage, opened[0].arch) for _, _, plan in chosen for stage in plan.stages()]
    print(f"{sum(1 for _ in compile_many(jobs, timeout_s=120))} programs compiled", flush=True)
    rows: list[Row] = []
    for at, (name, problem, plan) in enumerate(chosen):
        if at == 0:
            with closing(opened[0].prepare(plan)) as prepared:
                warm_up(opened[0].timer, prepared.run)
        print(f"[{at + 1}/{len(chosen)}] {name} {problem.op} {problem.dtype} {plan.variant}", flush=True)
        rows += measured(opened, name, problem, plan)
    folder = asked.out / opened[0].gpu / "devices"
    paths.write_csv(pd.DataFrame(map(asdict, rows)), folder / "times.csv")
    paths.write_text(folder / "environment.json", json.dumps(snapshot(opened[0]), indent=2) + "\n")
    bad = differing(rows)
    print(f"{folder / 'times.csv'}: {len(rows)} rows; not the same to the bit: {', '.join(bad) or 'none'}")
    for device in opened:
        device.close()
    return 1 if bad else 0


def blocks(asked: argparse.Namespace) -> int:
    device = gpu_for("blocks are scheduled")
    sms = device.facts.sms
    equal = [run(device, "equal", per_sm, np.full(WAVES * per_sm * sms, SPIN, np.int32)) for per_sm in SIDES]
    falling = np.linspace(4 * SPIN, SPIN, WAVES * sms).astype(np.int32)
    grids = [*equal, run(device, "uneven, longest first", 1, falling)]
    folder = asked.out / device.gpu / "block_scheduler"
    table = pd.concat(
        pd.DataFrame({"grid": one.name, "per_sm": one.per_sm, "block": np.arange(len(one.sm)), "sm": one.sm,
                      "began_ns": one.began, "ended_ns": one.ended}) for one in grids
    )  # fmt: skip
    paths.write_csv(table, folder / "blocks.csv")
    paths.write_text(folder / "README.md", page(device.facts.name, sms, grids))
    device.close()
    print(folder / "README.md")
    return 0


def launched(asked: argparse.Namespace) -> int:
    device = gpu_for("launches are timed")
    folder = asked.out / device.gpu / launching.FOLDER
    paths.write_text(folder / "environment.json", json.dumps(snapshot(device), indent=2) + "\n")
    found: list[dict[str, object]] = []
    for problem in dlmc_n512.EXPERIMENT.problems():
        if any(fnmatch.fnmatchcase(problem.name, one) for one in asked.problem or ["*"]):
            found += timed_ways(device, problem)
            paths.write_csv(pd.DataFrame(found), folder / launching.FILE)  # stays where the rest is stopped
            print(f"{len(found)} rows: {problem.name}", flush=True)
    paths.write_text(folder / "README.md", launching_page(device.facts.name, pd.DataFrame(found)))
    device.close()
    return 0


def networks(asked: argparse.Namespace) -> int:
    import torch

    torch.cuda.init()
    device = open_device("cupy")
    folder = asked.out / device.gpu / WHOLE
    folder.mkdir(parents=True, exist_ok=True)
    with paths.appending(folder / FILE) as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        for line in measured_networks(device, asked.problem or ["*"]):
            writer.writerow(line)
            file.flush()
            print(*line.values(), flush=True)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    studies = parser.add_subparsers(dest="study", required=True)
    of_devices, of_blocks, of_networks, of_ways = map(studies.add_parser, ("devices", "blocks", "busy", "launching"))
    of_devices.add_argument("--out", type=Path, default=paths.reports())
    of_devices.add_argument("--kernel", action="append", default=[], metavar="NAME", help="only this one; repeatable")
    of_blocks.add_argument("--out", type=Path, default=paths.results())
    of_networks.add_argument("--out", type=Path, required=True)
    of_ways.add_argument("--out", type=Path, default=paths.results())
    for one in (of_networks, of_ways):
        one.add_argument("--problem", action="append", help="Shell pattern over problems; repeatable. Default: all.")
    asked = parser.parse_args(arguments)
    try:
        return {"devices": devices, "blocks": blocks, "busy": networks, "launching": launched}[asked.study](asked)
    except Unsupported as reason:
        print(f"Error: {reason}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
