"""What this GPU can do at most, measured in the same run as the kernels: the constants of the speed of light."""

from __future__ import annotations

from dataclasses import dataclass


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
        """Time of an empty kernel under `policy` (`hot` or `cold`), microseconds."""
        return {"hot": self.floor_hot_us, "cold": self.floor_cold_us}.get(policy)
