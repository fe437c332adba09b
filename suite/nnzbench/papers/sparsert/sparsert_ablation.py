"""SparseRT's figure 8: what unrolling, load balancing and tuning are each worth, one left out at a time."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.facts.results import each
from nnzbench.facts.selector import CUBLAS, TF32, kernel
from nnzbench.facts.table import Comparison
from nnzbench.papers.sparsert import PAPER
from nnzbench.problems.experiment import Experiment, dtypes_of
from nnzbench.report.pages.page import Answer, Drawn, Made, Page, Pivot, RatioTable
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    "sparsert_ablation",
    "Unrolling, load balancing and tuning, one left out at a time",
    PAPER,
    "Figure 8",
    dtypes_of(
        *("sparsert", "sparsert_paper", "sparsert_pattern", "sparsert_rolled", "sparsert_unbalanced"),
        *("sparsert_fixed", "cublas"),
    ),
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
LEVEL = Group(level=90)
WHOLE = kernel("sparsert_paper")
ROLLED = kernel("sparsert_rolled", words="at the same tiling")
PARTS = (ROLLED, kernel("sparsert_unbalanced"), kernel("sparsert_fixed"))
WORDS = ("unrolling", "load balancing", "autotuning")
GAINS = Comparison((WHOLE,), PARTS, (LEVEL,), ("label", "size"), (ROLLED,))
EACH = "one subject over several baselines, one of them at the subject's own tiling"


def _gains(view: View) -> pd.DataFrame | None:
    """The complete system over itself without a part, problem by problem."""
    facts = view.compare(GAINS)
    if facts.empty:
        return None
    facts = facts.assign(part=facts["baseline"].map(dict(zip([one.label for one in PARTS], WORDS, strict=True))))
    cells = facts.pivot_table(index=["label", "size"], columns=["part", "policy"], values="ratio")
    cells = cells[[(part, policy) for part in WORDS for policy in view.policies if (part, policy) in cells]]
    cells.columns = [", ".join(one) for one in cells.columns]
    return cells.reset_index().rename(columns={"label": "problem"})


def _figure(view: View, title: str) -> Figure | None:
    from matplotlib.patches import Patch

    from nnzbench.report.draw import canvas

    facts = view.compare(GAINS)
    if facts.empty:
        return None
    names = sorted(set(facts["label"]))
    look = canvas.looks([dataclasses.replace(one, variants="") for one in PARTS])

    def draw(axis: Axes, row: None, policy: str) -> None:
        for at, part in enumerate(PARTS):
            rows = canvas.rows_at(facts, policy=policy, baseline=part.label)
            ys = [names.index(row.label) + 0.27 * (at - 1) for row in each(rows)]
            axis.barh(ys, rows["ratio"] - 1, 0.25, left=1, color=look[part.label].colour)
        canvas.scale(axis, "ratio", "x", facts["ratio"])
        axis.set(ylim=(len(names) - 0.4, -0.6), yticks=np.arange(len(names)), yticklabels=names)
        axis.set_title(canvas.policy_text(policy), pad=4)

    legend = {word: Patch(color=look[part.label].colour) for part, word in zip(PARTS, WORDS, strict=True)}
    caption = (
        "Times as fast as without the part, at 90 % zeros, by problem of Table 1. What is not unrolled has the same "
        "tiling, the rest its own best. The paper: unrolling over 10× at best, tuning around 2×, balancing comparable."
    )
    return canvas.grid([None], view.policies, [0.32 * len(names)], title, caption, legend, draw, share="y")


def page() -> Page:
    """Its page."""
    ours = kernel("sparsert")
    own_best, pattern = kernel("sparsert_rolled", words="at its own best tiling"), kernel("sparsert_pattern")
    return Page(
        question="How much of SparseRT's speed is unrolling, how much tuning, how much balancing?",
        intro="Figure 8 of *SparseRT* (PACT 2020) on the 20 problems of its Table 1 with 90 % zeros: unrolled code "
        "against the same tiling with the matrix as data (`sparsert_rolled`), rows balanced between thread blocks or "
        "not (`sparsert_unbalanced`), the best tiling, searched exhaustively, or one fixed choice (`sparsert_fixed`). "
        "`sparsert` is our form of the generator, `sparsert_pattern` the same with the weights' values as data.",
        answers=tuple(Answer(LEVEL, WHOLE, one) for one in (own_best, *PARTS[:0:-1])),
        comparison=Comparison((WHOLE,), (ROLLED, own_best, *PARTS[1:], CUBLAS), (LEVEL,), same_variant=(ROLLED,)),
        figures=(Drawn("gains", "What each part of SparseRT is worth", _figure, EACH),),
        tables=(
            Made("What each part is worth, problem by problem, times as fast", _gains, EACH, collapsed=False),
            RatioTable("Every kernel over cuBLAS fp32",
                       Comparison((ours, WHOLE, *PARTS[1:], own_best, pattern, TF32), (CUBLAS,), (LEVEL,))),
            Pivot("Every problem, µs", (ours, WHOLE, *PARTS[1:], own_best, pattern, CUBLAS, TF32),
                  rows=("label", "size")),
        ),
        baseline=CUBLAS,
    )  # fmt: skip
