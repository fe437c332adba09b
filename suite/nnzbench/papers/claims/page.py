"""The claims with their verdicts: `claims.csv` and `claims.md` of one GPU, `claims/README.md` of all side by side."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from nnzbench.core import paths
from nnzbench.papers.claims.claim import out_of_scope, read
from nnzbench.papers.claims.verdicts import BAND, JUDGED, WORDS, Verdict, points_of, show, verdict
from nnzbench.report.tables import MARK
from nnzbench.report.text import GAP, environment, gpu_name, markdown
from nnzbench.results.result_set import each

HEADER = (
    "claim", "published", "as the paper compares", "over the authors' code", "against the best of today",
    "TF32", "fp16", "cold",
)  # fmt: skip
LECTURE = "Pruning, a lecture of the MIT"
DOCUMENTS = {
    "SparseRT (PACT 2020)": "SparseRT (PACT 2020)",
    "Sputnik (SC 2020)": "Sputnik (SC 2020)",
    "Balanced Sparsity (AAAI 2019)": "Balanced Sparsity (AAAI 2019)",
    "Direct sparse convolution (2021)": "Direct sparse convolution (2021)",
    "EIE (ISCA 2016)": LECTURE,
    "Accelerating Sparse Deep Neural Networks (2021)": LECTURE,
    "TinyML lectures (MIT 6.S965)": LECTURE,
}
"""Which of the five documents that this suite reproduces a paper's claims are in; those of no other are."""
BANDS = (1.10, 1.15, 1.20, BAND, 1.30, 1.35, 1.40)
TOGETHER = "claims"
"""Folder of the page of all GPUs, beside theirs."""


def write(reports: Path, gpu: str, verdicts: Sequence[Verdict]) -> Path:
    """Writes `claims.csv` and `claims.md` below `reports/gpu`, the same bytes each time, and returns the latter."""
    paths.write_csv(pd.DataFrame([dataclasses.asdict(one) for one in verdicts]), reports / gpu / "claims.csv")
    path = reports / gpu / "claims.md"
    paths.write_text(path, _page(verdicts, gpu, (reports / gpu / "peers" / "README.md").is_file()))
    return path


def remove(reports: Path, gpu: str) -> None:
    """Leaves no `claims.csv` and `claims.md` of other records there."""
    for name in ("claims.csv", "claims.md"):
        (reports / gpu / name).unlink(missing_ok=True)


def judged_today(one: Verdict) -> str:
    """The verdict against the best of today, which is the paper's where its baseline is that already."""
    return one.verdict_today or one.verdict


def read_together(reports: Path) -> pd.DataFrame:
    """The verdicts of each GPU that has a `claims.csv`, one below the other, with the GPU's folder as `gpu`."""
    found = [
        pd.read_csv(path, dtype={"before_tuning": str}).fillna({"before_tuning": ""}).assign(gpu=path.parent.name)
        for path in sorted(reports.glob("*/claims.csv"))
    ]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=["id", "gpu", "verdict"])


def sentence(verdicts: pd.DataFrame) -> str:
    """How many claims are judged on any GPU, on each, and on it alone; empty without verdicts."""
    if verdicts.empty:
        return ""
    judged = verdicts[verdicts["verdict"].isin(JUDGED)]
    alone = judged.drop_duplicates("id", keep=False)["gpu"].value_counts()
    gpus, counts = verdicts["gpu"].unique(), judged["gpu"].value_counts()
    on = [
        f"{counts.get(gpu, 0)} on {gpu_name(gpu, {})}" + f" ({alone.get(gpu, 0)} of them there alone)" * (len(gpus) > 1)
        for gpu in gpus
    ]
    total = verdicts["id"].nunique()
    return f"Of {total} claims {judged['id'].nunique()} are judged on at least one GPU: {', '.join(on)}."


def write_together(reports: Path) -> None:
    """Writes `claims/README.md` from the `claims.csv` of all GPUs: one counts as judged where any judges it.

    Removes it where no GPU has any.
    """
    verdicts = read_together(reports)
    path = reports / TOGETHER / "README.md"
    if verdicts.empty:
        path.unlink(missing_ok=True)
        return
    links = {gpu: f"[{gpu_name(gpu, {})}](../{gpu}/claims.md)" for gpu in verdicts["gpu"].unique()}

    def cell(one: Any) -> str:
        word = f"**{one.verdict}**" if one.verdict in JUDGED else one.verdict
        return f"{_value(one, 'hot')} {word}".strip()

    cells = {(one.id, one.gpu): cell(one) for one in each(verdicts)}
    papers = {}
    for paper, some in verdicts.drop_duplicates("id").groupby("paper", sort=False):
        rows = [
            [
                f"{one.claim} (`{one.id}`)",
                show(one.published, one.unit),
                *(cells.get((one.id, gpu), GAP) for gpu in links),
            ]
            for one in each(some)
        ]
        papers[paper] = len(rows), markdown(["claim", "published", *links.values()], rows)
    scope = out_of_scope().drop(columns="where")
    others = len(scope), markdown(["paper", "claim", "why no record is about it"], scope.values, 3)
    template = environment().get_template("claims_joint.md.j2")
    marked = any(MARK in one for one in cells.values())
    text = template.render(
        sentence=sentence(verdicts),
        tally=_tally(verdicts),
        bands=_bands(verdicts),
        papers=papers,
        out_of_scope=others,
        mark=MARK if marked else "",
    )
    paths.write_text(path, text)


