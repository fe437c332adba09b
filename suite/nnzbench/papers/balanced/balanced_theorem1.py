"""Theorem 1 of Balanced Sparsity by sampling: what pruning changes in a layer's output, balanced and at random."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from nnzbench.matrices import prune
from nnzbench.papers.balanced import PAPER
from nnzbench.problems.experiment import Experiment
from nnzbench.report.pages.page import Made, Page
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment("balanced_theorem1", "What pruning changes in a layer's output", PAPER, "Theorem 1", {})
M, N, INPUTS = 256, 1024, 256
"""Rows and columns of the layer, and input vectors drawn: 65,536 outputs, whose variance is known to 0.6 %."""
ZEROS, RANGES = (0.5, 0.75, 0.9), (8, 32, 128)
"""Shares pruned, and weights in a balance range."""


class Sampled(NamedTuple):
    """One layer pruned both ways. `random` is what the paper calls so: the smallest weights of the whole matrix."""

    zeros: float
    size: int
    mean: float
    """Of the differences of balanced pruning, over their standard deviation."""
    random: float
    """Variance of the differences between the outputs before and after pruning."""
    balanced: float
    equation7: float
    equation8: float


def order_variance(k: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """H of equation 3 for standard normal weights: the asymptotic variance of the k-th smallest of `count`."""
    density = np.exp(-(ndtri(k / count) ** 2) / 2) / math.sqrt(2 * math.pi)
    return k * (count - k) / (count**3 * density**2)


def sample(zeros: float, size: int) -> Sampled:
    """Draws the layer and its inputs, all standard normal, from a fixed seed."""
    rng = np.random.default_rng([int(100 * zeros), size])
    weights, inputs = rng.standard_normal((M, N), np.float32), rng.standard_normal((N, INPUTS), np.float32)
    kept = prune.balanced(weights, zeros, N // size)
    random = (prune.magnitude(weights, kept.sparsity).to_dense() - weights) @ inputs
    balanced = (kept.to_dense() - weights) @ inputs
    ranges, whole = M * N // size, M * N
    k = np.arange(1.0, whole - kept.nnz + 1)
    return Sampled(
        kept.sparsity,
        size,
        float(balanced.mean() / balanced.std()),
        float(random.var()),
        float(balanced.var()),
        float(order_variance(k, whole).mean()),
        float(order_variance(np.ceil(k / ranges) * ranges, whole).mean()),
    )


@functools.cache
def samples() -> list[Sampled]:
    """Every share of zeros with every size of balance ranges."""
    return [sample(zeros, size) for zeros in ZEROS for size in RANGES]


def _answer(view: View) -> str:
    found = samples()
    more = [one.balanced / one.random - 1 for one in found]
    large = max(one.balanced / one.random - 1 for one in found if one.size >= 32)
    off = min(one.random / one.equation7 for one in found)
    return (
        f"What the theorem is for holds: the differences have mean zero in both, and balanced pruning adds "
        f"**{100 * min(more):.1f} to {100 * max(more):.1f} %** to their variance, at most {100 * large:.1f} % with "
        f"balance ranges of 32 weights or more. Its equations do not: sampled variances are above {off:.0e} times "
        "equation 7, which adds up how uncertain the k-th smallest weight is, not how large it is."
    )


def _table(view: View) -> pd.DataFrame:
    rows = [
        [
            f"{100 * one.zeros:.4g}", f"{one.size}", f"{one.mean:+.3f}", f"{one.random:.1f}", f"{one.balanced:.1f}",
            f"{100 * (one.balanced / one.random - 1):+.1f} %", f"{one.equation7:.2e}", f"{one.equation8:.2e}",
            f"{100 * (one.equation8 / one.equation7 - 1):+.1f} %",
        ]
        for one in samples()
    ]  # fmt: skip
    return pd.DataFrame(
        rows,
        columns=[
            "zeros (%)", "balance range", "mean over deviation", "variance, random", "variance, balanced", "more",
            "equation 7", "equation 8", "more by them",
        ],
    )  # fmt: skip


def page() -> Page:
    """Its page."""
    return Page(
        question="How much more does balanced pruning change a layer's output than pruning the smallest weights?",
        intro="Theorem 1 of *Balanced Sparsity for Efficient DNN Inference on GPU* (AAAI 2019) compares the difference "
        "between the outputs of a fully connected layer before and after pruning, for the smallest weights of the "
        "whole matrix (the paper's random sparsity) and for the smallest in each balance range. Here such a layer "
        f"({M}×{N}, standard normal weights) is drawn, pruned both ways and applied to {INPUTS} standard normal "
        "inputs; equations 7 and 8 of the theorem, as printed, stand beside. Given the weights, the variance is the "
        "sum of the squares of those taken away in a row. Nothing is run on a GPU.",
        made=_answer,
        tables=(Made("Sampled and by the theorem", _table, "statistics of samples, not of times", collapsed=False),),
    )
