"""Bias and ReLU as a launch of their own, after a kernel that has not fused them (`kernels_cu/bias_relu.cu`)."""

from __future__ import annotations

import numpy as np

from nnzbench.plans.plan import Array, Launch, Plan

_THREADS = 128


def bias_relu_plan(bias: Array, product: Array) -> Plan:
    """In place over `product` (m, n) float32, with `bias` (m,)."""
    m, n = product.shape
    launch = Launch("bias_relu", (-(-n // _THREADS), m, 1), (_THREADS, 1, 1), (n, "bias", "c"))
    return Plan(
        variant=f"t{_THREADS}",
        language="cuda",
        source="bias_relu.cu",
        defines={"THREADS": _THREADS},
        buffers={"bias": np.asarray(bias, np.float32), "c": product},
        output="c",
        launches=(launch,),
    )
