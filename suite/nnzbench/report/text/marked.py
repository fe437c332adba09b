"""The mark behind names in the tables and legends of a page, where what is named was not tuned on all problems.

First screens mark numbers (`lead.py`); below them a name stands for many, so the name has the mark, and one sentence on
the page says what it means. The page declares the series whose labels it shows (`PageSpec.series`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Text

from nnzbench.kernels.registry import dense_libraries
from nnzbench.report.data.series import BEST, Series, speedup_series
from nnzbench.report.text import baselines
from nnzbench.report.text.marks import MARK, WORDS, cuts

SENTENCE = (
    f"{MARK} in tables and legends: {WORDS}. On some of the problems the run did not try all candidates of what is "
    "named ([on how many](#what-is-missing)); what words say of it is of the same times. Tuned, it may be faster."
)
UNNAMED = "On some of the problems the run did not try all candidates of a kernel ([of which](#what-is-missing))."
"""Of a page none of whose names has the mark."""
_CELL = re.compile(r"(?<!\\)\|")
_CAPTION = f" {MARK} {WORDS}."


def labels(
    frame: pd.DataFrame, series: Iterable[Series], policy: str, shown: Sequence[pd.DataFrame] | None
) -> frozenset[str]:
    """Labels of the series that have rows of kernels which were not tuned, under a policy or (empty) under any.

    Counted are the problems and types of the rows `shown` alone, all for None: what was tuned there has no mark, even
    if the same name stands for more elsewhere on the page.
    """
    rows = frame[(frame["cut_short"] != "") & ((frame["policy"] == policy) | (policy == ""))]
    if shown is not None:
        keys = {key for one in shown for key in zip(one["problem"], one["dtype"], strict=True)}
        rows = rows[[key in keys for key in zip(rows["problem"], rows["dtype"], strict=True)]]
    return frozenset().union(*(_called(one) for one in series if cuts(rows, one))) if len(rows) else frozenset()


def _called(one: Series) -> set[str]:
    """Its label; also without what is before `: `."""
    return {one.label, one.label.partition(": ")[2] or one.label}


def known(frame: pd.DataFrame, named: Iterable[Series]) -> list[Series]:
    """A page's own series, and every kernel by its usual names but those that the page means something else by."""
    own = list(dict.fromkeys(named))
    taken = {label for one in own for label in _called(one)}
    return [*own, *(one for one in usual(frame) if one.label not in taken)]


def usual(frame: pd.DataFrame) -> list[Series]:
    """Every kernel by the names that pages share."""
    rivals = ((rival.label, *key.rsplit("-", 1)) for rival in baselines.RIVALS for key in rival.series)
    return [
        *speedup_series(frame, Series("none", "", ("none",))),
        *(replace(BEST, label=label) for label in ("best sparse kernel", "this project's best")),
        replace(BEST, label="best fp16 kernel", math="f16"),
        Series("dense-f16", "best dense fp16", dense_libraries("f16"), "f16"),
        *(Series(f"{kernel}-{math}", label, (kernel,), math) for label, kernel, math in rivals),
    ]


def any_cut(frame: pd.DataFrame) -> bool:
    """Whether a checked time is of a kernel that was not tuned on the problem."""
    return "cut_short" in frame and bool(((frame["cut_short"] != "") & frame["median_us"].notna()).any())


def sentence(frame: pd.DataFrame, marked: bool) -> str:
    """What a page says of them below its first screen; `marked`: whether a name on it has the mark."""
    return "" if not any_cut(frame) else SENTENCE if marked else UNNAMED


def table(text: str, labels: Set[str], gpu: str) -> str:
    """A Markdown table, or what holds one, with the mark behind these labels in its header and its left columns.

    Behind a label may stand a unit, this GPU, a level, or what it is divided by; published numbers have no mark.
    """
    if not labels:
        return text
    one_of = "|".join(re.escape(label) for label in sorted(labels, key=len, reverse=True))
    here = re.escape(gpu)
    more = rf"(?:, (?:\d|{here}|one head).*)?"
    first = re.compile(rf"^( \**(?:{here}: )?)({one_of})(?=\**(?: \(.*| over .*| against|{more}) $)")
    last = re.compile(rf"^((?! the paper| paper:).* over | over )({one_of})(?=\**{more} $)")
    lines = text.split("\n")
    left = 0
    for at, line in enumerate(lines):
        if not line.startswith("|"):
            continue
        if line.startswith("| :--"):
            left = line.count(":--")
            continue
        cells = _CELL.split(line)
        header = lines[at + 1 : at + 2] != [] and lines[at + 1].startswith("| :--")
        if not header and (line.startswith("| the paper") or "published" in line):
            continue
        end = len(cells) if header else left + 1
        cells[:end] = [last.sub(rf"\1\2{MARK}", first.sub(rf"\1\2{MARK}", cell)) for cell in cells[:end]]
        lines[at] = "|".join(cells)
    return "\n".join(lines)


def legend(figure: Figure, labels: Set[str], gpu: str = "") -> bool:
    """Puts the mark behind these labels in the figure's legends, and what it means into its caption; whether it did.

    Before a label may stand this GPU, or that it is divided by, and behind it a level and the paper's number. Panels
    whose title says what 1× is have no entry of a legend for it: there the title has the mark.
    """
    if not labels:
        return False
    legends = [*figure.legends, *(axis.get_legend() for axis in figure.axes)]
    texts = [text for one in legends if one is not None for text in one.get_texts()]
    one_of = "|".join(map(re.escape, labels))
    before = rf"(?:1× = |over |{re.escape(gpu)}: )?"
    name = re.compile(rf"({before}(?:{one_of})(?: at [\d.]+ % zeros)?)( \(the paper: .*\))?")
    found = []
    for text in texts:
        if (said := name.fullmatch(text.get_text())) is not None:
            text.set_text(f"{said[1]}{MARK}{said[2] or ''}")
            found.append(text)
    base = re.compile(rf"(?<=: 1× is )({one_of})(?=,|$)")
    titles = (one for axis in figure.axes for one in axis.get_children() if isinstance(one, Text))
    for title in titles:  # on whichever side of its axis it stands
        if base.search(title.get_text()):
            title.set_text(base.sub(rf"\1{MARK}", title.get_text()))
            found.append(title)
    if found and len(figure.texts) > 1:
        lines = figure.texts[1].get_text().split("\n")
        shortest = min(range(len(lines)), key=lambda at: len(lines[at]))
        lines[shortest] += _CAPTION
        figure.texts[1].set_text("\n".join(lines))
    return bool(found)
