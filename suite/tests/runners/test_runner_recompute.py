from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import pytest

from nnzbench.facts import table
from nnzbench.site.generations import products

ROOT = Path(__file__).resolve().parents[3]
RECORDED = Path("nvidia-h200", "sparsert_table3")


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Computes the facts of one recorded experiment again, after a change of its facts.csv; the exit status."""
    shutil.copytree(ROOT / "reports" / RECORDED, tmp_path / RECORDED)
    monkeypatch.syspath_prepend(str(ROOT / "runners"))
    runner = importlib.import_module("recompute")

    def checked(change) -> int:
        path = tmp_path / RECORDED / "facts.csv"
        path.write_text("\n".join(change(path.read_text(encoding="utf-8").splitlines())) + "\n", encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["recompute.py", "--reports", str(tmp_path)])
        return int(runner.main())

    return checked


def with_ratio(line: str) -> str:
    before, ratio, after = (cells := line.rsplit(",", 7))[0], float(cells[1]), cells[2:]
    return ",".join([before, f"{ratio * 1.001:.6g}", *after])


def test_recorded_facts_are_what_the_records_say(check, capsys):
    assert check(lambda lines: lines) == 0
    assert "all as the records say" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: [*lines[:5], with_ratio(lines[5]), *lines[6:]], "ratio"),
        (lambda lines: lines[:-1], "is missing"),
        (lambda lines: [*lines, lines[-1].replace(",hot,", ",warm,").replace(",cold,", ",warm,")], "no page asks"),
    ],
)
def test_a_changed_a_missing_and_an_invented_fact_are_named(check, capsys, change, said):
    assert check(change) == 1
    assert said in capsys.readouterr().err


def test_gains_of_published_products_are_what_the_published_times_say(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "runners"))
    runner = importlib.import_module("recompute")
    facts = products.facts(products.times([]))
    path = table.write(facts[table.COLUMNS], tmp_path)
    count, wrong = runner.wrong_products(path)
    assert (count, wrong) == ((facts["how"] == "published").sum(), [])
    table.write(facts[table.COLUMNS].assign(ratio=1.001 * facts["ratio"]), tmp_path)
    assert len(runner.wrong_products(path)[1]) == count
