"""What a measurement depends on besides the kernels: a plain, typed snapshot kept beside the records.

Keys match `^[a-z][a-z0-9_]+$` at every level; what can't be known is None. Nothing in it identifies the machine
or its user: no host or user names, no paths, no serial numbers.
"""

from __future__ import annotations

import datetime
import importlib
import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nnzbench.build import cache, toolchain
from nnzbench.devices import Device
from nnzbench.devices.gpu import GpuDevice
from nnzbench.devices.nvml import Clocks
from nnzbench.devices.other_arch import OtherArch
from nnzbench.measure.peaks import Peaks
from nnzbench.plans.plan import Unsupported

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
    "cuda-core", "nvmath-python", "nvidia-cudnn-frontend", "nvidia-ml-py", "pytest-benchmark",
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
        "source": _source(),
    }


def _gpu(device: Device | None) -> dict[str, Any]:
    if not isinstance(device, GpuDevice):
        return {"missing": "no device was opened" if device is None else f"the {device.name} device is not a GPU"}
    facts = device.facts
    major, minor = facts.compute_capability
    known = {
        "name": facts.name,
        "slug": device.gpu,
        "compute_capability": f"{major}.{minor}",
        "sms": facts.sms,
        "l2_bytes": facts.l2_bytes,
        "memory_bytes": facts.memory_bytes,
        "shared_optin_bytes": facts.shared_optin_bytes,
    }
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
    found: dict[str, Any] = {"python": platform.python_version(), "nvrtc": _nvrtc()}
    if isinstance(device, GpuDevice):
        found["device_library"] = device.facts.library
        found["cuda_runtime"] = device.facts.runtime
        for library in ("cublas", "cusparse"):
            found[library] = _library(lambda library=library: _properties(f"nvmath.bindings.{library}"))  # type: ignore[misc]
        found["cusparselt"] = _library(lambda: _properties("nvmath.bindings.cusparseLt"))
        found["cudnn"] = _library(_cudnn)
    return found


def _cudnn() -> str:
    from nnzbench.kernels.vendor.cudnn_graphs import load_frontend

    return str(load_frontend().backend_version())


def _nvrtc() -> str | None:
    try:
        return ".".join(str(part) for part in toolchain.nvrtc_version())
    except Unsupported:
        return None


def _library(version: Callable[[], str]) -> str | None:
    try:
        return version()
    except Exception:  # missing, or broken in its own way: either way there is no version to record
        return None


def _properties(module: str) -> str:
    bindings = importlib.import_module(module)
    return ".".join(str(bindings.get_property(part)) for part in range(3))  # major, minor, patch


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name.replace("-", "_")] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def overrides(environ: Mapping[str, str]) -> dict[str, str]:
    """The set ones of `OVERRIDES`; a value that could be a path or an identifier is only told to be `set`."""
    plain = re.compile(r"[A-Za-z0-9_:.,=+-]{0,32}")
    return {
        name.lower(): environ[name] if plain.fullmatch(environ[name]) else "set"
        for name in OVERRIDES
        if name in environ
    }


def _host() -> dict[str, Any]:
    return {
        "system": platform.system(),
        "distribution": _distribution(),
        "machine": platform.machine(),
        "processor": _processor(),
        "processor_count": os.cpu_count(),
    }


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _processor() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or None
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else None


def _source() -> dict[str, Any]:
    """Commit of the checkout this package runs from, and whether its code differs; None for an installed copy.

    `$NNZBENCH_COMMIT` names the commit of a copy without its repository, such as one unpacked from `git archive`.
    """
    named = os.environ.get("NNZBENCH_COMMIT")
    if named:
        return {"commit": named, "dirty": False}
    here = Path(__file__).resolve()
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return {"commit": None, "dirty": None}  # installed, perhaps inside some other repository
    changed = _git(here.parent, "status", "--porcelain", "--", ":/suite", ":/kernels_cu", ":/datasets")
    return {"commit": _git(here.parent, "rev-parse", "HEAD"), "dirty": None if changed is None else bool(changed)}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
