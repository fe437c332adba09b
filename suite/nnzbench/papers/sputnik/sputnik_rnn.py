"""Sputnik's figure 10: SpMM and SDDMM with the weights of recurrent layers."""

from __future__ import annotations

import dataclasses

from nnzbench.facts.groups import Group
from nnzbench.facts.selector import (
    CUBLAS,
    CUSPARSE,
    CUSPARSE_COLUMN,
    CUSPARSE_DEFAULT,
    DEFAULT,
    DENSE,
    FP16,
    TF32,
    UNTUNED,
    kernel,
    own,
)
from nnzbench.facts.table import Comparison
from nnzbench.papers.sputnik import OTHER_PAPERS, PAPER
from nnzbench.problems.experiment import AND_F16, SPMM, Experiment, dtypes_of
from nnzbench.report.pages.page import Answer, Lines, Page, Pivot, Published, RatioTable

EXPERIMENT = Experiment(
    "sputnik_rnn",
    "RNN, GRU and LSTM layers",
    PAPER,
    "Figure 10",
    {
        **dtypes_of(*SPMM, "untuned", "sputnik_sddmm", "ring_sddmm", "cusparse", *OTHER_PAPERS, tensor_spmm=("f16",)),
        **dict.fromkeys(("row_stream", "ring", "sputnik", "cublas", "cublaslt"), AND_F16),
    },
)
LEVELS = (70, 80, 90)
OF_SPMM, OF_SDDMM = (Group(op=op, where="model != 'extra'", words="of figure 10") for op in ("spmm", "sddmm"))
SPMM_LEVELS, SDDMM_LEVELS = (
    tuple(dataclasses.replace(group, level=level) for level in LEVELS) for group in (OF_SPMM, OF_SDDMM)
)
EXTRA = tuple(Group(words="further sizes", where="model == 'extra'", level=level) for level in (*LEVELS, 95))


def page() -> Page:
    """Its page."""
    rule, best = kernel("sputnik", variants=DEFAULT), kernel("sputnik")
    sddmm_rule, sddmm_best = kernel("sputnik_sddmm", variants=DEFAULT), kernel("sputnik_sddmm")
    merge, aspt, aspt_sddmm = kernel("merge_spmm", variants=DEFAULT), kernel("aspt"), kernel("aspt_sddmm")
    dense = (DENSE, TF32, FP16, CUBLAS)
    spmm, sddmm = (rule, best, own(), UNTUNED, merge, aspt), (sddmm_rule, sddmm_best, own(), aspt_sddmm)
    half = (kernel("sputnik", "f16", DEFAULT), kernel("sputnik", "f16"), own("f16"))
    return Page(
        question="Is Sputnik faster than cuSPARSE, and than a dense product, on the weights of recurrent layers?",
        intro="Products with the weights of RNN, GRU and LSTM layers, state sizes 1k to 8k, batch 32 and 128, "
        "uniformly random patterns with 70, 80 and 90 % zeros: SpMM as in the forward pass and SDDMM as in the "
        "gradient of the weights (figure 10 of *Sparse GPU Kernels for Deep Learning*, SC 2020), and a few further "
        "sizes. Sizes are M×K×N; for SDDMM the pattern is M×N and K the length of the dot products. MergeSpMM and "
        "ASpT are written anew after their papers and the authors' code; ASpT's inspection is outside its times. The "
        "paper's cuSPARSE is that of CUDA 10.1, here its column-major default.",
        attributes=r"(?:sddmm_)?(?P<cell>rnn|gru|lstm)(?P<state>[\d.]+)k.*",
        answers=(
            Answer(SPMM_LEVELS[2], rule, FP16, (own(), own("f16"))),
            Answer(SPMM_LEVELS[2], rule, CUSPARSE, (own(), own("f16")), CUSPARSE_COLUMN),
            Answer(SDDMM_LEVELS[2], sddmm_rule, CUSPARSE, (own(),), CUSPARSE_DEFAULT),
        ),
        comparison=Comparison((rule, best, own(), own("f16"), UNTUNED), (CUSPARSE, *dense[:3]), SPMM_LEVELS),
        figures=(
            Lines("spmm", "SpMM of recurrent layers, sparse kernels over cuSPARSE", (rule, own(), merge, aspt), "ratio",
                  CUSPARSE, "state", "level", OF_SPMM, log_x=True),
            Lines("sddmm", "SDDMM of recurrent layers, sparse kernels over cuSPARSE", (sddmm_rule, own(), aspt_sddmm),
                  "ratio", CUSPARSE, "state", "level", OF_SDDMM, log_x=True),
        ),
        tables=(
            RatioTable("SDDMM", Comparison(sddmm, (CUSPARSE, CUSPARSE_DEFAULT), SDDMM_LEVELS), collapsed=False),
            RatioTable("SpMM over other choices of cuSPARSE and cuBLAS, and other papers' kernels",
                       Comparison((*spmm, own("f16")), (CUSPARSE_COLUMN, CUSPARSE_DEFAULT, CUBLAS, merge, aspt),
                                  SPMM_LEVELS)),
            RatioTable("Other papers' kernels over cuSPARSE",
                       Comparison((merge, aspt), (CUSPARSE, CUSPARSE_COLUMN), SPMM_LEVELS)),
            RatioTable("SDDMM over another paper's kernel", Comparison(sddmm[:3], (aspt_sddmm,), SDDMM_LEVELS)),
            RatioTable("SpMM with fp16 data over dense fp16", Comparison(half, (FP16,), SPMM_LEVELS)),
            RatioTable("Further sizes, not the paper's",
                       Comparison((rule, own(), own("f16")), (CUSPARSE, *dense), EXTRA)),
            Pivot("SpMM, times as fast as best cuSPARSE", (*spmm, DENSE, TF32), "ratio", CUSPARSE,
                  ("label", "size", "level"), group=Group(op="spmm")),
            Pivot("SDDMM, times as fast as best cuSPARSE", sddmm, "ratio", CUSPARSE, ("label", "size", "level"),
                  group=Group(op="sddmm")),
            Published("Figure 10 as the paper prints it", "sputnik_rnn", {
                "kernel": "operation", "gpu": "GPU", "baseline": "over", "geomean_speedup": "geometric mean",
                "peak_speedup": "peak",
            }),
        ),
        baseline=CUSPARSE,
    )  # fmt: skip
