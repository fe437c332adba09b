"""Runs every kernel through each GPU library that works here: same cubin, same bits, same times?

    python runners/gpu_studies.py devices [--out FOLDER] [--kernel NAME ...]

For each kernel, op and input type one program on its largest sample problem, through CuPy, PyCUDA and cuda.core in
turn, and again in the other order: what two measurements through one library differ by is the noise that the libraries
are held against. Writes FOLDER/<gpu>/devices/times.csv with its environment.json (default: reports/), from which
`nnzbench report` draws the page beside them. Exit status: 0 done, 1 bits or cubins differ, 2 fewer than two libraries
work here.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import get_args

from nnzbench.bench.timing import measure, warm_up
from nnzbench.bench.trial import fresh_result
from nnzbench.core import paths
from nnzbench.core.plan import Plan, Unsupported
from nnzbench.data.problems.experiment import OF_MODELS
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import DType, Problem
from nnzbench.devices import open_device
from nnzbench.devices.build.cache import Job
from nnzbench.devices.build.pool import compile_many
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.registry import VendorKernel, about, kernels
from nnzbench.kernels.samples import PROBLEMS
from nnzbench.site.gpu_libraries import FOLDER, TIMES, Timing
from studies import write_environment

LIBRARIES = ("cupy", "pycuda", "cuda-core")
ROUNDS = 2


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


def measured(opened: Sequence[GpuDevice], name: str, problem: Problem, plan: Plan) -> Iterator[Timing]:
    for turn in range(1, ROUNDS + 1):
        for device in opened if turn % 2 else reversed(opened):  # what drifts is no library's
            cubins, _ = device.compiled(plan)
            with closing(device.prepare(plan)) as prepared:
                bits = digest(fresh_result(prepared).tobytes())
                for policy in OF_MODELS:
                    found = measure(device.timer, prepared.run, policy, capturable=prepared.capturable)
                    what = (name, problem.op, problem.dtype, problem.name, plan.variant, device.name, turn)
                    yield Timing(*what, digest(*cubins), bits, policy, found.median, found.q1, found.q3)


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


def differing(rows: Sequence[Timing]) -> list[str]:
    """Programs whose cubins or results are not the same through every library, each in every round."""
    seen: dict[str, set[tuple[str, str]]] = {}
    for row in rows:
        seen.setdefault(f"{row.kernel} {row.op} {row.inputs}", set()).add((row.cubin, row.bits))
    return [name for name, found in seen.items() if len(found) > 1]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=paths.reports())
    parser.add_argument("--kernel", action="append", default=[], metavar="NAME", help="only this one; repeatable")


def study(asked: argparse.Namespace) -> int:
    opened = open_all()
    if len(opened) < 2:
        raise Unsupported("fewer than two GPU libraries work here (see above): nothing to compare")
    found = list(programs(opened[0].arch, asked.kernel))
    jobs = [Job.of(stage, opened[0].arch) for _, _, plan in found for stage in plan.stages()]
    print(f"{sum(1 for _ in compile_many(jobs, timeout_s=120))} programs compiled", flush=True)
    rows: list[Timing] = []
    for at, (name, problem, plan) in enumerate(found):
        if at == 0:
            with closing(opened[0].prepare(plan)) as prepared:
                warm_up(opened[0].timer, prepared.run)
        print(f"[{at + 1}/{len(found)}] {name} {problem.op} {problem.dtype} {plan.variant}", flush=True)
        rows += measured(opened, name, problem, plan)
    folder = asked.out / opened[0].gpu / FOLDER
    TIMES.write(folder, rows)
    write_environment(opened[0], folder)
    bad = differing(rows)
    print(f"{folder / TIMES.file}: {len(rows)} rows; not the same to the bit: {', '.join(bad) or 'none'}")
    for device in opened:
        device.close()
    return 1 if bad else 0
