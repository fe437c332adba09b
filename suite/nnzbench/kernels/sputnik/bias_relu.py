"""Bias and ReLU as a launch of their own, after a kernel that has not fused them (`kernels_cu/bias_relu.cu`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnzbench.plans.plan import Array, Plan
from nnzbench.plans.tiles import TileConfiguration


@dataclass(frozen=True)
class Columns(TileConfiguration):
    """A thread per column of a row."""

    threads: int = 128

    @property
    def name(self) -> str:
        return f"t{self.threads}"


def bias_relu_plan(bias: Array, product: Array) -> Plan:
    """In place over `product` (m, n) float32, with `bias` (m,)."""
    m, n = product.shape
    tile, buffers = Columns(), {"bias": np.asarray(bias, np.float32), "c": product}
    return tile.plan("bias_relu", (-(-n // tile.threads), m, 1), (n,), buffers)
