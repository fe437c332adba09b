"""From a page's declaration and records to its files: README.md, facts.csv and the figures beside the records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from nnzbench.core import paths
from nnzbench.data.problems.problem import stem_of
from nnzbench.kernels.registry import about
from nnzbench.report import published
from nnzbench.report.draw import kinds
from nnzbench.report.page import Answer, Page, RatioTable, Table, View
from nnzbench.report.tables import CLOCKS, ENERGY, MARK, energy_table, markdown_of, marks
from nnzbench.report.text import GAP, LONG, commit, environment, markdown, recorded_on
from nnzbench.results import energy
from nnzbench.results import table as facts_table
from nnzbench.results.groups import ALL
from nnzbench.results.result_set import ResultSet, each
from nnzbench.results.selector import CONVOLUTIONS, DENSE, FP16, MATHS, PRODUCTS, TF32, kernels_in, own, present
from nnzbench.results.table import APART, Comparison


class Shown(NamedTuple):
    """A table or figure as the template has it."""

    title: str
    text: str
    collapsed: bool = False


def write(page: Page, results: ResultSet, gaps: Sequence[str] = (), unmeasured: Sequence[str] = ()) -> Path:
    """Writes the page's files into the folder of the results, and returns the path of its README.md.

    `gaps`: sentences on what is missing that the records alone do not tell; `unmeasured`: on cells without a time.
    """
    view = View(results, page.attributes)
    figures = [Shown(one.title, f"{one.name}.svg") for one in page.figures if kinds.save(one, view)]
    first = RatioTable("", page.comparison) if page.comparison else None
    tables = [one for element in page.tables if (one := _table(element, view))]
    if page.energy and (joules := energy_table(page.energy, view)):
        tables.insert(0, Shown(ENERGY, joules))
    comparison = markdown_of(first, view) if first else ""
    answer = page.made(view) if page.made else " ".join(answers(page, view)) or "Not recorded yet."
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
            slow=CLOCKS if CLOCKS in shown else "",
            apart=f"{100 * APART:.0f}",
            figures=figures,
            tables=tables,
            findings=[*filter(None, (one(view) for one in page.findings))],
            untuned=untuned(results.frame),
            gains=gains(results.frame),
            failures=failures(results.frame, view.names()),
            gaps=[*results.left_out, *gaps, *refused(results)],
            unmeasured=[*unmeasured],
            recordings=[*recordings(results), *filter(None, [across(results)])],
            clocks=clocks(results.frame),
            beyond=beyond(results.frame),
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
        intro="",
        comparison=Comparison(subjects, baselines) if baselines else None,
    )


def _table(element: Table, view: View) -> Shown | None:
    text = markdown_of(element, view)
    return Shown(element.title, text, element.collapsed or text.count("\n") > LONG) if text else None


def answers(page: Page, view: View) -> Iterator[str]:
    """Sentences of the page's answer that have records."""
    yield from filter(None, (_answer(one, view) for one in page.answers))


def _answer(one: Answer, view: View) -> str:
    """The sentence on one ratio: against the best a user could call today first, the paper's baseline second."""
    baselines = (one.baseline, *([one.paper_baseline] if one.paper_baseline else []))
    facts = view.compare(Comparison((one.subject, *one.beside), baselines, (one.group,)))
    found = {(row.subject, row.baseline, row.policy): row for row in each(facts)}
    policy, *others = view.policies or [""]
    subject, baseline = one.subject.label, one.baseline.label
    if (main := found.get((subject, baseline, policy))) is None:
        return ""
    return (
        environment()
        .get_template("answer.md.j2")
        .render(
            one=one,
            main=main,
            policy=policy,
            others=[row for name in others if (row := found.get((subject, baseline, name)))],
            beside=[row for side in one.beside if (row := found.get((side.label, baseline, policy)))],
            older=found.get((subject, one.paper_baseline.label, policy)) if one.paper_baseline else None,
            claim=published.claim(one.claim) if one.claim else None,
            counted=view.counted(one.group),
            marks=marks,
        )
        .strip()
    )


def refused(results: ResultSet) -> Iterator[str]:
    """Of how many candidates no window of energy is ok; nothing where each has one."""
    every = energy.windows(results)
    right = every.assign(right=every["status"] == "ok").groupby(energy.KEY)["right"].any()
    if lost := len(right) - int(right.sum()):
        yield f"Energy: every window was refused of {lost} of {len(right)} candidates (`energy.csv` says why)."


LOW = 1 - APART
"""Share of the usual clock below which a time is counted as measured at a lower one."""
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
    counts = cut.assign(stem=cut["problem"].map(stem_of)).groupby(["cut_short", "kernel"])["stem"].nunique()
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


def clocks(frame: pd.DataFrame) -> str:
    """How many rows met a limit on the clock, how many of them far below the usual one; empty where none did."""
    limited = frame[frame["reason"].fillna("").str.contains("throttled", regex=False)]
    if limited.empty:
        return ""
    usual = frame["sm_clock_mhz"].median()
    low = int((limited["sm_clock_mhz"] < LOW * usual).sum())
    below = f"more than {100 * (1 - LOW):.0f} % below the usual {usual:.0f} MHz"
    return f"{len(limited):,} met a limit on the clock, {low:,} ran {below}"


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


def across(results: ResultSet) -> str:
    """On how many problems kernels are compared that were not measured on one GPU; empty where on none.

    A snapshot of a cluster's run tells GPUs of one model apart; runs whose snapshot does not may each be of another.
    """
    units = {name: snapshot.get("worker", name) for name, _, snapshot in results.environments}
    frame = results.frame[results.frame["median_us"].notna()]
    parts = frame["kernel"].map(lambda name: about(name).study).astype(bool)  # compared with each other, fast or not
    rows = frame[frame["selected"] | parts]
    of = rows["environment"].map(units).groupby(rows["problem"].map(stem_of)).nunique()
    mixed = int((of > 1).sum())
    if not mixed:
        return ""
    told = "[how far two differ](../../../docs/performance/libraries-and-measuring.md#two-runs-of-one-commit)"
    return (
        f"On {mixed} of {len(of)} problems, kernels were measured on different GPUs of this model, or in runs that do "
        f"not tell which: {told}"
    )


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
