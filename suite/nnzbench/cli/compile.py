"""`nnzbench compile`: every kernel for every architecture, with the resources each uses. Needs no GPU.

Asked for everything, it takes a sample, what a change must pass in a few minutes; `--all`, `--arch` and `--kernel`
build all that they name. The sample has all programs of the architectures that the table marks `whole`, and for the
others of each kernel every entry point on each, and on one of those with the same capabilities every value of every
define and every part of a generated program's variant. What no `whole` architecture has is in it for one that has it:
every three values that defines have together, and every program that is generated. Its other programs NVRTC only reads,
without making code of them: that is a tenth of the time and finds what the language and `static_assert` refuse.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from nnzbench.bench.phases import Phases
from nnzbench.bench.subject import Subjects
from nnzbench.bench.sweep import Choice, plan_work
from nnzbench.bench.trial import enumerate_candidates
from nnzbench.cli import options
from nnzbench.cli.chosen import choose_experiments
from nnzbench.core import paths
from nnzbench.core.architectures import (
    architecture,
    block_shared_bytes,
    compiled_architectures,
    number,
    whole_architectures,
)
from nnzbench.core.plan import Candidate, Launch, Plan, Prepared, Resources, Unsupported
from nnzbench.core.progress import progress_bar, terminal
from nnzbench.core.tiles import occupancy
from nnzbench.data.problems.experiment import Experiment, unknown
from nnzbench.devices.build import cache, toolchain
from nnzbench.devices.build.cache import Compiled, CompileError, Job, compile_program
from nnzbench.devices.build.pool import compile_many
from nnzbench.kernels.registry import AnyKernel, Kernel, VendorKernel, kernels
from nnzbench.kernels.samples import sample_plans

Made = Compiled | CompileError


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


@click.command()
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...", shell_complete=options.experiments)
@click.option("--arch", "arches", multiple=True, metavar="sm_XY", help="Architecture; repeat for several.")
@options.kernel_option("Kernel; repeat for several. Default: all.", name="names")
@click.option("--candidates", type=click.IntRange(1), help="With EXPERIMENT: at most so many of each kernel.")
@click.option(
    "--sample",
    type=click.IntRange(1, 1000),
    metavar="COUNT",
    help="A first look: one program of so many kernels on each architecture, other kernels on the next.",
)
@click.option("--all", "everything", is_flag=True, help="Every program for every architecture, not a sample of most.")
@click.option("--details", "every_entry", is_flag=True, help="A line per entry point, also without --arch or --kernel.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output, a row per entry point.")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Compile every kernel for every architecture and show what each uses; exit 1 if anything does not compile.

    Without --arch and --kernel, most architectures get a sample of each kernel's programs; --all builds every one.
    With EXPERIMENT, the programs of its run are compiled ahead, so that the run finds them in the cache.
    """
    asked = SimpleNamespace(**given)
    experiments, arches, names, sample = asked.experiments, asked.arches, asked.names, asked.sample
    shown = sample or asked.everything or asked.every_entry or asked.as_json
    refusals = {
        "--candidates limits what is compiled for an EXPERIMENT: name one": asked.candidates and not experiments,
        "a run needs programs of one architecture: name it with --arch": experiments and not arches,
        "--sample, --all, --details and --json show kernels, and not an EXPERIMENT's programs": experiments and shown,
        "--sample builds little, --all builds everything: choose one": sample and asked.everything,
    }
    options.refuse(refusals)
    chosen = _arches(arches)
    known = {name: kernel for name, kernel in kernels().items() if not isinstance(kernel, VendorKernel)}
    for name in names:
        if name not in known:
            library = f"{name} is a vendor's library: nothing of it is compiled here"
            raise click.UsageError(library if name in kernels() else unknown("kernel", name, known))
    if experiments:
        run = choose_experiments(experiments, bool(names))
        choice = Choice(kernels=names or None, candidates=asked.candidates)
        failed = [compile_all(run, known, choice, one) for one in chosen]
        ctx.exit(1 if any(failed) else 0)
    wished = [known[name] for name in dict.fromkeys(names or known)]
    refused: dict[tuple[str, str], str] = {}
    if sample:
        wanted = first_look(wished, chosen, sample)
    else:
        wanted, refused = programs_of(wished, chosen)
    if not (names or sample):
        wanted += support_files(wanted, known, chosen)
    possible = len({one.job.identity() for one in wanted})
    others: list[Wanted] = []
    if not (asked.everything or arches or names or sample):
        wanted, others = sampled(wanted)
    built: dict[str, Made] = {**_build([one.job for one in wanted]), **refusals_of(others)}
    wanted += [one for one in others if one.job.identity() in built]
    rows = [Row(kernel, "", "", arch, "unsupported", reason) for (kernel, arch), reason in refused.items()]
    rows += [row for one in wanted for row in _rows(one, built[one.job.identity()])]
    place: dict[tuple[str, str, str], int] = {}  # the architectures of a variant side by side, as variants came
    rows.sort(key=lambda row: place.setdefault((row.kernel, row.variant, row.entry), len(place)))
    each = asked.every_entry or arches or names
    if asked.as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
    elif not sample or each:
        screen = terminal()
        (screen if screen.is_terminal else terminal(width=200)).print(details(rows) if each else summary(rows, chosen))
    errors = terminal(stderr=True)
    _explain(rows, wanted, built, errors)
    wrong = sum(row.status in ("compile-error", "launch-error") for row in rows)
    share = f" of {possible}" if len(built) < possible else ""
    errors.print(
        f"{len(built)}{share} programs for {len(chosen)} architectures, {wrong} of {len(rows)} entry points failed"
    )
    if wrong:
        ctx.exit(1)


