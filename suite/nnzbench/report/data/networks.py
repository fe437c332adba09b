"""Networks from recorded steps: frames per second of MobileNetV1, buffers of attention (Sputnik, VII)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from nnzbench.facts.selector import Selector, kernel, pick, written_here
from nnzbench.kernels.registry import about
from nnzbench.problems import tables
from nnzbench.problems.problem import label_of

MOBILENET = "sputnik_mobilenet"
DENSE = kernel("cublas_bias_relu")
SPARSE = written_here()
"""Kernels whose fastest computes a sparse layer; give one alone to see its network."""


@dataclass(frozen=True)
class Network:
    """One MobileNetV1 of the table: its 13 pairs of depthwise and 1x1 convolution at batch 1, layer by layer."""

    name: str
    """`dense_w1.4` or `sparse_w1.8`: which 1x1 convolutions, and the width multiplier."""
    us: float | None
    """Sum over the layers, each as often as it occurs; None where a layer was not timed."""
    depthwise_us: float
    """Of it, the depthwise convolutions."""

    @property
    def sparse(self) -> bool:
        """Whether its 1x1 convolutions but the first are pruned."""
        return self.name.startswith("sparse")

    @property
    def width(self) -> float:
        """The width multiplier."""
        return float(self.name.rpartition("_w")[2])

    @property
    def frames_per_second(self) -> float | None:
        """1 / time; None where a layer was not timed."""
        return 1e6 / self.us if self.us else None


def mobilenets(
    frame: pd.DataFrame, policy: str = "hot", sparse: Selector = SPARSE, dense: Selector = DENSE
) -> list[Network]:
    """Every network of the table, in its order, from one run's rows.

    Dense layers take their time from `dense`, sparse ones from `sparse`, depthwise ones from this project's
    kernels. Layers were timed one by one, back to back with themselves: a network in which each waits for the one
    before gains nothing over the sum.
    """
    rows = frame[(frame["experiment"] == MOBILENET) & (frame["policy"] == policy)]
    rows = rows.assign(label=[label_of(name) for name in rows["problem"]])
    sides = (SPARSE, sparse, dense)
    times = {one: pick(rows, one, by=("label",)).set_index("label")["median_us"] for one in sides}
    networks: dict[str, list[tuple[str, float]]] = {}
    for row in tables.rows(MOBILENET):
        op, label = row.problem.op, row.problem.label
        side = SPARSE if op == "depthwise" else sparse if row.problem.sparsity else dense
        us = row.count * float(times[side].get(label, math.nan))
        networks.setdefault(label.rpartition("_")[0], []).append((op, us))
    out = []
    for name, layers in networks.items():
        total = sum(us for _, us in layers)
        depthwise = sum(us for op, us in layers if op == "depthwise")
        out.append(Network(name, None if math.isnan(total) else total, depthwise))
    return out


def attention_bytes(kernel: str, variant: str, math: str, queries: int, keys: int, features: int, nnz: int) -> int:
    """Bytes of the buffers of an attention kernel's row in arithmetic class `math`.

    `dense_attention` holds all scores, and the mask as bits; `cudnn_attention` no scores, and in its variants `bias`
    the mask as a number of 2 bytes per score. The sparse kernel holds an index (2 bytes in fp16, where the keys are few
    enough), a score and a weight per position of the mask, a record per row and one per 32 positions of a row; the last
    is taken as half full in its row's last one.
    """
    element = 2 if math in ("f16", "bf16") else 4
    outside = element * features * 2 * (queries + keys)
    if kernel == "cudnn_attention":
        return outside + (2 * queries * 8 * -(-keys // 8) if "_bias_" in variant else 0)
    if about(kernel).work == "dense":
        return outside + element * queries * keys + 4 * queries * -(-keys // 32)
    index = 2 if element == 2 and keys <= 65535 else 4
    return outside + (index + 2 * element) * nnz + 16 * queries + 16 * (nnz // 32 + queries // 2)
