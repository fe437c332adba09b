"""Networks from recorded steps: frames per second of MobileNetV1, time and memory of attention (Sputnik, VII)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nnzbench import tables
from nnzbench.kernel import about
from nnzbench.problem_names import label_of
from nnzbench.record import Record
from nnzbench.selection import math_class

MOBILENET = "sputnik_mobilenet"
DENSE = ("cublas_bias_relu",)
SPARSE = ("sputnik_bias_relu", "row_stream_bias_relu")
"""Kernels whose fastest computes a sparse layer; give one alone to see its network."""


@dataclass(frozen=True)
class Network:
    """One MobileNetV1 of the table: its 13 pairs of depthwise and 1x1 convolution at batch 1, layer by layer."""

    name: str
    """`dense_w1.4` or `sparse_w1.8`: which 1x1 convolutions, and the width multiplier."""
    us: float | None
    """Sum over the layers, each as often as it occurs; None where a layer was not timed."""
    depthwise_us: float
    pointwise_us: float
    missing: tuple[str, ...]
    """Labels of the layers without a time."""

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
    records: Iterable[Record], policy: str = "hot", sparse: tuple[str, ...] = SPARSE, dense_math: str = "f32"
) -> list[Network]:
    """Every network of the table, in its order, from one run's records.

    Dense layers take cuBLAS in `dense_math` (f32 or tf32), sparse ones the fastest of the kernels `sparse`. Layers
    were timed one by one, back to back with themselves: a network in which each waits for the one before gains nothing
    over the sum.
    """
    times = _fastest(record for record in records if record.experiment == MOBILENET and record.policy == policy)
    networks: dict[str, list[tuple[str, int, float | None]]] = {}
    for row in tables.rows(MOBILENET):
        network, _, _ = row.problem.label.rpartition("_")
        able: tuple[str, ...] = ("depthwise_conv",)
        math = "f32"
        if row.problem.op != "depthwise":
            able, math = (sparse, "f32") if row.problem.sparsity else (DENSE, dense_math)
        found = [times[key] for kernel in able if (key := (row.problem.label, kernel, math)) in times]
        layer = (row.problem.label, row.count, min(found, default=None))
        networks.setdefault(network, []).append(layer)
    return [_network(name, layers) for name, layers in networks.items()]


def _fastest(records: Iterable[Record]) -> Mapping[tuple[str, str, str], float]:
    """Fastest microseconds by label of the problem, kernel and arithmetic class."""
    times: dict[tuple[str, str, str], float] = {}
    for record in records:
        if record.status != "ok" or record.median_us is None:
            continue
        key = (label_of(record.problem), record.kernel, math_class(record))
        times[key] = min(record.median_us, times.get(key, record.median_us))
    return times


def _network(name: str, layers: list[tuple[str, int, float | None]]) -> Network:
    missing = tuple(label for label, _, us in layers if us is None)
    parts = {"_dw": 0.0, "_pw": 0.0}
    for label, count, us in layers:
        parts["_dw" if "_dw" in label else "_pw"] += count * (us or 0.0)
    total = None if missing else sum(parts.values())
    return Network(name, total, parts["_dw"], parts["_pw"], missing)


@dataclass(frozen=True)
class Attention:
    """One kernel's attention over one head."""

    problem: str
    dtype: str
    kernel: str
    variant: str
    math: str
    us: float
    buffer_bytes: int
    """Device memory of inputs, outputs, mask and everything between, as counted."""


def attentions(records: Iterable[Record], policy: str = "hot") -> list[Attention]:
    """The selected row of every kernel and arithmetic class that computed a whole attention, fastest first."""
    found = [
        Attention(
            record.problem,
            record.dtype,
            record.kernel,
            record.variant,
            math_class(record),
            record.median_us,
            attention_bytes(
                record.kernel, record.variant, math_class(record), record.m, record.k, record.n, record.nnz
            ),
        )
        for record in records
        if record.shape == "attention" and record.selected and record.policy == policy and record.median_us is not None
    ]
    return sorted(found, key=lambda one: one.us)


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
