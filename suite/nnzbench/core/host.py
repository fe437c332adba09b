"""What of its host this process may use; GPUs as the CUDA driver tells them, without a library of its own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CAPABILITY = 75, 76
"""Numbers of compute capability, major and minor, among the driver's CUdevice_attribute."""


def processors() -> int:
    """Processors: those that its affinity allows, or all where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int | None:
    """Bytes of memory that are free: the system's, or those up to a container's limit; None where nothing tells.

    A page of a file that nobody uses counts as free: the kernel takes it back before it refuses memory.
    """
    found = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]))
    with contextlib.suppress(OSError, ValueError):  # "max" where there is no limit
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / f"memory.{name}").read_text(encoding="ascii")) for name in ("max", "current"))
        cache = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
        found.append(max(0, limit - used + int(cache.get("inactive_file", 0))))
    return min(found, default=None)


@dataclass(frozen=True)
class VisibleGpu:
    """A GPU that this process may use."""

    unit: str
    """Its identifier for CUDA_VISIBLE_DEVICES."""
    capability: tuple[int, int]
    memory_bytes: int
    driver: int
    """The newest CUDA version that the driver runs: 1000 * major + 10 * minor."""


def visible_gpus() -> list[VisibleGpu]:
    """Every GPU that the CUDA driver shows this process; none where there is no driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    driver, count = ctypes.c_int(), ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDriverGetVersion(ctypes.byref(driver)) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    found = []
    for index in range(count.value):
        device, size, number = ctypes.c_int(), ctypes.c_size_t(), (ctypes.c_ubyte * 16)()
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceGetUuid_v2(ctypes.byref(number), device)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device)
        capability = ctypes.c_int(), ctypes.c_int()
        for value, attribute in zip(capability, CAPABILITY, strict=True):
            cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        major, minor = (one.value for one in capability)
        found.append(VisibleGpu(f"GPU-{uuid.UUID(bytes=bytes(number))}", (major, minor), size.value, driver.value))
    return found


def extra_for(gpus: Sequence[VisibleGpu]) -> str:
    """The extra to install: `cuda13` where driver and every GPU allow it, else `cuda12`; `compile` without a GPU.

    CUDA 13 needs compute capability 7.5; a V100 (7.0) stays on CUDA 12.
    """
    if not gpus:
        return "compile"
    return "cuda13" if gpus[0].driver >= 13000 and min(one.capability for one in gpus) >= (7, 5) else "cuda12"
