"""Experiments of this project's own, of which no paper prints numbers."""

from __future__ import annotations

from nnzbench.problems.experiment import Experiment, dtypes_of

DLMC_N512 = Experiment(
    "dlmc_n512",
    "The same pruned matrices on five GPUs",
    "nnzbench's own",
    "times of four other GPUs, published with SSpMM (GitHub xuezy-mmi/SSpMM)",
    dtypes_of("cublas", "cublaslt", "sputnik", "cusparse", "row_stream", "ring", "tensor_spmm", "untuned"),
    page="nnzbench.papers.nnzbench.dlmc_n512:PAGE",
)

EXPERIMENTS = (DLMC_N512,)
