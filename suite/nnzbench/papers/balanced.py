"""Balanced Sparsity (AAAI 2019): its experiments and their pages."""

from __future__ import annotations

import functools
import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from nnzbench.data.matrices import prune
from nnzbench.report import published
from nnzbench.report.page import (
    Answer,
    Crossings,
    Dots,
    Drawn,
    Lines,
    Made,
    Page,
    Printed,
    RatioTable,
    Rows,
    View,
)
from nnzbench.results.groups import Group
from nnzbench.results.result_set import each
from nnzbench.results.selector import CUBLAS, DENSE, FP16, TF32, Selector, kernel, own
from nnzbench.results.table import Comparison, ideal_us

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

RANDOM = Selector("cuSPARSE, random zeros", ("cusparse",), source="uniform")
BLOCKS = Selector("cuSPARSE, blocks of zeros", ("cusparse",), source="block")
"""It stands for the block-sparse library of the paper, which is not run here."""
RANDOM_SPUTNIK = Selector("sputnik, random zeros", ("sputnik",), source="uniform")
EITHER = Selector("best dense fp32 or TF32", TF32.kernels, "tf32", also="f32")
"""One column gains nothing from TF32."""
MAPPING = kernel("balanced", variants="paper", words="the paper's mapping")
"""The paper's own."""
BASELINES = (TF32, FP16, DENSE, CUBLAS)
OTHERS = (RANDOM, RANDOM_SPUTNIK, BLOCKS)
"""On other patterns."""


