"""Below a page's first screen, names of what was not tuned have the mark in tables and legends."""

from __future__ import annotations

from pathlib import Path

import fake_records
import pytest
from matplotlib.figure import Figure

from nnzbench.facts.results import load
from nnzbench.report.data.series import DEFAULT, Series
from nnzbench.report.text import marked

LABELS = {"sputnik", "cuSPARSE, best", "cuBLAS fp32", "balanced"}
GPU = "NVIDIA H200"


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        ("sputnik", "sputnik†"),
        ("**sputnik**", "**sputnik†**"),
        ("sputnik, its heuristic", "sputnik, its heuristic"),
        ("sputnik, 90 %", "sputnik†, 90 %"),
        ("sputnik, NVIDIA H200", "sputnik†, NVIDIA H200"),
        ("sputnik, V100", "sputnik, V100"),
        ("NVIDIA H200: sputnik", "NVIDIA H200: sputnik†"),
        ("V100: sputnik", "V100: sputnik"),
        ("sputnik_sddmm", "sputnik_sddmm"),
        ("cuSPARSE, best (µs)", "cuSPARSE, best† (µs)"),
        ("balanced over cuBLAS fp32", "balanced† over cuBLAS fp32†"),
        ("balanced, the paper's mapping", "balanced, the paper's mapping"),
        ("balanced: share of its limit", "balanced: share of its limit"),
        ("over cuBLAS fp32, 90 %", "over cuBLAS fp32†, 90 %"),
        ("the paper, over cuBLAS fp32", "the paper, over cuBLAS fp32"),
        ("paper: balanced", "paper: balanced"),
    ],
)
def test_a_name_is_marked_as_it_stands_in_a_heading_and_on_the_left(cell: str, wanted: str) -> None:
    rule = "| :-- | --: |"
    assert marked.table(f"Times:\n\n| {cell} | {cell} |\n{rule}\n| 1 | 2 |", LABELS, GPU) == (
        f"Times:\n\n| {wanted} | {wanted} |\n{rule}\n| 1 | 2 |"
    )
    lines = f"|  | x |\n{rule}\n| {cell} | {cell} |"
    left = f"|  | x |\n{rule}\n| {cell if cell.startswith('the paper') else wanted} | {cell} |"
    assert marked.table(lines, LABELS, GPU) == left


def test_lines_of_published_numbers_and_tables_of_what_was_tuned_stay() -> None:
    text = "| a | b | c |\n| :-- | :-- | --: |\n| the paper, V100 | balanced | 2 |\n| A100 | sputnik | published |"
    assert marked.table(text, LABELS, GPU) == text
    assert marked.table("| sputnik |\n| :-- |", set(), GPU) == "| sputnik |\n| :-- |"


def test_a_legend_has_the_mark_and_the_caption_its_meaning() -> None:
    figure = Figure()
    for text in ("title", "a long first line\nshort"):
        figure.text(0, 0, text)
    axis = figure.add_subplot()
    axis.plot([1], label="sputnik")
    axis.plot([2], label="row_stream")
    axis.plot([3], label="1× = cuBLAS fp32")
    axis.legend()
    assert marked.legend(figure, LABELS)
    assert [text.get_text() for text in axis.get_legend().get_texts()] == [
        "sputnik†", "row_stream", "1× = cuBLAS fp32†"
    ]  # fmt: skip
    assert figure.texts[1].get_text() == "a long first line\nshort † before tuning."
    assert not marked.legend(figure, {"ring"})


