"""What one process knows of its device before it tries anything: kernels, peaks, the snapshot that rows name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from nnzbench.build.cache import CompileError
from nnzbench.devices import Device, DeviceLost
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.registry import AnyKernel, VendorKernel, candidates, kernels
from nnzbench.matrices.formats import CSR
from nnzbench.measure.environment import snapshot
from nnzbench.measure.peaks import Peaks, measure_peaks
from nnzbench.measure.phases import Work
from nnzbench.measure.timing import warm_up
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import ConvShape, DType, Problem

SIDE = 64
"""Of the product's square operands."""
CONVOLUTION = ConvShape(1, 16, 8, 8, 16, 3, 3, 1, 1)


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
    if device.link:  # nothing is timed: no rooflines
        return Session(device, known, environment=snapshot(device), libraries=libraries)
    try:
        peaks = measure_peaks(device)
    except DeviceLost:
        raise
    except (CompileError, Unsupported, RuntimeError) as error:
        note(f"the GPU's peaks can't be measured, rows have no roofline ({error})")
        peaks = Peaks()
    return Session(device, known, peaks, snapshot(device, peaks), libraries=libraries)


def open_libraries(device: GpuDevice, names: Iterable[str]) -> None:
    """Has each of these kernels that is a library's run one small product or convolution, before anything is timed.

    Each takes about a second at its first use in a process.
    What one of them can't do is left for the first problem to say. Raises `DeviceLost`.
    """
    known = kernels()
    for name in names:
        kernel = known.get(name)
        if not isinstance(kernel, VendorKernel):
            continue
        for problem, operands in _small():
            if problem.op in kernel.ops and problem.dtype in kernel.dtypes:
                try:
                    for candidate in islice(candidates(kernel, problem, operands, device, untuned=True), 1):
                        candidate.prepare().close()
                except DeviceLost:
                    raise
                except Exception:  # whatever it is, it is met again where it becomes a row
                    continue
    with suppress(RuntimeError):
        device.release()


def _small() -> Iterator[tuple[Problem, Operands]]:
    """A product in two dtypes, every second weight zero as sparse tensor cores want it, and a convolution."""
    matrix = CSR.from_dense(np.tile(np.array([1, 0], np.float32), (SIDE, SIDE // 2)))
    product = Operands(matrix, {"b": np.ones((SIDE, SIDE), np.float32)}, matrix.pattern_hash())
    dtypes: tuple[DType, ...] = ("f32", "f16")
    for dtype in dtypes:
        yield Problem("start", "product", "spmm", SIDE, SIDE, SIDE, 0.5, "", dtype), product.cast(dtype)
    conv = CONVOLUTION
    m, k, n = conv.filters, conv.channels * conv.r * conv.s, conv.batch * conv.out_height * conv.out_width
    filters = CSR.from_dense(np.ones((m, k), np.float32))
    image = np.ones((conv.batch, conv.channels, conv.height, conv.width), np.float32)
    yield (
        Problem("start", "convolution", "conv2d", m, k, n, 0.0, "", "f32", conv=conv),
        Operands(filters, {"x": image}, filters.pattern_hash()),
    )
