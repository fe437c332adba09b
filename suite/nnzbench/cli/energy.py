"""`nnzbench energy`: joules of a launch, of an experiment's winners and of their dense baselines."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from nnzbench import devices
from nnzbench.bench.budget import spread
from nnzbench.bench.cluster import worker
from nnzbench.bench.energy import Bench, Entrant, Recipe, contest, open_bench, window
from nnzbench.bench.session import Session, open_session
from nnzbench.cli import options
from nnzbench.cli.chosen import NothingMatched, matching
from nnzbench.cli.options import seconds_of
from nnzbench.core import paths
from nnzbench.core.plan import Unsupported
from nnzbench.core.progress import RunProgress, progress_bar
from nnzbench.data.problems.experiment import Experiment
from nnzbench.data.problems.problem import stem_of
from nnzbench.devices import DEVICES, Device
from nnzbench.kernels.registry import kernels
from nnzbench.papers.catalogue import EXPERIMENTS, experiment, page_of
from nnzbench.papers.typical import typical
from nnzbench.results import energy as facts
from nnzbench.results.records.beside import ENERGY, Window
from nnzbench.results.records.folder import Results
from nnzbench.results.records.record import RecordError
from nnzbench.results.result_set import ResultSet, each, load


@click.command()
@click.argument("experiments", nargs=-1, required=True, metavar="EXPERIMENT...", shell_complete=options.experiments)
@click.option("--problem", "problems", multiple=True, metavar="GLOB", help="Only problems of this name; repeatable.")
@options.kernel_option()
@click.option("--seconds", type=click.FloatRange(0.5, 600), default=5.0, show_default=True, help="Of a window.")
@click.option("--trials", type=click.IntRange(1, 100), default=3, show_default=True, help="Two windows each, ABBA.")
@click.option("--budget", callback=seconds_of, metavar="25m", help="Begin nothing that would end after this time.")
@click.option("--check", is_flag=True, help="Each against itself: A/A, and twice the launches; exit 1 beyond 2 %.")
@click.option("--device", type=click.Choice(list(DEVICES)), help="Default: the GPU.")
@click.option("--out", type=options.FOLDER, help="Where the records are: OUT/<gpu>/<experiment>/ [default: results/].")
@click.pass_context
def command(ctx: click.Context, /, **asked: Any) -> None:
    """Measure joules a launch of what each EXPERIMENT recorded as fastest, sparse and dense, on the GPU that ran it.

    By the board's energy counter, launches back to back over rotated weights, candidates in turn; the integral of the
    instantaneous power is beside it, and a window where the two differ by more than 5 % is refused. Windows are added
    to energy.csv beside the records, but those of --check. What is there is not measured again, so that a run goes on
    where it was ended.
    """
    began = time.monotonic()
    chosen = [experiment(name) for name in dict.fromkeys(asked["experiments"])]
    for one in chosen:
        if _asked(one.name) is None:
            able = ", ".join(name for name in EXPERIMENTS if _asked(name) is not None)
            raise Unsupported(f"{one.name} says nothing of energy: choose from {able}")
    recipe = Recipe(asked["seconds"], asked["trials"], asked["check"])
    with closing(devices.open_device(asked["device"]) if asked["device"] else devices.open_gpu()) as device:
        ends = None if asked["budget"] is None else began + asked["budget"]
        run = Run(device.gpu, asked["out"] or paths.results(), recipe, asked["problems"], ends, asked["kernels"])
        work = [item for one in chosen for item in run.work(one)]
        with progress_bar() as progress:
            done = run.all(work, device, progress)
    rows = [row for _, some in done for row in some]
    if done and not rows:
        raise Unsupported(f"nothing was measured: {len(done)} of {len(work)} problems were refused, as said above")
    verdicts = list(checked(rows)) if asked["check"] else []
    for line in (*(() if asked["check"] else told(done)), *(line for _, line in verdicts), *refused(rows)):
        click.echo(line)
    if not all(fine for fine, _ in verdicts) or (rows and all(row.status == "refused" for row in rows)):
        ctx.exit(1)


def _asked(name: str) -> Any:
    page = page_of(name)
    return page.energy if page else None


@dataclass(frozen=True)
class Item:
    """One contest: an experiment's problem with its candidates."""

    folder: Path
    stem: str
    entrants: tuple[Entrant, ...]
    begun: int = 0
    """Trials that are recorded already."""

    def names(self) -> Sequence[str]:
        return [self.stem, *(one.problem.name for one in self.entrants)]


