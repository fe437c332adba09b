"""EIE (ISCA 2016): the GPU rows of its table, and its format on a GPU; ESE (FPGA 2017): its LSTM."""

from __future__ import annotations

from nnzbench.problems.experiment import AND_F16, Experiment, dtypes_of

EXPERIMENTS = (
    Experiment(
        "eie_table4",
        "Fully connected layers, the GPU rows",
        "EIE (ISCA 2016)",
        "Table IV",
        dtypes_of("cublaslt", "cusparse", "sputnik", "row_stream", cublas=AND_F16),
        page="nnzbench.papers.eie.table4:PAGE",
    ),
    Experiment(
        "eie_format",
        "One byte per nonzero: EIE's format on a GPU",
        "EIE (ISCA 2016)",
        "Table IV",
        dict.fromkeys(("eie", "balanced", "cusparse", "cublas", "cublaslt", "sputnik", "row_stream"), AND_F16),
        page="nnzbench.papers.eie.format:PAGE",
    ),
    Experiment(
        "ese_lstm",
        "A step of an LSTM of 1,024 cells, dense and sparse",
        "ESE (FPGA 2017)",
        "Section 6.3, table 8",
        {
            **dict.fromkeys(("cublas", "cublaslt", "row_stream"), AND_F16),
            **dtypes_of("cusparse", "sputnik"),
        },
        page="nnzbench.papers.eie.ese:PAGE",
    ),
)
