"""What this GPU can do at most, measured in the same run as the kernels: the constants of the roofline.

Bandwidths and the multiply-add rate come from `kernels_cu/peaks.cu`, tensor rates from a large cuBLAS product on
random data (zeros draw less power and run faster than any real data), the launch overhead from an empty kernel under
the very policies that kernels are timed with.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from nnzbench.devices import Device, Timer
from nnzbench.devices.gpu import GpuDevice, LaunchError
from nnzbench.measure.timing import measure, warm_up
from nnzbench.plans.architectures import architecture
from nnzbench.plans.plan import Array, Launch, Plan, Prepared, Unsupported
from nnzbench.problems.experiment import USUAL, Policy

THREADS = 256
"""Block size of every kernel in `peaks.cu`."""
CHUNK_BYTES = 16 * THREADS * 4
"""What one block of `peak_copy` moves, and the unit of `peak_read`."""
FMA_PER_ROUND = 8 * 16
"""Multiply-adds of one thread per round of `peak_fma`."""

_COPY_BYTES = 256 << 20
_READ_PASSES = 96
_FMA_ROUNDS = 200
_GEMM_SIZE = 8192
_SAMPLES = 8


@dataclass(frozen=True)
class Peaks:
    """Measured peak rates of one GPU; None where a rate could not be measured.

    Bandwidths are in 1e9 bytes per second (read plus written), rates in 1e12 floating-point operations per second.
    """

    copy_gbs: float | None = None
    """Device-memory bandwidth of a copy far larger than the L2 cache."""
    l2_gbs: float | None = None
    """Bandwidth of reading a buffer that stays in the L2 cache."""
    fp32_tflops: float | None = None
    """Fused multiply-adds on CUDA cores, two operations each."""
    tf32_tflops: float | None = None
    """Largest rate of a big TF32 matrix product on random data."""
    f16_tflops: float | None = None
    """Largest rate of a big fp16 matrix product (fp32 accumulation) on random data."""
    floor_hot_us: float | None = None
    """Time of an empty kernel under the hot policy, microseconds."""
    floor_cold_us: float | None = None
    """Time of an empty kernel under the cold policy, microseconds."""
    l2_bytes: int | None = None
    sms: int | None = None
    """Number of streaming multiprocessors."""

    def floor_us(self, policy: str) -> float | None:
        """Time of an empty kernel under `policy`, microseconds: back to back, or alone (`cold`)."""
        return {"hot": self.floor_hot_us, "cold": self.floor_cold_us, "stream": self.floor_hot_us}.get(policy)


def peaks_of(snapshot: Mapping[str, Any]) -> Peaks:
    """The peaks that a run's snapshot has; None where it has no number above zero."""
    found = snapshot.get("peaks")
    told: dict[str, Any] = found if isinstance(found, dict) else {}
    names = {one.name for one in fields(Peaks)}
    return Peaks(**{key: value for key, value in told.items() if key in names and _rate(value)})


