"""What each granularity of pruning costs on a GPU at equal sparsity, every one with the kernels that suit it best."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd

from nnzbench.kernels.registry import about
from nnzbench.papers.han_lecture import leads
from nnzbench.problems import tables as problem_tables
from nnzbench.problems.names import stem_of
from nnzbench.problems.problem import Problem
from nnzbench.report.data.series import Series, kernel_label, pick_any, pick_under
from nnzbench.report.draw import dots, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, TableOf, View
from nnzbench.report.text.fastest import Lost, measured, time_of
from nnzbench.report.text.marks import MARK, cuts
from nnzbench.report.text.tables import GAP, markdown, number

EXPERIMENT = "granularity"
LEVELS = (50.0, 75.0, 87.5)
NAMES = {
    "unstructured": "single weights",
    "vector": "rows of kernels (1×3)",
    "pattern": "patterns, 4 of 9 (PatDNN)",
    "kernel": "3×3 kernels",
    "balanced": "balanced, 32 ranges",
    "nm": "1 of 2, 4, 8 (N:M)",
    "column": "8 filters × 1 column",
    "block": "blocks 32×32",
    "channel": "channels: smaller dense",
}
"""Granularities, the finest first."""
DENSE_REFERENCE = "unstructured"
"""The pattern whose row of the table stands for the whole dense layer: a library multiplies by every weight of it."""
SPREAD = 1.5
"""From which ratio of the slowest to the fastest time of one dense layer its noise is told."""


CONVOLVED = (75.0, 87.5)
"""Levels at which the experiment runs sparse convolutions (its `only`): their programs are generated for weights."""


class Form(NamedTuple):
    """How the layer is computed, and with what."""

    key: str
    words: str
    sparse: tuple[str, ...]
    dense: tuple[str, ...]

    @property
    def label(self) -> str:
        """What the legend calls it."""
        return f"as a {self.words}"

    def series(self, math_class: str) -> tuple[Series, Series]:
        """The kernels that compete for a granularity, and those of the dense layer."""
        return (
            Series("sparse", self.label, self.sparse, math_class),
            Series("dense", self.label, self.dense, math_class),
        )


FORMS = (
    Form("conv", "convolution", ("direct_conv", "sparsert_conv"), ("cudnn",)),
    Form(
        "product",
        "product (im2col not included)",
        ("balanced", "cusparse", "cusparselt", "ring", "row_stream", "sputnik", "tensor_spmm"),
        ("cublas", "cublaslt"),
    ),
)
MATHS = {"f32": ("fp32", ("f32",)), "f16": ("fp16", ("f16",))}
"""Arithmetic: what it is called, and the classes whose rows compete."""
DRAWN = {"conv": dots.Marker(style.PALETTE["green"], "X"), "product": dots.Marker(style.PALETTE["blue"], "o")}
Key = tuple[str, str, float]
"""Form, granularity and level in percent."""


class Cell(NamedTuple):
    """The fastest kernel of one granularity at one level."""

    rows: pd.DataFrame
    """Picked rows by problem, this one's among them."""
    problem: str
    us: float
    dense_us: float
    cut: bool = False
    """Whether a kernel that competes for it, or the dense one beside it, was not tuned on its problem."""

    @property
    def mark(self) -> str:
        """Behind its speed-up."""
        return MARK * self.cut

    @property
    def kernel(self) -> str:
        """Its name."""
        return str(self.rows.loc[self.problem, "kernel"])

    @property
    def gain(self) -> float:
        """Over the whole dense layer in the same form and arithmetic."""
        return self.dense_us / self.us


def problems() -> dict[Key, Problem]:
    """The table's problems."""
    found = {}
    for row in problem_tables.rows(EXPERIMENT):
        one = row.problem
        name, _, level = one.label.rpartition("_")
        found["conv" if one.conv else "product", name, float(level)] = one
    return found


def _cells(frame: pd.DataFrame, policy: str, math_class: str) -> dict[Key, Cell]:
    """By form, granularity and level, what has a time; without the dense layer's own there is no gain.

    The dense layer is the same under every pattern: its time is the median over all of them.
    """
    found, out = problems(), {}
    for form in FORMS:
        series = form.series(math_class)
        rows = {one.key: pick_under(frame, policy, one) for one in series}
        untuned = {cut.problem for cut in cuts(frame, *series).get(policy, ())}
        dense = _dense_times(rows["dense"], form)
        whole = statistics.median(dense) if dense else math.nan
        for (key, name, level), one in found.items():
            if key != form.key:
                continue
            some = rows["dense" if name == "channel" else "sparse"]
            if one.name in some.index:
                us, cut = time_of(some, one.name), stem_of(one.name) in untuned
                out[key, name, level] = Cell(some, one.name, us, whole, cut)
    return out


