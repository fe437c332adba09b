"""What a GPU reaches at its best, measured in the same run as the kernels: the rates of every roofline.

Bandwidths and the multiply-add rate by `kernels_cu/peaks.cu`, tensor rates by a large cuBLAS product on random data
(zeros draw less power and run faster than any real data), the launch overhead by an empty kernel under the very
policies that kernels are timed with.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import numpy as np

from nnzbench.bench.timing import measure, warm_up
from nnzbench.core.architectures import architecture
from nnzbench.core.gpus import Peaks
from nnzbench.core.plan import Array, Launch, Plan, Unsupported
from nnzbench.data.problems.experiment import USUAL
from nnzbench.devices import Device, Timer
from nnzbench.devices.gpu import GpuDevice, LaunchError

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


def measure_peaks(device: Device) -> Peaks:
    """Measures all peaks in a few seconds. On the processor nothing is measured, and every field is None.

    Raises `CompileError`, `LaunchError` or `DeviceLost` where the micro-kernels themselves don't run.
    """
    if not isinstance(device, GpuDevice):
        return Peaks()
    timer, facts = device.timer, device.facts
    blocks = facts.sms * 8
    with closing(device.prepare(fma_plan(blocks, _FMA_ROUNDS))) as fma:
        warm_up(timer, fma.run)
        fma_us = _best_us(timer, fma.run)
    with closing(device.prepare(copy_plan(_COPY_BYTES))) as copy:
        copy_us = _best_us(timer, copy.run)
    # a quarter of the cache stays resident whatever the cache's own layout (far partitions keep copies)
    read_bytes = max(1, facts.l2_bytes // 4 // CHUNK_BYTES) * CHUNK_BYTES
    with closing(device.prepare(read_plan(read_bytes, blocks, _READ_PASSES))) as read:
        read_us = _best_us(timer, read.run)
    with closing(device.prepare(empty_plan())) as empty:
        empty.run()  # loads the module before anything is captured
        overheads: dict[str, float] = {policy: measure(timer, empty.run, policy).median for policy in USUAL}
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
    return _plan("copy", -(-size // CHUNK_BYTES), buffers, "destination", (*buffers, size // 16))


def read_plan(size: int, blocks: int, passes: int) -> Plan:
    """Reads `size` bytes (a multiple of `CHUNK_BYTES`) `passes` times: output `out` (blocks * THREADS sums)."""
    values = np.random.default_rng(1).standard_normal(size // 4, dtype=np.float32)
    buffers: dict[str, Array] = {"buffer": values, "out": np.zeros(blocks * THREADS, np.float32)}
    return _plan("read", blocks, buffers, "out", (*buffers, size // CHUNK_BYTES, passes))


def fma_plan(blocks: int, rounds: int) -> Plan:
    """`rounds * FMA_PER_ROUND` multiply-adds per thread: output `out` (blocks * THREADS sums)."""
    factors = np.array([0.99, 0.37], np.float32)  # converges to y / (1 - x): neither overflow nor subnormals
    buffers: dict[str, Array] = {"factors": factors, "out": np.zeros(blocks * THREADS, np.float32)}
    return _plan("fma", blocks, buffers, "out", (*buffers, rounds))


def _plan(variant: str, blocks: int, buffers: dict[str, Array], output: str, args: tuple[str | int, ...]) -> Plan:
    launch = Launch(f"peak_{variant}", (blocks, 1, 1), (THREADS, 1, 1), args)
    return Plan(variant, "cuda", "peaks.cu", {}, buffers, output, (launch,))


def empty_plan() -> Plan:
    """One warp that does nothing: the launch overhead."""
    launch = Launch("empty", (1, 1, 1), (32, 1, 1), (0,))
    return Plan("empty", "cuda", "peaks.cu", {}, {"unused": np.zeros(1, np.float32)}, "unused", (launch,))


def _best_us(timer: Timer, run: Callable[[], None]) -> float:
    """Shortest of several runs: a peak is what the GPU reaches at its best. The first run is not counted."""
    timer.elapsed_us(run)
    return min(timer.elapsed_us(run) for _ in range(_SAMPLES))


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
    with closing(gemm):
        return 2.0 * m * n * k / _best_us(device.timer, gemm.run) * 1e-6
