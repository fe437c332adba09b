"""Accelerating Sparse Deep Neural Networks (2021): 2:4 sparsity."""

from __future__ import annotations

from nnzbench.problems.experiment import Experiment, dtypes_of

EXPERIMENTS = (
    Experiment(
        "nm_sparsity",
        "2:4 sparsity on tensor cores",
        "Accelerating Sparse Deep Neural Networks (2021)",
        "Figure 3",
        dtypes_of("cusparselt", "cublas", "cublaslt"),
        page="nnzbench.papers.lecture.nm_sparsity:PAGE",
    ),
)
