"""Clocks, throttle reasons and settings of a GPU, read through NVML (nvidia-ml-py). Everything may be unknown."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_NOT_THROTTLING = {"gpu_idle", "none", "all"}
_POWER_INSTANT = 186
"""Number of NVML's field of the power right now, for a pynvml that has no name for it."""


def open_clocks(pci_bus_id: str) -> Clocks | None:
    """NVML's view of the GPU at `pci_bus_id`; None without nvidia-ml-py, the driver's NVML or that GPU."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return Clocks(pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id))
    except pynvml.NVMLError:
        return None


class Clocks:
    """One GPU in NVML. `nvml` is the pynvml module (or what a test puts in its place), `handle` its device handle."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._reasons = throttle_names(nvml)

    def ask(self, name: str, *args: Any) -> Any:
        """`nvmlDeviceGet<name>(handle, *args)`, None where the driver, the GPU or pynvml does not answer it."""
        return self._try(lambda: getattr(self._nvml, f"nvmlDeviceGet{name}")(self._handle, *args))

    def driver_version(self) -> str | None:
        """The NVIDIA driver's version, such as `580.65.06`."""
        version = self._try(self._nvml.nvmlSystemGetDriverVersion)
        return version.decode() if isinstance(version, bytes) else version

    def clock_mhz(self, kind: str, which: str) -> int | None:
        """Clock `kind` (`SM`, `MEM`) as `which`: `ClockInfo` (now), `MaxClockInfo`, `ApplicationsClock`."""
        clock = self.ask(which, getattr(self._nvml, f"NVML_CLOCK_{kind}"))
        return None if clock is None else int(clock)

    def sm_mhz(self) -> float | None:
        clock = self.clock_mhz("SM", "ClockInfo")
        return None if clock is None else float(clock)

    def throttle_reasons(self) -> tuple[str, ...]:
        """Names of the active throttle reasons, sorted, idle excluded; empty when none or unknown."""
        active = self.ask("CurrentClocksEventReasons")
        if active is None:  # the name of older NVML versions
            active = self.ask("CurrentClocksThrottleReasons")
        return tuple(sorted(name for bit, name in self._reasons.items() if (active or 0) & bit))

    def energy_j(self) -> float | None:
        """Joules that the board has taken since the driver was loaded, by its own counter (Volta and later)."""
        millijoules = self.ask("TotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1e3

    def power_w(self) -> float | None:
        """Watts that the board takes now: `PowerUsage` is the mean of a second on most GPUs since Ampere, and is asked
        only where the driver does not tell the instant."""
        field = getattr(self._nvml, "NVML_FI_DEV_POWER_INSTANT", _POWER_INSTANT)
        found = self._try(lambda: self._nvml.nvmlDeviceGetFieldValues(self._handle, [field])[0])
        if found is not None and found.nvmlReturn == 0:
            return float(found.value.uiVal / 1e3)
        milliwatts = self.ask("PowerUsage")
        return None if milliwatts is None else milliwatts / 1e3

    def temperature_c(self) -> float | None:
        """Of the GPU's core."""
        found = self.ask("Temperature", 0)  # NVML_TEMPERATURE_GPU
        return None if found is None else float(found)

    def compute_processes(self) -> int | None:
        """Number of processes with a compute context on the GPU."""
        running = self.ask("ComputeRunningProcesses")
        return None if running is None else len(running)

    def _try(self, call: Callable[[], T]) -> T | None:
        try:
            return call()
        except (self._nvml.NVMLError, AttributeError):
            return None


def throttle_names(nvml: Any) -> dict[int, str]:
    """Names such as `sw_power_cap` by their bit, from whichever constants this pynvml has."""
    names = {}
    for constant in dir(nvml):
        match = re.fullmatch(r"nvmlClocks(?:Event|Throttle)Reason(\w+)", constant)
        if match is None or not isinstance(getattr(nvml, constant), int):
            continue
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", match[1]).lower()
        if name not in _NOT_THROTTLING:
            names[int(getattr(nvml, constant))] = name
    return names
