"""What a run would compile, told without running it: to compile it all at once, or on a machine without the GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import click

from nnzbench.bench.phases import Phases
from nnzbench.bench.subject import Subjects
from nnzbench.bench.sweep import Choice, plan_work
from nnzbench.bench.trial import enumerate_candidates
from nnzbench.core import paths
from nnzbench.core.plan import Candidate, Plan, Prepared, Unsupported
from nnzbench.data.problems.experiment import Experiment
from nnzbench.devices.build import cache, toolchain
from nnzbench.devices.build.cache import CompileError, Job, compile_program
from nnzbench.devices.build.pool import compile_many
from nnzbench.kernels.registry import AnyKernel

TIMEOUT_S = 600.0
"""Limit of one compilation ahead of a run: no GPU waits for it."""


@dataclass
class Lister:
    """A device that runs nothing and notes what it would have to compile."""

    arch: str
    link: str = ""
    jobs: dict[str, Job] = field(default_factory=dict)
    """By identity, in the order that they were asked for."""
    name = gpu = "none"
    compiles_from_cache = False
    timer = None

    def prepare(self, plan: Plan) -> Prepared:
        """Notes the plan's programs, but those for another architecture's own instructions; raises `Unsupported`."""
        for stage in plan.stages():
            if not (self.link and stage.features):
                job = Job.of(stage, self.arch, self.link)
                self.jobs.setdefault(job.identity(), job)
        raise Unsupported("nothing is run")

    def abandon(self) -> None: ...
    def close(self) -> None: ...


def programs(
    chosen: Iterable[Experiment], known: Mapping[str, AnyKernel], choice: Choice, arch: str, link: str = ""
) -> list[Job]:
    """Each program of a run once, in the order that it would be asked for."""
    lister = Lister(arch, link)
    for one in chosen:
        subjects = Subjects(Phases())
        for problem, names in plan_work(one, known, choice):
            if (operands := subjects.of(problem).operands) is None:
                continue  # the run tells why
            for name in names:
                for found in enumerate_candidates(known[name], problem, operands, lister, choice.limit):
                    if isinstance(found, Candidate):
                        with suppress(Unsupported):
                            found.prepare() if found.plan is None else lister.prepare(found.plan)
    return list(lister.jobs.values())


def compile_all(
    chosen: Iterable[Experiment], known: Mapping[str, AnyKernel], choice: Choice, arch: str, link: str = ""
) -> int:
    """Compiles what a run will need, all at once on all processors; how many programs fail, which the run meets again.

    Raises `Unsupported` where the compiler here does not know `arch`.
    """
    jobs = sorted(programs(chosen, known, choice, arch, link), key=lambda job: -len(job.source))
    failed = 0
    for at, made in compile_many(jobs, timeout_s=TIMEOUT_S):
        if isinstance(made, CompileError):
            failed += 1
            click.echo(f"{jobs[at].name()}: {made}", err=True)
    click.echo(f"{len(jobs) - failed} programs compiled for {arch}, {failed} failed")
    return failed


def write_ptx(
    chosen: Iterable[Experiment], known: Mapping[str, AnyKernel], choice: Choice, arch: str, folder: Path
) -> int:
    """Makes the PTX of a run's programs for `$NNZBENCH_PTX` of another machine; how many do not compile.

    What the folder has already is left as it is. Generated programs are PTX as they are and need none. Raises
    `Unsupported` where the compiler here does not know `arch` either.
    """
    toolchain.check_arch(arch)
    made = there = failed = 0
    for job in programs(chosen, known, choice, arch):
        if job.language != "cuda":
            continue
        program = job.program()
        if (folder / f"{program.ptx_key()}.ptx").exists():
            there += 1
            continue
        ptx, log = compile_program(program, to_ptx=True)
        if ptx is None:
            failed += 1
            click.echo(f"{program.name} {' '.join(program.options)}: {log}", err=True)
        else:
            made += 1
            cache.write_ptx(folder, program.ptx_key(), ptx)
    paths.write_text(folder / cache.COMPILER, ".".join(map(str, toolchain.nvrtc_version())) + "\n")
    click.echo(f"{folder}: {made} programs made, {there} there before, {failed} failed")
    return failed
