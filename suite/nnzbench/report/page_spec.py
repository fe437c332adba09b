"""What a page declares of itself, and the one builder of all that pages share.

A page's own module has data, drawing and words; the builder goes through the policies, names titles, headings and
files, saves figures, and collects what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import pandas as pd
from matplotlib.figure import Figure

from nnzbench.facts import host_time
from nnzbench.facts.results import ResultSet
from nnzbench.report.data import context, sessions, spread
from nnzbench.report.data.series import Series, standing
from nnzbench.report.draw import layout, style
from nnzbench.report.draw.figures import SpeedupTable
from nnzbench.report.text import lead as leading
from nnzbench.report.text import marked, marks
from nnzbench.report.text.fastest import NO_TIMES, Lost, missing, summary, unknown_problems
from nnzbench.report.text.lead import Lead
from nnzbench.report.text.pages import FP32_TEXT, Page, Section

Data = TypeVar("Data")
Drawn = SpeedupTable | pd.DataFrame
"""What `summary.csv` holds: exactly what is drawn."""
Cut = Callable[[str, Sequence[pd.DataFrame] | None], frozenset[str]]
"""By policy and rows shown (`marked.labels`): the names of what was not tuned."""
_ROW = ["problem", "dtype", "kernel", "variant", "policy"]


@dataclass(frozen=True)
class View(Generic[Data]):
    """What every function of a page is given: its data, and in a section the policy and the title."""

    data: Data
    gpu: str
    """The GPU's name; empty where nothing is run."""
    recorded: ResultSet | None
    policy: str = ""
    """Empty outside the sections of a policy."""
    title: str = ""

    @property
    def results(self) -> ResultSet:
        """The records. Raises `ValueError` on the page of an experiment that runs nothing."""
        if self.recorded is None:
            raise ValueError("this page is drawn from no records")
        return self.recorded

    @property
    def frame(self) -> pd.DataFrame:
        """One line per record."""
        return self.results.frame

    @property
    def policies(self) -> list[str]:
        """Policies with a time, hot first."""
        return context.policies(self.frame) if self.recorded else []

    def of(self, problems: Iterable[str]) -> pd.DataFrame:
        """The rows of these problems under the section's policy, or under any."""
        rows = self.frame[self.frame["problem"].isin(set(problems))]
        return rows[rows["policy"] == self.policy] if self.policy else rows

    @property
    def policy_sentence(self) -> str:
        """What the policy means, for a caption."""
        return context.sentence(context.policy_text(self.policy))


class TableOf(NamedTuple):
    """A table of some of a section's problems alone: a name in it has the mark by what was not tuned on these."""

    text: str
    """Markdown."""
    rows: pd.DataFrame
    """Whose problems and types it is of: none where all of it is published, or its lines have the mark themselves."""


class Shown(NamedTuple):
    """What a section shows (empty tables are left out), and what it has for the page's gaps and its summary."""

    figure: Figure | None
    finding: str = ""
    tables: Iterable[str | TableOf] = ()
    """Markdown."""
    gaps: Iterable[str] = ()
    """Sentences that name what is not there."""
    lost: Iterable[Lost] = ()
    """Times that are not there: what is missing in the same rows becomes one sentence."""
    headline: str = ""
    """Title of the figure; empty for what was found over the section's group of the lead."""
    lines: Iterable[Mapping[str, Any] | None] = ()
    """Of `summary.csv`, where the page has `published` ones to set beside."""
    drawn: Sequence[pd.DataFrame] = ()
    """The rows that the figure shows, by part of it whose times are compared with none of another part's, such as a
    panel of each type; none for all of the section's policy, in all types of a problem."""
    unit: str = "problems"
    """What the figure compares, in words, where `drawn` has a column `sessions.WHOLE`."""
    names: Mapping[str, str] | tuple[()] = ()
    """What the figure calls recorded problems, where it has other names than the page's `problem_names`."""


