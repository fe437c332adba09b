"""A number that stands on kernels which a run did not tune is marked wherever a page begins with it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import fake_records
import pytest
from html_reports import H200

from nnzbench.facts.groups import Group
from nnzbench.facts.results import ResultSet, load
from nnzbench.records.record import Record
from nnzbench.records.selection import select
from nnzbench.report.data.series import DEFAULT
from nnzbench.report.text import lead, marks, tables
from nnzbench.report.text.lead import Lead, own, side

LEAD = Lead(
    "?",
    sides=(own(), lead.UNTUNED, side("sputnik", variants=DEFAULT), side("sputnik")),
    rivals=(lead.CUSPARSE, lead.CUSPARSE_DEFAULT, lead.CUBLAS),
    groups=(Group(level=90), Group(level=95)),
)
OVER = "† Before tuning: the run's time was over with the first choices tried, but not all candidates, of "
FIRST, ALL, SOME = ("first",), ("first", "all"), ("first", "some")
Scopes = Callable[[Record], Sequence[str]]


def rows(policies: Sequence[str] = ("hot", "cold")) -> list[Record]:
    """Table 1 with `untuned`, at half of cuBLAS's speed."""
    found = fake_records.table1(policies=policies)
    slow = [one for one in found if (one.kernel, one.variant) == ("cublas", "f32_default_nn")]
    return select([*found, *(dataclasses.replace(one, kernel="untuned", variant="ring_t4") for one in slow)])


def recorded(folder: Path, scopes: Scopes | None, policies: Sequence[str] = ("hot", "cold")) -> ResultSet:
    place = fake_records.write(folder / H200 / "sparsert_table1", rows(policies))
    return load(fake_records.tuned(place, scopes) if scopes else place)


def shown(results: ResultSet, asked: Lead = LEAD) -> tuple[lead.Screen, dict[tuple[str, str], set[str]]]:
    """The first screen, and by side and rival the marks of the table's numbers."""
    cells = lead.cells_of(asked, results.frame, ["hot", "cold"])
    found: dict[tuple[str, str], set[str]] = {}
    for (_, mine, rival, _), one in cells.items():
        found.setdefault((mine, rival), set()).add(one.basis.mark)
    return lead.screen(asked, cells, ["hot", "cold"]), found


@pytest.mark.parametrize("scopes", [None, lambda row: ALL, lambda row: ("all",), lambda row: ("",)])
def test_where_all_is_tuned_and_where_no_file_says_nothing_is_marked(tmp_path: Path, scopes: Scopes | None) -> None:
    results = recorded(tmp_path, scopes)
    screen, found = shown(results)
    assert set().union(*found.values()) == {""}
    assert marks.MARK not in "".join(dataclasses.astuple(screen))
    assert marks.WORDS not in "".join(dataclasses.astuple(screen))
    assert screen.mark == ""


def test_a_file_of_before_there_were_first_choices_marks_nothing(tmp_path: Path) -> None:
    results = recorded(tmp_path, lambda row: FIRST)
    path = results.folder / "tuning.csv"
    path.write_text(re.sub(r"(?m),[^,]*$", "", path.read_text()), encoding="utf-8")
    assert set(load(results.folder).frame["cut_short"]) == {""}


def test_first_choices_alone_are_marked_but_what_claims_to_be_one(tmp_path: Path) -> None:
    screen, found = shown(recorded(tmp_path, lambda row: FIRST))
    chosen = {"`untuned`", "`sputnik`, its heuristic"}
    assert {pair for pair, of in found.items() if of == {""}} == {
        (mine, "cuSPARSE's default fp32 in its best layout") for mine in chosen
    }
    assert all(len(of) == 1 for of in found.values())
    assert "(hot, before tuning, faster on" in screen.answer
    assert re.search(r"\d×† \(\d+\) / \d\.\d\d×† \(\d+\)", screen.table)
    assert screen.mark == (
        OVER + "`cublas`, `cusparse`, `row_stream`, "
        "`sparsert`, `sputnik` on 31 of 31 problems. Tuned, these may be faster."
    )


def test_what_was_tuned_on_some_problems_is_counted(tmp_path: Path) -> None:
    """cuSPARSE was tuned at 90 % zeros alone, and one of this project's kernels nowhere."""
    results = recorded(
        tmp_path,
        lambda row: (
            FIRST if row.kernel == "row_stream" or (row.kernel, row.sparsity > 0.94) == ("cusparse", 1) else ALL
        ),
    )
    cells = lead.cells_of(LEAD, results.frame, ["hot"])
    marked = {key[:3] for key, one in cells.items() if one.basis.cuts}
    best, default = "best cuSPARSE fp32", "cuSPARSE's default fp32 in its best layout"
    at90, at95 = (group.label for group in LEAD.groups)
    every = {one.label for one in LEAD.sides}
    assert {(group, mine) for group, mine, rival in marked if rival == best} == {
        (at90, "this project's kernels"), *((at95, mine) for mine in every)
    }  # fmt: skip
    assert {mine for _, mine, rival in marked if rival == default} == {"this project's kernels"}
    screen, _ = shown(results)
    assert screen.mark == (OVER + "`row_stream` on 31 of 31 problems, of `cusparse` on 11. Tuned, these may be faster.")


