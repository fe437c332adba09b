"""From a page's declaration and records to its files: README.md, facts.csv and the figures beside the records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from nnzbench.core import paths
from nnzbench.kernels.registry import about
from nnzbench.report import published
from nnzbench.report.draw import kinds
from nnzbench.report.page import Answer, Page, RatioTable, Table, View
from nnzbench.report.tables import CARDS, CLOCKS, ENERGY, MARK, energy_table, markdown_of, marks
from nnzbench.report.text import GAP, commit, environment, markdown, number, recorded_on
from nnzbench.results import energy
from nnzbench.results import table as facts_table
from nnzbench.results.groups import ALL
from nnzbench.results.result_set import ResultSet, division, each
from nnzbench.results.runs import reproduced
from nnzbench.results.selector import CONVOLUTIONS, DENSE, FP16, MATHS, PRODUCTS, TF32, kernels_in, own, present
from nnzbench.results.table import Comparison


class Shown(NamedTuple):
    """A table or figure as the template has it."""

    title: str
    text: str
    collapsed: bool = False


OPEN, FOLDED = 15, 40
"""Lines of a table on the first screen, and of one that opens on a click; the others are left out, and it says so."""
WORDS = 30
"""Of a page's verdict, at most."""
FIGURES = 4
"""Of a page, at most."""


def write(page: Page, results: ResultSet) -> Path:
    """Writes the page's files into the folder of the results, and returns the path of its README.md."""
    return draw(page, View(results, page.attributes))


def draw(page: Page, view: View, gaps: Sequence[str] = (), unmeasured: Sequence[str] = ()) -> Path:
    """The same of a view. `gaps`: sentences on what is missing that the records alone do not tell; `unmeasured`: on
    cells without a time."""
    results = view.results
    figures = [Shown(one.title, f"{one.name}.svg") for one in page.figures if kinds.save(one, view)]
    comparison = cut(markdown_of(RatioTable("", page.comparison), view), OPEN) if page.comparison else ""
    told = [*answers(page, view)]
    tables = [one for element in page.tables if (one := _table(element, view))]
    first = next((one for one in tables if not one.collapsed), None)
    if page.energy and (joules := energy_table(page.energy, view)):
        tables.insert(0, Shown(ENERGY, cut(joules, FOLDED), True))
    for asked in page.facts:
        view.compare(asked)
    answer = page.made(view) if page.made else next(iter(told), "Not recorded yet.")
    shown = "".join((answer, comparison, *(one.text for one in tables)))
    text = (
        environment()
        .get_template("page.md.j2")
        .render(
            page=page,
            title=results.experiment,
            view=view,
            results=results,
            answer=answer,
            comparison=comparison,
            mark=MARK if MARK in shown else "",
            gains=gains(results.frame) if MARK in shown else "",
            clocks=clocks(results, CLOCKS if CLOCKS in shown else ""),
            figures=figures[:FIGURES],
            open=first,
            tables=[one for one in tables if one is not first],
            findings=[*filter(None, (lighter(page, view), *(one(view) for one in page.findings)))],
            untuned=untuned(results.frame),
            failures=cut(failures(results.frame, view.names()), OPEN),
            gaps=[*results.left_out, *gaps, *refused(results)],
            unmeasured=[*unmeasured],
            recordings=[*recordings(results), *reproduction(results)],
            division=division(results.frame),
            beyond=beyond(results.frame),
            sol=speed_of_light(results.frame, view.policy),
            counts=results.frame["status"].value_counts().sort_index().to_dict(),
        )
    )
    if len(results.recorded):
        facts_table.write(view.facts(), results.folder)
    path = results.folder / "README.md"
    paths.write_text(path, text)
    return path


def generic(results: ResultSet) -> Page:
    """The page of an experiment without one of its own: what it recorded, over the libraries that it recorded."""
    have = present(results.frame)
    own_maths = sorted({math for name, math in have if about(name).role == "own"})
    subjects = (
        *map(own, own_maths),
        *(one for one in kernels_in(results.frame) if about(one.kernel).role != "library"),
    )
    baselines = tuple(
        one for one in (*PRODUCTS, *CONVOLUTIONS) if any((name, one.math) in have for name in one.kernels)
    )
    strongest = next((one for one in (FP16, TF32, DENSE, *CONVOLUTIONS[::-1], *PRODUCTS) if one in baselines), None)
    return Page(
        answers=(Answer(ALL, subjects[0], strongest),) if strongest and subjects else (),
        question=f"How fast is what `{results.experiment}` recorded?",
        comparison=Comparison(subjects, baselines) if baselines else None,
    )


def _table(element: Table, view: View) -> Shown | None:
    text = markdown_of(element, view)
    collapsed = element.collapsed or text.count("\n") > OPEN + 1
    return Shown(element.title, cut(text, FOLDED), collapsed) if text else None


