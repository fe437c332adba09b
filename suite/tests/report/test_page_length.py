"""Pages that a reader gets through: none of the committed ones is longer than 2,500 words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nnzbench.report.text import shorter

ROOT = Path(__file__).resolve().parents[3]
LIMIT = 2_500
TABLES = ("summary.md", "claims-tables.md", "coverage-tables.md")
"""Beside a page: its tables alone."""


def test_no_committed_page_is_longer():
    """Of a page's tables only those count that stand open."""
    pages = [page for page in (ROOT / "reports").rglob("*.md") if page.name not in TABLES]
    assert len(pages) > 20
    long = {str(page.relative_to(ROOT)): count for page in pages if (count := _open_words(page)) > LIMIT}
    assert not long


def _open_words(page: Path) -> int:
    return shorter.words(re.sub(r"(?s)<details>.*?</details>", "", page.read_text()))


def test_what_a_committed_page_leaves_to_the_file_beside_it_stands_there():
    for page in (ROOT / "reports").rglob("README.md"):
        left = re.findall(r"(?m)^A (table|list) of (\d+) lines: \[(.+)\]\(\3\)\.$", page.read_text())
        for what, lines, beside in left:
            text = (page.parent / beside).read_text()
            head = 2 if what == "table" else 0
            blocks = [
                block[0].splitlines() for block in shorter.BLOCK.finditer(text) if (block[0][0] == "|") == bool(head)
            ]
            assert int(lines) + head in map(len, blocks), f"{page}: a {what} of {lines} lines"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_no_page_of_the_docs_is_longer(page: Path):
    assert shorter.words(page.read_text()) <= LIMIT


def table(lines: int) -> str:
    return "\n".join(["| a | b |", "| :-- | --: |", *(f"| line {at} | {at} |" for at in range(lines))])


def test_the_longest_tables_stand_in_a_file_beside_a_long_page(tmp_path: Path):
    first = f"# Page\n\nThe answer.\n\n{table(40)}\n"
    text = f"{first}\n## Short\n\n{table(20)}\n\n## Long\n\nWords.\n\n{table(500)}\n\nMore words.\n"
    shorter.write(tmp_path / "README.md", text)
    page, tables = ((tmp_path / name).read_text() for name in ("README.md", "summary.md"))
    assert page == text.replace(table(500), "A table of 500 lines: [summary.md](summary.md).")
    assert tables == f"# Tables: Page\n\n## Long\n\n{table(500)}\n"
    shorter.write(tmp_path / "README.md", first)
    assert not (tmp_path / "summary.md").exists()


def test_links_to_what_moved_lead_there(tmp_path: Path):
    notes = "\n".join(f'* <a id="note{at}"></a> {"word " * 90}' for at in range(30))
    text = f'# Page\n\n## One\n\n[first](#note3) and [here](#stays)\n\n<a id="stays"></a>\n\n{notes}\n'
    shorter.write(tmp_path / "README.md", text)
    page = (tmp_path / "README.md").read_text()
    assert "[first](summary.md#note3) and [here](#stays)" in page
    assert "A list of 30 lines" in page
