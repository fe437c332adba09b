"""What bounds the kernels of `llm_layers`: bytes, and the work of decoding, beside each time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pandas as pd

from nnzbench.kernels.tensor.work import words_per_weight
from nnzbench.papers.own.llm_data import DENSE, Layer, Layers, of_series
from nnzbench.plans.architectures import sm_count
from nnzbench.facts.results import each, percent
from nnzbench.report.data.series import kernel_label
from nnzbench.report.text.tables import GAP, markdown, number

COLUMNS = (1, 16, 128)
"""Numbers of columns of B that the table shows."""
KERNELS = ("tensor_spmm", "delta_spmv", "flash_llm", "spinfer")
LANES = 32
_COUNTS_PER_CLOCK = 16
"""Population counts of a multiprocessor per clock (CUDA programming guide, arithmetic instructions, 8.0 to 9.0)."""


def _flash_llm(density: float, n: int) -> float:
    """Of a tile of 128 x 64: a wavefront of 128 bytes clears a row, places 32 nonzeros, and brings a row to a warp."""
    readers = 1 if n <= 32 else 2
    return (128 + 128 * 64 * density / LANES + 128 * readers) / (128 * 64) * math.ceil(n / 128)


def _spinfer(_: float, n: int) -> float:
    """Of a strip of 16 x 64, for at most 64 columns: 62 population counts of each lane."""
    return 62 * LANES / _COUNTS_PER_CLOCK / (16 * 64) * math.ceil(n / 64)


DECODE: Mapping[str, Callable[[float, int], float]] = {
    "flash_llm": _flash_llm,
    "spinfer": _spinfer,
    "tensor_spmm": lambda density, _: words_per_weight(density) / LANES,
    "delta_spmv": lambda density, _: density / LANES,
}
"""Clocks of a multiprocessor per weight, zeros counted, that the narrowest unit of a kernel's decoding takes at least,
for a share of nonzeros and a number of columns. Where lanes meet in a bank of shared memory it takes longer."""


def decode_us(kernel: str, density: float, weights: int, n: int, arch: str, clock_mhz: float) -> float:
    """Least time of decoding on all multiprocessors, microseconds; NaN for a kernel of which it is not known."""
    clocks = DECODE.get(kernel)
    return clocks(density, n) * weights / sm_count(arch) / clock_mhz if clocks else math.nan


def table(here: pd.DataFrame, data: Layers) -> str:
    """The rows of one policy, of the layer with the most levels; the summary has every limit."""
    layer = data.finest
    if layer is None:
        return ""
    mine = here[(here["layer"] == layer.label) & here["n"].isin(COLUMNS)]
    rows = []
    for key in (DENSE, *KERNELS):
        some = of_series(mine, key).sort_values(["n", "zeros"])
        if key == DENSE:  # one time stands for all levels
            some = some.drop_duplicates("n")
        rows += [_line(layer, row, key) for row in each(some)]
    lead = (
        f"What bounds them, on {layer.name}. Bytes per weight: of the matrix in the kernel's format (for `tensor_spmm` "
        "in the smallest of its forms, as expected of a uniform pattern), zeros counted. Decoded per weight: words "
        "that lanes take from their queues in `tensor_spmm`'s form of words, or nonzeros. Decoding: least time of "
        "its narrowest unit: shared memory without conflicts, and for SpInfer population counts. Limit: the "
        "launch, and the longer of products and bytes at this GPU's measured rates, without decoding; memory's "
        "rate is that of a copy, and a "
        "kernel that only reads can be above it:"
    )
    header = ["N", "zeros", "kernel", "µs", "bytes per weight", "decoded per weight", "decoding µs", "limit µs"]
    header.append("share")
    return f"{lead}\n\n{markdown(header, rows, left=3)}" if rows else ""


def _line(layer: Layer, row: object, key: str) -> list[str]:
    weights = layer.m * layer.k
    n, zeros, kernel, nnz = int(row.n), float(row.zeros), str(row.kernel), int(row.nnz)  # type: ignore[attr-defined]
    moved = float(row.bytes) - 2.0 * n * (layer.m + layer.k)  # type: ignore[attr-defined]
    density = nnz / weights
    time, limit, share = (float(getattr(row, name)) for name in ("median_us", "limit_us", "limit_share"))
    clock = float(row.sm_clock_mhz)  # type: ignore[attr-defined]
    least = decode_us(kernel, density, weights, n, str(row.arch), clock)  # type: ignore[attr-defined]
    return [
        str(n),
        "dense" if key == DENSE else percent(zeros),
        kernel_label(kernel),
        number(time, 1),
        number(moved / weights),
        GAP if key == DENSE else number(words_per_weight(density) if kernel == "tensor_spmm" else density, 3),
        number(least, 1),
        number(limit, 1),
        GAP if math.isnan(share) else f"{100 * share:.0f} %",
    ]
