"""What the page opens with: is unstructured sparsity worth it, against which arithmetic, on each GPU."""

from __future__ import annotations

from dataclasses import dataclass

from nnzbench.report.data import context
from nnzbench.report.data.frames import ResultSet, geometric_mean, percent
from nnzbench.report.draw.figures import SpeedupTable
from nnzbench.report.text import baselines

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
    f"under every policy, “no” where it is at most {1 - EVEN:g}× under every one, “even” between, else “it depends”."
)


@dataclass(frozen=True)
class Cell:
    """Geometric mean of the rival's time over the best sparse time, and on how many problems that is above 1."""

    mean: float
    wins: int
    count: int


@dataclass(frozen=True)
class Row:
    """One rival. `cells` are in the order of the answer's columns, None where nothing was recorded."""

    rival: str
    verdict: str
    cells: tuple[Cell | None, ...]


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


def answer(results: ResultSet, table: SpeedupTable) -> Answer:
    """Every rival that has a time; reads the sparse products of an experiment of `EXPERIMENTS`."""
    table = baselines.products_of(table)
    policies = context.policies(results.frame)
    columns = tuple((level, policy) for level in LEVELS if level in set(table.problems["level"]) for policy in policies)
    rows = []
    for rival in baselines.RIVALS:
        cells = tuple(_cell(table, level, policy, rival) for level, policy in columns)
        asked = [cell for cell, (level, _) in zip(cells, columns, strict=True) if level == QUESTION_LEVEL and cell]
        if any(cells):
            rows.append(Row(rival.label, verdict([cell.mean for cell in asked]), cells))
    return Answer(
        gpu=context.gpu_name(results.gpu, results.environment),
        slug=results.gpu,
        experiment=results.experiment,
        products=EXPERIMENTS[results.experiment],
        recorded=context.recorded_on(results.environment),
        columns=columns,
        rows=tuple(rows),
    )


def verdict(means: list[float]) -> str:
    """`yes`, `no`, `even`, `it depends` by `RULE`, or `not recorded` for no means."""
    words = {"yes" if mean >= 1 + EVEN else "no" if mean <= 1 - EVEN else "even" for mean in means}
    if not words:
        return "not recorded"
    return words.pop() if len(words) == 1 else "it depends"


def _cell(table: SpeedupTable, level: float, policy: str, rival: baselines.Rival) -> Cell | None:
    found = baselines.ratios(table, policy, rival)
    values = found.loc[found["level"] == level, "ratio"]
    return Cell(geometric_mean(values), int((values > 1).sum()), len(values)) if len(values) else None
