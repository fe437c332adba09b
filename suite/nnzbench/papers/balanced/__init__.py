"""Balanced Sparsity (AAAI 2019): its experiments and their pages."""

from __future__ import annotations

from nnzbench.problems.experiment import Experiment, dtypes_of

PAPER = "Balanced Sparsity (AAAI 2019)"
KERNELS = dtypes_of("balanced", "sputnik", "cublas", "cublaslt", "cusparse")
ONLY = {"balanced": "*balanced*"}
"""Other patterns have no balanced form."""

EXPERIMENTS = (
    Experiment(
        "balanced_figure1",
        "Perplexity against time by pattern",
        PAPER,
        "Figure 1, table 4",
        KERNELS,
        only=ONLY,
        page="nnzbench.papers.balanced.figure1:PAGE",
    ),
    Experiment(
        "balanced_figure4",
        "A large matrix at eleven sparsities",
        PAPER,
        "Figure 4",
        KERNELS,
        only=ONLY,
        page="nnzbench.papers.balanced.figure4:PAGE",
    ),
    Experiment(
        "balanced_models",
        "Layers of VGG-16, PTB LSTM and CTC models",
        PAPER,
        "Tables 1 to 3",
        KERNELS,
        only=ONLY,
        page="nnzbench.papers.balanced.models:PAGE",
    ),
)
