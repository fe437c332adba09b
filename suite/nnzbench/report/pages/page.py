"""What an experiment's page is made of: plain data that names what is asked, compared, drawn and found.

The words and numbers follow in `report.render`; every ratio becomes a row of `facts.csv` as it is shown. An
experiment has its page from a function of its name, which returns one `Page`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from nnzbench.facts.groups import ALL, Group
from nnzbench.facts.selector import Selector
from nnzbench.facts.table import Comparison

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Drawing

    from nnzbench.report.pages.view import View

Value = Literal["ratio", "time", "rate", "roofline", "memory"]
"""Times as fast as the baseline; median µs; useful TFLOP/s; percent of the roofline; MB of device memory."""


@dataclass(frozen=True)
class Answer:
    """A sentence of the page's answer: one ratio, and what stands beside it."""

    group: Group
    subject: Selector
    baseline: Selector
    """The strongest that a user could call today."""
    beside: tuple[Selector, ...] = ()
    """Further subjects over the same baseline."""
    paper_baseline: Selector | None = None
    """What the paper divided by, where that is another; told second."""
    claim: str = ""
    """Of `claims.csv`: the paper's number."""


@dataclass(frozen=True)
class RatioTable:
    """Rows: subjects in groups; columns: baselines; in a cell the ratio under each policy, with its wins."""

    title: str
    comparison: Comparison
    collapsed: bool = True


@dataclass(frozen=True)
class Pivot:
    """One value by two sets of attributes of problems."""

    title: str
    series: tuple[Selector, ...]
    value: Value = "time"
    baseline: Selector | None = None
    """Of `ratio`."""
    rows: tuple[str, ...] = ("label", "size")
    """Attributes (columns of `Data.problems`, or `subject`)."""
    columns: str = "subject"
    group: Group = ALL
    """Where several problems fall into a cell it has their geometric mean."""
    collapsed: bool = True


@dataclass(frozen=True)
class Crossings:
    """From how many zeros on the subject is as fast as the baseline, interpolated between levels recorded."""

    title: str
    subject: Selector
    baseline: Selector
    rows: tuple[str, ...] = ("label",)
    columns: str = "n"
    group: Group = ALL
    collapsed: bool = False


@dataclass(frozen=True)
class Published:
    """Columns of `datasets/published/<name>.csv` as the paper prints them."""

    title: str
    name: str
    columns: dict[str, str] = field(default_factory=dict)
    """What each is called here; all columns by their own names for none."""
    where: str = ""
    """Condition on its lines (`pandas.DataFrame.query`)."""
    collapsed: bool = True


@dataclass(frozen=True)
class Made:
    """A table that needs code of its own; `why` says what no other kind can show."""

    title: str
    make: Callable[[View], pd.DataFrame | None]
    """Cells are texts or numbers; None for nothing to show. Ratios come from `View.compare`, never from a division."""
    why: str
    collapsed: bool = True


Table = RatioTable | Pivot | Crossings | Published | Made


@dataclass(frozen=True)
class Printed:
    """A paper's own numbers on its own GPU, drawn as hollow diamonds."""

    label: str
    """Such as `paper, T4`."""
    make: Callable[[View], pd.DataFrame]
    """Columns: the figure's `x` (and `panels`, where it has some) and `value`."""


@dataclass(frozen=True)
class Dots:
    """Ratios problem by problem: a marker per series along the problems, panels by an attribute; 1x is the baseline."""

    name: str
    """File name without ending."""
    title: str
    series: tuple[Selector, ...]
    baseline: Selector
    x: str = "label"
    panels: str = "level"
    group: Group = ALL
    printed: Printed | None = None


@dataclass(frozen=True)
class Bars:
    """Grouped bars: a group per value of `x` (geometric means where several problems fall into one), a bar a series."""

    name: str
    title: str
    series: tuple[Selector, ...]
    value: Value = "ratio"
    baseline: Selector | None = None
    x: str = "label"
    panels: str = ""
    group: Group = ALL
    printed: Printed | None = None


@dataclass(frozen=True)
class Lines:
    """A line per series along a number; panels by an attribute. Several problems at one place give their mean."""

    name: str
    title: str
    series: tuple[Selector, ...]
    value: Value = "ratio"
    baseline: Selector | None = None
    x: str = "level"
    panels: str = ""
    group: Group = ALL
    lines: str = ""
    """An attribute whose values are lines of their own, of the first series."""
    log_x: bool = False
    printed: Printed | None = None


@dataclass(frozen=True)
class Map:
    """Where sparsity pays (`facts.cells`): columns across, zeros up, a panel for each of `cells.SIZES` that has some.

    Colour is the best sparse over the best dense product, the line is 1x, and each region has its winner's name.
    """

    name: str
    title: str
    math: str = "f16"
    policy: str = "hot"


@dataclass(frozen=True)
class Drawn:
    """A figure that needs code of its own; `why` says what no other kind can show."""

    name: str
    title: str
    draw: Callable[[View, str], Drawing | None]
    """Of the view and the title."""
    why: str


class Figure(Protocol):
    """Of any kind: a frozen dataclass with these two, which a function under `report.draw.kinds.drawing` draws."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...


@dataclass(frozen=True)
class Page:
    """The page of one experiment. What is empty is left out."""

    question: str
    """Without a number that is measured."""
    intro: str
    """What is run: sizes, sources, what is peculiar. Markdown."""
    answers: tuple[Answer, ...] = ()
    comparison: Comparison | None = None
    """The first screen's table, open to see."""
    figures: tuple[Figure, ...] = ()
    """The first one stands on the first screen."""
    tables: tuple[Table, ...] = ()
    energy: Comparison | None = None
    """Whose joules `nnzbench energy` measures, and over whose they are shown; None for an experiment without any."""
    findings: tuple[Callable[[View], str], ...] = ()
    """Sentences about `View.facts`, empty where these are not recorded."""
    attributes: str = ""
    """Regular expression of problems' labels whose named groups are further attributes."""
    baseline: Selector | None = None
    """1x of the experiment in index.html; None for the first of `comparison`."""
    arithmetic: str = "fp32 is IEEE fp32 with TF32 off unless a row names another arithmetic"
    made: Callable[[View], str] | None = None
    """The answer of a page that compares nothing, such as how many candidates were right."""
