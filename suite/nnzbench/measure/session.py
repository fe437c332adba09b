"""What one process knows of its device before it tries anything: kernels, peaks, the snapshot that rows name."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nnzbench.build.cache import CompileError
from nnzbench.devices import Device, DeviceLost
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.registry import AnyKernel, VendorKernel
from nnzbench.measure.environment import snapshot
from nnzbench.measure.peaks import Peaks, measure_peaks
from nnzbench.measure.phases import Work
from nnzbench.measure.timing import warm_up
from nnzbench.plans.plan import Unsupported


@dataclass
class Session:
    """What one process knows of its device; shared by the experiments it runs."""

    device: Device
    kernels: Mapping[str, AnyKernel]
    peaks: Peaks = field(default_factory=Peaks)
    environment: Mapping[str, Any] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    libraries: bool = True
    """Whether vendors' libraries are among the kernels."""
    work: Work = field(default_factory=Work)
    """Seconds by phase of all that is done in this session, and its turn on a GPU that it has not for itself."""
    _warm: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.device, GpuDevice):  # a library that tries its plans does so as those are planned
            self.device.alone = partial(self.work.on_gpu, "preparing")
            self.device.shared = self.work.shared

    def warm_up(self, run: Callable[[], None]) -> None:
        """Brings the GPU to a steady clock, the first time it is called."""
        if not self._warm and self.device.timer is not None:
            warm_up(self.device.timer, run, self.clock)
            self._warm = True


def open_session(device: Device, known: Mapping[str, AnyKernel], note: Callable[[str], None]) -> Session:
    """Measures the device's peaks and takes the snapshot that every row of this process names."""
    libraries = any(isinstance(one, VendorKernel) for one in known.values())
    if device.link:  # nothing is timed: no limits
        return Session(device, known, environment=snapshot(device), libraries=libraries)
    try:
        peaks = measure_peaks(device)
    except DeviceLost:
        raise
    except (CompileError, Unsupported, RuntimeError) as error:
        note(f"the GPU's peaks can't be measured, rows have no limit ({error})")
        peaks = Peaks()
    return Session(device, known, peaks, snapshot(device, peaks), libraries=libraries)