@dataclass(frozen=True)
class SectionSpec(Generic[Data]):
    """A section that stands under every policy, or once, before or after those."""

    stem: str
    """File name of its figure without the policy."""
    title: str | Callable[[View[Data]], str]
    """Of the figure: words before `on <GPU>, <policy> policy`, or the whole; empty for the page's own."""
    show: Callable[[View[Data]], Shown | None]
    """Draws it in the style of all figures; None where the policy has nothing to show."""
    heading: str = ""
    """Before the policy, where a page has several sections."""
    alt: str = ""
    """What the figure is described by, where not by its title."""
    group: int | None = None
    """Which of the lead's groups the figure's title states the finding of; the page's first figure states the first."""
    once: bool = False
    first: bool = False
    """Of one that stands once: before those of the policies."""


_ROW = ["problem", "kernel", "variant", "math", "policy"]
"""What one recorded time is of; several curves may draw it."""


def _same(view: View[Any]) -> Drawn:
    drawn: Drawn = view.data
    return drawn


def _none(view: View[Any]) -> tuple[()]:
    return ()


def _nothing(policy: str, shown: Sequence[pd.DataFrame] | None) -> frozenset[str]:
    return frozenset()


def _no_data(results: ResultSet) -> Any:
    return None


@dataclass(frozen=True)
class PageSpec(Generic[Data]):
    """The page of one experiment. What a function is not needed for has a default."""

    title: str
    """Before `on <GPU>`; empty for the experiment's name."""
    intro: str | Callable[[View[Data]], str]
    sections: tuple[SectionSpec[Data], ...]
    data: Callable[..., Data] = _no_data
    """What the sections share, from the `ResultSet`; from nothing where the experiment runs nothing."""
    gaps: Callable[[View[Data]], Iterable[str]] = _none
    """Sentences that name what is not there and that belong to no section of a policy."""
    summary: Callable[[View[Data]], Drawn] = _same
    """For `summary.csv`; the data themselves by default."""
    published: Callable[[], Iterable[Mapping[str, Any]]] | None = None
    """Lines of the paper: `summary.csv` then has those of the sections and these."""
    problem_names: Callable[[View[Data]], Mapping[str, str] | tuple[()]] = _none
    """Short names of problems for the table of failures; recorded ones that are not among them are named as gaps."""
    math_text: str = FP32_TEXT
    by_section: bool = False
    """Each section under every policy before the next one; otherwise each policy with all its sections."""
    lead: Lead | None = None
    """Question and answer on the first screen; None for one made of what is recorded."""
    series: Callable[[View[Data]], Iterable[Series]] = _none
    """Those whose labels stand in its tables and legends, beside kernels by their usual names (`marked.usual`)."""
    timed: bool = True
    """Whether it tells times below its first screen, which may be before tuning."""
    table: Callable[[ResultSet], SpeedupTable] | None = None
    """Its speed-ups, where `index.html` should show others than the generic page has."""