def cut(text: str, most: int) -> str:
    """A table's first lines, and of how many they are where there are more."""
    lines = text.split("\n")
    if len(lines) <= most + 2:
        return text
    return "\n".join([*lines[: most + 2], "", f"{most} of {len(lines) - 2} lines; the others are in the data."])


def answers(page: Page, view: View) -> Iterator[str]:
    """The page's answers that have records, each a sentence; all that they compare is asked, for `facts.csv`."""
    yield from [sentence for one in page.answers if (sentence := _answer(one, view))]


def _answer(one: Answer, view: View) -> str:
    """A verdict, the ratio behind it with its interval, and the paper's over what the paper divided by."""
    baselines = (one.baseline, *([one.paper_baseline] if one.paper_baseline else []))
    facts = view.compare(Comparison((one.subject, *one.beside), baselines, (one.group,)))
    mine = facts[(facts["policy"] == view.policy) & (facts["subject"] == one.subject.label)]
    found = {row.baseline: row for row in each(mine)}
    if (main := found.get(one.baseline.label)) is None:
        return ""
    sides = sorted((main.low, main.high)) if main.n > 1 else (main.ratio / CARDS, main.ratio * CARDS)
    word = "Faster" if sides[0] > 1 else "Slower" if sides[1] < 1 else "About even"
    ratio = f"**{number(main.ratio)}×**{marks(main)}"
    told = f"{word}: {main.group}, {one.subject.label} is {ratio} as fast as {one.baseline.label}"
    interval = f" ({number(main.low)} to {number(main.high)})" if main.low != main.high else ""
    older = found.get(one.paper_baseline.label) if one.paper_baseline else None
    beside = f", {number(older.ratio)}×{marks(older)} over {older.baseline}" if older is not None else ""
    paper = f"; the paper: {published.claim(one.claim)}" if one.claim else ""
    longest = [f"{told}{interval}{beside}{paper}.", f"{told}{beside}{paper}."]
    longest += [] if beside and paper else [f"{told}{paper}."]  # a paper's number is beside what it divided by
    return next((text for text in longest if len(text.split()) <= WORDS), longest[-1])


def lighter(page: Page, view: View) -> str:
    """Where in the page's table a dense product with the pruned matrix is faster than that before pruning; or empty."""
    told = []
    groups = page.comparison.groups if page.comparison else ()
    for one in page.comparison.baselines if page.comparison else ():
        if one.dense and not one.variants:
            pruned = replace(one, label=f"{one.label}, pruned matrix", pruned=True)
            facts = view.compare(Comparison((pruned,), (one,), groups))
            mine = facts[(facts["policy"] == view.policy) & (facts["ratio"] > 1 + facts_table.APART)]
            told += [f"{one.label} {number(row.ratio)}× ({row.group})" for row in each(mine)]
    said = "Over the pruned matrix, whose zeros take less power, a dense product takes less than over that before: "
    return f"{said}{'; '.join(told)}." if told else ""


def refused(results: ResultSet) -> Iterator[str]:
    """Of how many candidates no window of energy is ok; nothing where each has one."""
    every = energy.windows(results)
    right = every.assign(right=every["status"] == "ok").groupby(energy.KEY)["right"].any()
    if lost := len(right) - int(right.sum()):
        yield f"Energy: every window was refused of {lost} of {len(right)} candidates (`energy.csv` says why)."


TWO_RUNS = "../../../docs/performance/libraries-and-measuring.md#two-runs-of-one-commit"
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w|\.\d)")
"""A number that is no part of a name."""
_SCOPES = {"first": "only first choices tried", "some": "few candidates tried"}


