"""The Markdown page of one experiment: what was found, from which files, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from nnzbench import paths
from nnzbench.report.data import context, sessions
from nnzbench.report.data.frames import ResultSet
from nnzbench.report.text import tables
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


def write(page: Page, results: ResultSet) -> Path:
    """Renders `README.md` in the experiment's folder and returns its path."""
    frame = results.frame
    text = (
        environment()
        .get_template("experiment.md.j2")
        .render(
            page=page,
            results=results,
            gpu=context.gpu_name(results.gpu, results.environment),
            arch=str(frame["arch"].iloc[0]),
            recordings=[
                (name, count, context.recorded_on(found), context.commit(found))
                for name, count, found in results.environments
            ],
            policies=[context.policy_text(policy) for policy in context.policies(frame)],
            gaps=[*filter(None, [sessions.note(frame)]), *results.left_out, *page.gaps],
            counts=frame["status"].value_counts().sort_index().to_dict(),
            rows=len(frame),
            failures=tables.failures(frame, page.problem_names),
            tuning=tables.tuning(frame, results.tuning_seconds),
            facts=context.facts(results.environment),
            records=(results.folder / "records.csv").name,
        )
    )
    return _written(results.folder, text)


def write_unrecorded(page: Page, experiment: str, folder: Path) -> Path:
    """The same of an experiment that runs nothing: no GPU, no policies, no failures."""
    return _written(folder, environment().get_template("unrecorded.md.j2").render(page=page, experiment=experiment))


def _written(folder: Path, text: str) -> Path:
    path = folder / "README.md"
    paths.write_text(path, text)
    return path
