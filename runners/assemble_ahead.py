"""Compiles the generated code of an experiment on all processors, so that a run finds it in the cache and no GPU waits.

A run compiles the candidates of one kernel on one problem together: code for hundreds of thousands of weights takes a
processor a minute, and of a host's many processors few would have work.

    python runners/assemble_ahead.py granularity --arch sm_90 --kernel direct_conv --candidates 2
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import islice

from nnzbench.build.cache import CompileError, Job
from nnzbench.build.pool import compile_many
from nnzbench.kernels.registry import VendorKernel, kernels
from nnzbench.measure.sweep import Choice, plan_work
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.operands import make_operands

TIMEOUT_S = 600.0


def jobs_of(name: str, names: list[str], most: int | None, arch: str) -> Iterator[Job]:
    """The programs of the first `most` candidates of the named kernels on every problem of an experiment."""
    known = kernels()
    for problem, able in plan_work(EXPERIMENTS[name], known, Choice(kernels=tuple(names))):
        generating = [kernel for one in able if not isinstance(kernel := known[one], VendorKernel)]
        if not generating:
            continue
        operands = make_operands(problem)
        for kernel in generating:
            try:
                for plan in islice(kernel.plans(problem, operands, arch), most):
                    yield from (Job.of(stage, arch) for stage in plan.stages())
            except Unsupported:
                continue  # the run says so


def main(arguments: list[str] | None = None) -> int:
    """Fills the cache; exit status 1 where a program does not compile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=sorted(EXPERIMENTS))
    parser.add_argument("--arch", required=True, help="Architecture, as sm_90.")
    parser.add_argument("--kernel", action="append", required=True, choices=sorted(kernels()), help="Repeatable.")
    parser.add_argument("--candidates", type=int, help="Of each kernel on a problem, the first so many.")
    given = parser.parse_args(arguments)
    start = time.perf_counter()
    jobs = {job.identity(): job for job in jobs_of(given.experiment, given.kernel, given.candidates, given.arch)}
    longest_first = sorted(jobs.values(), key=lambda job: -len(job.source))
    print(f"{len(jobs)} programs, generated in {time.perf_counter() - start:.0f} s", flush=True)
    failed = 0
    for index, made in compile_many(longest_first, timeout_s=TIMEOUT_S):
        if isinstance(made, CompileError):
            failed += 1
            print(f"{longest_first[index].name()}: {made}", file=sys.stderr)
    print(f"{len(jobs) - failed} in the cache after {time.perf_counter() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