def test_a_policy_that_was_tuned_has_no_mark(tmp_path: Path) -> None:
    results = recorded(tmp_path, lambda row: FIRST if row.policy == "cold" else ALL)
    cells = lead.cells_of(LEAD, results.frame, ["hot", "cold"])
    best = [(key[3], bool(one.basis.cuts)) for key, one in cells.items() if key[2] == "best cuSPARSE fp32"]
    assert set(best) == {("hot", False), ("cold", True)}


def test_few_candidates_are_told_as_they_were_asked_for(tmp_path: Path) -> None:
    screen, _ = shown(recorded(tmp_path, lambda row: SOME if row.kernel == "cusparse" else ALL))
    assert screen.mark == (
        "† Before tuning: `--quick` or `--candidates` let the run try few candidates of `cusparse` on 31 of 31 "
        "problems. Tuned, these may be faster."
    )


def test_both_kinds_of_cut_stand_in_one_sentence(tmp_path: Path) -> None:
    kinds = {"cusparse": SOME, "cublas": FIRST}
    screen, _ = shown(recorded(tmp_path, lambda row: kinds.get(row.kernel, ALL)))
    assert re.fullmatch(r"† [^.]* of `cublas` on 31 of 31 problems; [^.]* of `cusparse` on 31 .*faster\.", screen.mark)


def test_a_kernel_with_nothing_to_tune_is_not_said_to_be_untuned(tmp_path: Path) -> None:
    results = recorded(tmp_path, lambda row: FIRST)
    assert "`untuned`" not in tables.untuned(results.frame)
    assert "| `sputnik` | 31 |" in tables.untuned(results.frame)
    assert set(results.frame.loc[results.frame["kernel"] == "untuned", "cut_short"]) == {""}


@pytest.mark.parametrize(("kernel", "found"), [("sputnik_ablation", False), ("direct_conv", True)])
def test_a_part_that_a_study_leaves_out_is_one_candidate_and_a_mapping_may_have_several(
    tmp_path: Path, kernel: str, found: bool
) -> None:
    made = [fake_records.record(kernel=kernel, variant=f"{name}_x64") for name in ("complete", "staged")]
    results = load(fake_records.tuned(fake_records.write(tmp_path / "x", select(made)), lambda row: FIRST))
    one = side(kernel, variants=("staged", "complete")[kernel == "sputnik_ablation"], words="of its own")
    assert bool(marks.cuts(results.frame, one)) == found


@pytest.mark.parametrize(
    ("kernel", "label", "mark"),
    [("sputnik", "uneven", "†"), ("sputnik", "even", ""), ("cublas", "even", "†"), ("cublas", "uneven", "")],
)
def test_sums_are_marked_by_each_side_s_own_problems(tmp_path: Path, kernel: str, label: str, mark: str) -> None:
    made = [
        fake_records.record(problem=f"{name}_64x256x3136_90_uniform", source="uniform:0", kernel=one, variant=variant)
        for name in ("even", "uneven")
        for one, variant in (("sputnik", "x64"), ("cublas", "f32_default_nn"))
    ]
    place = fake_records.write(tmp_path / H200 / "sparsert_table1", select(made))
    cut = (kernel, f"{label}_64x256x3136_90_uniform")
    results = load(fake_records.tuned(place, lambda row: FIRST if (row.kernel, row.problem) == cut else ALL))
    group = Group(like="uneven", baseline_like="even", words="uneven against even")
    asked = dataclasses.replace(LEAD, groups=(group,), sides=(side("sputnik"),), rivals=(lead.CUBLAS,))
    (found,) = lead.cells_of(asked, results.frame, ["hot"]).values()
    assert (found.basis.mark, len(found.basis.problems)) == (mark, 2)


def test_where_it_holds_everywhere_it_may_not_after_tuning(tmp_path: Path) -> None:
    asked = dataclasses.replace(LEAD, sides=(side("cublas", "f16"),), rivals=(lead.CUSPARSE,))
    before, _ = shown(recorded(tmp_path / "a", lambda row: FIRST), asked)
    after, _ = shown(recorded(tmp_path / "b", None), asked)
    assert before.limits == "Nowhere in geometric mean, against the rivals below, before tuning."
    assert after.limits == "Nowhere in geometric mean, against the rivals below."


def test_the_title_of_a_figure_says_it(tmp_path: Path) -> None:
    titles = []
    for name, scopes in (("a", lambda row: FIRST), ("b", None)):
        results = recorded(tmp_path / name, scopes)
        cells = lead.cells_of(LEAD, results.frame, ["hot"])
        titles.append(lead.headline(LEAD, cells, LEAD.groups[0], "hot"))
    before, after = titles
    assert before == f"{after}, before tuning"
