"""The same pruned matrices on five generations of GPUs: what this suite measures beside what others published."""

from __future__ import annotations

import itertools

import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.facts.results import each
from nnzbench.facts.selector import CUSPARSE_F16, FP16, kernel, own
from nnzbench.facts.table import Comparison
from nnzbench.papers.nnzbench import four_gpus
from nnzbench.problems import tables
from nnzbench.problems.experiment import Experiment, dtypes_of
from nnzbench.report.pages.page import Answer, Lines, Made, Page, Pivot, Printed, RatioTable
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    four_gpus.EXPERIMENT,
    "The same pruned matrices on five GPUs",
    "nnzbench's own",
    "times of four other GPUs, published with SSpMM (GitHub xuezy-mmi/SSpMM)",
    dtypes_of("cublas", "cublaslt", "sputnik", "cusparse", "row_stream", "ring", "tensor_spmm", "untuned"),
)
BANDS = (35, 65, 75, 85, 92.5, 97, 98.5, 100)
COUNTED = tuple(
    Group(words=f"{low:g} to {high:g} % zeros counted", where=f"{low / 100} <= sparsity < {high / 100}")
    for low, high in itertools.pairwise(BANDS)
)


def groups() -> tuple[Group, ...]:
    """One for each level that matrices are named after, sparsest first; its words tell what the zeros count to."""
    rows = [(four_gpus.stratum(row.problem.name)[1], row.problem) for row in tables.rows(EXPERIMENT.name, full=True)]
    found = []
    for level in sorted({level for level, _ in rows}, reverse=True):
        zeros = [100 * problem.sparsity for one, problem in rows if one == level]
        words = f"pruned to {100 * level:g} % ({min(zeros):.0f} to {max(zeros):.0f} % zeros counted)"
        found.append(Group(words=words, where=f"pruned == {level}"))
    return tuple(found)


def zeros(view: View) -> pd.DataFrame:
    """Percent of zeros, as counted, of the matrices recorded by the level that they are named after."""
    found = view.data.problems.assign(zeros=100 * view.data.problems["sparsity"]).groupby("pruned")["zeros"]
    table = found.agg(["count", "min", "mean", "max"]).reset_index()
    heads = ["named", "matrices", "least zeros (%)", "mean (%)", "most (%)"]
    return table.assign(pruned=[f"{100 * one:g} %" for one in table["pruned"]]).set_axis(heads, axis=1)


def _printed(view: View) -> pd.DataFrame:
    """Dense over Sputnik's time on the four GPUs."""
    found = four_gpus.published_gains(four_gpus.whole(view.data)).query("library == 'sputnik'")
    return pd.DataFrame({"pruned": found["level"], "value": found["gain"]})


def _gains(view: View) -> pd.DataFrame:
    """A line per GPU and library: dense over sparse time by level, and how many matrices are faster sparse."""
    found = four_gpus.published_gains(four_gpus.whole(view.data))
    rows = []
    for (gpu, library), some in found.groupby(["gpu", "library"], sort=False):
        wins = f"{some['faster_than_cublas'].sum():g} of {some['count'].sum()}"
        line = {f"{100 * row.level:g} %": float(row.gain) for row in each(some.sort_values("level"))}
        rows.append({"GPU": gpu, "kernel": library, **line, "faster than dense": wins})
    return pd.DataFrame(rows)


def _times(view: View) -> pd.DataFrame:
    """Published means by method and level, µs."""
    found = four_gpus.printed(four_gpus.whole(view.data))
    found["head"] = found["gpu"] + " " + found["library"]
    heads = list(dict.fromkeys(found["head"]))
    wide = found.pivot(index=["method", "level"], columns="head", values="geomean_us")[heads].reset_index()
    return wide.assign(level=[f"{100 * one:g} %" for one in wide["level"]])


def page() -> Page:
    """Its page."""
    rule, best, ours = four_gpus.SIDES["sputnik"], kernel("sputnik", "f16"), own("f16")
    levels = groups()
    every = (four_gpus.SIDES["ours"], *(kernel(name, "f16") for name in ("tensor_spmm", "ring", "row_stream")))
    return Page(
        question="Are the pruned matrices of the collection faster than the dense fp16 product at 512 columns?",
        intro="Pruned matrices of Transformers, times 512 columns in fp16, beside times that others published of the "
        f"very same matrices on four older GPUs. {four_gpus.CAVEATS} Matrices are named after the share of zeros that "
        "the pruning was asked for. Two of the four methods miss it, so the zeros counted are told too: in a group's "
        f"name those of all {four_gpus.ALL} matrices, in the first table those of the ones recorded here.",
        attributes=four_gpus.ATTRIBUTES,
        answers=tuple(Answer(group, ours, FP16, (best, rule)) for group in levels[:3]),
        comparison=Comparison((ours, best, rule), (FP16, CUSPARSE_F16), levels),
        figures=(
            Lines("gain", "Sparse over dense fp16 products with 512 columns, by the share of zeros asked for",
                  (every[0], best, rule, CUSPARSE_F16), baseline=FP16, x="pruned",
                  printed=Printed("Sputnik on V100, RTX 2080 Ti, A100, RTX 4090 (published)", _printed)),
        ),
        tables=(
            Made("Zeros counted", zeros, "counts zeros", collapsed=False),
            RatioTable("By the zeros counted", Comparison((ours, best, rule), (FP16, CUSPARSE_F16), COUNTED),
                       collapsed=False),
            Made("Dense over sparse time on four other GPUs, published, by the share of zeros asked for", _gains,
                 "divides times that others print", collapsed=False),
            RatioTable("Further kernels", Comparison((*every, CUSPARSE_F16), (FP16, CUSPARSE_F16), levels)),
            Pivot("µs by method", (rule, best, CUSPARSE_F16, every[0], FP16), rows=("method", "pruned")),
            Made("Published µs by method", _times, "sets times of four GPUs side by side"),
        ),
        baseline=FP16,
        arithmetic="Inputs are fp16. Measured kernels sum in fp32; the published cuBLAS sums in fp16",
    )  # fmt: skip
