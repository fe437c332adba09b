"""Pages that a reader gets through: words of prose, outside tables and what opens on a click."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from nnzbench.report.text import folded, number

ROOT = Path(__file__).resolve().parents[3]
OPEN, ON_AVERAGE, DOCS = 600, 700, 2_500
"""Words of one page's open prose, of all prose of a page, and of a page of the docs, code and tables too."""


def words(text):
    """Of prose: what stands outside tables and code, links by their text alone."""
    text = re.sub(r"(?ms)^```.*?^```|^ *\|[^\n]*$|!\[[^\]]*\]\([^)]*\)|<[^>]*>", " ", text)
    return sum(any(map(str.isalnum, word)) for word in re.sub(r"\]\([^)]*\)", " ", text).split())


def open_prose(text):
    """Words that a reader meets without opening anything."""
    return words(re.sub(r"(?s)<details>.*?</details>", "", text))


PAGES = sorted((ROOT / "reports").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "reports")))
def test_a_committed_page_is_short(page):
    assert open_prose(page.read_text()) <= OPEN


def test_all_committed_pages_together_are_short():
    assert len(PAGES) > 20
    assert sum(words(page.read_text()) for page in PAGES) <= ON_AVERAGE * len(PAGES)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_no_page_of_the_docs_is_longer(page):
    assert len(page.read_text().split()) <= DOCS


def test_no_time_is_a_dash():
    assert [number(value) for value in (1.005, float("nan"), None, pd.NA)] == ["1.00", "–", "–", "–"]


def test_long_tables_open_on_a_click():
    table = "\n".join(f"| {at} |" for at in range(30))
    assert folded(table, "Title") == f"<details><summary>Title</summary>\n\n{table}\n\n</details>"
    assert folded("| 1 |\n| 2 |", "Title") == "| 1 |\n| 2 |"
