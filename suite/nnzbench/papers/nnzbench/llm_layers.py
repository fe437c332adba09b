"""Layers of language models: from how many zeros on a sparse product beats dense fp16 on tensor cores."""

from __future__ import annotations

import pandas as pd

from nnzbench import paths
from nnzbench.facts.groups import Group
from nnzbench.facts.selector import CUSPARSE_F16, FP16, MATHS, best_dense, kernel, over_pruned, written_here
from nnzbench.facts.table import Comparison
from nnzbench.papers.nnzbench import llm_bounds
from nnzbench.problems.experiment import POLICIES, Experiment, dtypes_of
from nnzbench.report.data import published
from nnzbench.report.pages.page import Answer, Crossings, Lines, Made, Map, Page, Pivot, Printed, Published, RatioTable
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    "llm_layers",
    "Layers of language models on tensor cores",
    "nnzbench's own",
    "no published table; Flash-LLM's and SpInfer's figures are of other GPUs",
    dtypes_of(
        *("cublas", "cublaslt", "tensor_spmm", "tensor_spmm_tf32", "delta_spmv", "flash_llm", "spinfer"),
        *("row_stream", "ring", "sputnik", "cusparse", "cusparselt"),
    ),
    policies=POLICIES,
    only={"cusparselt": "*_2of4"},
)
"""Dense products first: what everything is compared with is then recorded wherever a run ends."""

UNIFORM = Group(where="pattern == ''", words="uniform patterns")
LARGE = Group(where="pattern == '' and 2 * m * k >= 2**26", words="uniform patterns of layers of 64 MB and more")
SMALL = Group(where="pattern == '' and 2 * m * k < 2**26", words="uniform patterns of layers of 32 MB")
MAGNITUDE = Group(where="pattern == '_mag'", words="patterns like magnitude pruning's")
TWO_OF_FOUR = Group(where="pattern == '_2of4'", words="2:4 patterns")
UPSTREAM = {"llm_flash_llm": "Flash-LLM, the authors' code", "llm_spinfer": "SpInfer, the authors' code"}
"""Sessions of `datasets/peers/times.csv` with the same layers on uniform patterns."""


def _flash_llm(view: View) -> pd.DataFrame:
    """Means over layers that Flash-LLM's authors print, at 8 to 64 columns on an A100."""
    found = published.read("tensor_core_kernels", ("kernel", "n", "zeros", "speedup"))
    found = found[found["kernel"] == "Flash-LLM"]
    return pd.DataFrame({"level": 100 * found["zeros"], "value": found["speedup"]})


def _upstream(view: View) -> pd.DataFrame | None:
    """Times of the authors' codes on this GPU, µs, as `datasets/peers` has them."""
    times = pd.read_csv(paths.datasets() / "peers" / "times.csv")
    sessions = pd.read_csv(paths.datasets() / "peers" / "sessions.csv").set_index("session")["gpu"]
    here = times["session"].isin(UPSTREAM) & (times["session"].map(sessions) == view.results.gpu)
    mine = times[here & (times["code"] != "cublas") & (times["status"] == "ok")]
    if mine.empty:
        return None
    keys = ["session", "m", "k", "n", "sparsity"]
    found = mine.pivot_table(index=keys, columns="policy", values="median_us", sort=False).reset_index()
    named = {"session": "code", "sparsity": "zeros"}
    return found.assign(session=found["session"].map(UPSTREAM), n=found["n"].astype(str)).rename(columns=named)


