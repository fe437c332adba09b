"""What bounds the kernels of `llm_layers` beside bytes: the work of decoding their formats."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.facts.results import each
from nnzbench.facts.selector import FP16, kernel
from nnzbench.kernels.tensor.work import words_per_weight
from nnzbench.plans.architectures import sm_count
from nnzbench.report.pages.view import View

KERNELS = ("tensor_spmm", "delta_spmv", "flash_llm", "spinfer")
SHOWN = Group(where="layer == 'llama_70b_qo' and pattern == '' and n in (1, 16, 128)", words="8192×8192")
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


def decode_us(name: str, density: float, weights: int, n: int, arch: str, clock_mhz: float) -> float:
    """Least time of decoding on all multiprocessors, microseconds; NaN for a kernel of which it is not known."""
    clocks = DECODE.get(name)
    return clocks(density, n) * weights / sm_count(arch) / clock_mhz if clocks else math.nan


def table(view: View) -> pd.DataFrame:
    """Times (hot), bytes and decoding per weight, and the roofline, of one layer."""
    cells = view.cells([FP16, *(kernel(name, "f16") for name in KERNELS)], SHOWN)
    cells = cells[cells["policy"] == view.policies[0]].sort_values(["order", "n", "level"], kind="stable")
    dense = cells["subject"] == FP16.label
    cells = cells[~(dense & cells.duplicated(["subject", "n"]))]  # one time stands for all levels
    return pd.DataFrame([_line(row) for row in each(cells)])


def _line(row: object) -> dict[str, object]:
    m, k, n, nnz, name = (getattr(row, one) for one in ("m", "k", "n", "nnz", "kernel"))
    density = nnz / (m * k)
    sparse = name in DECODE
    return {
        "kernel": row.subject,  # type: ignore[attr-defined]
        "columns": str(n),
        "zeros (%)": f"{row.level:g}" if sparse else "any",  # type: ignore[attr-defined]
        "µs": row.median_us,  # type: ignore[attr-defined]
        "bytes a weight": (row.bytes - 2.0 * n * (m + k)) / (m * k),  # type: ignore[attr-defined]
        "decoded a weight": (words_per_weight(density) if name == "tensor_spmm" else density) if sparse else math.nan,
        "decoding, µs": decode_us(name, density, m * k, n, row.arch, row.sm_clock_mhz),  # type: ignore[attr-defined]
        "roofline, µs": row.limit_us,  # type: ignore[attr-defined]
        "of the roofline (%)": row.roofline,  # type: ignore[attr-defined]
    }
