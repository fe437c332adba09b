"""The experiments: which problems, kernels and policies make up one table or figure, of a paper or of our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nnzbench.problem import DType, Problem
from nnzbench.timing import POLICIES, Policy

AS_TABLE: tuple[DType, ...] = ()
"""A kernel runs each problem in the dtype that its table gives."""
AND_F16: tuple[DType, ...] = ("f32", "f16")


class UnknownExperiment(ValueError):
    """No experiment has this name; the message lists those there are."""


@dataclass(frozen=True)
class Experiment:
    """One table or figure: every kernel runs on every problem of its op, in each dtype, under each policy."""

    name: str
    """Fixed name, which is also that of its problem table and results folder."""
    title: str
    paper: str
    figure: str
    """Where in the paper its published numbers stand, or that there are none."""
    kernels: Mapping[str, tuple[DType, ...]]
    """Dtypes per kernel name, `AS_TABLE` for that of each problem. An unregistered kernel is skipped with a note."""
    policies: tuple[Policy, ...] = field(default=POLICIES)
    full: bool = False
    """All problems of its table where the default is a sample."""

    def problems(self, real: bool | None = None) -> list[Problem]:
        """The problems of its table: on real data where it is on disk (None), or on stand-ins alone (False)."""
        from nnzbench import tables

        return tables.load(self.name, real, self.full)


SPARSERT = "SparseRT (PACT 2020)"
SPUTNIK = "Sputnik (SC 2020)"
BALANCED = "Balanced Sparsity (AAAI 2019)"
DIRECT_CONV = "Direct sparse convolution (2021)"
EIE = "EIE (ISCA 2016)"
LECTURE = "Accelerating Sparse Deep Neural Networks (2021)"
OWN = "nnzbench's own"


def _kernels(*names: str, **others: tuple[DType, ...]) -> dict[str, tuple[DType, ...]]:
    """`names` in the dtypes of the table, `others` in their own."""
    return {**dict.fromkeys(names, AS_TABLE), **others}


_SPMM = ("sparsert", "row_stream", "ring", "sputnik")
_CONV = ("direct_conv", "sparsert_conv", "cudnn")

_ALL = (
    Experiment(
        "sparsert_table1",
        "1x1 convolutions and Transformer layers at 90 and 95 % sparsity",
        SPARSERT,
        "Table 1, figures 4 and 5",
        _kernels(*_SPMM, "cusparse", cublas=AND_F16, cublaslt=AND_F16),
    ),
    Experiment("sparsert_table3", "3x3 convolutions of ResNet-50", SPARSERT, "Table 3, figure 7", _kernels(*_CONV)),
    Experiment(
        "sparsert_ablation",
        "Unrolling, load balancing and tuning, one left out at a time",
        SPARSERT,
        "Figure 8",
        _kernels(
            "sparsert",
            "sparsert_paper",
            "sparsert_pattern",
            "sparsert_rolled",
            "sparsert_unbalanced",
            "sparsert_fixed",
            "cublas",
        ),
    ),
    Experiment(
        "sputnik_figure1",
        "Sparsity from which sparse is faster than dense",
        SPUTNIK,
        "Figure 1",
        _kernels(*_SPMM, "cusparse", cublas=AND_F16, cublaslt=AND_F16),
    ),
    Experiment(
        "sputnik_figure7",
        "Throughput against the imbalance of rows",
        SPUTNIK,
        "Figure 7",
        _kernels("sputnik_ablation", *_SPMM),
    ),
    Experiment(
        "sputnik_dlmc",
        "The collection of pruned deep-learning matrices",
        SPUTNIK,
        "Figure 9, table I",
        _kernels("sputnik", "sputnik_sddmm", "ring_sddmm", "row_stream", "ring", "cublas", "cusparse"),
    ),
    Experiment(
        "sputnik_rnn",
        "RNN, GRU and LSTM layers",
        SPUTNIK,
        "Figure 10",
        {
            **_kernels(*_SPMM, "sputnik_sddmm", "ring_sddmm", "cublaslt", "cusparse"),
            **dict.fromkeys(("row_stream", "ring", "sputnik", "cublas"), AND_F16),
        },
    ),
    Experiment(
        "sputnik_ablation",
        "Sputnik's optimisations, one left out at a time",
        SPUTNIK,
        "Table II",
        _kernels("sputnik_ablation", "sputnik_sddmm_ablation"),
    ),
    Experiment(
        "sputnik_attention",
        "Sparse attention of a Transformer",
        SPUTNIK,
        "Table III, figure 11",
        # kernels that take the weights as data: those that pack them or write them into code can't follow the softmax
        _kernels("sparse_attention", "dense_attention", "sputnik_sddmm", "sparse_softmax", "sputnik", "cusparse"),
    ),
    Experiment(
        "sputnik_mobilenet",
        "The layers of MobileNetV1",
        SPUTNIK,
        "Table IV, figure 12",
        _kernels("sputnik_bias_relu", "row_stream_bias_relu", "cublas_bias_relu", "depthwise_conv"),
    ),
    Experiment(
        "balanced_figure4",
        "A large matrix at eleven sparsities",
        BALANCED,
        "Figure 4",
        _kernels("balanced", "sputnik", "cublas", "cusparse"),
    ),
    Experiment(
        "balanced_models",
        "Layers of VGG-16, PTB LSTM and CTC models",
        BALANCED,
        "Tables 1 to 3",
        _kernels("balanced", "sputnik", "cublas", "cusparse"),
    ),
    *(
        Experiment(f"direct_conv_table{number}", title, DIRECT_CONV, f"Table {number}", _kernels(*_CONV))
        for number, title in (
            (6, "3x3 convolutions of VGG-16"),
            (7, "1x1 convolutions of ResNet-50"),
            (8, "1-D convolutions"),
            (9, "Sub-batch sizes"),
        )
    ),
    Experiment(
        "eie_table4",
        "Fully connected layers, the GPU rows",
        EIE,
        "Table IV",
        _kernels("cublaslt", "cusparse", "sputnik", "row_stream", cublas=AND_F16),
    ),
    Experiment(
        "nm_sparsity",
        "2:4 sparsity on tensor cores",
        LECTURE,
        "Figure 3",
        _kernels("cusparselt", "cublas", "cublaslt"),
    ),
    Experiment(
        "spmm_scaling",
        "Time per nonzero from 1e5 to 1e8 nonzeros",
        OWN,
        "no published numbers",
        _kernels("row_stream", "ring", "sputnik", "cusparse"),
    ),
)

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}


def experiment(name: str) -> Experiment:
    """The experiment of that name. Raises `UnknownExperiment`."""
    if name not in EXPERIMENTS:
        raise UnknownExperiment(f"unknown experiment '{name}': choose from {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