def _rate(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value < math.inf


def measure_peaks(device: Device) -> Peaks:
    """Measures all peaks in a few seconds. On the processor nothing is measured, and every field is None.

    Raises `CompileError`, `LaunchError` or `DeviceLost` where the micro-kernels themselves don't run.
    """
    if not isinstance(device, GpuDevice):
        return Peaks()
    timer, facts = device.timer, device.facts
    blocks = facts.sms * 8
    with _prepared(device, fma_plan(blocks, _FMA_ROUNDS)) as fma:
        warm_up(timer, fma.run)
        fma_us = _best_us(timer, fma.run)
    with _prepared(device, copy_plan(_COPY_BYTES)) as copy:
        copy_us = _best_us(timer, copy.run)
    # a quarter of the cache stays resident whatever the cache's own layout (far partitions keep copies)
    read_bytes = max(1, facts.l2_bytes // 4 // CHUNK_BYTES) * CHUNK_BYTES
    with _prepared(device, read_plan(read_bytes, blocks, _READ_PASSES)) as read:
        read_us = _best_us(timer, read.run)
    with _prepared(device, empty_plan()) as empty:
        empty.run()  # loads the module before anything is captured
        overheads: dict[Policy, float] = {}
        for policy in USUAL:
            overheads[policy] = measure(timer, empty.run, policy).median
    return Peaks(
        copy_gbs=2 * _COPY_BYTES / copy_us * 1e-3,
        l2_gbs=_READ_PASSES * read_bytes / read_us * 1e-3,
        fp32_tflops=2.0 * FMA_PER_ROUND * _FMA_ROUNDS * blocks * THREADS / fma_us * 1e-6,
        tf32_tflops=_tensor_tflops(device, "tf32"),
        f16_tflops=_tensor_tflops(device, "f16"),
        floor_hot_us=overheads["hot"],
        floor_cold_us=overheads["cold"],
        l2_bytes=facts.l2_bytes,
        sms=facts.sms,
    )


def copy_plan(size: int) -> Plan:
    """Copies `size` bytes (a multiple of 16): output `destination` (size/4 float32)."""
    # what is copied does not change the speed, and counting is much faster than drawing random numbers
    source = np.arange(size // 4, dtype=np.uint32).view(np.float32)
    buffers: dict[str, Array] = {"source": source, "destination": np.zeros(size // 4, np.float32)}
    grid = (-(-size // CHUNK_BYTES), 1, 1)
    launch = Launch("peak_copy", grid, (THREADS, 1, 1), ("source", "destination", size // 16))
    return _plan("copy", buffers, "destination", launch)


def read_plan(size: int, blocks: int, passes: int) -> Plan:
    """Reads `size` bytes (a multiple of `CHUNK_BYTES`) `passes` times: output `out` (blocks * THREADS sums)."""
    values = np.random.default_rng(1).standard_normal(size // 4, dtype=np.float32)
    buffers: dict[str, Array] = {"buffer": values, "out": np.zeros(blocks * THREADS, np.float32)}
    args = ("buffer", "out", size // CHUNK_BYTES, passes)
    return _plan("read", buffers, "out", Launch("peak_read", (blocks, 1, 1), (THREADS, 1, 1), args))


def fma_plan(blocks: int, rounds: int) -> Plan:
    """`rounds * FMA_PER_ROUND` multiply-adds per thread: output `out` (blocks * THREADS sums)."""
    factors = np.array([0.99, 0.37], np.float32)  # converges to y / (1 - x): neither overflow nor subnormals
    buffers: dict[str, Array] = {"factors": factors, "out": np.zeros(blocks * THREADS, np.float32)}
    launch = Launch("peak_fma", (blocks, 1, 1), (THREADS, 1, 1), ("factors", "out", rounds))
    return _plan("fma", buffers, "out", launch)


def empty_plan() -> Plan:
    """One warp that does nothing: the launch overhead."""
    buffers: dict[str, Array] = {"unused": np.zeros(1, np.float32)}
    return _plan("empty", buffers, "unused", Launch("empty", (1, 1, 1), (32, 1, 1), (0,)))


def _plan(variant: str, buffers: dict[str, Array], output: str, launch: Launch) -> Plan:
    return Plan(variant, "cuda", "peaks.cu", {}, buffers, output, (launch,))


@contextlib.contextmanager
def _prepared(device: Device, plan: Plan) -> Iterator[Prepared]:
    prepared = device.prepare(plan)
    try:
        yield prepared
    finally:
        prepared.close()


def _best_us(timer: Timer, run: Callable[[], None], samples: int = _SAMPLES) -> float:
    """Shortest of several runs: a peak is what the GPU reaches at its best. The first run is not counted."""
    timer.elapsed_us(run)
    return min(timer.elapsed_us(run) for _ in range(samples))


def _tensor_tflops(device: GpuDevice, math: str) -> float | None:
    """Rate of a large product in `math`; None without cuBLAS or without such tensor cores."""
    from nnzbench.kernels.vendor.cublas import GemmCase, prepare_gemm
    from nnzbench.kernels.vendor.support import Inputs

    if not architecture(device.arch).has({"tf32": "mma_tf32", "f16": "mma_f16_k4"}[math]):
        return None
    m = n = _GEMM_SIZE
    k = _GEMM_SIZE // 2
    case = GemmCase(math, transposed=False)
    tile = np.random.default_rng(2).standard_normal((k, k), dtype=np.float32)
    tile = tile.astype(np.float16 if case.dtype == "f16" else np.float32)
    try:
        gemm = prepare_gemm(Inputs(device), case, m, lambda: np.tile(tile, (m // k, 1)), np.tile(tile, (1, n // k)))
    except (Unsupported, LaunchError):
        return None
    try:
        return 2.0 * m * n * k / _best_us(device.timer, gemm.run) * 1e-6
    finally:
        gemm.close()
