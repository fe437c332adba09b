"""The GPUs of this host as the CUDA driver tells them, without a library of its own."""

from __future__ import annotations

import ctypes
import uuid
from dataclasses import dataclass

CAPABILITY = 75, 76
"""Numbers of compute capability, major and minor, among the driver's CUdevice_attribute."""


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
