"""Where sparsity pays: columns against zeros for a large, a middle and a small layer, in fp16."""

from __future__ import annotations

from nnzbench.facts.groups import Group
from nnzbench.facts.nearby import sparse
from nnzbench.facts.selector import CUBLAS, FP16
from nnzbench.facts.table import Comparison
from nnzbench.problems.experiment import Experiment, dtypes_of
from nnzbench.report.pages.page import Answer, Page, Pivot

EXPERIMENT = Experiment(
    "pays_map",
    "Where sparsity pays: columns, zeros and size of the layer",
    "nnzbench's own",
    "no published table",
    dtypes_of(
        *("cublaslt", "tensor_spmm", "delta_spmv", "flash_llm", "row_stream", "ring", "sputnik"),
        cublas=("f16", "f32"),
    ),
    only={"row_stream": "[ms]*", "ring": "[ms]*", "sputnik": "small"},
    leads=True,
)
"""Every cell is to be tuned within a quarter of an hour of an H200, so that kernels which no other experiment found the
fastest on such layers stay out: cuSPARSE and SpInfer of all, three of the large one, Sputnik's of the middle one."""

LAYERS = {"large": "8192×8192", "middle": "4096×4096", "small": "1024×1024"}


def _cell(layer: str, level: int, columns: int) -> Group:
    return Group(level=level, columns=columns, like=layer, words=f"a {LAYERS[layer]} layer")


def page() -> Page:
    """Its page."""
    best = sparse("f16")
    cells = [_cell("large", 90, 16), _cell("middle", 90, 16), _cell("small", 90, 16), _cell("large", 70, 16)]
    return Page(
        question="For which layers, shares of zeros and numbers of columns is a sparse product faster than the dense "
        "one?",
        intro="Square layers of three public models (sizes and sources in `datasets/problems/pays_map.csv`) with "
        "their zeros anywhere, times 1 to 1,024 columns, in fp16 with sums in fp32. The baseline is the fastest dense "
        "fp16 product of the same weights: cuBLAS and every algorithm that cuBLASLt proposes, in both layouts.",
        answers=tuple(Answer(one, best, FP16, paper_baseline=CUBLAS) for one in cells),
        comparison=Comparison((best,), (FP16, CUBLAS), tuple(cells)),
        tables=tuple(
            Pivot(f"Best sparse over best dense fp16, {size}", (best,), "ratio", FP16, ("n",), "level",
                  Group(like=layer, words=f"a {size} layer"))
            for layer, size in LAYERS.items()
        ),
        baseline=FP16,
        arithmetic="fp16 with sums in fp32 unless a row names another arithmetic",
    )  # fmt: skip
