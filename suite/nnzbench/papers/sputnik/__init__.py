"""Sputnik (SC 2020): its experiments, their pages and its claims."""

from __future__ import annotations

from nnzbench.problems.experiment import AND_F16, SPMM, Experiment, dtypes_of

PAPER = "Sputnik (SC 2020)"
RIVALS = ("merge_spmm", "aspt", "aspt_sddmm")
"""Other papers' kernels that figure 10 compares with."""
AS_DATA = SPMM[1:]
"""Where matrices have more nonzeros than code can hold."""

EXPERIMENTS = (
    Experiment(
        "sputnik_figure1",
        "Sparsity from which sparse is faster than dense",
        PAPER,
        "Figure 1",
        dtypes_of(*AS_DATA, "untuned", "cusparse", cublas=AND_F16, cublaslt=AND_F16, tensor_spmm=("f16",)),
        page="nnzbench.papers.sputnik.figure1:PAGE",
    ),
    Experiment(
        "sputnik_figure2",
        "Properties of pruned deep-learning matrices",
        PAPER,
        "Figure 2",
        {},
        page="nnzbench.papers.sputnik.figure2:PAGE",
    ),
    Experiment(
        "sputnik_figure7",
        "Throughput against the imbalance of rows",
        PAPER,
        "Figure 7",
        dtypes_of("sputnik_ablation", *AS_DATA),
        page="nnzbench.papers.sputnik.figure7:PAGE",
    ),
    Experiment(
        "sputnik_dlmc",
        "The collection of pruned deep-learning matrices",
        PAPER,
        "Figure 9, table I",
        dtypes_of(
            *("sputnik", "sputnik_sddmm", "ring_sddmm", "row_stream", "ring", "tensor_spmm", "untuned"),
            *("cublas", "cublaslt", "cusparse"),
            *RIVALS,
        ),
        page="nnzbench.papers.sputnik.dlmc:PAGE",
    ),
    Experiment(
        "sputnik_rnn",
        "RNN, GRU and LSTM layers",
        PAPER,
        "Figure 10",
        {
            **dtypes_of(*SPMM, "untuned", "sputnik_sddmm", "ring_sddmm", "cusparse", *RIVALS, tensor_spmm=("f16",)),
            **dict.fromkeys(("row_stream", "ring", "sputnik", "cublas", "cublaslt"), AND_F16),
        },
        page="nnzbench.papers.sputnik.rnn:PAGE",
    ),
    Experiment(
        "sputnik_ablation",
        "Sputnik's optimisations, one left out at a time",
        PAPER,
        "Table II",
        dtypes_of("sputnik_ablation", "sputnik_sddmm_ablation"),
        page="nnzbench.papers.sputnik.ablation:PAGE",
    ),
    Experiment(
        "sputnik_attention",
        "Sparse attention of a Transformer",
        PAPER,
        "Table III, figure 11",
        # kernels that take the weights as data: those that pack them or write them into code can't follow the softmax
        dtypes_of(
            *("dense_attention", "sputnik_sddmm", "sparse_softmax", "sputnik", "cusparse"),
            sparse_attention=AND_F16,
            cudnn_attention=("f16",),
        ),
        page="nnzbench.papers.sputnik.attention:PAGE",
    ),
    Experiment(
        "sputnik_mobilenet",
        "The layers of MobileNetV1",
        PAPER,
        "Table IV, figure 12",
        dtypes_of("sputnik_bias_relu", "row_stream_bias_relu", "cublas_bias_relu", "depthwise_conv"),
        page="nnzbench.papers.sputnik.mobilenet:PAGE",
    ),
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
