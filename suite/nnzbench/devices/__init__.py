"""Opens what runs plans, by name: GPU libraries are imported late."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Protocol

from nnzbench.core.host import visible_gpus
from nnzbench.core.plan import Plan, Prepared, Unsupported

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


class DeviceLost(RuntimeError):
    """The device no longer answers (a fault corrupted its context); only a new process can go on."""


class Timer(Protocol):
    """What a GPU device offers for timing; the policies in `nnzbench.bench.timing` are plain logic over it."""

    flush_bytes: int
    """Bytes that, read or written, leave nothing in L2 of what was there before: four times its size or more."""

    def capture(self, run: Callable[[], None], launches: int) -> Callable[[], None]:
        """Captures `launches` back-to-back runs into one CUDA graph; the result enqueues one replay of it."""

    def elapsed_us(self, body: Callable[[], None]) -> float:
        """Microseconds between two events recorded just before and after `body` enqueues its work; waits."""

    def cold_us(self, run: Callable[[], None], samples: int) -> list[float]:
        """For each sample: overwrite the L2 cache, then time one `run` between events. The overwrite is outside."""

    def enqueue(self, body: Callable[[], None]) -> Callable[[], bool]:
        """Enqueues what `body` does and does not wait; the result says whether the GPU is through with it."""

    def sm_clock_mhz(self) -> float | None:
        """Current SM clock, None where it can't be read."""

    def throttle_reasons(self) -> tuple[str, ...]:
        """Active clock-throttle reasons (idle excluded), empty when none or unknown."""


class Device(Protocol):
    """Uploads, launches and reads back plans."""

    name: str
    """`cupy`, `pycuda`, `cuda-core` or `cpu`."""
    gpu: str
    """Slug of the device's name, such as `nvidia-h200`; `cpu` for the processor."""
    link: str
    """The GPU's own architecture where `arch` is another one whose plans are checked on it, else empty."""
    compiles_from_cache: bool
    """Whether programs come from the shared compile cache, so that many can be put there at once beforehand."""

    @property
    def arch(self) -> str:
        """Architecture that plans are made and compiled for, such as `sm_90`."""

    @property
    def timer(self) -> Timer | None:
        """None on the processor: its times mean nothing for a GPU and are never recorded."""

    def prepare(self, plan: Plan) -> Prepared:
        """Compiles and uploads. Raises `CompileError` or `Unsupported`."""

    def abandon(self) -> None:
        """Just before this process ends at once, from any thread: ends other processes and removes temporary files."""

    def close(self) -> None:
        """Frees everything the device holds."""
