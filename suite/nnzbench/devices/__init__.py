"""Opens what runs plans, by name: GPU libraries are imported late."""

from __future__ import annotations

import importlib

from nnzbench.core.host import visible_gpus
from nnzbench.core.plan import Unsupported
from nnzbench.devices.contract import Device, DeviceLost, Timer

__all__ = ["DEVICES", "Device", "DeviceLost", "Timer", "open_any", "open_device", "open_gpu"]

DEVICES = {
    "cupy": ("gpu_libraries", "open_cupy"),
    "pycuda": ("gpu_libraries", "open_pycuda"),
    "cuda-core": ("gpu_libraries", "open_cuda_core"),
    "cpu": ("cpu_device", "open_device"),
}


def open_device(name: str) -> Device:
    """Opens a device by name. Raises `Unsupported` saying what is missing."""
    if name not in DEVICES:
        raise Unsupported(f"unknown device '{name}': choose one of {', '.join(DEVICES)}")
    module, function = DEVICES[name]
    device: Device = getattr(importlib.import_module(f"nnzbench.devices.{module}"), function)()
    return device


def open_any(*names: str) -> tuple[Device, list[str]]:
    """The first of these devices that opens, and a reason for each before it. Raises `Unsupported` with all reasons."""
    reasons: list[str] = []
    for name in names:
        try:
            return open_device(name), reasons
        except Unsupported as error:
            reasons.append(f"{name}: {error}")
    raise Unsupported("; ".join(reasons))


def open_gpu() -> Device:
    """The GPU through cupy, else through pycuda. Raises `Unsupported` with both reasons, or without a GPU with that."""
    try:
        return open_any("cupy", "pycuda")[0]
    except Unsupported as error:
        reason = f"no usable GPU ({error})" if visible_gpus() else "no GPU or driver found"
        raise Unsupported(f"{reason}; --device cpu checks the kernels on the processor, without times") from None
