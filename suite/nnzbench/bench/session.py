"""What one process knows of its device before it tries anything: kernels, peaks, and the snapshot that rows name.

The snapshot is what a measurement depends on besides the kernels, plain and typed, kept beside the records. Its keys
match `^[a-z][a-z0-9_]+$` at every level; what can't be known is None. Nothing in it identifies the machine or its user:
no host or user names, no paths, no serial numbers.
"""

from __future__ import annotations

import datetime
import importlib
import importlib.metadata
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from nnzbench.bench.peaks import measure_peaks
from nnzbench.bench.phases import Work
from nnzbench.bench.subject import Subjects
from nnzbench.bench.timing import warm_up
from nnzbench.core.gpus import Peaks
from nnzbench.core.plan import Unsupported
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import Problem
from nnzbench.devices import Device, DeviceLost, Timer
from nnzbench.devices.build import cache, toolchain
from nnzbench.devices.build.cache import CompileError
from nnzbench.devices.gpu import GpuDevice
from nnzbench.devices.nvml import Clocks
from nnzbench.devices.other_arch import OtherArch
from nnzbench.kernels.registry import AnyKernel, VendorKernel, candidates, kernels
from nnzbench.kernels.samples import PROBLEMS

COOL_S, COOL_IN_ALL_S = 30.0, 300.0
"""Longest wait for a GPU that is too hot, of one candidate and of all."""
WARMER_C = 10.0
"""Than at the run's start: as it is at work."""
POLL_S = 0.5


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
    note: Callable[[str], None] = lambda text: None
    """Told of a wait for a GPU that is too hot."""
    cooled_s: float = 0.0
    """What such waits took."""
    _warm: bool = False
    _start_c: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.device, GpuDevice):  # a library that tries its plans does so as those are planned
            self.device.alone = partial(self.work.on_gpu, "preparing")
            self.device.shared = self.work.shared

    @cached_property
    def subjects(self) -> Subjects:
        """Makes the operands of all that this process tries."""
        return Subjects(self.work.phases)

    def warm_up(self, run: Callable[[], None]) -> None:
        """Brings the GPU to a steady clock the first time it is called, and again after it was too hot.

        Then it is waited for first, so that no candidate pays for those before it. Only heat is waited for: what a
        kernel draws itself, and the clock that the power limit leaves it, belong to its time.
        """
        timer = self.device.timer
        if timer is None or (self._warm and (not _hot(timer) or self.cooled_s >= COOL_IN_ALL_S)):
            return
        if self._warm:
            self._cool(timer)
        warm_up(timer, run, self.clock)
        if not self._warm:
            self._warm, self._start_c = True, self._temperature()

    def _temperature(self) -> float | None:
        clocks = getattr(self.device, "clocks", None)
        return clocks.temperature_c() if clocks is not None else None

    def _cool(self, timer: Timer) -> None:
        """Waits until nothing is throttled for heat and the GPU is about as warm as at the run's start."""

        def cool() -> bool:
            now = self._temperature()
            return not _hot(timer) and (now is None or self._start_c is None or now <= self._start_c + WARMER_C)

        began, before = self.clock(), self._temperature()
        with self.work.phases.of("cooling"):
            while not cool() and self.clock() - began < COOL_S:
                time.sleep(POLL_S)
        seconds = self.clock() - began
        self.cooled_s += seconds
        told = [f"{where} {one:.0f} C" for where, one in (("at", before), ("now", self._temperature())) if one]
        self.note(f"the GPU was slowed down for its heat ({', '.join(told)}): waited {seconds:.0f} s")


def _hot(timer: Timer) -> bool:
    return any("thermal" in reason for reason in timer.throttle_reasons())


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
    return Session(device, known, peaks, snapshot(device, peaks), libraries=libraries, note=note)


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
        for problem in _small():
            if problem.op in kernel.ops and problem.dtype in kernel.dtypes:
                try:
                    operands = make_operands(problem)
                    for candidate in islice(candidates(kernel, problem, operands, device, untuned=True), 1):
                        candidate.prepare().close()
                except DeviceLost:
                    raise
                except Exception:  # whatever it is, it is met again where it becomes a row
                    continue
    with suppress(RuntimeError):
        device.release()


def _small() -> Iterator[Problem]:
    """A product in two dtypes, whose weights are 2:4 as sparse tensor cores want them, and a convolution."""
    product = next(one for one in PROBLEMS if one.source == "nm:2:4:0")
    yield from (product, replace(product, dtype="f16"), next(one for one in PROBLEMS if one.op == "conv2d"))


SCHEMA = "nnzbench-environment/1"

OVERRIDES = (
    "CUBLAS_EMULATION_STRATEGY", "CUBLAS_WORKSPACE_CONFIG", "CUDA_AUTO_BOOST", "CUDA_CACHE_DISABLE",
    "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_ORDER", "CUDA_FORCE_PTX_JIT", "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_VISIBLE_DEVICES", "CUPY_ACCELERATORS",
    "CUPY_TF32", "NVIDIA_TF32_OVERRIDE", "PYCUDA_DEFAULT_NVCC_FLAGS",
)  # fmt: skip
"""Environment variables that change what a GPU library does."""

PACKAGES = (
    "nnzbench", "numpy", "scipy", "pandas", "cupy", "cupy-cuda12x", "cupy-cuda13x", "pycuda", "cuda-bindings",
    "cuda-core", "nvmath-python", "nvidia-cudnn-frontend", "nvidia-ml-py", "pytest-benchmark", "torch", "triton",
)  # fmt: skip


