"""Experiments of this project's own, of which no paper prints numbers."""

from __future__ import annotations

from nnzbench.problems.experiment import AND_F16, Experiment, dtypes_of

SPMM_SCALING = Experiment(
    "spmm_scaling",
    "Time per nonzero from 1e5 to 1e8 nonzeros",
    "nnzbench's own",
    "no published numbers",
    dtypes_of("row_stream", "ring", "sputnik", "cusparse"),
    page="nnzbench.papers.nnzbench.spmm_scaling:PAGE",
)

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

AWKWARD_SIZES = Experiment(
    "awkward_sizes",
    "Sizes that no tile divides, for every kernel of this suite",
    "nnzbench's own",
    "no published numbers",
    {
        **dict.fromkeys(("sputnik", "sputnik_transposed", "sputnik_ablation"), AND_F16),
        **dict.fromkeys(("sputnik_sddmm", "sputnik_sddmm_ablation", "sparse_softmax", "sparse_attention"), AND_F16),
        **dict.fromkeys(("row_stream", "ring", "balanced", "eie", "sparsert", "sparsert_pattern"), AND_F16),
        **dict.fromkeys(("direct_conv", "sparsert_conv"), AND_F16),
        **dict.fromkeys(("tensor_spmm", "delta_spmv"), ("f16", "bf16")),
        **dict.fromkeys(("flash_llm", "spinfer"), ("f16",)),
        **dtypes_of("tensor_spmm_tf32", "merge_spmm", "aspt", "ring_sddmm", "aspt_sddmm"),
        **dtypes_of("sparsert_paper", "sparsert_unbalanced", "sparsert_fixed", "sparsert_rolled"),
        **dtypes_of("sparsert_conv_paper", "sputnik_bias_relu", "row_stream_bias_relu", "depthwise_conv"),
    },
    policies=("hot",),
    page="nnzbench.papers.nnzbench.awkward_sizes:PAGE",
)
"""For checking, not for speed: what tables of papers do not have, and users do."""

EXPERIMENTS = (SPMM_SCALING, DLMC_N512, TRAINING_STEP, AWKWARD_SIZES)
