"""SparseRT's 257 instances: the matrices of one size and level take the same time, whatever their pattern."""

from __future__ import annotations

import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.facts.results import each
from nnzbench.facts.selector import CUBLAS, CUSPARSE, DENSE, FP16, kernel
from nnzbench.facts.spread import spread
from nnzbench.facts.table import Comparison
from nnzbench.papers.sparsert import PAPER
from nnzbench.problems.experiment import Experiment, dtypes_of
from nnzbench.report.pages.page import Made, Page, RatioTable
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    "sparsert_instances",
    "Every matrix behind table 1",
    PAPER,
    "Sections 3.7 and 4.1, told in words",
    dtypes_of("sparsert_paper", "cusparse", cublas=("f32", "f16")),
)
SIDES = (kernel("sparsert_paper"), CUSPARSE)
SIZES = ("row", "size", "level")
"""Of problems whose instances should take the same."""
LEVELS = (Group(level=90), Group(level=95))


def _spread(view: View) -> pd.DataFrame:
    """One line per problem of table 1 and kernel: how far its instances are apart, hot."""
    found = spread(view.data, SIDES, SIZES).query("policy == 'hot'")
    return pd.DataFrame(
        [
            [f"{row.row:02.0f}", row.size, f"{row.level:g}", row.subject, str(row.instances), f"{row.mean_us:.2f}",
             f"{row.deviation:.1%}", f"{row.slowest:.2f}×"]
            for row in each(found)
        ],
        columns=["problem", "size", "zeros (%)", "kernel", "instances", "mean µs", "deviation", "slowest over fastest"],
    )  # fmt: skip


def _answer(view: View) -> str:
    found = spread(view.data, SIDES, SIZES)
    said = []
    for name, some in found[found["policy"] == "hot"].groupby("subject", sort=False):
        worst = some.sort_values("deviation").iloc[-1]
        said.append(
            f"{name}: over the instances of a problem, the standard deviation of times is "
            f"**{some['deviation'].median():.1%}** of their mean in the middle of {len(some)} problems, "
            f"{worst['deviation']:.1%} at most ({worst['size']})"
        )
    return f"{'; '.join(said)}." if said else "Not recorded yet."


def page() -> Page:
    """Its page."""
    return Page(
        question="Does a layer's time depend on which of its sparsity patterns it is?",
        intro="Table 1 of *SparseRT* (PACT 2020) stands for 257 matrices: layers of one size recur in a network with "
        "other patterns. The paper says that their times hardly differ, for its own code and for cuSPARSE, so that one "
        "of them can be tuned for all. Here are 255 of them: those of the collection in the order of its index (of "
        "problem 7 it has two of three at either level), and MobileNet's own. By default two instances of each size "
        "are run at 90 %, with `--full` all; code is generated and assembled for each.",
        attributes=r"(?P<row>\d\d)_(?P<instance>\d\d)",
        made=_answer,
        comparison=Comparison(SIDES, (FP16, DENSE), LEVELS),
        tables=(
            Made("Instances of one size and level, hot", _spread, "compares times of one kernel with themselves",
                 collapsed=False),
            RatioTable("Size by size", Comparison(SIDES, (CUBLAS,), LEVELS, ("row",))),
        ),
        baseline=CUSPARSE,
    )  # fmt: skip
