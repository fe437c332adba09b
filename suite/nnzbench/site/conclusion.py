"""Three sentences that a run ends with: what its records answer for small layers, for large ones, and of the claims."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from nnzbench.claims import verdicts as claims
from nnzbench.facts.results import load, percent
from nnzbench.records.files import has_records
from nnzbench.report.data import context
from nnzbench.report.text import marks
from nnzbench.site.index import answer as html_answer
from nnzbench.site.index import data as html_data


def sentences(reports: Path, gpu: str) -> list[str]:
    """From the records below `reports/gpu`, under the first policy that they have. Raises `RecordError`."""
    return [*(_products(reports / gpu / name) for name in html_answer.EXPERIMENTS), _claims(reports, gpu)]


def _products(folder: Path) -> str:
    products = html_answer.EXPERIMENTS[folder.name]
    if not has_records(folder):
        return f"Whether sparsity pays for {products} is open: {folder.name} is not recorded."
    results = load(folder)
    found = html_answer.answer(results, html_data.tabulate(results))
    level = html_answer.QUESTION_LEVEL
    at = next((place for place, column in enumerate(found.columns) if column[0] == level), None)
    said = [
        f"{row.verdict} against {row.rival} ({cell.mean:.2f}×{_cut(cell)}, faster on {cell.wins} of {cell.count})"
        for row in found.rows
        if at is not None and (cell := row.cells[at]) is not None
    ]
    if not said or at is None:
        return f"Whether sparsity pays for {products} is open: {folder.name} has no times at {percent(level)} zeros."
    policy = found.columns[at][1]
    return f"Does sparsity pay on {found.gpu} for {products}, at {percent(level)} zeros, {policy}: {'; '.join(said)}."


def _cut(cell: html_answer.Cell) -> str:
    """What is said behind a ratio of kernels that were not tuned."""
    return f" {marks.WORDS}" if cell.basis.cuts else ""


def _claims(reports: Path, gpu: str) -> str:
    words = Counter(one.verdict for one in claims.judge(reports, gpu))
    judged = ", ".join(f"{words[word]} {word}" for word in claims.JUDGED)
    name = context.gpu_name(gpu, {})
    total, known = sum(words.values()), sum(words[word] for word in claims.JUDGED)
    return f"Of {total} claims of the papers these records of {name} judge {known}: {judged}."
