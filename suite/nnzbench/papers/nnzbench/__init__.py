"""Experiments of this project's own, of which no paper prints numbers."""

from __future__ import annotations

from nnzbench.problems.experiment import AND_F16, Experiment, dtypes_of

DLMC_N512 = Experiment(
    "dlmc_n512",
    "The same pruned matrices on five GPUs",
    "nnzbench's own",
    "times of four other GPUs, published with SSpMM (GitHub xuezy-mmi/SSpMM)",
    dtypes_of("cublas", "cublaslt", "sputnik", "cusparse", "row_stream", "ring", "tensor_spmm", "untuned"),
    page="nnzbench.papers.nnzbench.dlmc_n512:PAGE",
)

TRAINING_STEP = Experiment(
    "training_step",
    "A training step of one sparse recurrent layer",
    "nnzbench's own",
    "no published numbers",
    {
        **dict.fromkeys(("cublas", "cublaslt", "sputnik", "sputnik_transposed", "sputnik_sddmm"), AND_F16),
        **dtypes_of("cusparse", "merge_spmm", "ring_sddmm", "aspt_sddmm"),
    },
    only={"sputnik": "*_forward", "merge_spmm": "*_forward", "sputnik_transposed": "*_input"},
    page="nnzbench.papers.nnzbench.training_step:PAGE",
)
"""Kernels that take weights as data: those that pack them or write them into code would do so after every update."""

EXPERIMENTS = (DLMC_N512, TRAINING_STEP)
