"""The Markdown page of one experiment: what was found, from which files, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from nnzbench import paths
from nnzbench.facts.results import ResultSet
from nnzbench.records.files import records_file
from nnzbench.report.data import clocks, context, sessions
from nnzbench.report.text import shorter, tables
from nnzbench.report.text.lead import Screen
from nnzbench.report.text.rendering import environment

FP32_TEXT = "fp32 is IEEE fp32 with TF32 off unless a row names another arithmetic"


@dataclass(frozen=True)
class Section:
    """One heading with optional text, figure (a file stem beside the page) and tables (Markdown)."""

    heading: str
    text: str = ""
    figure: str = ""
    figure_alt: str = ""
    tables: tuple[str, ...] = ()
    note: str = ""
    """What has to be said at the figure, such as that its rows are of several sessions."""
    marked: bool = False
    """Whether a name in its tables or in its figure's legend has the mark of what was not tuned (`marked.py`)."""


@dataclass(frozen=True)
class Page:
    """What an experiment's builder hands over; the rest is the same for every experiment."""

    title: str
    intro: str
    sections: tuple[Section, ...]
    gaps: tuple[str, ...] = ()
    """Sentences that name what is not there."""
    problem_names: dict[str, str] = field(default_factory=dict)
    """Short names of problems for the table of failures."""
    math_text: str = FP32_TEXT
    lead: Screen | None = None
    """What stands first; None on a page that is drawn from no records."""
    mark: str = ""
    """What is said below the first screen of times before tuning; empty where all kernels were tuned."""


class _Missing(NamedTuple):
    """What the page and its tables say under "what is missing"."""

    gaps: list[str]
    untuned: str
    failures: str


SUMMARY = "summary.md"


def write(page: Page, results: ResultSet) -> Path:
    """Renders `README.md` and `summary.md` in the experiment's folder and returns the path of the former."""
    missing = _Missing(
        [*results.left_out, *page.gaps],
        tables.untuned(results.frame),
        tables.failures(results.frame, page.problem_names),
    )
    text, moved = shorter.fitted(_rendered(page, results, missing), SUMMARY)
    summary = _summary(page, results, missing)
    rest = shorter.told([one for one in moved if one[1] not in summary])  # not a section's table: the environment's
    paths.write_text(results.folder / SUMMARY, "\n\n".join([summary.rstrip("\n"), *rest]) + "\n")
    return _written(results.folder, text)


def _rendered(page: Page, results: ResultSet, missing: _Missing) -> str:
    frame = results.frame
    return (
        environment()
        .get_template("experiment.md.j2")
        .render(
            page=page,
            results=results,
            gpu=context.gpu_name(results.gpu, results.environment),
            arch=str(frame["arch"].iloc[0]),
            recordings=_recordings(results),
            sessions=sessions.sentence(frame, results.environments),
            policies=[context.policy_text(policy) for policy in context.policies(frame)],
            **missing._asdict(),
            counts=frame["status"].value_counts().sort_index().to_dict(),
            rows=len(frame),
            records=records_file(results.folder).name,
            clocks=clocks.note(frame),
            summary=SUMMARY,
        )
    )


def _recordings(results: ResultSet) -> list[str]:
    """A sentence per commit that measured: rows, sessions, dates."""
    found: dict[str, list[tuple[int, str]]] = {}
    for _, count, snapshot in results.environments:
        found.setdefault(context.commit(snapshot), []).append((count, context.recorded_on(snapshot)))
    out = []
    for commit, those in found.items():
        dates = sorted({date for _, date in those if date})
        when = dates[0] if len(dates) == 1 else " to ".join((dates[0], dates[-1])) if dates else "no date"
        many = f", {len(those)} sessions" if len(those) > 1 else ""
        out.append(f"{when}, {sum(count for count, _ in those):,} rows by the code of {commit}{many}")
    return out


def _summary(page: Page, results: ResultSet, missing: _Missing) -> str:
    """The page's tables alone, what is missing in full, and what tuning cost."""
    parts = [f"# Tables: {page.title}", page.mark]
    for section in page.sections:
        parts += [f"## {section.heading}", *(table for table in section.tables if table)]
    if any(missing):
        gaps = "\n".join(f"- {gap}" for gap in missing.gaps)
        parts += ["## What is missing", gaps, missing.untuned, missing.failures]
    parts += ["## Cost of tuning", "What choosing each kernel's variants took, once per problem, outside every time."]
    parts.append(tables.tuning(results.frame, results.tuning_seconds))
    return "\n\n".join(part for part in parts if part) + "\n"


def write_unrecorded(page: Page, experiment: str, folder: Path) -> Path:
    """The same of an experiment that runs nothing: no GPU, no policies, no failures."""
    return _written(folder, environment().get_template("unrecorded.md.j2").render(page=page, experiment=experiment))


def _written(folder: Path, text: str) -> Path:
    path = folder / "README.md"
    paths.write_text(path, text)
    return path
