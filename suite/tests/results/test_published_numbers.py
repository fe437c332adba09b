"""Numbers of claims and cells are those that lie beside the published records: every kind of quantity on real rows."""

import dataclasses

import pandas as pd
import pytest

from nnzbench.core import paths
from nnzbench.papers.claims.quantities import Records
from nnzbench.papers.claims.verdicts import judge
from nnzbench.site import coverage

GPU = "nvidia-h100-80gb-hbm3"
CLAIMED = ("measured", "low", "high", "problems", "measured_today", "measured_tf32", "measured_fp16", "measured_cold",
           "synthetic", "before_tuning")  # fmt: skip
ALIKE = 0.97
"""Share of each column's cells: pages are drawn from time to time, and what they judge by may have moved since."""


MADE = {
    "claims": lambda: pd.DataFrame(map(dataclasses.asdict, judge(Records(paths.reports(), GPU)))),
    "coverage": lambda: coverage.of_gpu(paths.reports(), GPU, {}).cells,
}
KEYS = {"claims": ["id"], "coverage": ["experiment", "kernel", "variant", "dtype", "policy"]}


@pytest.mark.parametrize("name", MADE)
def test_published_records_say_what_is_published_of_them(name, tmp_path):
    published = paths.reports() / GPU / f"{name}.csv"
    if not published.is_file():
        pytest.skip("no published records lie beside the tests")
    paths.write_csv(MADE[name](), tmp_path / "now.csv")
    files = (published, tmp_path / "now.csv")
    before, now = (pd.read_csv(one, dtype=str, keep_default_na=False).set_index(KEYS[name]) for one in files)
    both = before.index.intersection(now.index)
    assert len(both) >= ALIKE * len(before)
    for column in CLAIMED if name == "claims" else before:
        old, new = before.loc[both, column], now.loc[both, column]
        said = (old != "") | (new != "")
        assert (old == new)[said].mean() >= ALIKE or not said.any(), column
