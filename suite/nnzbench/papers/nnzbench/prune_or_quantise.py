"""Prune or quantise: layers of a language model with zeros anywhere beside the same layers dense in FP8 and INT4, and
what PyTorch's own sparse layouts take."""

from __future__ import annotations

from dataclasses import replace

from nnzbench.data.problems.problem import DType
from nnzbench.report.page import Answer, Crossings, Page, Pivot
from nnzbench.results.groups import Group
from nnzbench.results.selector import FP16, best_dense, kernel, written_here
from nnzbench.results.table import Comparison

BOTH: tuple[DType, ...] = ("f16", "f8")

FP8, INT4 = best_dense("f8"), replace(kernel("pytorch_int4", "i4"), label="PyTorch's INT4")
SPARSE = (kernel("tensor_spmm", "f16"), kernel("delta_spmv", "f16"), kernel("tensor_spmm", "f8"),
          kernel("delta_spmv", "f8"))  # fmt: skip
PYTORCH = kernel("pytorch", "f16", "f16_csr", "CSR")
LIBRARIES = (PYTORCH, kernel("pytorch", "f16", "f16_semi", "2:4"), kernel("cusparselt", "f16"))
TENSOR, DELTA, _, DELTA_F8 = SPARSE
SCATTERED = Group(where="not label.str.endswith('_2of4')", words="three layers")


def at(level: int, n: int) -> Group:
    """The three layers at so many zeros and columns."""
    return replace(SCATTERED, level=level, columns=n)


CELLS = (at(70, 1), at(90, 1), at(90, 16))


def prune_or_quantise() -> Page:
    """Its page."""
    rows, ratios = ("label", "level", "subject"), ("subject", "label", "level")
    one, many = replace(SCATTERED, columns=1), replace(SCATTERED, where=f"{SCATTERED.where} and n > 1")
    return Page(
        question="From how many zeros is a pruned layer faster than the same layer quantised to FP8 or INT4?",
        intro="Layers of Llama 3 8B and 70B (`datasets/problems/prune_or_quantise.csv` has sizes and sources) with "
        "uniformly random zeros, times 1 to 256 tokens, weights from memory as in a model (`stream`). Dense products "
        "have the weights before pruning: fp16 and FP8 the fastest algorithm of cuBLASLt, INT4 PyTorch's "
        "`_weight_int4pack_mm` in groups of 128. Quantising and pruning change what a model says in different ways, "
        "which no time here tells. PyTorch's rows are `torch.nn.functional.linear` over weights in its own layouts, "
        "as one line of a user's code makes them.",
        answers=(
            Answer(CELLS[0], DELTA, INT4, (DELTA_F8,)),
            Answer(CELLS[1], DELTA, INT4, (DELTA_F8,)),
            Answer(CELLS[2], TENSOR, INT4),
        ),
        comparison=Comparison((*SPARSE, PYTORCH), (FP16, FP8, INT4), CELLS),
        tables=(
            Pivot("µs", (FP16, FP8, INT4, *SPARSE, *LIBRARIES), rows=rows, columns="n", collapsed=False),
            Pivot("Over dense FP8", SPARSE, "ratio", FP8, ratios, "n", SCATTERED),
            Pivot("Over dense INT4", SPARSE, "ratio", INT4, ratios, "n", SCATTERED),
            Crossings("Zeros from which on delta_spmv is as fast as dense FP8", DELTA, FP8, group=one),
            Crossings("Zeros from which on delta_spmv is as fast as dense INT4", DELTA, INT4, group=one),
            Crossings("Zeros from which on tensor_spmm is as fast as dense FP8", TENSOR, FP8, group=many),
            Crossings("Zeros from which on tensor_spmm is as fast as dense INT4", TENSOR, INT4, group=many),
            Pivot("PyTorch's CSR over dense fp16", (PYTORCH,), "ratio", FP16, ("label", "level"), "n", SCATTERED),
        ),
        facts=(Comparison((written_here("f16"),), (FP16, FP8, INT4), tuple(at(90, n) for n in (1, 16, 64))),),
        baseline=FP16,
        arithmetic="fp16 with sums in fp32 unless a row names another arithmetic",
    )  # fmt: skip
