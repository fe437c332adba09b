"""How a page begins: the question, the answer beside the paper's number, where it does not hold, a table of ratios.

Every ratio is the geometric mean, over the problems that have both times under one policy, of the rival's time over the
side's; a group with `baseline_like` divides the sums of all, one with `parts` those of each layer. One that stands on
kernels which the run did not tune carries the mark of `marks.py`, in sentences its words. The words follow one grammar,
so that `runners/recompute.py`, which imports nothing of this package, can read each number and compute it again from
the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from nnzbench.facts import crossover
from nnzbench.facts.groups import ALL, Group
from nnzbench.facts.results import ResultSet, each
from nnzbench.kernels.registry import known
from nnzbench.report.data import published
from nnzbench.report.data.series import COLUMN_DEFAULT, DEFAULT, MATH_LABELS, Series
from nnzbench.report.text.marks import WORDS, cuts, sentence
from nnzbench.report.text.ratios import Ratio, alike, on, ratio, times_of
from nnzbench.report.text.tables import GAP, markdown, number

TITLE = 104
"""Letters that the title of a figure has room for."""
LOST = 4
"""How many combinations are named under "where it does not hold"; the table has all."""


def side(kernel: str, math: str = "f32", variants: str = "", words: str = "") -> Series:
    """A kernel as a row of the table, or as a rival: `sputnik`, `sputnik`, its heuristic, `ring` fp16."""
    suffix = "" if math == "f32" else f" {MATH_LABELS[math]}"
    words = words or ("its heuristic" if variants == DEFAULT else "")
    return Series(kernel, f"`{kernel}`{suffix}{f', {words}' if words else ''}", (kernel,), math, variants)


def own(math: str = "f32", as_data: bool = False) -> Series:
    """This project's designs, an oracle: per problem the fastest of all candidates; `as_data`: of no generated code."""
    found = tuple(
        name
        for name, one in known().items()
        if one.role == "own" and not one.study and not (as_data and one.weights_in_code)
    )
    label = "this project's kernels" + ("" if math == "f32" else f" {MATH_LABELS[math]}")
    label += ", weights as data" if as_data else ""
    return Series("own", label, found, math, roles=frozenset({"own"}))


CUBLAS = Series("cublas-f32", "cuBLAS fp32", ("cublas",))
DENSE = Series("dense-f32", "best dense fp32", ("cublas", "cublaslt"))
TF32 = Series("dense-tf32", "best dense TF32", ("cublas", "cublaslt"), "tf32")
FP16 = Series("dense-f16", "best dense fp16", ("cublas", "cublaslt"), "f16")
CUSPARSE = Series("cusparse-f32", "best cuSPARSE fp32", ("cusparse",))
CUSPARSE_DEFAULT = Series(
    "cusparse-default", "cuSPARSE's default fp32 in its best layout", ("cusparse",), variants=DEFAULT
)
CUSPARSE_COLUMN = Series(
    "cusparse-column", "cuSPARSE's column-major default fp32", ("cusparse",), variants=COLUMN_DEFAULT
)
CUSPARSE_F16 = Series("cusparse-f16", "best cuSPARSE fp16", ("cusparse",), "f16")
INT8 = Series("dense-i8", "best dense INT8", ("cublas", "cublaslt"), "i8")
CUDNN = Series("cudnn-f32", "best cuDNN fp32", ("cudnn",))
CUDNN_DEFAULT = Series(
    "cudnn-default", "cuDNN's default fp32 in NCHW", ("cudnn",), variants=r"[a-z0-9]+_nchw_.*_default$"
)
CUDNN_TF32 = Series("cudnn-tf32", "best cuDNN TF32", ("cudnn",), "tf32")
CUDNN_F16 = Series("cudnn-f16", "best cuDNN fp16", ("cudnn",), "f16")
PRODUCTS = (CUBLAS, TF32, FP16, CUSPARSE)
"""What a sparse product is compared with everywhere."""
CONVOLUTIONS = (CUDNN, CUDNN_TF32, CUDNN_F16)
UNTUNED = side("untuned")