def page() -> Page:
    """Its page."""
    tensor, delta, flash, spinfer, sputnik = (
        kernel(name, "f16") for name in ("tensor_spmm", "delta_spmv", "flash_llm", "spinfer", "sputnik")
    )
    best = written_here("f16")
    groups = tuple(
        Group(level=level, columns=n) for level, n in ((90, 16), (70, 16), (90, 1), (80, 16), (90, 64), (90, 256))
    )
    printed = Printed("Flash-LLM's authors, A100, 8 to 64 columns", _flash_llm)
    other = tuple(math for math in MATHS if math not in ("f16", "f8"))
    return Page(
        question="From how many zeros on, and up to how many columns, is a sparse layer of a language model faster "
        "than the dense product?",
        intro="Weights of public language models (sizes and sources in `datasets/problems/llm_layers.csv`) with their "
        "zeros anywhere, times 1 to 256 columns (tokens or requests at once), in fp16 with sums in fp32. The baseline "
        "is the fastest dense fp16 product: cuBLAS and every algorithm that cuBLASLt proposes, in both layouts, "
        "with the matrix before pruning. The rows and columns of patterns like magnitude pruning's vary as in pruned "
        "Transformers of the collection.",
        answers=(
            Answer(groups[0], tensor, FP16, (flash,), claim="flash-llm-cublas-90"),
            Answer(groups[1], tensor, FP16, (flash,), claim="flash-llm-cublas-70"),
            Answer(groups[2], delta, FP16, (tensor,)),
        ),
        comparison=Comparison((tensor, delta, flash, spinfer, sputnik), (FP16, CUSPARSE_F16), groups),
        figures=(
            Lines("speedup", "The best sparse kernel over dense fp16, layers of 64 MB and more", (best,),
                  baseline=FP16, lines="n", group=LARGE, printed=printed),
            Map("map", "Where sparsity pays"),
            Lines("layers", "The best sparse kernel over dense fp16, layer by layer", (best,), baseline=FP16,
                  lines="n", panels="layer", group=UNIFORM),
        ),
        tables=(
            Crossings("Zeros from which on the best sparse kernel is as fast as dense fp16", best, FP16, ("layer",),
                      group=UNIFORM),
            Crossings("The same on patterns like magnitude pruning's", best, FP16, ("layer",), group=MAGNITUDE,
                      collapsed=True),
            Crossings("The same of tensor_spmm", tensor, FP16, ("layer",), group=UNIFORM, collapsed=True),
            Crossings("The same of flash_llm", flash, FP16, ("layer",), group=UNIFORM, collapsed=True),
            Pivot("Best sparse kernel over dense fp16, layers of 64 MB and more", (best,), "ratio", FP16, ("n",),
                  "level", LARGE, collapsed=False),
            Pivot("The same, layers of 32 MB", (best,), "ratio", FP16, ("n",), "level", SMALL),
            Pivot("2:4 patterns (half of the weights): over dense fp16", (kernel("cusparselt", "f16"), best), "ratio",
                  FP16, ("layer", "subject"), "n", TWO_OF_FOUR),
            *(
                RatioTable(f"In {MATHS[math]}", Comparison((written_here(math),), (best_dense(math),),
                                                           by=("layer", "n", "level")))
                for math in other
            ),
            Pivot("Dense fp16 with the pruned matrix, over the unpruned one", (over_pruned("f16"),), "ratio", FP16,
                  ("layer", "level"), "n"),
            Pivot("Every layer: µs of the best sparse and dense fp16 products", (best, FP16), "time",
                  rows=("layer", "level", "subject"), columns="n", group=UNIFORM),
            Pivot("Flash-LLM and SpInfer here: over dense fp16", (flash, spinfer, best), "ratio", FP16,
                  ("layer", "subject", "level"), "n", UNIFORM),
            Made("The authors' own codes on this GPU, µs", _upstream, "times of other programs are in no record"),
            Made("What bounds them, on 8192×8192 (hot)", llm_bounds.table, "counts the work of decoding each format"),
            Published("From the authors or their users, over cuBLAS fp16 on other GPUs", "tensor_core_kernels"),
        ),
        attributes=r"(?P<layer>.+?)(?P<pattern>_mag|_2of4|)",
        energy=Comparison((best,), (FP16, best_dense("f8"))),
        baseline=FP16,
        arithmetic="fp16 with sums in fp32 unless a row names another arithmetic",
    )  # fmt: skip