def _arches(asked: tuple[str, ...]) -> tuple[str, ...]:
    """Asked-for architectures must be possible; of the default ones, those the installed compiler knows."""
    for arch in asked:
        toolchain.check_arch(arch)
    if asked:
        return tuple(dict.fromkeys(asked))
    possible: list[str] = []
    known = compiled_architectures()
    for arch in known:
        try:
            toolchain.check_arch(arch)
            possible.append(arch)
        except Unsupported as reason:
            if not possible and arch == known[-1]:
                raise
            click.echo(f"{arch} is left out: {reason}", err=True)
    return tuple(possible)


def _build(jobs: Iterable[Job]) -> dict[str, Made]:
    distinct = {job.identity(): job for job in jobs}
    made = compile_many(list(distinct.values()))
    names, built = list(distinct), {}
    with progress_bar() as progress:
        progress.start("compiling", len(distinct))
        for index, one in made:
            built[names[index]] = one
            progress.advance()
    return built


def _rows(one: Wanted, made: Made) -> Iterator[Row]:
    row = Row(one.kernel, one.variant, "", one.job.arch, "ok")
    if isinstance(made, CompileError):
        yield replace(row, status="compile-error", reason=str(made))
        return
    row = replace(row, compile_ms=round(made.compile_ms, 3), cached=made.cached)
    launches = {launch.entry: launch for launch in reversed(one.launches)}
    for entry in launches or made.resources:
        yield _with_resources(replace(row, entry=entry), made.resources.get(entry), launches.get(entry))


def _with_resources(row: Row, used: Resources | None, launch: Launch | None) -> Row:
    """The row of an entry point; occupancy is of a launch, which support files have none of."""
    if used is None:
        return replace(row, status="compile-error", reason=f"the program has no entry point '{row.entry}'")
    shared = used.shared_bytes + (launch.shared_bytes if launch else 0)
    row = replace(row, **{**vars(used), "shared_bytes": shared})
    if launch is None:
        return row
    threads = math.prod(launch.block)
    fits = occupancy(row.arch, used.registers, shared, threads)
    row = replace(row, threads=threads, occupancy=fits.fraction, limiter=fits.limiter)
    if fits.blocks == 0:
        return replace(row, status="launch-error", reason=f"not one block fits on an SM, for its {fits.limiter}")
    return row


def _explain(rows: Iterable[Row], wanted: Iterable[Wanted], built: Mapping[str, Made], errors: Console) -> None:
    """Reasons for what is not ok, and each failing program's log once."""
    for row in rows:
        if row.status != "ok":
            errors.print(
                f"{row.kernel} {row.variant} {row.arch}: {row.status}: {row.reason}", markup=False, soft_wrap=True
            )
    logs = {made.log: one for one in wanted if isinstance(made := built[one.job.identity()], CompileError)}
    for log, one in logs.items():
        errors.print(f"\n{one.job.name()}, {' '.join(one.job.options())}, {one.job.arch}:", style="red", soft_wrap=True)
        errors.print(log, markup=False, highlight=False, soft_wrap=True)


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


SUPPORT = "(support)"
"""Stands for the kernel where a `.cu` file is used by the suite itself rather than by a registered kernel."""


@dataclass(frozen=True)
class Wanted:
    """Where a compiled program's numbers go."""

    kernel: str
    variant: str
    job: Job
    launches: tuple[Launch, ...]

    @property
    def generated(self) -> bool:
        """Whether the program is its plan's own text, which its variant names, and not a file with defines."""
        return "\n" in self.job.source

    def group(self) -> str:
        """What a sample is taken of: the programs of a file, or those that a kernel generates."""
        return self.kernel if self.generated else self.job.source

    def program(self) -> tuple[str, ...]:
        """The same for one program on several architectures."""
        return self.group(), *([self.variant] if self.generated else self.job.options())

    def together(self) -> set[Hashable]:
        """Every three values of its defines, or the program itself where it is generated or has fewer."""
        group, *values = self.program()
        return {(group, *some) for some in itertools.combinations(values, min(3, len(values)))}

    def traits(self) -> set[Hashable]:
        """What a sample of the group's programs must have once: entry points on each architecture, and values for each
        set of capabilities, as sources branch by what an architecture can do.
        """
        values = re.split(r"[_ ]", self.variant) if self.generated else self.job.options()
        can = architecture(f"sm_{number(self.job.arch)}").capabilities
        entries = {(self.job.arch, entry) for entry in (*(launch.entry for launch in self.launches), "any")}
        return {*entries, *((can, value) for value in values)}


