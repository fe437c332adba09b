"""Runs every kernel through each GPU library that works here: same cubin, same bits, same times?

    python runners/three_devices.py [--out FOLDER] [--kernel NAME ...]

For each kernel, op and input type one program on its largest sample problem, through CuPy, PyCUDA and cuda.core in
turn, and again in the other order: what two measurements through one library differ by is the noise that the libraries
are held against. Writes FOLDER/<gpu>/devices/times.csv with its environment.json (default: reports/), from which
`nnzbench report` draws the page beside them. Exit status: 0 done, 1 bits or cubins differ, 2 fewer than two libraries
work here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import get_args

import pandas as pd

from nnzbench import paths
from nnzbench.build.cache import Job
from nnzbench.build.pool import compile_many
from nnzbench.devices import open_device
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.registry import VendorKernel, about, kernels
from nnzbench.kernels.samples import PROBLEMS
from nnzbench.measure.session import snapshot
from nnzbench.measure.timing import measure, warm_up
from nnzbench.plans.plan import Plan, Unsupported
from nnzbench.problems.experiment import POLICIES
from nnzbench.problems.operands import make_operands
from nnzbench.problems.problem import DType, Problem

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


def open_all(names: Sequence[str] = LIBRARIES) -> list[GpuDevice]:
    """The GPU through each library that works here; others are named on stderr."""
    opened = []
    for name in names:
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


def measured(devices: Sequence[GpuDevice], name: str, problem: Problem, plan: Plan) -> Iterator[Row]:
    """Every library's rows of one program, in turns."""
    for number in range(1, ROUNDS + 1):
        for device in devices if number % 2 else reversed(devices):  # what drifts is no library's
            cubins, _ = device.compiled(plan)
            prepared = device.prepare(plan)
            try:
                prepared.poison()
                prepared.run()
                bits = digest(prepared.read().tobytes())
                for policy in POLICIES:
                    found = measure(device.timer, prepared.run, policy, capturable=prepared.capturable)
                    what = (name, problem.op, problem.dtype, problem.name, plan.variant, device.name, number)
                    yield Row(*what, digest(*cubins), bits, policy, found.median, found.q1, found.q3)
            finally:
                prepared.close()


def digest(*parts: bytes) -> str:
    """Twelve digits of SHA-256."""
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


def differing(rows: Sequence[Row]) -> list[str]:
    """Programs whose cubins or results are not the same through every library, each in every round."""
    seen: dict[str, set[tuple[str, str]]] = {}
    for row in rows:
        seen.setdefault(f"{row.kernel} {row.op} {row.inputs}", set()).add((row.cubin, row.bits))
    return [name for name, found in seen.items() if len(found) > 1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, writes and says what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=paths.reports())
    parser.add_argument("--kernel", action="append", default=[], metavar="NAME", help="only this one; repeatable")
    asked = parser.parse_args(arguments)
    devices = open_all()
    if len(devices) < 2:
        print("Error: fewer than two GPU libraries work here (see above): nothing to compare", file=sys.stderr)
        return 2
    chosen = list(programs(devices[0].arch, asked.kernel))
    jobs = [Job.of(stage, devices[0].arch) for _, _, plan in chosen for stage in plan.stages()]
    print(f"{sum(1 for _ in compile_many(jobs, timeout_s=120))} programs compiled", flush=True)
    rows: list[Row] = []
    for at, (name, problem, plan) in enumerate(chosen):
        if at == 0:
            prepared = devices[0].prepare(plan)
            warm_up(devices[0].timer, prepared.run)
            prepared.close()
        print(f"[{at + 1}/{len(chosen)}] {name} {problem.op} {problem.dtype} {plan.variant}", flush=True)
        rows += measured(devices, name, problem, plan)
    folder = asked.out / devices[0].gpu / "devices"
    paths.write_csv(pd.DataFrame(map(asdict, rows)), folder / "times.csv")
    paths.write_text(folder / "environment.json", json.dumps(snapshot(devices[0]), indent=2) + "\n")
    bad = differing(rows)
    print(f"{folder / 'times.csv'}: {len(rows)} rows; not the same to the bit: {', '.join(bad) or 'none'}")
    for device in devices:
        device.close()
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
