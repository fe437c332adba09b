"""Accelerating Sparse Deep Neural Networks (2021): 2:4 sparsity."""

from __future__ import annotations

from nnzbench.problems.experiment import AND_F16, Experiment

EXPERIMENTS = (
    Experiment(
        "granularity",
        "What each granularity of pruning costs at equal sparsity",
        "MIT 6.S965, pruning (lecture)",
        "no published times: the lecture orders granularities from irregular to regular",
        {
            **dict.fromkeys(("direct_conv", "sparsert_conv", "cudnn"), AND_F16),
            **dict.fromkeys(("ring", "row_stream", "sputnik", "balanced", "cusparse", "cublas", "cublaslt"), AND_F16),
            "cusparselt": AND_F16,
            "tensor_spmm": ("f16",),
        },
        only={"direct_conv": "[!c]*_[78]*", "sparsert_conv": "[!c]*_87.5"},
        page="nnzbench.papers.han_lecture.granularity:PAGE",
    ),
)
