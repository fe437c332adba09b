"""The rows of fairness.py, their files and the page on them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import pandas as pd

from nnzbench.report.text.tables import markdown

LEAST_RATIO = 0.95
"""A call that takes less than this part of our row's time is a finding."""


@dataclass(frozen=True)
class Row:
    """One comparison: microseconds, the call's error as in `problems.check`, ratio = theirs / ours, or a reason."""

    problem: str
    math: str
    call: str
    theirs_us: float | None = None
    graph: bool | None = None
    """False where the call can't be captured: then it is timed as a loop, which may hold the host's own time."""
    their_error: float | None = None
    ours_us: float | None = None
    kernel: str = ""
    variant: str = ""
    ratio: float | None = None
    reason: str = ""


COLUMNS = [field.name for field in fields(Row)]
Planned = Sequence[tuple[str, str]]
"""Problem and arithmetic class of what a whole run compares."""


def save(folder: Path, rows: Sequence[Row], versions: Mapping[str, str], planned: Planned) -> None:
    """Writes the three files."""
    folder.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame([asdict(row) for row in rows], columns=COLUMNS)
    frame.to_csv(folder / "fairness.csv", index=False, lineterminator="\n")
    (folder / "versions.json").write_text(json.dumps(versions, indent=2) + "\n", encoding="utf-8")
    write_page(folder, planned)


def write_page(folder: Path, planned: Planned) -> None:
    """README.md from the other two files."""
    frame = pd.read_csv(folder / "fairness.csv")
    versions = json.loads((folder / "versions.json").read_text(encoding="utf-8"))
    (folder / "README.md").write_text(page(frame, versions, planned), encoding="utf-8", newline="\n")


def page(frame: pd.DataFrame, versions: Mapping[str, str], planned: Planned) -> str:
    """The page on a run's rows."""
    timed = frame[frame["ratio"].notna()]
    gaps = list(_gaps(frame, planned))
    missing = f" Of {_of(gaps, 'case')} there is [no time](#not-measured)." if gaps else ""
    parts = [
        f"# Public Python calls against the vendor rows on {versions['gpu']}",
        "**Question.** Are the vendors' libraries measured fairly here, or is a public Python call of the same library "
        "faster than the row that stands for it?",
        f"**Answer.** {_result(timed)}{missing}",
        "ratio = time of the call / time of the vendor row: above 1 the row is faster.",
    ]
    if len(timed):
        parts.append(markdown(["call", "comparisons", "lowest ratio", "highest", "lowest at"], _by_call(timed)))
    if not timed["graph"].astype(bool).all():
        parts.append("Rows whose `graph` is False were timed as a loop, which may hold the host's own time.")
    parts += [
        "## Not measured",
        *_why_none(frame, planned),
        "\n".join(gaps) or "Nothing is missing.",
        "## How it was measured",
        "Public calls of the libraries behind the vendor rows get the same operands (random patterns) and are checked "
        "and timed alike: hot policy, one stream, each call between two measurements of the fastest row of its "
        "arithmetic. Made by `runners/fairness.py`; every comparison is in [fairness.csv](fairness.csv).",
        markdown(["", ""], [[name.replace("_", " "), value] for name, value in versions.items()], 2),
    ]
    return "\n\n".join(parts) + "\n"


def _result(timed: pd.DataFrame) -> str:
    if timed.empty:
        return "Nothing was compared."
    worst = timed.sort_values("ratio").iloc[0]
    below = int((timed["ratio"] < LEAST_RATIO).sum())
    answer = "Not everywhere" if below else "Fairly"
    return (
        f"{answer}: of {_of(timed, 'comparison')} on {_of(timed['problem'].unique(), 'problem')} the lowest ratio is "
        f"**{worst['ratio']:.3f}** ({worst['call']}, {worst['problem']}, {worst['math']}); "
        f"{below or 'none'} {'is' if below < 2 else 'are'} below {LEAST_RATIO:g}."
    )


def _of(things: Sized, word: str) -> str:
    """`1 case`, `2 cases`."""
    return f"{len(things)} {word}{'s' * (len(things) != 1)}"


def _by_call(timed: pd.DataFrame) -> Iterator[list[str]]:
    for call, rows in timed.groupby("call", sort=False):
        worst = rows.sort_values("ratio").iloc[0]
        ends = [f"{rows['ratio'].min():.3f}", f"{rows['ratio'].max():.3f}"]
        yield [str(call), str(len(rows)), *ends, f"{worst['problem']} ({worst['math']})"]


def _gaps(frame: pd.DataFrame, planned: Planned) -> Iterator[str]:
    """Calls that gave no time, and cases without any row, as lines of a list."""
    failed = frame[frame["ratio"].isna()]
    yield from (f"* {row.call} on {row.problem} ({row.math}): {row.reason}" for row in failed.itertuples())
    yield from (f"* {name} ({math}): no row" for name, math in _without(frame, planned))


def _without(frame: pd.DataFrame, planned: Planned) -> list[tuple[str, str]]:
    """The cases without any row."""
    have = set(zip(frame["problem"], frame["math"], strict=True))
    return [one for one in planned if one not in have]


def _why_none(frame: pd.DataFrame, planned: Planned) -> Iterator[str]:
    """What a case without any row means: the rows tell whether the run ended before it, and otherwise no more."""
    lost = _without(frame, planned)
    if lost and lost == list(planned)[-len(lost) :]:
        last = "is the last" if len(lost) == 1 else f"are the last {len(lost)}"
        yield (
            f"*No row*: {'this' if len(lost) == 1 else 'these'} {last} of the {len(planned)} cases in the order in "
            "which a run takes them and writes their rows: it ended before it came to them."
        )
    elif lost:
        yield (
            "*No row*: the run ended before it came to the case, or no library that was installed has a call for it; "
            "the rows do not tell which."
        )
