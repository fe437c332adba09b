"""Experiments of this project's own, of which no paper prints numbers."""

from __future__ import annotations

from nnzbench.problems.experiment import Experiment, dtypes_of

SPMM_SCALING = Experiment(
    "spmm_scaling",
    "Time per nonzero from 1e5 to 1e8 nonzeros",
    "nnzbench's own",
    "no published numbers",
    dtypes_of("row_stream", "ring", "sputnik", "cusparse"),
    page="nnzbench.papers.own.spmm_scaling:PAGE",
)

EXPERIMENTS = (SPMM_SCALING,)
