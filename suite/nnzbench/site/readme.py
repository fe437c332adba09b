"""The headline in README.md: generated between two markers from the recorded runs, never typed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from nnzbench import paths
from nnzbench.papers.catalogue import page_of
from nnzbench.records.files import folders, has_records
from nnzbench.report.data import context
from nnzbench.report.data.frames import load, percent
from nnzbench.report.data.series import Series
from nnzbench.report.draw import layout
from nnzbench.report.text import marks
from nnzbench.report.text.groups import Group
from nnzbench.report.text.lead import FP16, PRODUCTS, Cells, cells_of, lines
from nnzbench.report.text.tables import markdown
from nnzbench.site.index.answer import EVEN

HEADLINE = re.compile(r"(<!-- nnzbench:headline -->\n).*?(<!-- /?nnzbench:headline -->)", re.DOTALL)
EXPERIMENT = "sparsert_table1"
PREFERRED_GPU = "nvidia-h200"
ALONE = {"ahead": "ahead of", "even": "even with", "behind": "behind"}
"""What is said before a rival's name where it is so under every policy."""


class Set(NamedTuple):
    """Problems that stand for a kind of layer."""

    words: str
    experiment: str
    group: str
    """Label of one of the groups of that page's lead."""
    kernel: str
    """Label of the side of that lead whose wins and losses are told in words."""


SETS = (
    Set("Small pruned layers", "sparsert_table1", "at 90 % zeros", "this project's kernels"),
    Set("Large recurrent layers", "sputnik_rnn", "SpMM of figure 10 at 90 % zeros", "this project's kernels"),
    Set(
        "A collection of pruned networks", "sputnik_dlmc", "SpMM in the representative sample", "this project's kernels"
    ),
    Set("Layers of language models", "llm_layers", "at 90 % zeros with 16 columns", "`tensor_spmm` fp16"),
)


def write_headline(reports: Path) -> bool:
    """Replaces the text between the markers of the README.md that lies beside `reports`; True where it changed.

    Nothing else writes outside a results folder, and it is done on an explicit word only (`nnzbench report --readme`).
    Does nothing where there is no README, no pair of markers or no recorded run.
    """
    reports = reports.resolve()
    readme = reports.parent / "README.md"
    folder = _folder(reports)
    if folder is None or not readme.is_file():
        return False
    before = readme.read_text(encoding="utf-8")
    if not HEADLINE.search(before):
        return False
    text = headline(folder)
    after = HEADLINE.sub(lambda match: f"{match[1]}{text}\n{match[2]}", before, count=1)
    if after == before:
        return False
    paths.write_text(readme, after)
    return True


def headline(folder: Path) -> str:
    """Markdown: the plot, in which cases sparse and in which dense kernels win, the table, and where all of it is."""
    results = load(folder)
    policies = context.policies(results.frame)
    gpu = context.gpu_name(results.gpu, results.environment)
    link, root = "/".join(folder.parts[-3:]), folder.parts[-3]
    stem = layout.stem("speedup", policies[0])
    date = context.recorded_on(results.environment)
    claims = "/".join((*folder.parts[-3:-1], "claims.md"))
    shown = [_shown(one, found) for one in SETS if has_records(found := folder.parent / one.experiment)]
    pictures = "\n".join(f"* {one.picture}" for one in shown)
    rivals = [rival.label for rival in PRODUCTS]
    parts = [
        f"[![Speed-up of sparse kernels over cuBLAS fp32 on {gpu}]({link}/{stem}.png)]({link}/README.md)",
        f"On {gpu}{f', recorded {date}' if date else ''}, in geometric mean (even: within {percent(EVEN)}):",
        pictures,
        "How many times as fast, in geometric mean, hot / cold; in brackets on how many of the problems the ratio "
        "is above 1 ([what hot, cold, tuned, `untuned` and the kernels' roles mean](docs/terms.md)):",
        markdown(["on", "kernel", *rivals], _told_once([row for one in shown for row in one.rows]), left=2),
        marks.sentence({one.words: one.numbers for one in shown}),
        f"Each number stands on the page linked in its row, with what it is made of. All experiments on one page "
        f"with filters and a roofline: [{root}/index.html]({root}/index.html) (download it; it needs no network). "
        f"The papers' claims, judged: [claims]({claims}). Yours: `nnzbench run {EXPERIMENT}`, then "
        "`nnzbench report`.",
    ]
    return "\n\n".join(part for part in parts if part)


