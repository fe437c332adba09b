"""What the page opens with: is unstructured sparsity worth it, against which arithmetic, on each GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from nnzbench.facts.data import Data
from nnzbench.facts.results import ResultSet, geometric_mean, percent
from nnzbench.papers.catalogue import page_of
from nnzbench.problems.names import stem_of
from nnzbench.report.data import context
from nnzbench.report.data.series import Series, least, pick
from nnzbench.report.draw.figures import SpeedupTable
from nnzbench.report.pages.page import Page
from nnzbench.report.text import baselines, marks
from nnzbench.report.text.lead import own
from nnzbench.report.text.marks import Basis, Cuts

EXPERIMENTS = {
    "sparsert_table1": "small layers, one image or a few sentences at a time",
    "sputnik_rnn": "large recurrent layers, 32 columns and more",
}
"""The experiments that answer, and what their products are: the answer depends on the size."""
LEVELS = (0.9, 0.95)
QUESTION_LEVEL = 0.9
EVEN = 0.05
"""A geometric mean nearer to 1 than this is called even."""
RULE = (
    f"The answer is for {percent(QUESTION_LEVEL)} zeros: “yes” where the geometric mean is at least {1 + EVEN:g}× "
    f"under every policy, “no” where it is at most {1 - EVEN:g}× under every one, “even” between, else “it depends”. "
    "It is told of the tuned fp32 kernels; in brackets, where that differs, of those with fp16 values (against dense "
    "fp16) and of `untuned`."
)


TUNED = replace(own(), label="tuned: the fastest of all kernels and tilings, per problem")
HALF = replace(own("f16"), label="tuned, fp16 values: with sums in fp32")
AS_DATA = replace(own(as_data=True), label="tuned, weights as data: without code made for one matrix")
UNTUNED = Series("untuned-f32", "untuned: a rule picks kernel and tiling, nothing is measured", ("untuned",))


@dataclass(frozen=True)
class Cell:
    """Geometric mean of the rival's time over the sparse time, and on how many problems that is above 1."""

    mean: float
    wins: int
    count: int
    basis: Basis = field(default=marks.ALL_TUNED, compare=False)


@dataclass(frozen=True)
class Line:
    """One way of getting a sparse kernel against one rival.

    `cells` are in the order of the answer's columns, None where nothing was recorded.
    """

    words: str
    verdict: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Row:
    """One rival: the tuned best of this project's kernels, the same with fp16 values (against dense fp16) and without
    generated code, and what is not tuned.
    """

    rival: str
    lines: tuple[Line, ...]

    @property
    def verdict(self) -> str:
        """Of the tuned best."""
        return self.lines[0].verdict

    @property
    def untuned(self) -> str:
        """The verdict without tuning; `not recorded` where there is no such time."""
        return self.lines[-1].verdict

    @property
    def beside(self) -> str:
        """The other verdicts where they differ, `fp16 values: yes; untuned: no`."""
        told = [("fp16 values", line.verdict) for line in self.lines if line.words == HALF.label]
        told.append(("untuned", self.untuned))
        return "; ".join(f"{words}: {said}" for words, said in told if said not in (self.verdict, "not recorded"))

    @property
    def cells(self) -> tuple[Cell | None, ...]:
        """Of the tuned best."""
        return self.lines[0].cells

    @property
    def mark(self) -> str:
        """Of the verdicts: that of any number they are made of."""
        return marks.mark_of(cell.basis for line in self.lines for cell in line.cells if cell)


@dataclass(frozen=True)
class Answer:
    """The headline table of one GPU for one experiment's products."""

    gpu: str
    slug: str
    experiment: str
    products: str
    recorded: str
    columns: tuple[tuple[float, str], ...]
    """Sparsity level and policy."""
    rows: tuple[Row, ...]
    mark: str = ""
    """What the mark of the numbers means; empty where none has it."""

    @property
    def legend(self) -> tuple[Line, ...]:
        """A line of every kind, in their order."""
        kinds = {line.words: line for row in self.rows for line in row.lines}
        return tuple(kinds[one.label] for one in (TUNED, HALF, AS_DATA, UNTUNED) if one.label in kinds)