def _dense_times(rows: pd.DataFrame, form: Form) -> list[float]:
    """Of the whole dense layer, which every problem but those of fewer channels has."""
    every = (
        time_of(rows, one.name) for (key, name, _), one in problems().items() if key == form.key and name != "channel"
    )
    return [us for us in every if not math.isnan(us)]


def _show(view: View[Any]) -> Shown:
    found = problems()
    by_math = {math_class: _cells(view.frame, view.policy, math_class) for math_class in MATHS}
    caption = (
        "Speed-up of the best kernel for each granularity over the whole dense layer, in the same form and arithmetic "
        f"(cuDNN, or the faster of cuBLAS and cuBLASLt).\n{view.policy_sentence}"
    )
    panels = [_panel(cells, math_class) for math_class, cells in by_math.items()]
    here = view.of(one.name for one in found.values())
    return Shown(
        dots.figure(panels, view.title, caption),
        tables=[
            TableOf(text, here.iloc[:0])  # its numbers have the mark
            for text in (_overview(by_math, view), *(_table(cells, name, view) for name, cells in by_math.items()))
        ],
        gaps=_noise(view),
        lost=_lost(by_math, found, view.policy),
        lines=_lines(by_math, found, view),
        drawn=[pick_any(here, (one for form in FORMS for one in form.series(name))) for name in MATHS],
    )


def _noise(view: View[Any]) -> Iterator[str]:
    """Where one dense layer has times far apart."""
    for math_class, (words, _) in MATHS.items():
        for form in FORMS:
            _, dense = form.series(math_class)
            times = _dense_times(pick_under(view.frame, view.policy, dense), form)
            if times and max(times) > SPREAD * min(times):
                yield (
                    f"The same dense layer as a {form.words} takes {number(min(times))} to {number(max(times))} µs in "
                    f"{words} ({view.policy}) beside the patterns, which cannot be the layer's doing; the "
                    f"median is taken, {number(statistics.median(times))} µs."
                )


def _best(cells: Mapping[Key, Cell], name: str, level: float) -> Cell | None:
    """The faster of the two forms against its own dense layer."""
    known = [cells[form.key, name, level] for form in FORMS if (form.key, name, level) in cells]
    known = [cell for cell in known if not math.isnan(cell.gain)]
    return max(known, key=lambda cell: cell.gain, default=None)


def _panel(cells: Mapping[Key, Cell], math_class: str) -> dots.Panel:
    places = [(name, level) for level in LEVELS for name in NAMES]
    curves = tuple(
        dots.Curve(
            form.label,
            tuple(cells[form.key, n, s].gain if (form.key, n, s) in cells else math.nan for n, s in places),
            DRAWN[form.key],
        )
        for form in FORMS
    )
    rows = tuple(NAMES[name] for name, _ in places)
    groups = tuple(f"{level:g} % zeros" for _, level in places)
    return dots.Panel(f"{MATHS[math_class][0]}: 1× is the dense layer", rows, groups, curves, "speed-up (log)")


def _overview(by_math: Mapping[str, Mapping[Key, Cell]], view: View[Any]) -> str:
    """Each granularity at each level in the better form, in both types."""
    places = [(math_class, level) for math_class in by_math for level in LEVELS]
    found = {
        name: [_best(by_math[math_class], name, level) for math_class, level in places]
        for name in NAMES
        if any(_best(by_math[math_class], name, level) for math_class, level in places)
    }
    highest = [
        max((one.gain for one in column if one), default=math.nan) for column in zip(*found.values(), strict=True)
    ]
    rows = []
    for name, cells in found.items():
        texts = [
            GAP if one is None else f"{_bold(one, top)} {kernel_label(one.kernel)}"
            for one, top in zip(cells, highest, strict=True)
        ]
        rows.append([NAMES[name], *texts])
    lead = (
        f"Speed-up of each granularity's best kernel, in the better form, over the dense layer on {view.gpu}, "
        f"{view.policy}, by type and share of zeros; the highest in bold."
    )
    header = ["granularity", *(f"{MATHS[math_class][0]}, {level:g} %" for math_class, level in places)]
    return f"{lead}\n\n{markdown(header, rows)}" if rows else ""