def _told_once(rows: Sequence[list[str]]) -> list[list[str]]:
    """The rows, their first cell empty where it is the one above."""
    return [["" if row[:1] == above[:1] else row[0], *row[1:]] for above, row in zip([[], *rows], rows, strict=False)]


class _Shown(NamedTuple):
    """One set of problems in the headline."""

    words: str
    rows: list[list[str]]
    """Of the table."""
    picture: str
    """In words whom its best kernels here win against."""
    numbers: list[marks.Basis]
    """What the numbers of its rows stand on."""


def _shown(one: Set, folder: Path) -> _Shown:
    results = load(folder)
    spec = page_of(one.experiment).lead
    if spec is None:
        raise ValueError(f"the page of {one.experiment} has no lead")
    (group,) = (group for group in spec.groups if group.label == one.group)
    policies = context.policies(results.frame)
    spec = replace(spec, groups=(group,), crossing=())
    cells = cells_of(spec, results.frame, policies)
    link = "/".join((*folder.parts[-3:], "README.md"))
    rivals = [rival.label for rival in PRODUCTS]
    rows = [
        [f"[{one.words}]({link}): {problems}", kernel, *values]
        for kernel, problems, *values in lines(spec, cells, policies, group, rivals)
    ]
    return _Shown(
        one.words,
        rows,
        f"**{one.words}**: {_picture(one, group, cells, policies)}",
        [found.basis for (_, _, rival, _), found in cells.items() if rival in rivals],
    )


def _picture(one: Set, group: Group, cells: Cells, policies: Sequence[str]) -> str:
    """Whom the best of this project's kernels win against under every policy, whom under none, and whom under some.

    Where they are fp32 ones, those with fp16 values are set against dense fp16, too. A rival has the mark where one of
    its numbers has it: after tuning it may stand elsewhere.
    """
    said = _standing(cells, group, one.kernel, PRODUCTS, policies)
    half = _standing(cells, group, f"{one.kernel} fp16", (FP16,), policies)
    return f"{one.kernel} {said}{f'; with fp16 values {half}' * bool(half)}." if said else "not recorded."


def _standing(cells: Cells, group: Group, kernel: str, rivals: Sequence[Series], policies: Sequence[str]) -> str:
    """`ahead of A, B; behind C; ahead when hot but even when cold against D`; empty for no numbers."""
    wins: dict[str, list[str]] = {words: [] for words in ALONE.values()}
    for rival in rivals:
        by_policy = {policy: cells.get((group.label, kernel, rival.label, policy)) for policy in policies}
        found = {policy: cell for policy, cell in by_policy.items() if cell}
        if found:
            words = _against({policy: cell.value for policy, cell in found.items()})
            wins.setdefault(words, []).append(rival.label + marks.mark_of(cell.basis for cell in found.values()))
    return "; ".join(f"{words} {', '.join(names)}" for words, names in wins.items() if names)


def _against(ratios: Mapping[str, float]) -> str:
    """What is said before a rival's name, of the ratio under each policy; nearer to 1 than `EVEN` is neither."""
    place = {
        policy: "ahead" if ratio >= 1 + EVEN else "behind" if ratio <= 1 - EVEN else "even"
        for policy, ratio in ratios.items()
    }
    if len(set(place.values())) == 1:
        return ALONE[next(iter(place.values()))]
    return f"{' but '.join(f'{word} when {policy}' for policy, word in place.items())} against"


def _folder(reports: Path) -> Path | None:
    found = folders(reports, f"*/{EXPERIMENT}")
    preferred = [path for path in found if path.parent.name == PREFERRED_GPU]
    return next(iter(preferred or found), None)