@dataclass
class Run:
    """What is measured, and where to."""

    gpu: str
    out: Path
    recipe: Recipe
    patterns: tuple[str, ...] = ()
    ends: float | None = None
    kernels: tuple[str, ...] = ()
    """These alone, where any are named."""

    def work(self, one: Experiment) -> list[Item]:
        """The contests of an experiment that are not recorded yet: those that stand for it first, then evenly.

        Raises `RecordError` where it is not recorded on this GPU, `NothingMatched` for patterns without a problem.
        """
        folder = self.out / self.gpu / one.name
        try:
            results = load(folder)
        except FileNotFoundError:
            raise RecordError(
                f"{folder} has no records: `nnzbench run {one.name}` finds the candidates whose energy is measured"
            ) from None
        every = list(self._contests(one, results))
        if self.kernels and not every:
            raise NothingMatched(f"{one.name}: no two candidates that were fastest are of {', '.join(self.kernels)}")
        wanted = matching(every, Item.names, self.patterns, f"{one.name}: no candidates on a problem like")
        have = Counter() if self.recipe.check else Counter(row.candidate for row in ENERGY.read(folder))
        begun = [min(have[one.key(results.device)] for one in item.entrants) // 2 for item in wanted]
        return [replace(item, begun=at) for item, at in zip(wanted, begun, strict=True) if at < self.recipe.trials]

    def _contests(self, one: Experiment, results: ResultSet) -> Iterator[Item]:
        """Of problems that more than one candidate runs; a check takes each by itself."""
        page: Any = page_of(one.name)
        found = facts.chosen(results, page.energy, page.attributes)
        problems = {problem.name: problem for problem in replace(one, full=True).problems()}
        rest = [stem_of(problem.name) for problem, _ in spread([(problem, ()) for problem in problems.values()])]
        for stem in dict.fromkeys((*typical(one.name, problems.values()), *rest)):
            if stem in found:
                rows = found[stem]
                mine = rows[rows["kernel"].isin(self.kernels)] if self.kernels else rows
                entrants = [
                    Entrant(replace(problems[row.problem], dtype=row.dtype), row.kernel, row.variant)
                    for row in each(mine)
                    if row.problem in problems
                ]
                if len(entrants) > (0 if self.recipe.check else 1):
                    yield Item(results.folder, stem, tuple(entrants))

    def all(self, work: Sequence[Item], device: Device, progress: RunProgress) -> list[tuple[Item, list[Window]]]:
        """Every contest that still fits, each trial on disk as it ends; with what its windows say."""
        bench = open_bench(device)
        if not work:
            progress.tell("Nothing to do: all of it is in energy.csv")
            return []
        found, left = list[tuple[Item, list[Window]]](), 0
        turn = worker.turn(device)  # the counter would have the joules of a run on a cluster, too
        with turn():
            session = open_session(device, kernels(), progress.note)
            idle = window(bench, None, min(self.recipe.seconds, 3.0)).watts
        progress.start("energy", len(work))
        for item in work:
            expected_s = self.recipe.expected_s(len(item.entrants), item.begun)
            if self.ends is not None and time.monotonic() + expected_s > self.ends:
                left += 1
                continue
            progress.step(f"{item.folder.name} {item.stem}: {len(item.entrants)} candidates")
            with turn():
                found.append((item, self._contest(item, session, bench, idle, progress)))
            progress.advance()
        if left:
            progress.tell(f"{left} of {len(work)} problems did not fit: the same command goes on with them")
        return found

    def _contest(self, item: Item, session: Session, bench: Bench, idle: float, progress: RunProgress) -> list[Window]:
        found: list[Window] = []
        with Results(item.folder, True, False, session.environment, progress.note) as results:
            try:
                for rows in contest(item.entrants, session, bench, self.recipe, idle, results.environment, item.begun):
                    if not self.recipe.check:  # whose windows are no contest
                        ENERGY.add(item.folder, *rows)
                    found += rows
            except Unsupported as error:
                progress.tell(str(error))
        return found


def told(done: Sequence[tuple[Item, list[Window]]]) -> Iterator[str]:
    """What was measured, a candidate a line."""
    for item, rows in done:
        mine = {row.candidate for row in rows}
        for one in each(facts.per_launch(load(item.folder))):
            if (one.problem, one.dtype, one.kernel, one.variant, one.device) not in mine:
                continue
            yield (
                f"{one.problem} {one.dtype} {one.kernel} {one.variant}: "
                f"{1e3 * one.joules:.4g} mJ, {one.us:.4g} us, {one.watts:.0f} W in {one.windows} "
                f"windows that are {100 * one.apart:.1f} % apart"
            )


def refused(rows: Sequence[Window]) -> Iterator[str]:
    """The windows that were refused."""
    return (f"{' '.join(row.candidate[:4])}: refused, {row.reason}" for row in rows if row.status == "refused")


def checked(rows: Sequence[Window]) -> Iterator[tuple[bool, str]]:
    """Of each candidate of a check, whether its windows agree, and by how much; and what each of them says."""
    for key in dict.fromkeys(row.candidate for row in rows):
        mine = [row for row in rows if row.candidate == key]
        same, double = facts.agreement(mine)
        fine = all(row.status == "ok" for row in mine) and max(same, double) <= facts.WITHIN
        word = "agrees" if fine else "DISAGREES"
        said = ", ".join(f"{1e3 * row.joules / max(1, row.launches):.5g}" for row in mine)
        shares = f"A/A within {same:.2%}, twice the launches within {double:.2%}"
        yield fine, f"{' '.join(key[:4])}: {word}: {shares} ({said} mJ)"
