"""The GPUs of this host as the CUDA driver tells them, without a library of its own."""

from __future__ import annotations

import ctypes
import uuid
from typing import Any


def _driver() -> Any:
    """The CUDA driver's library, initialised; None without one or a GPU."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return None if cuda.cuInit(0) else cuda


def visible_gpus() -> list[tuple[str, str]]:
    """(model, identifier for CUDA_VISIBLE_DEVICES) of every GPU that the CUDA driver shows this process."""
    cuda, count = _driver(), ctypes.c_int()
    if cuda is None or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    found = []
    for index in range(count.value):
        device, name, number = ctypes.c_int(), ctypes.create_string_buffer(128), (ctypes.c_ubyte * 16)()
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceGetName(name, len(name), device)
        cuda.cuDeviceGetUuid_v2(ctypes.byref(number), device)
        found.append((name.value.decode(), f"GPU-{uuid.UUID(bytes=bytes(number))}"))
    return found


def memory_bytes() -> int:
    """Memory of the first of these GPUs; 0 where there is none."""
    cuda, device, size = _driver(), ctypes.c_int(), ctypes.c_size_t()
    if cuda is None or cuda.cuDeviceGet(ctypes.byref(device), 0):
        return 0
    return 0 if cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device) else size.value
