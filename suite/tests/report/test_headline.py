"""README's headline of layers of language models, on invented records with known ratios."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import fake_records
import pytest
from sputnik_records import records

from nnzbench.data.problems.problem import Problem
from nnzbench.site.index.headlines import headline

LARGE = 2**25


def sparse_us(problem: Problem) -> float:
    """As fast as dense at 80 % zeros and 16 columns, half at each sixteenfold width; slower on layers of 32 MB."""
    return 50 * (1 - problem.sparsity) * problem.n**0.25 * (1 if problem.m * problem.k >= LARGE else 4)


@pytest.fixture(name="folder")
def recorded(tmp_path: Path) -> Path:
    timed = (
        ("cublas", "f16_default_nn_unpruned", lambda _: 20.0),
        ("cublaslt", "f8_tn_algo00_unpruned", lambda p: 10.0 if "_2of4" in p.label and p.dtype == "f8" else None),
        ("tensor_spmm", "n16", lambda p: sparse_us(p) if p.dtype == "f16" else None),
    )
    rows = records("llm_layers", timed, keep=lambda p: p.n in (1, 16))
    return fake_records.write(tmp_path / "reports" / "nvidia-h200" / "llm_layers", rows)


def test_lines_say_how_much_faster_and_sentences_from_where_on(folder: Path) -> None:
    shown = headline(folder.parent)
    line = next(
        one for one in shown.splitlines() if "64 MB and more](reports/nvidia-h200/llm_layers" in one and "| 16 |" in one
    )
    assert "0.67× (0.67 to 0.67) | 1.00× (1.00 to 1.00) | **2.00×** (2.00 to 2.00) |" in line
    assert "64 MB and more, 60.0 % at 1 column, 80.0 % at 16; layers of 32 MB, 90.0 % at 1 column, above" in shown
    assert "**Dense fp16 is as fast or faster** even than 90 % zeros: layers of 32 MB at 1, 16." in shown


def test_ratios_recorded_again_widen_the_intervals_by_their_difference(tmp_path: Path) -> None:
    """prune_or_quantise has some of the layers again, there 5 % slower at one column."""
    for experiment, slower in (("llm_layers", 1.0), ("prune_or_quantise", 1.05)):
        timed = (
            ("cublas", "f16_default_nn_unpruned", lambda p: 20.0 if p.dtype == "f16" else None),
            (
                "tensor_spmm",
                "n16",
                lambda p, by=slower: sparse_us(p) * (by if p.n == 1 else 1) if p.dtype == "f16" else None,
            ),
        )
        rows = records(experiment, timed, keep=lambda p: p.n in (1, 16) and p.dtype == "f16")
        own = (
            replace(one, policy="stream", pattern_hash=f"{one.m}x{one.k} {one.source} {one.sparsity}") for one in rows
        )
        folder = fake_records.write(tmp_path / "reports" / "nvidia-h200" / experiment, own)
    shown = headline(folder.parent)
    assert "12 ratios of layers of Llama were recorded again in another run, -4.8 to +0.0 % off" in shown
    assert "0.67× (0.64 to 0.70) | 1.00× (0.95 to 1.05) | **2.00×** (1.91 to 2.10) |" in shown


def test_what_is_not_tuned_is_no_headline(folder: Path) -> None:
    fake_records.tuned(folder, lambda row: ["first"] if row.n == 16 else ["first", "all"])
    shown = headline(folder.parent)
    assert "| 1 |" in shown
    assert "| 16 |" not in shown
    assert "†" not in shown
