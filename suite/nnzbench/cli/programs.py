"""What a run would compile, told without running it: to compile it all at once, or on a machine without the GPU.

And what `nnzbench compile` prints: a row per entry point, or a screenful of counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.table import Table

from nnzbench import paths
from nnzbench.build import cache, toolchain
from nnzbench.build.cache import CompileError, Job, compile_program
from nnzbench.build.pool import compile_many
from nnzbench.kernels.registry import AnyKernel
from nnzbench.matrices.formats import MatrixError
from nnzbench.measure.sweep import Choice, plan_work
from nnzbench.measure.trial import enumerate_candidates
from nnzbench.plans.architectures import number
from nnzbench.plans.plan import Candidate, Plan, Prepared, Unsupported
from nnzbench.problems.experiment import Experiment
from nnzbench.problems.operands import Maker

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
        maker = Maker()
        for problem, names in plan_work(one, known, choice):
            try:
                operands = maker.operands(problem)
            except MatrixError:  # the run tells
                continue
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


@dataclass(frozen=True)
class Row:
    """One entry point of one variant on one architecture. None where the compiler or the launch does not tell."""

    kernel: str
    variant: str
    entry: str
    arch: str
    status: str
    """`ok`, `unsupported`, `compile-error` or `launch-error` (not one block fits on an SM)."""
    reason: str = ""
    threads: int | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    """Static plus dynamic, per block."""
    spill_bytes: int | None = None
    code_bytes: int | None = None
    occupancy: float | None = None
    """Theoretical: resident warps over the most an SM holds."""
    limiter: str | None = None
    compile_ms: float | None = None
    cached: bool | None = None


def details(rows: Iterable[Row]) -> Table:
    """A row per entry point of every variant, its architectures side by side."""
    table = Table("kernel", "variant", "entry", "arch")
    for heading in ("registers", "shared B", "spills B", "code B", "threads", "occupancy", "ms"):
        table.add_column(heading, justify="right")
    before: tuple[str, ...] = ()
    for row in rows:
        label = (row.kernel, row.variant, row.entry)
        head = ("", "", "") if label == before else label
        before = label
        share = "" if row.occupancy is None else f"{row.occupancy:.0%} ({row.limiter})"
        counts = (row.registers, row.shared_bytes, row.spill_bytes, row.code_bytes, row.threads)
        spent = "" if row.compile_ms is None else f"{row.compile_ms:.0f}{' cached' if row.cached else ''}"
        cells = ("" if count is None else str(count) for count in counts)
        table.add_row(*head, row.arch, *cells, share, spent if row.status == "ok" else f"[red]{row.status}[/red]")
    return table


def summary(rows: Sequence[Row], arches: Iterable[str]) -> Table:
    """A line per kernel, a column per architecture: entry points compiled, of those spilling (s), failed (!)."""
    table = Table("kernel", title="entry points compiled; s: of these with spills, !: failed, -: not for it")
    columns = list(arches)
    for arch in columns:
        table.add_column(arch, justify="right")
    counts: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        base = row.arch if row.arch in columns else f"sm_{number(row.arch)}"
        counts[row.kernel, base, row.status] += 1
        counts[row.kernel, base, "spills"] += bool(row.spill_bytes)
    for kernel in dict.fromkeys(row.kernel for row in rows):
        table.add_row(kernel, *(_cell(counts, kernel, arch) for arch in columns))
    return table


def _cell(counts: Counter[tuple[str, str, str]], kernel: str, arch: str) -> str:
    ok, spills = counts[kernel, arch, "ok"], counts[kernel, arch, "spills"]
    failed = counts[kernel, arch, "compile-error"] + counts[kernel, arch, "launch-error"]
    if not ok + failed:
        return "-"
    return f"{ok}" + f" s{spills}" * bool(spills) + f" [red]!{failed}[/red]" * bool(failed)