def _tally(verdicts: pd.DataFrame) -> str:
    """Claims and verdicts of each of the five documents, of all five, and of each other paper."""
    of = verdicts["paper"].map(DOCUMENTS)
    judged = verdicts["verdict"].isin(JUDGED)
    pairs = verdicts["problems"].astype(str).str.extract(r"^(\d+) of")[0].astype(float)
    synthetic = judged & (verdicts.reindex(columns=["synthetic"])["synthetic"].fillna(0) > pairs / 2)

    def row(name: str, chosen: pd.Series[bool]) -> list[str]:
        ids = [verdicts.loc[chosen & some, "id"].nunique() for some in (True, judged, synthetic)]
        words = []
        for gpu in verdicts["gpu"].unique():
            counts = Counter(verdicts.loc[chosen & (verdicts["gpu"] == gpu), "verdict"])
            words.append(", ".join(f"{counts[word]} {word}" for word in JUDGED if counts[word]) or GAP)
        return [name, *map(str, ids), *words]

    others = verdicts.loc[of.isna(), "paper"].unique()
    rows = [row(name, of == name) for name in dict.fromkeys(DOCUMENTS.values())]
    rows += [
        row("**the five documents**", of.notna()),
        *(row(f"beside them: {one}", verdicts["paper"] == one) for one in others),
    ]
    gpus = (gpu_name(gpu, {}) for gpu in verdicts["gpu"].unique())
    return markdown(["document", "claims", "judged", "of them mostly on synthetic patterns", *gpus], rows)


def _bands(verdicts: pd.DataFrame) -> str:
    """How many verdicts on each GPU would be others if numbers agreed within another factor than `BAND`."""
    claims = {one.id: one for one in read()}

    def flips(some: pd.DataFrame, band: float) -> int:
        """Of numbers that judge: the records', and the authors' where they must say the same."""
        return sum(
            {verdict(claims[one.id], value, band) for value in (one.measured, one.measured_authors) if value == value}
            != {one.verdict}
            for one in each(some)
            if not math.isnan(one.measured)
        )

    judged = verdicts[verdicts["verdict"].isin(JUDGED) & verdicts["id"].isin(claims)]
    rows = [
        [gpu_name(str(gpu), {}), *(str(flips(some, band)) if band != BAND else GAP for band in BANDS), str(len(some))]
        for gpu, some in judged.groupby("gpu", sort=False)
    ]
    return markdown(["GPU", *(f"{band:.2f}, {points_of(band):.0f} points" for band in BANDS), "judged"], rows)


def _page(verdicts: Sequence[Verdict], gpu: str, upstream: bool) -> str:
    """`upstream`: whether the GPU has a page of the authors' own codes."""
    papers: dict[str, list[Verdict]] = {}
    for one in verdicts:  # a paper's claims may lie apart in their table
        papers.setdefault(one.paper, []).append(one)
    as_published, today = Counter(one.verdict for one in verdicts), Counter(map(judged_today, verdicts))
    counts = {paper: Counter(one.verdict for one in mine) for paper, mine in papers.items()} | {
        "**all, as the papers compare**": as_published,
        "**all, against the best of today**": today,
        "dense baseline in TF32": Counter(one.verdict_tf32 for one in verdicts),
        "dense baseline in fp16": Counter(one.verdict_fp16 for one in verdicts),
    }

    def by_kernel(mine: Iterable[Verdict]) -> list[tuple[str, list[Verdict]]]:  # those that follow each other together
        return [(kernel, list(some)) for kernel, some in itertools.groupby(mine, lambda one: one.kernel)]

    template = environment().get_template("claims.md.j2")
    return template.render(
        gpu=gpu_name(gpu, {}),
        verdicts=verdicts,
        judged=JUDGED,
        count=sum(one.verdict in JUDGED for one in verdicts),
        words=WORDS,
        out_of_scope=len(out_of_scope()),
        upstream=upstream,
        cut=sum(one.before_tuning != "" for one in verdicts),
        mark=MARK,
        as_published=as_published,
        today=today,
        counts=markdown(["paper", *WORDS], ([name, *(str(of[word]) for word in WORDS)] for name, of in counts.items())),
        papers={paper: (markdown(HEADER, map(_row, mine)), by_kernel(mine)) for paper, mine in papers.items()},
        anchor=_anchor,
    )


def _row(one: Verdict) -> list[str]:
    same = "the same baseline" if one.baseline else GAP
    return [
        f"{one.claim} ([{one.id}](#{_anchor(one.id)}))",
        f"{show(one.published, one.unit)} ({one.published_gpu})",
        _judged(one, "hot", one.verdict, one.problems, one.low, one.high),
        show(one.authors, "x") or GAP,
        _judged(one, "today", one.verdict_today, one.problems_today) if one.baseline_today else same,
        _judged(one, "tf32", one.verdict_tf32),
        _judged(one, "fp16", one.verdict_fp16),
        _value(one, "cold") or GAP,
    ]


def _value(one: Verdict, which: str) -> str:
    """A number with its unit, and the mark where it is one of `before_tuning`; empty where it is not known.

    With the authors' own beside it where that judges too.
    """
    value: float = one.measured if which == "hot" else getattr(one, f"measured_{which}")
    text = show(value, one.unit)
    text += MARK * bool(text and which in one.before_tuning.split())
    theirs = show(one.measured_authors, one.unit) if which == "hot" else ""
    return f"{text}{', ' * bool(text)}by the authors' code {theirs}" if theirs else text


def _judged(
    one: Verdict, which: str, word: str, problems: str = "", low: float = math.nan, high: float = math.nan
) -> str:
    value = _value(one, which)
    if not math.isnan(low):
        value += (
            f" ({show(low, one.unit)} to {show(high, one.unit)})" if high >= low else f" (from {show(low, one.unit)})"
        )
    text = f"{value} **{word}**" if value else word
    return (f"{text} ({problems})" if problems else text) if word else GAP


def _anchor(name: str) -> str:
    return name.replace(".", "-")
