"""Balanced Sparsity's figure 1: what a pattern costs in perplexity against the time of its product.

The paper's figure prints no numbers; its table 4 has the perplexities of the same model at three sparsities.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from nnzbench.facts.groups import Group
from nnzbench.facts.results import each
from nnzbench.facts.selector import CUBLAS, DENSE, FP16, TF32, Selector, own
from nnzbench.facts.table import Comparison
from nnzbench.papers.balanced import KERNELS, ONLY, PAPER, RANDOM, mapping
from nnzbench.problems.experiment import Experiment
from nnzbench.report.data import published
from nnzbench.report.draw import canvas, style
from nnzbench.report.pages.page import Answer, Drawn, Made, Page, Published
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    "balanced_figure1", "Perplexity against time by pattern", PAPER, "Figure 1, table 4", KERNELS, only=ONLY
)
BALANCED = tuple(
    Group(words="one gate matrix with balanced zeros", where="pattern == 'balanced'", level=level)
    for level in (60, 70, 80)
)
RANGE = 100
"""The balance range of the paper's table that is nearest to the recorded 96 columns."""


def ways() -> dict[Selector, tuple[str, int]]:
    """Each kernel on a pattern, with the pattern and size of the paper's line of perplexities; empty for none."""
    blocks = {
        Selector(f"cuSPARSE, {size}×{size} blocks", ("cusparse",), source=f"block:{size}x{size}"): ("block", size)
        for size in (4, 8, 16)
    }
    return {mapping(): ("balanced", RANGE), own(): ("balanced", RANGE), **blocks, RANDOM: ("", 0)}


def tradeoff(view: View) -> pd.DataFrame:
    """Pattern, kernel, zeros (%), policy, µs and the published perplexity (NaN where it is not printed)."""
    printed = published.read("balanced_table4_perplexity", ("pattern", "size", "sparsity", "perplexity"))
    known = {(one.pattern, one.size, round(100 * one.sparsity)): one.perplexity for one in each(printed)}
    lines = {one.label: line for one, line in ways().items()}
    cells = view.cells(tuple(ways()))
    own_pattern = cells["pattern"].eq("balanced") | ~cells["subject"].isin([one.label for one in (mapping(), own())])
    cells = cells[own_pattern]
    return pd.DataFrame(
        {
            "kernel": cells["subject"], "zeros (%)": cells["level"], "policy": cells["policy"],
            "µs": cells["median_us"],
            "perplexity": [known.get((*lines[one.subject], round(one.level)), float("nan")) for one in each(cells)],
        }
    )  # fmt: skip


def _figure(view: View, title: str) -> Drawing | None:
    """A curve for each pattern: its three levels of zeros."""
    rows = tradeoff(view).dropna()
    if rows.empty:
        return None
    dense = view.cells((CUBLAS,)).groupby("policy")["median_us"].median()
    looks = canvas.looks([*ways(), CUBLAS])
    shown = [one.label for one in ways() if (rows["kernel"] == one.label).any()]

    def draw(axis: Axes, row: None, policy: str) -> None:
        for label in shown:
            mine = canvas.rows_at(rows, kernel=label, policy=policy).sort_values("zeros (%)")
            line = looks[label].line(joined=True)
            line.set_data(mine["µs"], mine["perplexity"])
            axis.add_line(line)
        axis.axvline(dense.get(policy, float("nan")), color=style.INK, lw=1.4)
        axis.autoscale_view()
        axis.set_xlim(left=0)
        axis.set(xlabel="µs of one gate matrix", ylabel="perplexity")
        axis.grid()
        axis.set_title(canvas.policy_text(policy), pad=4)

    legend = {label: looks[label].line(joined=True) for label in shown} | {
        CUBLAS.label: Line2D([], [], color=style.INK, lw=1.4)
    }
    caption = (
        "Perplexity on PTB is the paper's (table 4, its own training); lower is better. Points: 60, 70 and 80 % zeros."
    )
    return canvas.grid([None], view.policies, [3.2], title, caption, legend, draw)


def page() -> Page:
    """Its page."""
    why = "a paper's perplexities against our times"
    return Page(
        question="Is a layer whose zeros are balanced faster than one with as many zeros anywhere?",
        intro="What a pattern of zeros costs and gains on the LSTM language model of figure 1 of *Balanced Sparsity "
        "for Efficient DNN Inference on GPU* (AAAI 2019): perplexity as the paper's table 4 prints it, against the "
        "time of one gate matrix (6000×3000, padded to 3072) at batch 1 here. The library of block-sparse "
        "products that the paper used is not run; cuSPARSE on the same blocks stands in. The paper's figure prints "
        "neither times nor perplexities, its vector sparsity has no kernel, and the perplexity of random zeros, "
        "by its words nearly that of balanced ones, is not printed.",
        attributes=r"(?P<pattern>balanced|random|block)(?P<block>\d*)",
        answers=(Answer(BALANCED[2], mapping(), TF32, (own(),), CUBLAS),),
        comparison=Comparison((mapping(), own()), (TF32, FP16, DENSE, CUBLAS), BALANCED),
        figures=(Drawn("tradeoff", "Perplexity against time by pattern of zeros", _figure, why),),
        tables=(
            Made("Perplexity and time of each pattern", tradeoff, why, collapsed=False),
            Published("The paper's perplexities", "balanced_table4_perplexity"),
        ),
        baseline=CUBLAS,
    )  # fmt: skip
