from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from nnzbench.facts import table
from nnzbench.site.generations import products

RUNNER = "recompute"
ROOT = Path(__file__).resolve().parents[3]
RECORDED = Path("nvidia-h200", "sparsert_table3")


def with_ratio(line: str) -> str:
    before, ratio, after = (cells := line.rsplit(",", 7))[0], float(cells[1]), cells[2:]
    return ",".join([before, f"{ratio * 1.001:.6g}", *after])


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        (lambda lines: lines, 0, "all as the records say"),
        (lambda lines: [*lines[:5], with_ratio(lines[5]), *lines[6:]], 1, "ratio"),
        (lambda lines: lines[:-1], 1, "is missing"),
        (lambda lines: [*lines, lines[-1].replace(",hot,", ",warm,").replace(",cold,", ",warm,")], 1, "no page asks"),
    ],
)
def test_recorded_facts_are_what_the_records_say_and_a_changed_a_missing_or_an_invented_one_is_named(
    runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    change: Callable[[list[str]], list[str]], status: int, said: str,
) -> None:  # fmt: skip
    shutil.copytree(ROOT / "reports" / RECORDED, tmp_path / RECORDED)
    path = tmp_path / RECORDED / "facts.csv"
    path.write_text("\n".join(change(path.read_text(encoding="utf-8").splitlines())) + "\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["recompute.py", "--reports", str(tmp_path)])
    assert runner.main() == status
    told = capsys.readouterr()
    assert said in told.out + told.err


def test_gains_of_published_products_are_what_the_published_times_say(runner: ModuleType, tmp_path: Path) -> None:
    facts = products.facts(products.times([]))
    path = table.write(facts[table.COLUMNS], tmp_path)
    count, wrong = runner.wrong_products(path)
    assert (count, wrong) == ((facts["how"] == "published").sum(), [])
    table.write(facts[table.COLUMNS].assign(ratio=1.001 * facts["ratio"]), tmp_path)
    assert len(runner.wrong_products(path)[1]) == count
