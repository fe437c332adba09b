"""Sizes that no tile divides, for every kernel: what computed the right thing. Times are recorded and not shown."""

from __future__ import annotations

import pandas as pd

from nnzbench.report.page import Made, Page, View
from nnzbench.report.text import CHECKED, GAP, checks
from nnzbench.results.result_set import each


def counts(view: View) -> pd.DataFrame:
    """`CHECKED` by kernel, operation and input type, once for all policies."""
    return checks(each(view.frame.drop_duplicates(["problem", "dtype", "kernel", "variant"])))


def _answer(view: View) -> str:
    found = counts(view)
    return (
        f"{found['right'].sum()} candidates of {found[found['right'] > 0]['kernel'].nunique()} kernels on "
        f"{view.frame['problem'].nunique()} problems were right, {found['failed'].sum()} were wrong or failed."
    )


def _table(view: View) -> pd.DataFrame:
    found = counts(view)
    errors = [GAP if pd.isna(error) else f"{error:.2g}" for error in found["largest_error"]]
    return found.assign(largest_error=errors).set_axis([*CHECKED.values()], axis=1)


def awkward_sizes() -> Page:
    """Its page."""
    return Page(
        made=_answer,
        tables=(Made("Kernel by kernel", _table, "counts what was right, not how fast it was", collapsed=False),),
    )
