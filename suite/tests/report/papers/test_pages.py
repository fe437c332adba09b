"""What every experiment's own page does with any records."""

import fake_records
import pytest
from sputnik_records import records

from nnzbench.facts.results import load
from nnzbench.papers.catalogue import EXPERIMENTS, page_of
from nnzbench.report import render
from nnzbench.report.pages.page import Page

OWN = [name for name, one in EXPERIMENTS.items() if one.kernels and isinstance(page_of(name), Page)]


@pytest.mark.parametrize("name", OWN)
def test_records_without_times_make_a_page(name, tmp_path):
    (row, *_) = records(name, (("sputnik", "x", lambda _: 1.0),))
    results = load(fake_records.write(tmp_path, [fake_records.failed(row, "timeout", "took too long")]))
    assert "took too long" in render.write(page_of(name), results).read_text(encoding="utf-8")