def answer(results: ResultSet, table: SpeedupTable) -> Answer:
    """Every rival that has a time; reads the sparse products of an experiment of `EXPERIMENTS`.

    Only problems that its page's first screen is about count, so that the page linked has the same numbers.
    """
    table = _told(results, baselines.products_of(table))
    policies = context.policies(results.frame)
    columns = tuple((level, policy) for level in LEVELS if level in set(table.problems["level"]) for policy in policies)
    times = {one.label: _times(results, table, one) for one in (TUNED, HALF, AS_DATA, UNTUNED)}
    rows = []
    for rival in baselines.RIVALS:
        cut = marks.cuts(results.frame, *(one for one in table.series if one.key in rival.series))
        tuned, half, as_data, untuned = (
            _line(table, columns, rival, cut, words, mine) for words, mine in times.items()
        )
        beside = [half] * (rival.half and any(half.cells)) + [as_data] * (as_data.cells != tuned.cells)
        if any(tuned.cells):
            rows.append(Row(rival.label, (tuned, *beside, untuned)))
    return Answer(
        gpu=context.gpu_name(results.gpu, results.environment),
        slug=results.gpu,
        experiment=results.experiment,
        products=EXPERIMENTS[results.experiment],
        recorded=context.recorded_on(results.environment),
        columns=columns,
        rows=tuple(rows),
        mark=marks.sentence({"": [cell.basis for row in rows for line in row.lines for cell in line.cells if cell]}),
    )


def _told(results: ResultSet, table: SpeedupTable) -> SpeedupTable:
    """The problems that the page compares."""
    page = page_of(results.experiment)
    if not isinstance(page, Page) or page.comparison is None:
        return table
    recorded = Data(results, page.attributes).problems
    told = frozenset[str]().union(*(group.problems(recorded)["problem"] for group in page.comparison.groups))
    problems = table.problems[table.problems["problem"].isin(told)]
    return replace(table, problems=problems, points=table.points[table.points["problem"].isin(told)])


def verdict(means: list[float]) -> str:
    """`yes`, `no`, `even`, `it depends` by `RULE`, or `not recorded` for no means."""
    words = {"yes" if mean >= 1 + EVEN else "no" if mean <= 1 - EVEN else "even" for mean in means}
    if not words:
        return "not recorded"
    return words.pop() if len(words) == 1 else "it depends"


def _times(results: ResultSet, table: SpeedupTable, series: Series) -> tuple[Cuts, dict[str, pd.Series[float]]]:
    """What was not tuned, and microseconds by problem, under each policy, on the table's problems."""
    rows = pick(results.frame[results.frame["problem"].isin(set(table.problems["problem"]))], series)
    times = {str(policy): mine.set_index("problem")["median_us"] for policy, mine in rows.groupby("policy")}
    return marks.cuts(results.frame, series), times


def _line(
    table: SpeedupTable,
    columns: Sequence[tuple[float, str]],
    rival: baselines.Rival,
    cut: Cuts,
    words: str,
    mine: tuple[Cuts, Mapping[str, pd.Series[float]]],
) -> Line:
    cells = tuple(_cell(table, level, policy, rival, cut, mine) for level, policy in columns)
    asked = [cell.mean for cell, (level, _) in zip(cells, columns, strict=True) if level == QUESTION_LEVEL and cell]
    return Line(words, verdict(asked), cells)


def _cell(
    table: SpeedupTable,
    level: float,
    policy: str,
    rival: baselines.Rival,
    cut: Cuts,
    mine: tuple[Cuts, Mapping[str, pd.Series[float]]],
) -> Cell | None:
    ours, times = mine
    if policy not in times:
        return None
    here = table.points[(table.points["policy"] == policy) & (table.points["level"] == level)]
    values = (least(here, rival.series) / times[policy]).dropna()
    if values.empty:
        return None
    stems = {stem_of(str(problem)) for problem in values.index}
    on = marks.basis((cut, stems), (ours, stems), policy=policy)
    return Cell(geometric_mean(values), int((values > 1).sum()), len(values), on)
