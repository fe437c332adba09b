"""Balanced Sparsity (AAAI 2019): its experiments and their pages."""

from __future__ import annotations

from nnzbench.facts.selector import Selector, kernel
from nnzbench.problems.experiment import dtypes_of

PAPER = "Balanced Sparsity (AAAI 2019)"
KERNELS = dtypes_of("balanced", "sputnik", "cublas", "cublaslt", "cusparse")
ONLY = {"balanced": "*balanced*"}
"""Other patterns have no balanced form."""
RANDOM = Selector("cuSPARSE, random zeros", ("cusparse",), source="uniform")
BLOCKS = Selector("cuSPARSE, blocks of zeros", ("cusparse",), source="block")
"""It stands for the block-sparse library of the paper, which is not run here."""
RANDOM_SPUTNIK = Selector("sputnik, random zeros", ("sputnik",), source="uniform")


def mapping() -> Selector:
    """The paper's own mapping."""
    return kernel("balanced", variants="paper", words="the paper's mapping")
