"""The experiments: which problems, kernels and policies make up one table or figure of a paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nnzbench.problem import DType, Problem
from nnzbench.timing import POLICIES, Policy

F32: tuple[DType, ...] = ("f32",)
F32_F16: tuple[DType, ...] = ("f32", "f16")


class UnknownExperiment(ValueError):
    """No experiment has this name; the message lists those there are."""


@dataclass(frozen=True)
class Experiment:
    """One table or figure: every kernel runs on every problem in each of its dtypes under each policy."""

    name: str
    """Fixed name, which is also that of its problem table and results folder."""
    title: str
    paper: str
    figure: str
    """Where in the paper its published numbers stand."""
    kernels: Mapping[str, tuple[DType, ...]]
    """Dtypes per kernel name. A kernel that is not registered is skipped with a note."""
    policies: tuple[Policy, ...] = field(default=POLICIES)

    def problems(self, real: bool | None = None) -> list[Problem]:
        """The problems of its table: on real data where it is on disk (None), or on stand-ins alone (False)."""
        from nnzbench import tables

        return tables.load(self.name, real)


SPARSERT = "SparseRT (PACT 2020)"
SPUTNIK = "Sputnik (SC 2020)"
BALANCED = "Balanced Sparsity (AAAI 2019)"
DIRECT_CONV = "Direct sparse convolution (2022)"
EIE = "EIE (ISCA 2016)"

_OWN_SPMM = {"sparsert": F32, "row_stream": F32, "panel": F32, "sputnik": F32}
_VENDOR_GEMM = {"cublas": F32_F16, "cublaslt": F32_F16, "cusparse": F32}
_CONV = {"direct_conv": F32_F16, "sparsert_conv": F32, "cudnn": F32_F16}

_ALL = (
    Experiment(
        "sparsert_table1",
        "1x1 convolutions and Transformer layers at 90 and 95 % sparsity",
        SPARSERT,
        "Table 1, figures 4 and 5",
        {**_OWN_SPMM, **_VENDOR_GEMM},
    ),
    Experiment("sparsert_table3", "3x3 convolutions of ResNet-50", SPARSERT, "Table 3, figure 7", _CONV),
    Experiment(
        "sputnik_rnn", "RNN, GRU and LSTM layers", SPUTNIK, "Figure 10", {**_OWN_SPMM, "cublas": F32, "cusparse": F32}
    ),
    Experiment(
        "sputnik_figure1",
        "Sparsity at which sparse overtakes dense",
        SPUTNIK,
        "Figure 1",
        {**_OWN_SPMM, "cublas": F32, "cusparse": F32},
    ),
)

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}


def experiment(name: str) -> Experiment:
    """The experiment of that name. Raises `UnknownExperiment`."""
    if name not in EXPERIMENTS:
        raise UnknownExperiment(f"unknown experiment '{name}': choose from {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