GATE = tuple(
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
    return {MAPPING: ("balanced", RANGE), own(): ("balanced", RANGE), **blocks, RANDOM: ("", 0)}


def tradeoff(view: View) -> pd.DataFrame:
    """Pattern, kernel, zeros (%), policy, µs and the published perplexity (NaN where it is not printed)."""
    printed = published.read("balanced_table4_perplexity", ("pattern", "size", "sparsity", "perplexity"))
    known = {(one.pattern, one.size, round(100 * one.sparsity)): one.perplexity for one in each(printed)}
    lines = {one.label: line for one, line in ways().items()}
    cells = view.cells(tuple(ways()))
    cells = cells[cells["pattern"].eq("balanced") | ~cells["subject"].isin([one.label for one in (MAPPING, own())])]
    return pd.DataFrame(
        {
            "kernel": cells["subject"], "zeros (%)": cells["level"], "policy": cells["policy"],
            "µs": cells["median_us"],
            "perplexity": [known.get((*lines[one.subject], round(one.level)), float("nan")) for one in each(cells)],
        }
    )  # fmt: skip


def _tradeoff_figure(view: View, title: str) -> Drawing | None:
    """A curve for each pattern: its three levels of zeros."""
    from matplotlib.lines import Line2D

    from nnzbench.report.draw import canvas, style

    rows = tradeoff(view).dropna()
    if rows.empty:
        return None
    dense = view.cells((CUBLAS,)).groupby("policy")["median_us"].median()
    looks = canvas.looks([*ways(), CUBLAS])
    shown = [one.label for one in ways() if (rows["kernel"] == one.label).any()]

    def draw(axis: Axes, row: None, policy: str) -> None:
        for label in shown:
            mine = canvas.rows_at(rows, kernel=label, policy=policy).sort_values("zeros (%)")
            axis.add_line(looks[label].line(mine["µs"], mine["perplexity"], joined=True))
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


def balanced_figure1() -> Page:
    """Balanced Sparsity's figure 1: what a pattern costs in perplexity against the time of its product.

    The paper's figure prints no numbers; its table 4 has the perplexities of the same model at three sparsities.
    """
    why = "a paper's perplexities against our times"
    return Page(
        attributes=r"(?P<pattern>balanced|random|block)(?P<block>\d*)",
        answers=(Answer(GATE[2], MAPPING, TF32, (own(),), CUBLAS),),
        comparison=Comparison((MAPPING, own()), BASELINES, GATE),
        figures=(Drawn("tradeoff", "Perplexity against time by pattern of zeros", _tradeoff_figure, why),),
        tables=(
            Made("Perplexity and time of each pattern", tradeoff, why, collapsed=False),
        ),
        baseline=CUBLAS,
    )  # fmt: skip


BATCHES = (1, 8)
OVERHEAD_US = 10.0
"""The launch overhead that the paper's formula takes."""
LARGE = tuple(Group(words="balanced zeros", where="pattern == 'balanced'", columns=n) for n in BATCHES)
LARGE_PATTERNS = tuple(Group(words="a pattern each", cases=r"[a-z]+_(b\d_keep\d+)", columns=n) for n in BATCHES)


def _ideal(view: View) -> Rows:
    """Times of the balanced products beside what equation 9 allows them; the dense time is its median."""
    balanced = own()
    cells = view.cells((balanced, CUBLAS), Group(where="pattern == 'balanced'"), view.policy)
    for (n, policy), some in cells.groupby(["n", "policy"], sort=False):
        times = some[some["subject"] == balanced.label]
        dense = float(some.loc[some["subject"] == CUBLAS.label, "median_us"].median())
        floor = float(view.frame.loc[view.frame["policy"] == policy, "floor_us"].median())
        for row in each(times):
            yield {
                "columns": str(n), "policy": policy, "zeros (%)": row.level, "balanced": row.median_us,
                "ideal with an empty kernel's time": ideal_us(dense, row.level / 100, floor),
                "ideal with 10 µs": ideal_us(dense, row.level / 100, OVERHEAD_US),
            }  # fmt: skip


def _printed_figure4(view: View) -> pd.DataFrame:
    """The paper's dense over its balanced time, read off its plot; its GPU is not named."""
    columns = tuple(f"balanced_b{n}_us" for n in BATCHES)
    times = published.read("balanced_figure4_digitised", ("sparsity", *columns))
    dense = published.read("balanced_figure4_dense", ("batch", "dense_us")).set_index("batch")["dense_us"]
    parts = [
        pd.DataFrame({"level": 100 * times["sparsity"], "n": n, "value": dense[n] / times[f"balanced_b{n}_us"]})
        for n in BATCHES
    ]
    return pd.concat(parts, ignore_index=True)


def balanced_figure4() -> Page:
    """Balanced Sparsity's figure 4: time of one large product against its zeros, beside the ideal line."""
    best = own()
    random = Group(words="random zeros", where="pattern == 'random'")
    return Page(
        attributes=r"(?P<pattern>balanced|random|block)_b\d_keep(?P<kept>\d+)",
        answers=tuple(Answer(group, MAPPING, EITHER, (best,), CUBLAS, "balanced-always") for group in LARGE),
        comparison=Comparison((MAPPING, best), BASELINES, LARGE),
        figures=(
            Lines("figure4", "A 16384×8192 matrix: times as fast as cuBLAS fp32",
                  (best, MAPPING, *OTHERS, TF32), baseline=CUBLAS, panels="n",
                  printed=Printed("the paper's balanced kernel", _printed_figure4)),
        ),
        tables=(
            RatioTable("Balanced over other patterns with as many zeros",
                       Comparison((MAPPING, best), OTHERS, LARGE_PATTERNS), collapsed=False),
            Crossings("Zeros from which on cuSPARSE with random zeros is as fast as cuBLAS fp32", RANDOM, CUBLAS,
                      ("pattern",), group=random, collapsed=True),
            Made("Balanced products and the ideal of equation 9, µs", _ideal, "the formula's times are in no record"),
        ),
        facts=(Comparison((MAPPING, best, *OTHERS), (CUBLAS,), by=("n", "level")),),
        baseline=CUBLAS,
    )  # fmt: skip


PTB, TIMIT, LAYERS = (
    Group(words=words, like=like)
    for words, like in (
        ("PTB's LSTM with balanced zeros", "ptb_balanced"),
        ("TIMIT's LSTM with balanced zeros", "timit_balanced"),
        ("VGG-16 with balanced zeros, each layer once", "vgg16_*_balanced"),
    )
)
VGG = Group(words="all layers of VGG-16 with balanced zeros", like="vgg16_*_balanced", statistic="total")
MODELS_PATTERNS = (
    Group(words="PTB's LSTM, a pattern each", cases=r"(ptb)_[a-z]+"),
    Group(words="TIMIT's LSTM, a pattern each", cases=r"(timit)_[a-z]+"),
    Group(words="VGG-16, a pattern each", cases=r"(vgg16_\w+?)_(?:balanced|random|block)", statistic="total"),
)


def _printed_models(view: View) -> pd.DataFrame:
    """The paper's dense over its balanced time by layer, on a GPU that it does not name."""
    found = {}
    for layer, name in (("ptb", "balanced_table1_ptb_lstm"), ("timit", "balanced_table3_timit")):
        times = published.read(name, ("pattern", "inference_us")).set_index("pattern")["inference_us"]
        found[layer] = times["dense"] / times["balanced"]
    for row in each(published.read("balanced_table2_vgg16", ("layer", "dense_us", "balanced_us"))):
        found[f"vgg16_{row.layer}"] = row.dense_us / row.balanced_us
    return pd.DataFrame({"layer": list(found), "value": list(found.values())})


def balanced_models() -> Page:
    """Balanced Sparsity's tables 1 to 3: the layers of PTB's LSTM, VGG-16 and TIMIT's LSTM."""
    best = own()
    sides = (MAPPING, best, *OTHERS)
    return Page(
        attributes=r"(?P<layer>.+)_(?P<pattern>balanced|random|block)",
        answers=(
            Answer(PTB, MAPPING, EITHER, (best,), CUBLAS, "balanced-ptb-dense"),
            Answer(VGG, MAPPING, EITHER, (best,), CUBLAS, "balanced-vgg-dense"),
        ),
        comparison=Comparison((MAPPING, best), BASELINES, (PTB, TIMIT, VGG, LAYERS)),
        figures=(
            Dots("speedup", "Layers of Balanced Sparsity's models: times as fast as cuBLAS fp32", (*sides, TF32),
                 CUBLAS, x="layer", panels="", printed=Printed("the paper's balanced kernel", _printed_models)),
        ),
        tables=(
            RatioTable("Balanced over other patterns of equal accuracy",
                       Comparison((MAPPING, best), OTHERS, MODELS_PATTERNS), collapsed=False),
        ),
        facts=(Comparison(sides, (CUBLAS,), by=("layer", "pattern", "level")),),
        baseline=CUBLAS,
    )  # fmt: skip


M, N, INPUTS = 256, 1024, 256
"""Rows and columns of the layer, and input vectors drawn: 65,536 outputs, whose variance is known to 0.6 %."""
ZEROS, RANGES = (0.5, 0.75, 0.9), (8, 32, 128)
"""Shares pruned, and weights in a balance range."""
MAP_RANGE = 32
"""Of the maps, two across."""


def order_variance(k: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """H of equation 3 for standard normal weights: the asymptotic variance of the k-th smallest of `count`."""
    density = np.exp(-(scipy.special.ndtri(k / count) ** 2) / 2) / math.sqrt(2 * math.pi)
    return k * (count - k) / (count**3 * density**2)


@functools.cache
def samples() -> pd.DataFrame:
    """Layers and inputs drawn from fixed seeds, a row for every share of zeros and size of balance ranges.

    `mean` of the differences by balanced pruning, over their deviation; variances of the differences of `random`, which
    is what the paper calls the smallest weights of the whole matrix, and of `balanced`; those of its equations.
    """
    rows = []
    for zeros, size in itertools.product(ZEROS, RANGES):
        rng = np.random.default_rng([int(100 * zeros), size])
        weights, inputs = rng.standard_normal((M, N), np.float32), rng.standard_normal((N, INPUTS), np.float32)
        kept = prune.balanced(weights, zeros, N // size)
        random = (prune.magnitude(weights, kept.sparsity).to_dense() - weights) @ inputs
        balanced = (kept.to_dense() - weights) @ inputs
        ranges, whole = M * N // size, M * N
        k = np.arange(1.0, whole - kept.nnz + 1)
        equations = (order_variance(one, whole).mean() for one in (k, np.ceil(k / ranges) * ranges))
        variances = (balanced.mean() / balanced.std(), random.var(), balanced.var(), *equations)
        rows.append((kept.sparsity, size, *map(float, variances)))
    return pd.DataFrame(rows, columns=["zeros", "size", "mean", "random", "balanced", "equation7", "equation8"])


def _answer(view: View) -> str:
    found = samples()
    more = found["balanced"] / found["random"] - 1
    return (
        f"What the theorem is for holds: the differences have mean zero in both, and balanced pruning adds "
        f"**{100 * more.min():.1f} to {100 * more.max():.1f} %** to their variance, at most "
        f"{100 * more[found['size'] >= 32].max():.1f} % with balance ranges of 32 weights or more. Its equations do "
        f"not: sampled variances are above {(found['random'] / found['equation7']).min():.0e} times equation 7, which "
        "adds up how uncertain the k-th smallest weight is, not how large it is."
    )


def _sampled(view: View) -> pd.DataFrame:
    found = samples()
    texts = {
        "zeros (%)": (100 * found["zeros"]).map("{:.4g}".format),
        "balance range": found["size"].astype(str),
        "mean over deviation": found["mean"].map("{:+.3f}".format),
        "variance, random": found["random"].map("{:.1f}".format),
        "variance, balanced": found["balanced"].map("{:.1f}".format),
        "more": (100 * (found["balanced"] / found["random"] - 1)).map("{:+.1f} %".format),
        "equation 7": found["equation7"].map("{:.2e}".format),
        "equation 8": found["equation8"].map("{:.2e}".format),
        "more by them": (100 * (found["equation8"] / found["equation7"] - 1)).map("{:+.1f} %".format),
    }
    return pd.DataFrame(texts)


def _maps(view: View, title: str) -> Drawing:
    """The paper's figure 7: one corner of a layer under the three patterns; it shows trained weights."""
    from nnzbench.report.draw import canvas, style

    weights = np.random.default_rng(0).standard_normal((M, N), np.float32)
    kept = prune.balanced(weights, ZEROS[-1], N // MAP_RANGE)
    patterns = {
        "random": prune.magnitude(weights, kept.sparsity),
        f"balanced, ranges of {MAP_RANGE}": kept,
        "8×8 blocks": prune.block(weights, kept.sparsity, 8, 8),
    }

    def draw(axis: Axes, row: None, name: str) -> None:
        corner = patterns[name].to_dense()[: 2 * MAP_RANGE, : 2 * MAP_RANGE]
        axis.imshow(corner != 0, cmap="Greys", aspect="auto", interpolation="none")
        axis.axvline(MAP_RANGE - 0.5, color=style.INK, lw=0.8, ls=":")
        axis.set_title(name, pad=4)

    caption = f"Black is kept, {100 * kept.sparsity:.1f} % are zeros; the dotted line parts two balance ranges."
    return canvas.grid([None], list(patterns), [2.3], title, caption, {}, draw)


def balanced_theorem1() -> Page:
    """Theorem 1 of Balanced Sparsity by sampling: what pruning changes in a layer's output, balanced and at random."""
    return Page(
        words={"M": M, "N": N, "INPUTS": INPUTS},
        made=_answer,
        figures=(Drawn("maps", "What is kept of 64×64 normal weights by pattern of zeros", _maps, "no times"),),
        tables=(Made("Sampled and by the theorem", _sampled, "statistics of samples, not of times", collapsed=False),),
    )