def _wanted(kernel: Kernel, arch: str) -> Iterator[Wanted]:
    """Each variant's programs, once. Raises `Unsupported` where the kernel does not take the architecture."""
    seen = set()
    for plan in sample_plans(kernel, arch):
        for stage in plan.stages():
            job = Job.of(stage, arch)
            if (plan.variant, job.identity()) not in seen:
                seen.add((plan.variant, job.identity()))
                yield Wanted(kernel.name, plan.variant, job, stage.launches)


def programs_of(chosen: Iterable[Kernel], arches: Iterable[str]) -> tuple[list[Wanted], dict[tuple[str, str], str]]:
    """What to compile, and why a kernel does not support an architecture, by both."""
    wanted: list[Wanted] = []
    refused: dict[tuple[str, str], str] = {}
    for kernel, arch in itertools.product(chosen, arches):
        try:
            wanted.extend(_wanted(kernel, arch))
        except Unsupported as reason:
            refused[kernel.name, arch] = str(reason)
    return wanted, refused


def first_look(chosen: Sequence[Kernel], arches: Iterable[str], count: int) -> list[Wanted]:
    """The first program of `count` kernels on each architecture, going on with the next kernels on the next one."""
    found: list[Wanted] = []
    waiting = itertools.cycle(chosen)
    for arch in arches:
        firsts = (_first(kernel, arch) for kernel in itertools.islice(waiting, len(chosen)))
        found += itertools.islice(filter(None, firsts), count)
    return found


def _first(kernel: Kernel, arch: str) -> Wanted | None:
    with suppress(Unsupported):
        return next(_wanted(kernel, arch), None)
    return None


def support_files(wanted: Iterable[Wanted], known: Mapping[str, Kernel], arches: Iterable[str]) -> list[Wanted]:
    """The `.cu` files that no plan names: they must compile as they are, without defines.

    A kernel that has no plan on these architectures is asked for another's, so that its file does not pass for one.
    """
    used = {one.job.source for one in wanted}
    for name in known.keys() - {one.kernel for one in wanted}:
        for arch in compiled_architectures():
            with suppress(Unsupported):
                used |= {stage.source for plan in sample_plans(known[name], arch) for stage in plan.stages()}
                break
    unused = sorted(path.name for path in paths.kernels_cu().glob("*.cu") if path.name not in used)
    return [Wanted(SUPPORT, name, Job("cuda", name, arch), ()) for name in unused for arch in arches]


def sampled(wanted: list[Wanted]) -> tuple[list[Wanted], list[Wanted]]:
    """All of `whole` architectures; of each group elsewhere, programs with all of its traits and what is only there.

    Beside them, once each, the programs that this leaves out on every architecture.
    """
    names = whole_architectures()
    whole = {one.job.identity(): one.together() for one in wanted if f"sm_{number(one.job.arch)}" in names}
    known = set().union(*whole.values())
    groups: dict[str, dict[str, set[Hashable]]] = {}
    for one in wanted:
        if one.job.identity() not in whole:
            new = one.traits() | one.together() - known
            groups.setdefault(one.group(), {}).setdefault(one.job.identity(), set()).update(new)
    sample = {*whole, *(name for members in groups.values() for name in cover(members))}
    taken = [one for one in wanted if one.job.identity() in sample]
    others = {one.program(): one for one in wanted}
    for one in taken:
        others.pop(one.program(), None)
    return taken, list(others.values())


def refusals_of(wanted: Iterable[Wanted]) -> dict[str, CompileError]:
    """By identity, what the compiler's front end refuses, or asks for more shared memory than a block can have."""
    found = {}
    for one in wanted:
        program = one.job.program()
        read, log = compile_program(replace(program, options=[*program.options, "-dlto"]), to_ptx=True)
        if read is None:
            found[one.job.identity()] = CompileError(f"{program.name} is refused", log)
        elif any(launch.shared_bytes > block_shared_bytes(one.job.arch) for launch in one.launches):
            found[one.job.identity()] = CompileError("not one block fits on an SM, for its shared memory")
    return found


def cover(members: Mapping[str, Set[Hashable]]) -> list[str]:
    """Members in which each trait of any member occurs at least once; as few as a greedy choice finds.

    Each step takes the member with the most traits that are still missing, the first of several; one without traits is
    never taken. The same members in the same order always give the same answer.
    """
    missing: set[Hashable] = set().union(*members.values())
    taken = []
    while missing:
        name = max(members, key=lambda one: len(members[one] & missing))
        missing -= members[name]
        taken.append(name)
    return taken


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