@dataclass(frozen=True)
class Lead:
    """What a page is asked, and by which ratios it answers."""

    question: str
    """Without a number that is measured."""
    sides: tuple[Series, ...]
    """Rows: first the paper's method, which the answer is about."""
    rivals: tuple[Series, ...]
    """Columns: first what the answer divides by."""
    groups: tuple[Group, ...] = (ALL,)
    claims: tuple[str, ...] = ()
    """Of the groups in order, those of `datasets/published/claims.csv` that hold the paper's number; empty for none."""
    claim_words: str = ""
    """What the paper's number is of, where that is more or less than the group."""
    answered: int = 2
    """How many groups the answer has a sentence on."""
    drawn_over: Series | None = None
    """One of `rivals`: the 1x of the page's figures, which their titles speak of; None for the first."""
    drawn: Series | None = None
    """One of `sides`: what the page's figures draw of the first, where that is not the first itself."""
    second: Series | None = None
    """Told beside in the answer; None for the first of this project's rows."""
    crossing: tuple[Group, ...] = ()
    """Groups that differ in their level alone: the first sentence says from how many zeros on the side is faster."""
    crossing_claim: str = ""
    """The claim that holds the paper's number of it."""
    also_over: Series | None = None
    """One of `rivals`, told after the paper's number: what the paper's own rival would be taken for today."""
    alike: tuple[Series, ...] = ()
    """Of `rivals`, those taken at the variant that is the side's own fastest, as where a part is left out."""


Cells = dict[tuple[str, str, str, str], Ratio]
"""By the labels of group, side and rival, and policy."""


@dataclass(frozen=True)
class Screen:
    """Markdown of the first screen; empty strings where nothing is recorded."""

    question: str
    answer: str
    limits: str
    table: str
    mark: str = ""
    """What the mark of the table's numbers means; empty where none has it."""


def screen(lead: Lead, cells: Cells, policies: Sequence[str]) -> Screen:
    """Words it; what has no sides is answered by the page's first section."""
    if not lead.sides:
        return Screen(lead.question, "", "", "")
    groups = {group.label for group in lead.groups}
    return Screen(
        lead.question,
        _answer(lead, cells, policies),
        _limits(lead, cells, policies),
        _table(lead, cells, policies),
        sentence({"": [one.basis for (group, *_), one in cells.items() if group in groups]}),
    )


def headline(lead: Lead, cells: Cells, group: Group, policy: str) -> str:
    """The title of a figure: what was found over one group of problems; empty where nothing was."""
    drawn = replace(lead, rivals=(lead.drawn_over, *lead.rivals)) if lead.drawn_over else lead
    drawn = replace(drawn, sides=(lead.drawn, *lead.sides)) if lead.drawn else drawn
    told = _told(drawn, cells, group, (policy,))
    if not told:
        return ""
    (first, rival, found), *others = told
    kernel = first.partition(",")[0]
    over = "" if rival == first else f" as {rival.removeprefix(f'{kernel}, ')}"
    beside = "".join(f", {name} {number(other.value)}×" for name, _, other in others)
    label = _capital(group.label)
    said = f"{first} {_is(first)} {number(found.value)}× as fast{over}"
    alone = f", {WORDS}" if found.basis.cuts else ""
    both = f", {WORDS}" if any(one.basis.cuts for _, _, one in told) else ""
    for text in (f"{label}: {said}{beside}{both}", f"{label}: {said}{alone}"):
        if len(text) <= TITLE:
            break
    else:
        text = f"{label.partition(',')[0]}: {said}{alone}"
    return text.replace("`", "")


def cells_of(lead: Lead, frame: pd.DataFrame, policies: Sequence[str]) -> Cells:
    """Every ratio of the table for which there are times."""
    times = {one.label: times_of(frame, one) for one in {*lead.sides, *lead.rivals}}
    cut = {one.label: cuts(frame, one) for one in {*lead.sides, *lead.rivals}}
    beside = {one: {rival.label: alike(frame, rival, one) for rival in lead.alike} for one in lead.sides}
    cells: Cells = {}
    for group in dict.fromkeys((*lead.groups, *lead.crossing)):
        mine, theirs = _problems(group, frame), _problems(group, frame, True)
        for policy in policies:
            above = {one.label: on(times[one.label], policy, theirs) for one in lead.rivals}
            for one in lead.sides:
                below = cut[one.label], on(times[one.label], policy, mine)
                same = {rival: on(rows, policy, theirs) for rival, rows in beside[one].items()}
                for rival, values in (above | same).items():
                    if found := ratio((cut[rival], values), below, policy, group):
                        cells[group.label, one.label, rival, policy] = found
    return cells


