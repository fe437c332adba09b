"""Where sparsity pays: columns against zeros for a large, a middle and a small layer, in fp16."""

from __future__ import annotations

from nnzbench.report.page import Answer, Crossings, Map, Page, Pivot
from nnzbench.results.groups import Group
from nnzbench.results.nearby import SIZES, sparse
from nnzbench.results.selector import CUBLAS, FP16, kernel
from nnzbench.results.table import Comparison

SPARSE = ("delta_spmv", "tensor_spmm", "flash_llm", "row_stream", "ring", "sputnik")

BEST = sparse("f16")
WORDS = {label: f"{label} layer ({rows}×{inner})" for (rows, inner), label in SIZES.items()}
GROUPS = {label: Group(like=label, words=words) for label, words in WORDS.items()}


def _cell(layer: str, level: int, columns: int) -> Group:
    return Group(level=level, columns=columns, like=layer, words=WORDS[layer])


CELLS = (
    _cell("large", 90, 16),
    _cell("large", 90, 1),
    _cell("middle", 90, 16),
    _cell("small", 90, 16),
    _cell("large", 70, 16),
    _cell("large", 90, 256),
)
"""Those that are told in words; README has the first four."""


def pays_map() -> Page:
    """Its page."""
    kernels = tuple(kernel(name, "f16") for name in SPARSE)
    return Page(
        answers=tuple(Answer(one, BEST, FP16, paper_baseline=CUBLAS) for one in CELLS[:4]),
        comparison=Comparison((BEST,), (FP16, CUBLAS), CELLS),
        figures=(
            Map("map", "Where sparsity pays"),
            Map("map_cold", "Where sparsity pays, weights from memory", policy="cold"),
        ),
        tables=(
            Crossings("Zeros from which on sparse is as fast as dense fp16, by columns", BEST, FP16),
            *(Pivot(f"Fastest sparse over fastest dense fp16 by zeros and columns, {WORDS[one]}", (BEST,), "ratio",
                    FP16, ("level",), "n", group) for one, group in GROUPS.items()),
        ),
        facts=(
            *(Comparison(kernels, (FP16,), (group,), ("level", "n")) for group in GROUPS.values()),
            *(Comparison((BEST,), (CUBLAS,), (group,), ("level", "n")) for group in GROUPS.values()),
        ),
        energy=Comparison((BEST,), (FP16,), CELLS),
        baseline=FP16,
        arithmetic="fp16 with sums in fp32 unless a row names another arithmetic",
    )  # fmt: skip
