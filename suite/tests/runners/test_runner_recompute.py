import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from draft_figures import pages_alone

from nnzbench.papers.catalogue import page_of
from nnzbench.report import render
from nnzbench.results import table
from nnzbench.results.result_set import load
from nnzbench.site.generations import products

RUNNER = "recompute"
ROOT = Path(__file__).resolve().parents[3]
RECORDED = Path("nvidia-h200", "sparsert_table3")


def with_ratio(line: str) -> str:
    before, ratio, after = (cells := line.rsplit(",", 7))[0], float(cells[1]), cells[2:]
    return ",".join([before, f"{ratio * 1.001:.6g}", *after])


def test_recorded_facts_are_what_the_records_say_and_a_changed_a_missing_or_an_invented_one_is_named(
    runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "reports" / RECORDED, tmp_path / RECORDED)
    monkeypatch.setattr(sys, "argv", ["recompute.py", "--reports", str(tmp_path)])
    path = tmp_path / RECORDED / "facts.csv"
    path.unlink(missing_ok=True)
    assert runner.main() == 0  # of the facts that it draws itself
    assert "all as the records say" in capsys.readouterr().out
    with pages_alone():
        render.write(page_of(RECORDED.name), load(tmp_path / RECORDED))
    *lines, last = path.read_text(encoding="utf-8").splitlines()
    invented = last.replace(",hot,", ",warm,").replace(",cold,", ",warm,")
    path.write_text("\n".join([*lines[:5], with_ratio(lines[5]), *lines[6:], invented, ""]), encoding="utf-8")
    assert runner.main() == 1
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 3
    assert all(any(word in line for line in told) for word in (": ratio ", "is missing", "no page asks"))


def test_gains_of_published_products_are_what_the_published_times_say(runner, tmp_path, monkeypatch):
    facts = products.facts(products.times([]))
    monkeypatch.setattr(runner.products, "times", list)
    monkeypatch.setattr(runner.products, "facts", lambda times: facts)
    path = table.write(facts[table.COLUMNS], tmp_path)
    count, wrong = runner.wrong_products(path)
    assert (count, wrong) == ((facts["how"] == "published").sum(), [])
    table.write(facts[table.COLUMNS].assign(ratio=1.001 * facts["ratio"]), tmp_path)
    assert len(runner.wrong_products(path)[1]) == count