def _bold(cell: Cell, highest: float) -> str:
    text = f"{number(cell.gain)}×"
    return f"**{text}**{cell.mark}" if cell.gain == highest else f"{text}{cell.mark}"


def _table(cells: Mapping[Key, Cell], math_class: str, view: View[Any]) -> str:
    header = ["granularity", "form"]
    for level in LEVELS:
        header += [f"{level:g} % zeros: µs", "over dense", "kernel"]
    rows = []
    for form in FORMS:
        for name, label in NAMES.items():
            if not any(key[:2] == (form.key, name) for key in problems()):
                continue
            row = [label, form.key]
            for level in LEVELS:
                cell = cells.get((form.key, name, level))
                known = (number(cell.us), number(cell.gain) + cell.mark, f"`{cell.kernel}`") if cell else (GAP,) * 3
                row += known
            rows.append(row)
        whole = {level: cells.get((form.key, DENSE_REFERENCE, level)) for level in LEVELS}
        dense = ["the whole dense layer", form.key]
        for level in LEVELS:
            cell = whole[level]
            dense += [number(cell.dense_us) if cell else GAP, "", ""]
        rows.append(dense)
    lead = f"{MATHS[math_class][0]}. Times in µs on {view.gpu}, {view.policy} policy."
    return f"{lead}\n\n{markdown(header, rows, left=2)}"


_NOT_RUN = f"the experiment runs sparse convolutions at {' and '.join(f'{level:g}' for level in CONVOLVED)} % alone"


def _lost(by_math: Mapping[str, Mapping[Key, Cell]], found: Mapping[Key, Problem], policy: str) -> Iterator[Lost]:
    for math_class, cells in by_math.items():
        for form in FORMS:
            names = [key for key in found if key[0] == form.key]
            lost = [one for one in names if one not in cells]
            left_out = [one for one in lost if form.key == "conv" and one[2] not in CONVOLVED]
            for some, why in (([one for one in lost if one not in left_out], ""), (left_out, _NOT_RUN)):
                without = tuple(f"{NAMES[name]} at {level:g} %" for _, name, level in some)
                yield Lost(f"{MATHS[math_class][0]} as a {form.words}", policy, without, len(names), why)


def _lines(
    by_math: Mapping[str, Mapping[Key, Cell]], found: Mapping[Key, Problem], view: View[Any]
) -> Iterator[dict[str, Any] | None]:
    for math_class, cells in by_math.items():
        for (form, name, level), cell in cells.items():
            problem = found[form, name, level].name
            words = {"policy": view.policy, "table": f"{MATHS[math_class][0]} {form}", "row": f"{name} {level:g}"}
            series = "dense" if about(cell.kernel).work == "dense" else "sparse"
            line = measured(cell.rows, problem, **words, series=series, gpu=view.gpu)
            yield None if line is None else line | {"baseline_us": cell.dense_us}


PAGE = PageSpec(
    lead=leads.GRANULARITY,
    title="Granularity of pruning",
    intro=(
        "Pruning can take single weights, rows of kernels, parts of kernels by pattern, kernels, or channels: the "
        "coarser, the easier to compute and the more accuracy it costs. What does each buy on a GPU **at equal "
        "sparsity**, with the best kernel that this suite has for it? One layer, VGG-16's 3×3 convolution of 256 by "
        "256 channels at 56×56 pixels and batch 1, as a convolution and as the product that im2col makes of it. "
        "Patterns are PatDNN's (four of nine weights; there are none at 50 %), N:M are 1 of 2, 4 and 8, which sparse "
        "tensor cores all run as 2:4, and channels are a dense layer with fewer of them. Sparse convolutions are "
        "generated for their weights, which takes long for many: they run at 75 and 87.5 % alone, and where "
        "`tuning.csv` tells of two candidates only, those likeliest to be fast. Accuracy is not judged here."
    ),
    sections=(SectionSpec("speedup", "Speed-up of each granularity", _show),),
    published=lambda: (),
    series=lambda view: [one for form in FORMS for math_class in MATHS for one in form.series(math_class)],
    problem_names=lambda view: {
        one.name: f"{NAMES[name]} at {level:g} %, {form}" for (form, name, level), one in problems().items()
    },
    math_text="fp32 is IEEE fp32 with TF32 off; fp16 has sums in fp32",
)
