"""What experiments' own pages do with any records."""

import fake_records
import pytest
from sputnik_records import records

from nnzbench.papers.catalogue import EXPERIMENTS, introductions, page_of
from nnzbench.report import render
from nnzbench.results.result_set import load

OWN = (
    "awkward_sizes", "dlmc_n512", "eie_format", "eie_table4", "ese_lstm", "spmm_scaling", "sputnik_ablation",
    "sputnik_attention", "sputnik_dlmc", "sputnik_figure1", "sputnik_figure7", "sputnik_mobilenet", "sputnik_rnn",
    "training_step", "whole_networks",
)  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_records_without_times_make_a_page(name, tmp_path):
    (row, *_) = records(name, (("sputnik", "x", lambda _: 1.0),))
    results = load(fake_records.write(tmp_path, [fake_records.failed(row, "timeout", "took too long")]))
    assert "took too long" in render.write(page_of(name), results).read_text(encoding="utf-8")


def test_every_page_says_what_is_run_and_nothing_else_is_said():
    pages = {name: page for name in EXPERIMENTS if (page := page_of(name))}
    assert all(page.intro and "{" not in page.intro for page in pages.values())
    shared = {"direct_conv_tables", "dlmc_n512_published"}
    assert set(introductions()) == set(pages) | shared
