"""What an experiment's page is made of: plain data that names what is asked, compared, drawn and found.

The words and numbers follow in `report.render`; every ratio becomes a row of `facts.csv` as it is shown. An
experiment has its page from a function of its name, which returns one `Page`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import pandas as pd

from nnzbench.report.text import gpu_name
from nnzbench.results import table
from nnzbench.results.data import Data
from nnzbench.results.groups import ALL, Group
from nnzbench.results.result_set import ResultSet, each
from nnzbench.results.selector import Selector, present
from nnzbench.results.table import Comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Value = Literal["ratio", "time", "rate", "roofline", "memory"]
"""Times as fast as the baseline; median µs; useful TFLOP/s; percent of the roofline; MB of device memory."""


Rows = Iterator[dict[str, object]]
"""Of a table, cells by what stands above them."""
COLUMN = {"time": "median_us", "rate": "tflops", "roofline": "roofline", "memory": "memory_mb"}
"""Of `View.cells`, by the value asked for."""
NEAR_LEVEL = 0.25
"""Points by which counted zeros may be off a level before they are told beside it."""


class View(Data):
    """One experiment on one GPU as its page sees it."""

    def __init__(self, results: ResultSet, attributes: str = "") -> None:
        super().__init__(results, attributes)
        self.gpu = gpu_name(results.gpu, results.environment)
        self._asked: dict[tuple[Comparison, Data], pd.DataFrame] = {}

    @property
    def policy(self) -> str:
        """The page's, which its tables are of: as inside a model where that was recorded, else the first."""
        return "stream" if "stream" in self.policies else next(iter(self.policies), "")

    def recorded(self, selectors: Sequence[Selector]) -> tuple[Selector, ...]:
        """Those that have a time."""
        have = {name for name, _ in present(self.frame)}
        return tuple(one for one in selectors if (not one.kernels or have & set(one.kernels)) and len(self.times(one)))

    def compare(self, asked: Comparison, data: Data | None = None) -> pd.DataFrame:
        """Facts, with the attributes `by` as columns; what is asked here ends in `facts.csv`.

        `data`: what to compare where it is more than the page's own records.
        """
        key = (asked, data or self)
        if key not in self._asked:
            self._asked[key] = table.compare(key[1], asked)
        return self._asked[key]

    def cells(self, selectors: Sequence[Selector], group: Group = ALL, policy: str = "") -> pd.DataFrame:
        """Times of problems of a group with their attributes, and tflops, roofline (percent), memory_mb, subject; of
        one policy or of all."""
        rows = super().cells(selectors)
        rows = rows[rows["problem"].isin(self.of(group)["problem"])]
        rows = rows[rows["policy"] == policy] if policy else rows
        return rows.assign(
            tflops=rows["gflops"] / 1e3, roofline=100 * rows["limit_share"], memory_mb=rows["memory_bytes"] / 1e6
        )

    def counted(self, group: Group) -> str:
        """`95.0 to 96.0 % as counted`: the zeros of a group's problems; empty where they are those that it names."""
        found = self.of(group)
        zeros = 100 * found["sparsity"][~found["label"].map(group.dense_part).astype(bool)]
        if group.level is None or zeros.empty or (zeros - group.level).abs().max() < NEAR_LEVEL:
            return ""
        return f"{' to '.join(dict.fromkeys(f'{one:.1f}' for one in (zeros.min(), zeros.max())))} % as counted"

    def names(self) -> dict[str, str]:
        """What to call each problem: its label, with its size where several sizes have that label."""
        found = self.problems
        sizes = found.groupby("label")["size"].nunique()
        return {row.problem: row.label if sizes[row.label] == 1 else f"{row.label} {row.size}" for row in each(found)}

    def facts(self) -> pd.DataFrame:
        """Every fact that was asked, each once, in the order of asking."""
        parts = [found[table.COLUMNS] for found in self._asked.values() if len(found)]
        if not parts:
            return pd.DataFrame(columns=table.COLUMNS)
        return pd.concat(parts, ignore_index=True).drop_duplicates(table.KEY, ignore_index=True)


@dataclass(frozen=True)
class Answer:
    """One ratio, and what stands beside it; the page's first one is its verdict."""

    group: Group
    subject: Selector
    baseline: Selector
    """The strongest that a user could call today."""
    beside: tuple[Selector, ...] = ()
    """Further subjects over the same baseline."""
    paper_baseline: Selector | None = None
    """What the paper divided by, where that is another; told second, beside the paper's number."""
    claim: str = ""
    """Of `claims.csv`: the paper's number."""


@dataclass(frozen=True)
class RatioTable:
    """Rows: subjects in groups; columns: baselines; in a cell the ratio under the page's policy, with its wins."""

    title: str
    comparison: Comparison
    collapsed: bool = True


@dataclass(frozen=True)
class Pivot:
    """One value by two sets of attributes of problems, under the page's policy."""

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
class Made:
    """A table that needs code of its own; `why` says what no other kind can show."""

    title: str
    make: Callable[[View], pd.DataFrame | Rows | None]
    """Cells are texts or numbers. Ratios come from `View.compare`, never from a division."""
    why: str
    collapsed: bool = True


Table = RatioTable | Pivot | Crossings | Made


@dataclass(frozen=True)
class Printed:
    """A paper's own numbers on its own GPU, drawn as hollow diamonds."""

    label: str
    """Such as `paper, T4`."""
    make: Callable[[View], pd.DataFrame]
    """Columns: the figure's `x` (and `panels`, where it has some) and `value`."""


@dataclass(frozen=True)
class Plot:
    """What bars, dots and lines show: a value of each series along an attribute `x` of problems."""

    name: str
    """File name without ending."""
    title: str
    series: tuple[Selector, ...]
    baseline: Selector | None = None
    """Of `ratio`."""
    x: str = "label"
    panels: str = ""
    """An attribute with a panel for each value."""
    group: Group = ALL
    value: Value = field(default="ratio", kw_only=True)
    printed: Printed | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Bars(Plot):
    """Grouped bars: a group per value of `x` (geometric means where several problems fall into one), a bar a series."""


@dataclass(frozen=True)
class Dots(Plot):
    """Ratios problem by problem: a marker per series along the problems, panels by an attribute; 1x is the baseline."""

    panels: str = "level"


@dataclass(frozen=True)
class Lines(Plot):
    """A line per series along a number; panels by an attribute. Several problems at one place give their mean."""

    x: str = "level"
    lines: str = ""
    """An attribute whose values are lines of their own, of the first series."""
    log_x: bool = False


@dataclass(frozen=True)
class Map:
    """Where sparsity pays (`nearby.cells`): columns across, zeros up, a panel for each of `nearby.SIZES` that has some.

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

    question: str = ""
    """That of its experiment, from `datasets/experiments.csv`."""
    intro: str = ""
    """What is run: sizes, sources, what is peculiar. From `datasets/experiments.md`."""
    words: Mapping[str, object] = field(default_factory=dict)
    """What stands there for a word in braces."""
    answers: tuple[Answer, ...] = ()
    """The first with records is the page's verdict; the others are in `facts.csv`, and first where time is short."""
    comparison: Comparison | None = None
    """The first screen's table, open to see."""
    figures: tuple[Figure, ...] = ()
    """The first one stands on the first screen."""
    tables: tuple[Table, ...] = ()
    """The first short one that is not collapsed stands on the first screen, the others open on a click."""
    facts: tuple[Comparison, ...] = ()
    """What `facts.csv` has and nothing draws."""
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
