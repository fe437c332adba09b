"""Sizes that no tile divides, for every kernel: what computed the right thing. Times are recorded and not shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from nnzbench.report.page import Made, Page, View
from nnzbench.report.text import checks, checks_table
from nnzbench.results.result_set import each


def rows(view: View) -> Iterator[Any]:
    """Of each candidate one, for all policies."""
    return each(view.frame.drop_duplicates(["problem", "dtype", "kernel", "variant"]))


def _answer(view: View) -> str:
    found = checks(rows(view))
    return (
        f"{found['right'].sum()} candidates of {found[found['right'] > 0]['kernel'].nunique()} kernels on "
        f"{view.frame['problem'].nunique()} problems were right, {found['failed'].sum()} were wrong or failed."
    )


def _table(view: View) -> pd.DataFrame:
    return checks_table(rows(view))


def awkward_sizes() -> Page:
    """Its page."""
    return Page(
        made=_answer,
        tables=(Made("Kernel by kernel", _table, "counts what was right, not how fast it was", collapsed=False),),
    )
