"""SparseRT (PACT 2020): its experiments, their pages and its claims."""

from __future__ import annotations

from nnzbench.problems.experiment import AND_F16, SPMM, Experiment, dtypes_of

PAPER = "SparseRT (PACT 2020)"

EXPERIMENTS = (
    Experiment(
        "sparsert_table1",
        "1x1 convolutions and Transformer layers at 90 and 95 % sparsity",
        PAPER,
        "Table 1, figures 4 and 5",
        dtypes_of("sparsert_paper", *SPMM, "untuned", "cusparse", cublas=AND_F16, cublaslt=AND_F16),
        page="nnzbench.papers.sparsert.table1:PAGE",
    ),
    Experiment(
        "sparsert_table3",
        "3x3 convolutions of ResNet-50",
        PAPER,
        "Table 3, figure 7",
        dtypes_of("sparsert_conv_paper", "direct_conv", "sparsert_conv", "cudnn"),
        page="nnzbench.papers.sparsert.table3:PAGE",
    ),
    Experiment(
        "sparsert_ablation",
        "Unrolling, load balancing and tuning, one left out at a time",
        PAPER,
        "Figure 8",
        dtypes_of(
            "sparsert",
            "sparsert_paper",
            "sparsert_pattern",
            "sparsert_rolled",
            "sparsert_unbalanced",
            "sparsert_fixed",
            "cublas",
        ),
        page="nnzbench.papers.sparsert.ablation:PAGE",
    ),
)
