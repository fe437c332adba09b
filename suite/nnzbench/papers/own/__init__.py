"""Experiments of this project's own, of which no paper prints numbers."""

from __future__ import annotations

from nnzbench.problems.experiment import AND_F16, Experiment, dtypes_of

SPMM_SCALING = Experiment(
    "spmm_scaling",
    "Time per nonzero from 1e5 to 1e8 nonzeros",
    "nnzbench's own",
    "no published numbers",
    dtypes_of("row_stream", "ring", "sputnik", "cusparse"),
    page="nnzbench.papers.own.spmm_scaling:PAGE",
)

LLM_LAYERS = Experiment(
    "llm_layers",
    "Layers of language models on tensor cores",
    "nnzbench's own",
    "no published table; Flash-LLM's and SpInfer's figures are of other GPUs",
    dtypes_of(
        *("cublas", "cublaslt", "tensor_spmm", "tensor_spmm_tf32", "delta_spmv", "flash_llm", "spinfer"),
        *("row_stream", "ring", "sputnik", "cusparse", "cusparselt"),
    ),
    only={"cusparselt": "*_2of4"},
    page="nnzbench.papers.own.llm_layers:PAGE",
)
"""Dense products first: what everything is compared with is then recorded wherever a run ends."""

DLMC_N512 = Experiment(
    "dlmc_n512",
    "The same pruned matrices on five GPUs",
    "nnzbench's own",
    "times of four other GPUs, published with SSpMM (GitHub xuezy-mmi/SSpMM)",
    dtypes_of("cublas", "cublaslt", "sputnik", "cusparse", "row_stream", "ring", "tensor_spmm"),
    page="nnzbench.papers.own.dlmc_n512:PAGE",
)

TRAINING_STEP = Experiment(
    "training_step",
    "A training step of one sparse recurrent layer",
    "nnzbench's own",
    "no published numbers",
    {
        **dict.fromkeys(("cublas", "sputnik", "sputnik_transposed", "sputnik_sddmm"), AND_F16),
        **dtypes_of("cusparse", "merge_spmm", "ring_sddmm", "aspt_sddmm"),
    },
    only={"sputnik": "*_forward", "merge_spmm": "*_forward", "sputnik_transposed": "*_input"},
    page="nnzbench.papers.own.training_step:PAGE",
)
"""Kernels that take weights as data: those that pack them or write them into code would do so after every update."""

EXPERIMENTS = (SPMM_SCALING, LLM_LAYERS, DLMC_N512, TRAINING_STEP)