def _answer(lead: Lead, cells: Cells, policies: Sequence[str]) -> str:
    said: list[str] = []
    for at, group in enumerate(lead.groups):
        told = _told(lead, cells, group, policies)
        if not told or len(said) == lead.answered:
            continue
        (first, rival, found), *others = told
        cut = f"{WORDS}, " if found.basis.cuts else ""
        text = (
            f"{_capital(group.label)}: {first} {_is(first)} **{number(found.value)}×** as fast "
            f"as {rival} ({policies[0]}, {cut}faster on {found.wins} of {found.count})"
        )
        text += "".join(f", {name} {beside.told}" for name, _, beside in others)
        text += f"; {_paper(lead, lead.claims[at])}" if at < len(lead.claims) and lead.claims[at] else ""
        text += _also(lead, cells, (group.label, rival, policies[0]), [one[0] for one in told])
        said.append(text + ".")
    return " ".join([*_crossing(lead, cells, policies), *said]) or "Not recorded yet."


def _crossing(lead: Lead, cells: Cells, policies: Sequence[str]) -> Iterator[str]:
    """The sentence on the share of zeros from which on a side is as fast as the rival."""
    told = max((_told(lead, cells, group, policies) for group in lead.crossing), key=len, default=[])
    said = []
    for mine, rival, _ in told:
        found = {
            group.level / 100: cell
            for group in lead.crossing
            if group.level is not None and (cell := cells.get((group.label, mine, rival, policies[0])))
        }
        at = crossover.crossover((level, cell.value) for level, cell in found.items())
        cut = any(cell.basis.cuts for cell in found.values())
        said.append((mine, rival, crossover.text(at, min(found), max(found)), cut))
    if said:
        (first, rival, where, cut), *others = said
        text = f"{_capital(replace(lead.crossing[0], level=None).label)}: {first} {_is(first)} faster than {rival} "
        text += f"from **{where}** zeros on ({policies[0]}{f', {WORDS}' * cut})"
        text += "".join(f", {name} from {at}{f' {WORDS}' * before}" for name, _, at, before in others)
        yield f"{text}; {_paper(lead, lead.crossing_claim)}." if lead.crossing_claim else f"{text}."


def _also(lead: Lead, cells: Cells, said: tuple[str, str, str], sides: Sequence[str]) -> str:
    """What the same sides are against a second rival; nothing where the first one is that. `said` has no side."""
    label, rival, policy = said
    if lead.also_over is None or lead.also_over.label == rival:
        return ""
    found = [(side, cells.get((label, side, lead.also_over.label, policy))) for side in sides]
    values = ", ".join(one.told if side == sides[0] else f"{side} {one.told}" for side, one in found if one)
    return f"; measured over {lead.also_over.label}: {values}" if values else ""


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _is(side: str) -> str:
    return "are" if "kernels" in side else "is"


def _told(lead: Lead, cells: Cells, group: Group, policies: Sequence[str]) -> list[tuple[str, str, Ratio]]:
    """Of a group, what is said in words: the first side that has a time over the first rival, and `second`."""
    for rival in lead.rivals:
        found = [
            (mine.label, rival.label, cells[group.label, mine.label, rival.label, policies[0]])
            for mine in lead.sides
            if policies and (group.label, mine.label, rival.label, policies[0]) in cells
        ]
        if found:
            second = lead.second.label if lead.second else next((s.label for s in lead.sides if s.key == "own"), "")
            return [found[0], *(one for one in found[1:] if one[0] == second)]
    return []


def _paper(lead: Lead, claim: str) -> str:
    table = published.read("claims", ("id", "published", "published_gpu", "unit"))
    (row,) = each(table[table["id"] == claim])
    value = {"x": f"{row.published:g}×", "sparsity": f"{100 * row.published:g} % zeros"}.get(row.unit)
    words = f" {lead.claim_words}" if lead.claim_words else ""
    gpu = "an unnamed GPU" if row.published_gpu == "not named" else row.published_gpu
    return f"the paper{words}: {value or f'{row.published:g} {row.unit}'} on {gpu} (`{claim}`)"


