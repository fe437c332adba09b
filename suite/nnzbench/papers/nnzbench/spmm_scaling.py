"""Whether a sparse product's rate holds as the matrix grows past the caches."""

from __future__ import annotations

from nnzbench.report.page import Answer, Lines, Made, Page, Rows, View
from nnzbench.results.groups import Group
from nnzbench.results.result_set import each
from nnzbench.results.selector import CUSPARSE, kernel
from nnzbench.results.table import Comparison

WIDTHS = (Group(columns=1024), Group(columns=128))
ROW_STREAM, RING, SPUTNIK = map(kernel, ("row_stream", "ring", "sputnik"))
SIDES = (ROW_STREAM, RING, SPUTNIK, CUSPARSE)


def spreads(view: View) -> Rows:
    """Of each kernel, and number of columns with several sizes: the size with the highest rate and the lowest.

    The quotient of both rates is that of the costs per nonzero and column.
    """
    for (n, subject), some in view.cells(SIDES, policy=view.policy).groupby(["n", "subject"], sort=False):
        if len(some) > 1:
            worst, *_, best = each(some.sort_values("tflops"))
            yield {
                "columns": str(n), "kernel": subject, "best at": best.size, "worst at": worst.size,
                "best TFLOP/s": best.tflops, "worst TFLOP/s": worst.tflops,
                "best over worst": best.tflops / worst.tflops,
            }  # fmt: skip


def spmm_scaling() -> Page:
    """Its page."""
    return Page(
        answers=tuple(Answer(group, RING, CUSPARSE, (SPUTNIK, ROW_STREAM)) for group in WIDTHS),
        comparison=Comparison((RING, ROW_STREAM, SPUTNIK), (CUSPARSE,), WIDTHS),
        figures=(
            Lines("scaling", "Rate of a sparse product by the rows of a square matrix", SIDES, value="rate", x="m",
                  panels="n", log_x=True),
        ),
        tables=(
            Made("Highest and lowest rate of each kernel over the sizes", spreads,
                 "compares rates of different problems", collapsed=False),
        ),
        baseline=CUSPARSE,
    )  # fmt: skip
