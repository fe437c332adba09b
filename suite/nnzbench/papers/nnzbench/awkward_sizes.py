"""Sizes that no tile divides, for every kernel: what computed the right thing. Times are recorded and not shown."""

from __future__ import annotations

import pandas as pd

from nnzbench.facts.results import ResultSet, each
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, View
from nnzbench.report.text import checked
from nnzbench.report.text.lead import Lead

INTRO = """\
Tables of papers have round sizes; users don't. One column, 7 and 49 of them, a single row, odd counts of rows,
columns, channels and batches, rows without a nonzero beside rows that hold most of them, images of 7x7 and 13x11:
every kernel that takes such a problem, in every type of input that it has, against float64. These problems are too
small for times to tell of speed. The same under the code of older architectures: the pages as-sm_* of this GPU."""


def collect(results: ResultSet) -> pd.DataFrame:
    """Counts by kernel, op and input type, once for all policies."""
    rows = results.frame.drop_duplicates(["problem", "dtype", "kernel", "variant"])
    return checked.counted(each(rows))


def _show(view: View[pd.DataFrame]) -> Shown:
    found = view.data
    problems = view.frame["problem"].nunique()
    text = (
        f"**{found['right'].sum()} candidates of {(found['right'] > 0).groupby(found['kernel']).any().sum()} kernels "
        f"on {problems} problems were right, {found['failed'].sum()} were wrong or failed.**"
    )
    return Shown(None, text, (checked.table(found),))


PAGE = PageSpec(
    lead=Lead("Does every kernel compute the right thing where sizes are odd, one, or empty?", (), ()),
    title="Sizes that no tile divides",
    intro=INTRO,
    sections=(SectionSpec("checked", "", _show, heading="Kernel by kernel", once=True, first=True),),
    data=collect,
    timed=False,
)
"""`summary.csv` is the table."""
