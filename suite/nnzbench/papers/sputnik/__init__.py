"""Sputnik (SC 2020): its experiments, their pages and its claims."""

from __future__ import annotations

from nnzbench.problems.experiment import SPMM, Experiment, dtypes_of

PAPER = "Sputnik (SC 2020)"
OTHER_PAPERS = ("merge_spmm", "aspt", "aspt_sddmm")
"""Other papers' kernels that figure 10 compares with."""
AS_DATA = SPMM[1:]
"""Where matrices have more nonzeros than code can hold."""

EXPERIMENTS = (
    Experiment(
        "whole_networks",
        "The sparse Transformer and MobileNetV1 in one graph",
        PAPER,
        "Tables III and IV, figure 12",
        dtypes_of(
            *("sparse_transformer", "dense_transformer", "sparse_mobilenet", "dense_mobilenet"),
            *("cublas", "sputnik_sddmm", "sparse_softmax", "sputnik", "dense_attention"),
        ),
        only={"cublas": "gemm_*"},
        page="nnzbench.papers.sputnik.whole_networks:PAGE",
    ),
)
EQUAL_ACCURACY = (("1", "1.3"), ("1.2", "1.5"), ("1.4", "1.8"))
"""Widths of the dense and the sparse MobileNetV1 of the same accuracy: the paper's pairs."""