def assemble(spec: PageSpec[Data], folder: Path, results: ResultSet | None = None) -> tuple[Page, Drawn]:
    """Draws the figures in `folder`; the page, and what is drawn. Without `results` it is drawn from the data sets."""
    gpu = context.gpu_name(results.gpu, results.environment) if results else ""
    lead = spec.lead or (leading.of_anything(results) if results else None)
    view = View(spec.data(results) if results else spec.data(), gpu, results)
    name = spec.title or view.results.experiment
    repeated = [part for part in spec.sections if not part.once]
    if spec.by_section:
        order = [(part, policy) for part in repeated for policy in view.policies]
    else:
        order = [(part, policy) for policy in view.policies for part in repeated]
    alone = [part for part in spec.sections if part.once]
    cells = leading.cells_of(lead, results.frame, view.policies) if lead and results else {}

    def found(part: SectionSpec[Data], policy: str) -> str:
        """What the figure's title states."""
        group = 0 if part.group is None and part is spec.sections[0] else part.group
        if lead is None or group is None or group >= len(lead.groups) or not view.policies:
            return ""
        return leading.headline(lead, cells, lead.groups[group], policy or view.policies[0])

    cut: Cut = _nothing
    if results and spec.timed and marked.any_cut(results.frame):
        told = (*lead.sides, *lead.rivals) if lead else ()
        cut = partial(marked.labels, results.frame, marked.known(results.frame, (*told, *spec.series(view))))

    names = dict(spec.problem_names(view))

    def shown_as(part: SectionSpec[Data], policy: str = "") -> tuple[Section, Shown] | None:
        here = replace(view, policy=policy)
        return _show(part, here, name, folder, found(part, policy), partial(cut, policy), names)

    made = [shown_as(part) for part in alone if part.first]
    made += [shown_as(part, policy) for part, policy in order]
    gaps = [NO_TIMES] if results and not any(made) else []
    made += [shown_as(part) for part in alone if not part.first]
    sections, shown = [one[0] for one in made if one], [one[1] for one in made if one]
    gaps += [*spec.gaps(view), *(gap for one in shown for gap in one.gaps)]
    gaps += missing(lost for one in shown for lost in one.lost)
    page = Page(
        title=f"{name} on {gpu}" if gpu else name,
        intro=spec.intro if isinstance(spec.intro, str) else spec.intro(view),
        sections=tuple(sections),
        lead=leading.screen(lead, cells, view.policies) if lead and results else None,
        gaps=(*gaps, *(unknown_problems(view.frame, names) if names else [])),
        problem_names=names,
        math_text=spec.math_text,
        mark=marked.sentence(results.frame, any(one.marked for one in sections)) if results and spec.timed else "",
    )
    if spec.published is None:
        return page, spec.summary(view)
    return page, summary([*(line for one in shown for line in one.lines), *spec.published()])


def _show(
    part: SectionSpec[Data],
    view: View[Data],
    page: str,
    folder: Path,
    found: str,
    cut: Callable[[Sequence[pd.DataFrame] | None], frozenset[str]],
    names: Mapping[str, str],
) -> tuple[Section, Shown] | None:
    """Draws and saves a section's figure under the title `found`, or its own for none; None for nothing to show.

    Names that `cut` has of the rows that are shown get the mark, in tables and in the figure's legend.
    """
    title = _under(part.title or page, view) if isinstance(part.title, str) else part.title(view)
    with style.styled():
        shown, in_legend = part.show(replace(view, title=title)), False
        if shown is None:
            return None
        stem = layout.stem(part.stem, view.policy) if view.policy else part.stem
        if shown.figure is not None:
            layout.retitle(shown.figure, title, shown.headline or found, view.policy_sentence if view.policy else "")
            in_legend = marked.legend(shown.figure, cut(shown.drawn or None), view.gpu)
            style.save(shown.figure, folder / f"{stem}.svg")
        else:
            (folder / f"{stem}.svg").unlink(missing_ok=True)  # of an earlier report, which the page shows no more
    tables = [
        marked.table(one.text, cut([one.rows]), view.gpu)
        if isinstance(one, TableOf)
        else marked.table(one, cut(None), view.gpu)
        for one in shown.tables
    ]
    heading = f"{part.heading}, {view.policy} policy" if part.heading else f"{view.policy.capitalize()} policy"
    section = Section(
        heading=heading if view.policy else part.heading,
        text=shown.finding,
        figure=stem if shown.figure is not None else "",
        figure_alt=_under(part.alt, view) if part.alt else title,
        tables=tuple(tables),
        note=_note(view, shown, names) if view.recorded and shown.figure is not None else "",
        marked=in_legend or any(marks.MARK in text for text in tables),
    )
    return section, shown


def _note(view: View[Any], shown: Shown, names: Mapping[str, str]) -> str:
    """What has to be said at the figure of the rows that it shows."""
    frame = view.frame[view.frame["policy"] == view.policy] if view.policy else view.frame
    parts = shown.drawn or [frame]
    several = sessions.note(parts, view.results.environments, shown.unit)
    every = pd.concat(parts).drop_duplicates(_ROW)
    far = spread.note(every if shown.drawn else standing(frame), {**names, **dict(shown.names)})
    return " ".join(filter(None, (several, far, host_time.note(every))))


def _under(words: str, view: View[Data]) -> str:
    return f"{words} on {view.gpu}, {view.policy} policy" if view.policy else words