def snapshot(device: Device | None, peaks: Peaks | None = None) -> dict[str, Any]:
    """Everything known of GPU, software, host and source; `device` None where there is none."""
    stands_for, software = {}, {}
    if isinstance(device, OtherArch):
        if not toolchain.knows(device.arch):
            software = {"nvrtc": cache.ptx_compiler()}
        stands_for, device = {"runs_code_of": device.arch}, device.device
    return {
        "schema": SCHEMA,
        "recorded_at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "gpu": {**_gpu(device), **stands_for},
        "peaks": asdict(peaks or Peaks()),
        "software": {**_software(device), **software},
        "packages": _packages(),
        "overrides": overrides(os.environ),
        "late_starts": "taken again",  # intervals whose start the GPU reached too early: `devices.gpu_timer`
        "host": _host(),
        "source": source(),
    }


def _gpu(device: Device | None) -> dict[str, Any]:
    if not isinstance(device, GpuDevice):
        return {"missing": "no device was opened" if device is None else f"the {device.name} device is not a GPU"}
    major, minor = device.facts.compute_capability
    known = {"slug": device.gpu, "compute_capability": f"{major}.{minor}"}
    told = ("name", "sms", "l2_bytes", "memory_bytes", "shared_optin_bytes")
    known |= {name: getattr(device.facts, name) for name in told}
    return {**known, **(settings(device.clocks) if device.clocks else {"settings_missing": "NVML is not available"})}


def settings(clocks: Clocks) -> dict[str, Any]:
    """Driver, clocks, power and sharing as NVML tells them."""

    def watts(name: str) -> float | None:
        milliwatts = clocks.ask(name)
        return None if milliwatts is None else milliwatts / 1000

    def switched_on(name: str) -> bool | None:
        mode = clocks.ask(name)  # of now and after the next reset, or of now alone
        current = mode[0] if isinstance(mode, (list, tuple)) else mode
        return None if current is None else bool(current)

    return {
        "driver": clocks.driver_version(),
        "sm_clock_max_mhz": clocks.clock_mhz("SM", "MaxClockInfo"),
        "sm_clock_application_mhz": clocks.clock_mhz("SM", "ApplicationsClock"),
        "memory_clock_max_mhz": clocks.clock_mhz("MEM", "MaxClockInfo"),
        "memory_clock_application_mhz": clocks.clock_mhz("MEM", "ApplicationsClock"),
        "power_limit_w": watts("PowerManagementLimit"),
        "power_limit_default_w": watts("PowerManagementDefaultLimit"),
        "persistence": switched_on("PersistenceMode"),
        "ecc": switched_on("EccMode"),
        "mig": switched_on("MigMode"),
        "compute_processes": clocks.compute_processes(),
        "throttle_reasons": list(clocks.throttle_reasons()),
    }


def _software(device: Device | None) -> dict[str, Any]:
    found: dict[str, Any] = {"python": platform.python_version(), "nvrtc": None}
    with suppress(Unsupported):
        found["nvrtc"] = ".".join(str(part) for part in toolchain.nvrtc_version())
    if isinstance(device, GpuDevice):
        found["device_library"] = device.facts.library
        found["cuda_runtime"] = device.facts.runtime
        found |= {library: _version(library) for library in ("cublas", "cusparse", "cusparseLt", "cudnn")}
    return {name.lower(): version for name, version in found.items()}


def _version(library: str) -> str | None:
    try:
        if library == "cudnn":
            from nnzbench.kernels.vendor.cudnn import load_frontend

            return str(load_frontend().backend_version())
        bindings = importlib.import_module(f"nvmath.bindings.{library}")
        return ".".join(str(bindings.get_property(part)) for part in range(3))  # major, minor, patch
    except Exception:  # missing, or broken in its own way: either way there is no version to record
        return None


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name.replace("-", "_")] = importlib.metadata.version(name)
    return found


def overrides(environ: Mapping[str, str]) -> dict[str, str]:
    """The set ones of `OVERRIDES`; a value that could be a path or an identifier is only told to be `set`."""
    plain = re.compile(r"[A-Za-z0-9_:.,=+-]{0,32}")
    told = {name: environ[name] for name in OVERRIDES if name in environ}
    return {name.lower(): value if plain.fullmatch(value) else "set" for name, value in told.items()}


def _host() -> dict[str, Any]:
    distribution = None
    with suppress(OSError):
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME")
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
        processor = named[1].strip() if named else None
    except OSError:
        processor = platform.processor() or None
    return {
        "system": platform.system(),
        "distribution": distribution,
        "machine": platform.machine(),
        "processor": processor,
        "processor_count": os.cpu_count(),
    }


def source() -> dict[str, Any]:
    """Commit of the checkout this package runs from, and whether its code differs; None for an installed copy.

    `$NNZBENCH_COMMIT` names the commit of a copy without its repository, such as one unpacked from `git archive`.
    """
    if named := os.environ.get("NNZBENCH_COMMIT"):
        return {"commit": named, "dirty": False}
    here = Path(__file__).resolve()
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return {"commit": None, "dirty": None}  # installed, perhaps inside some other repository
    changed = _git(here.parent, "status", "--porcelain", "--", ":/suite", ":/kernels_cu", ":/datasets")
    return {"commit": _git(here.parent, "rev-parse", "HEAD"), "dirty": None if changed is None else bool(changed)}


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    return None