def failures(frame: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Markdown: rows without a time, with the problems they concern. Empty for none.

    Reasons that differ by numbers alone stand together, with the span of each number.
    """
    missing = frame[frame["status"] != "ok"]
    missing = missing.assign(alike=[_NUMBER.sub("#", str(reason)) for reason in missing["reason"]])
    rows = []
    for (kernel, variant, status, _), group in missing.groupby(["kernel", "variant", "status", "alike"], dropna=False):
        reason = _spans([str(one) for one in dict.fromkeys(group["reason"])])
        problems = list(dict.fromkeys(names.get(one, one) for one in group["problem"]))
        shown = ", ".join(problems) if len(problems) <= 6 else f"{len(problems)} problems"
        rows.append([str(kernel), f"`{variant}`" if variant else GAP, str(status), reason, shown, str(len(group))])
    rows.sort(key=lambda row: -int(row[-1]))
    return markdown(["kernel", "variant", "status", "reason", "problems", "rows"], rows, left=5) if rows else ""


def _spans(reasons: Sequence[str]) -> str:
    """The one reason that `reasons`, equal but for their numbers, are cases of: `at least 90-97 % ...`."""
    columns = zip(*(_NUMBER.findall(reason) for reason in reasons), strict=True)
    ends = [(min(numbers, key=float), max(numbers, key=float)) for numbers in columns]
    spans = iter(low if low == high else f"{low}-{high}" for low, high in ends)
    return _NUMBER.sub(lambda _: next(spans), reasons[0])


def untuned(frame: pd.DataFrame) -> str:
    """Markdown: on how many problems (all types of one together) each kernel was not tuned. Empty where all were."""
    cut = frame[(frame["cut_short"] != "") & frame["median_us"].notna()]
    counts = cut.groupby(["cut_short", "kernel"])["stem"].nunique()
    rows = [[one.kernel, _SCOPES[one.cut_short], str(one.stem)] for one in each(counts.reset_index())]
    return markdown(["kernel", "", "problems"], sorted(rows, key=lambda row: -int(row[2])), left=2) if rows else ""


TOLD = 1.1
"""Gain by tuning from which on a page tells it beside its mark."""


def gains(frame: pd.DataFrame) -> str:
    """What tuning gained of kernels that it was not done with on all problems, where it was done: the page's first
    policy, largest gains first. Empty where none gained a tenth."""
    found = facts_table.tuning_gains(frame)
    found = found[(found["gain"] >= TOLD) & ~found["kernel"].map(lambda name: about(name).study).astype(bool)]
    policy = next((one for one in ("hot", "stream") if one in set(found["policy"])), "")
    told = each(found[found["policy"] == policy].sort_values(["gain", "kernel"], ascending=False))
    return ", ".join(f"{about(one.kernel).label} {MATHS[one.math]} {one.gain:.2f}× ({one.n})" for one in told)


def clocks(results: ResultSet, mark: str) -> str:
    """How far clocks and cards can move a ratio, in a sentence, which says what `mark` means; empty without times."""
    timed = results.frame[results.frame["median_us"].notna()]
    mhz = timed["sm_clock_mhz"].dropna()
    if mhz.empty:
        return ""
    usual = mhz.median()
    within = 100 * (mhz / usual - 1).abs().quantile(0.9)
    said = f"Clocks are recorded, not locked: nine in ten times ran within {within:.1f} % of {usual:.0f} MHz"
    units = {name: snapshot.get("worker", name) for name, _, snapshot in results.environments}
    parts = timed["kernel"].map(lambda name: about(name).study).astype(bool)  # compared with each other, fast or not
    rows = timed[timed["selected"] | parts]
    of = rows["environment"].map(units).groupby(rows["stem"]).nunique()
    if mixed := int((of > 1).sum()):
        said += f"; on {mixed} of {len(of)} problems times come from several cards or runs, which differ by up to 4 %"
    meant = f"; {mark} marks a ratio that this could turn round" if mark else ""
    return f"{said} ([how two runs differ]({TWO_RUNS})){meant}."


def beyond(frame: pd.DataFrame) -> str:
    """How many rows take less than their roofline, and why the model allows it; empty where none does."""
    share = frame["limit_share"]
    count = int((share > 1).sum())
    if not count:
        return ""
    return (
        f"The roofline of {count:,} rows is above their time, by up to {100 * (share.max() - 1):.0f} %: its peaks are "
        "those of a large copy and a large product, and reading alone and shorter products are faster"
    )


def speed_of_light(frame: pd.DataFrame, policy: str) -> str:
    """The mean score of the fastest sparse kernels, in a sentence; empty without one."""
    best = frame[(frame["policy"] == policy) & (frame["work"] == "sparse")].groupby("stem")["sol"].max().dropna()
    if best.empty:
        return ""
    return (
        f"Speed-of-light score of each problem's fastest sparse kernel, {policy}: {best.mean():.2f} in the mean of "
        f"{len(best)} problems (0.5: the best dense product in its arithmetic; 1: its roofline)"
    )


def reproduction(results: ResultSet) -> Iterator[str]:
    """Whether another run has the same problems, and how many rows are the same there."""
    if found := reproduced(results):
        again, count, same = found
        dates = sorted({recorded_on(snapshot) for _, _, snapshot in again.environments})
        yield f"Reproduced by another run, {dates[-1]}: {same:,} of {count:,} kernels' fastest are the same there"


def recordings(results: ResultSet) -> list[str]:
    """A sentence per commit that measured: rows, sessions, dates."""
    found: dict[str, list[tuple[int, str]]] = {}
    for _, count, snapshot in results.environments:
        found.setdefault(commit(snapshot), []).append((count, recorded_on(snapshot)))
    out = []
    for code, those in found.items():
        dates = sorted({date for _, date in those if date})
        when = dates[0] if len(dates) == 1 else " to ".join((dates[0], dates[-1])) if dates else "no date"
        many = f" in {len(those)} sessions" if len(those) > 1 else ""
        out.append(f"{when}, {sum(count for count, _ in those):,} rows{many} by the code of {code}")
    return out