def _limits(lead: Lead, cells: Cells, policies: Sequence[str]) -> str:
    """What is told in words and has a ratio below 1 against any rival, the lowest first.

    If there is nothing, what is not told, against rivals of its own arithmetic.
    """
    if not cells:
        return ""
    told = {(group.label, one[0]) for group in lead.groups for one in _told(lead, cells, group, policies)}
    every = {key: one for key, one in cells.items() if key[:2] in told}
    if not (below := _below(every)):
        alike = {(mine.label, rival.label) for mine in lead.sides for rival in lead.rivals if mine.math == rival.math}
        labels = {group.label for group in lead.groups}
        every |= {key: one for key, one in cells.items() if key[0] in labels and key[1:3] in alike}
        below = _below(every)
    if not below:
        marked = any(found.basis.cuts for found in every.values())
        return f"Nowhere in geometric mean, against the rivals below{f', {WORDS}' * marked}."
    said = []
    for group, mine, rival in sorted(below, key=lambda key: (below[key], key)):
        both = [(policy, cells.get((group, mine, rival, policy))) for policy in policies]
        values = " and ".join(f"{found.text} {policy}" for policy, found in both if found)
        said.append(f"{mine} over {rival}, {group}: {values}")
    left = len(said) - LOST
    more = f"; {left} more {'is' if left == 1 else 'are'} in the table" if left > 0 else ""
    return _capital("; ".join(said[:LOST]) + more + ".")


def _below(cells: Cells) -> dict[tuple[str, str, str], float]:
    """The ratios below 1 by group, side and rival: of the first policy that has one."""
    return {key[:3]: found.value for key, found in reversed(cells.items()) if found.value < 1}


def _table(lead: Lead, cells: Cells, policies: Sequence[str]) -> str:
    present = {key[2] for key in cells}
    rivals = [rival.label for rival in lead.rivals if rival.label in present]
    rows = [row for group in lead.groups for row in lines(lead, cells, policies, group, rivals)]
    heads = [f"{rival}, {' / '.join(policies)}" for rival in rivals]
    return markdown(["times as fast as", "problems", *heads], rows, left=2) if rows else ""


def lines(lead: Lead, cells: Cells, policies: Sequence[str], group: Group, rivals: Sequence[str]) -> list[list[str]]:
    """A group's rows of the table: side, group with the number of its problems, and a cell per rival, by label."""
    most = max((found.count for key, found in cells.items() if key[0] == group.label), default=0)
    rows = []
    for mine in lead.sides:
        line = [[cells.get((group.label, mine.label, rival, policy)) for policy in policies] for rival in rivals]
        if any(map(any, line)):
            shown = [" / ".join(_cell(one, most) for one in pair) if any(pair) else GAP for pair in line]
            rows.append([mine.label, f"{group.label} ({most})", *shown])
    return _without_twins(rows)


def _without_twins(rows: list[list[str]]) -> list[list[str]]:
    """Without the row of `weights as data` where no code is generated from weights, so that it says the same."""
    same = [at for at in range(1, len(rows)) if rows[at][1:] == rows[at - 1][1:] and "as data" in rows[at][0]]
    return [row for at, row in enumerate(rows) if at not in same]


def _cell(found: Ratio | None, most: int) -> str:
    if found is None:
        return GAP
    return f"{found.text} ({found.wins}{f' of {found.count}' if found.count < most else ''})"


def of_anything(results: ResultSet) -> Lead:
    """The lead of an experiment without one of its own: what it recorded, over the libraries that it recorded.

    This project's kernels stand together first where there are several, as the fastest of them is the answer.
    """
    maths = set(zip(results.frame["kernel"], results.frame["math"], strict=True))
    names = known()
    each = [(kernel, math) for kernel, math in sorted(maths) if kernel not in names or names[kernel].role != "library"]
    several = Counter(math for kernel, math in each if kernel in names and names[kernel].role == "own")
    together = [own(math) for math, count in sorted(several.items()) if count > 1]
    sides = (*together, *(side(kernel, math) for kernel, math in each))
    rivals = tuple(
        one for one in (*PRODUCTS, *CONVOLUTIONS) if any((kernel, one.math) in maths for kernel in one.kernels)
    )
    return Lead(f"How fast is what `{results.experiment}` recorded?", sides, rivals)


def _problems(group: Group, frame: pd.DataFrame, baseline: bool = False) -> frozenset[str]:
    rows = frame[["problem", "op", "n", "source", "sparsity"]].drop_duplicates("problem")
    return frozenset(group.problems(rows, baseline)["problem"])