@pytest.mark.parametrize(
    ("entry", "marked_as"),
    [
        ("over sputnik", "over sputnik†"),
        ("sputnik at 90 % zeros", "sputnik at 90 % zeros†"),
        ("sputnik (the paper: 2×)", "sputnik† (the paper: 2×)"),
        (f"{GPU}: sputnik", f"{GPU}: sputnik†"),
        ("V100: sputnik", "V100: sputnik"),
        ("sputnik, its heuristic", "sputnik, its heuristic"),
        ("paper (V100): sputnik meets cuBLAS at 71 %", "paper (V100): sputnik meets cuBLAS at 71 %"),
    ],
)
def test_a_legend_calls_a_series_by_more_than_its_label(entry: str, marked_as: str) -> None:
    axis = Figure().add_subplot()
    axis.plot([1], label=entry)
    axis.legend()
    marked.legend(axis.figure, LABELS, GPU)
    assert [text.get_text() for text in axis.get_legend().get_texts()] == [marked_as]


def test_a_panel_that_says_what_it_divides_by_has_the_mark_there() -> None:
    figure = Figure()
    for text in ("title", "caption"):
        figure.text(0, 0, text)
    titles = ("fp32: 1× is cuBLAS fp32, its fastest plan", "fp16: 1× is cuBLAS fp16, its fastest plan", "cuBLAS fp32")
    for title in titles:
        figure.add_subplot().set_title(title, loc="left")
    assert marked.legend(figure, LABELS, GPU)
    first, *others = (axis.get_title(loc="left") for axis in figure.axes)
    assert first == "fp32: 1× is cuBLAS fp32†, its fastest plan"
    assert others == list(titles[1:])
    assert figure.texts[1].get_text() == "caption † before tuning."


def test_names_are_of_series_that_tuning_may_make_faster(tmp_path: Path) -> None:
    folder = fake_records.write(tmp_path / "sparsert_table1", fake_records.table1())
    fake_records.tuned(folder, lambda row: ("first",) if row.kernel == "sputnik" and row.policy == "cold" else ("all",))
    series = [
        Series("a", "sputnik", ("sputnik",)),
        Series("b", "sputnik, its heuristic", ("sputnik",), variants=DEFAULT),
        Series("c", "sparse: row_stream", ("row_stream",)),
        Series("d", "any: of ours", ("row_stream", "sputnik")),
    ]
    frame = load(folder).frame
    found = {policy: marked.labels(frame, series, policy, None) for policy in ("hot", "cold", "")}
    assert found["cold"] == found[""] == {"sputnik", "any: of ours", "of ours"}
    assert found["hot"] == frozenset()


def test_names_are_marked_by_the_problems_and_types_that_are_shown(tmp_path: Path) -> None:
    folder = fake_records.write(tmp_path / "sparsert_table1", fake_records.table1(policies=("hot",)))
    fake_records.tuned(folder, lambda row: ("first",) if row.sparsity < 0.94 else ("all",))
    frame = load(folder).frame
    series = [Series("a", "sputnik", ("sputnik",))]
    at90, at95 = frame[frame["sparsity"] < 0.94], frame[frame["sparsity"] > 0.94]
    assert marked.labels(frame, series, "hot", [at90]) == marked.labels(frame, series, "hot", [at95, at90]) != set()
    assert marked.labels(frame, series, "hot", [at95]) == marked.labels(frame, series, "hot", [at90.iloc[:0]]) == set()
    assert marked.labels(frame, series, "hot", [at90.assign(dtype="f16")]) == set()


def test_a_page_s_own_meaning_of_a_name_is_the_only_one(tmp_path: Path) -> None:
    frame = load(fake_records.write(tmp_path / "sparsert_table1", fake_records.table1())).frame
    own = Series("mine", "this project's best", ("ring",))
    named = [one for one in marked.known(frame, [own, own]) if one.label == own.label]
    assert named == [own]
    assert len(marked.known(frame, [])) == len(marked.known(frame, [own]))


def test_a_page_that_names_none_of_them_says_it_in_words(tmp_path: Path) -> None:
    folder = fake_records.write(tmp_path / "sparsert_table1", fake_records.table1())
    fake_records.tuned(folder, lambda row: ("first",))
    frame = load(folder).frame
    assert marked.sentence(frame, False) == marked.UNNAMED
    assert marked.sentence(frame, True) == marked.SENTENCE
    assert marked.sentence(frame.assign(cut_short=""), True) == ""
