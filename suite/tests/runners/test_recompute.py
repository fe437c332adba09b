"""The check of first screens outside the package: it agrees with what is drawn, and with nothing else."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import fake_records
import pytest
from draft_figures import draft, pages_alone

from nnzbench.kernels.registry import known
from nnzbench.papers.catalogue import EXPERIMENTS, page_of
from nnzbench.problems import tables
from nnzbench.report.draw import style
from nnzbench.site import build, readme

ROOT = Path(__file__).resolve().parents[3]
MARKERS = "<!-- nnzbench:headline -->\n<!-- /nnzbench:headline -->\n"


@pytest.fixture(scope="module")
def recompute() -> ModuleType:
    sys.path.insert(0, str(ROOT / "runners"))
    try:
        return importlib.import_module("recompute")
    finally:
        sys.path.remove(str(ROOT / "runners"))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("drawn")
    fake_records.write(root / "reports" / "nvidia-h200" / "sparsert_table1", fake_records.table1())
    (root / "README.md").write_text(MARKERS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "save", draft)
        build.build(root / "reports", ["sparsert_table1"])
    assert readme.write_headline(root / "reports")
    return root


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a run that tuned all but cuSPARSE, and this project's `row_stream` at 95 % zeros."""
    root = tmp_path_factory.mktemp("marked")
    place = fake_records.write(root / "reports" / "nvidia-h200" / "sparsert_table1", fake_records.table1())
    cut = {"cusparse": 0.0, "row_stream": 0.94}
    fake_records.tuned(place, lambda row: ("first",) if row.sparsity > cut.get(row.kernel, 1) else ("first", "all"))
    (root / "README.md").write_text(MARKERS)
    with pytest.MonkeyPatch.context() as patch, pages_alone():
        patch.setattr(style, "save", draft)
        build.build(root / "reports", ["sparsert_table1"])
    assert readme.write_headline(root / "reports")
    return root


def told(recompute: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    words = ["recompute.py", "--readme", str(root / "README.md"), "--reports", str(root / "reports")]
    monkeypatch.setattr(sys, "argv", words)
    return recompute.main(), capsys.readouterr().err


@contextmanager
def changed(path: Path, match: re.Match[str], other: str) -> Iterator[None]:
    """The file with other words in place of the first group of a match in it."""
    path.write_text(match.string[: match.start(1)] + other + match.string[match.end(1) :])
    try:
        yield
    finally:
        path.write_text(match.string)


def test_what_is_drawn_is_what_the_records_say(recompute, drawn, monkeypatch, capsys):
    assert told(recompute, drawn, monkeypatch, capsys) == (0, "")


@pytest.mark.parametrize(
    ("file", "found", "named"),
    [
        ("page", r"(?:is|are) \*\*(\d\.\d\d)×\*\* as fast", "At 90 % zeros: "),
        ("page", r"faster on (\d+) of 20", "At 90 % zeros: "),
        ("page", r"the paper: (3\.4)×", "sparsert-spmm-90"),
        ("page", r"\| this project's kernels \| at 95 % zeros \(11\) \| (\d\.\d\d)×", "| at 95 % zeros (11) |"),
        ("page", r"hot and (\d\.\d\d)× cold", "over"),
        ("headline", r"\| this project's kernels \| (\d\.\d\d)×", "Small pruned layers"),
        ("headline", r"(ahead) of", "Small pruned layers"),
        ("claims", r"\*\*(\d+) claims", "claims.md"),
        ("coverage", r"Of ([\d,]+) cells", "coverage.md"),
    ],
)
def test_a_changed_number_is_named(recompute, drawn, monkeypatch, capsys, file, found, named):
    gpu = drawn / "reports" / "nvidia-h200"
    places = {"page": gpu / "sparsert_table1" / "README.md", "headline": drawn / "README.md"}
    path = places.get(file, gpu / f"{file}.md")
    text = path.read_text()
    match = re.search(found, text)
    assert match, found
    other = {"ahead": "behind"}.get(match[1]) or re.sub(r"\d$", lambda digit: str((int(digit[0]) + 1) % 10), match[1])
    with changed(path, match, other):
        status, error = told(recompute, drawn, monkeypatch, capsys)
    assert status == 1
    assert named in error


def test_marks_are_what_the_records_say(recompute, marked, monkeypatch, capsys):
    assert told(recompute, marked, monkeypatch, capsys) == (0, "")


@pytest.mark.parametrize(
    ("file", "found", "other"),
    [
        ("page", r"\(hot, (before tuning, )faster on \d+ of 11\)", ""),
        ("page", r"\(hot, ()faster on \d+ of 20\)", "before tuning, "),
        ("page", r"\| at 95 % zeros \(11\) \| \d\.\d\d×(†)", ""),
        ("page", r"\| at 90 % zeros \(20\) \| \d\.\d\d×()", "†"),
        ("page", r"`cusparse` on (31) of 31 problems", "30"),
        ("page", r"(?m)^(† .*)$", ""),
        ("headline", r"best cuSPARSE fp32(†)", ""),
        ("headline", r"(?m)\d×(†) \(\d+\) \|$", ""),
        ("headline", r"(?m)^(† .*)$", ""),
    ],
)
def test_a_changed_mark_is_named(recompute, marked, monkeypatch, capsys, file, found, other):
    page = marked / "reports" / "nvidia-h200" / "sparsert_table1" / "README.md"
    path = page if file == "page" else marked / "README.md"
    text = path.read_text()
    match = re.search(found, text)
    assert match, found
    with changed(path, match, other):
        status, error = told(recompute, marked, monkeypatch, capsys)
    assert (status, error.count("the text says")) == (1, 1)


def test_a_sentence_that_nothing_computes_is_named(recompute, drawn, monkeypatch, capsys):
    path = drawn / "reports" / "nvidia-h200" / "sparsert_table1" / "README.md"
    text = path.read_text()
    path.write_text(text.replace("**Answer.** ", "**Answer.** It is 7 times as fast on Sundays. "))
    try:
        status, error = told(recompute, drawn, monkeypatch, capsys)
    finally:
        path.write_text(text)
    assert (status, "on Sundays" in error) == (1, True)


def test_both_halves_mean_the_same_kernels_and_problems(recompute):
    records = importlib.import_module("recompute_records")
    own = {name: one for name, one in known().items() if one.role == "own" and not one.study}
    assert set(records.OWN) == set(own)
    assert set(records.IN_CODE) == {name for name, one in own.items() if one.weights_in_code}
    assert {name: one.paper_variants for name, one in own.items() if one.paper_variants} == records.PAPERS
    assert set(records.NOTHING_TO_TUNE) == {name for name, one in known().items() if one.nothing_to_tune}
    assert records.sample() == {entry.path for entry in tables.dlmc_sample()}
    nothing, studies = fake_frame(records), set[str]()
    for name, experiment in EXPERIMENTS.items():
        lead = page_of(name).lead
        assert lead is not None or not experiment.kernels, name
        for group in lead.groups if lead else ():
            assert recompute.label_of(group.label[0].upper() + group.label[1:]) == group.label
            assert (records.Group(group.label).rival != "") == bool(group.rival_like)
        for one in (*lead.sides, *lead.rivals) if lead else ():
            assert records.side(nothing, one.label).empty
            studies |= {f"`{one.kernel}`, "} if one.variants and known()[one.kernel].study else set()
    assert studies == set(records.STUDIES)


def fake_frame(records: ModuleType):
    return records.pd.DataFrame({"kernel": [], "math": [], "variant": []}, dtype=str)
