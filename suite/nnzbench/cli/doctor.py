"""`nnzbench doctor`: what this machine can run, and for the rest what is missing and what brings it."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass

import click

from nnzbench.core import paths
from nnzbench.core.host import VisibleGpu, extra_for, visible_gpus
from nnzbench.core.plan import Unsupported
from nnzbench.devices import DEVICES, open_device


@dataclass(frozen=True)
class Finding:
    """One thing looked for: what it is for, whether it is there, and its version or what is missing."""

    name: str
    purpose: str
    ok: bool
    detail: str


_PACKAGES = (
    (("cupy-cuda12x", "cupy-cuda13x", "cupy"), "runs kernels on the GPU", "cuda"),
    (("pycuda",), "runs the same kernels through a second library", "pycuda"),
    (("cuda-core",), "runs them through a third", "cuda-core"),
    (("nvmath-python",), "cublas, cublaslt, cusparse and cusparselt rows", "cuda"),
    (("nvidia-ml-py",), "reads clocks and throttle reasons", "cuda"),
    (("cuda-bindings",), "compiles kernels with NVRTC", "compile"),
    (("distributed",), "run --cluster", "cluster"),
    (("safetensors",), "matrices out of .safetensors files", "safetensors"),
    (("torch",), "matrices out of PyTorch's .pt files", "torch"),
    (("pytest-benchmark",), "pytest --benchmark", "test"),
)
_OF_GPUS = 5
"""So many of these are of no use without a GPU."""


def examine() -> Iterator[Finding]:
    """Looks for every device, compiler, library and data set; opens and closes each device.

    Without a GPU one sentence stands for all that would need one: installing it can't help.
    """
    gpus = visible_gpus()
    yield _gpu(gpus)
    for name in DEVICES if gpus else ("cpu",):
        purpose = "checks kernels on the processor" if name == "cpu" else "times kernels on the GPU"
        yield _attempt(f"device {name}", purpose, lambda name=name: _device(name))  # type: ignore[misc]
    yield _attempt("NVRTC", "compiles CUDA C++ for every architecture", _nvrtc)
    yield _attempt("nvJitLink", "assembles generated PTX", _nvjitlink)
    for names, purpose, extra in _PACKAGES[0 if gpus else _OF_GPUS :]:
        yield _package(names, purpose, extra_for(gpus) if extra == "cuda" else extra)
    if gpus:
        yield _attempt("nvcc", "builds the pycuda extra", _nvcc)
        yield _attempt("cuDNN", "cudnn rows", _cudnn)
        yield _attempt("cuSPARSELt", "cusparselt rows", _cusparselt)
    yield _attempt("DLMC matrices", "real pruned patterns (stand-ins take their place)", _dlmc)
    yield _attempt("real weights", "real pruned values (stand-ins take their place)", _weights)


def _gpu(gpus: Sequence[VisibleGpu]) -> Finding:
    if not gpus:
        missing = "no GPU or driver found: kernels are checked and compiled, not timed; best --gpu NAME estimates"
        return Finding("GPU", "times kernels", False, missing)
    arches = ", ".join("sm_{}{}".format(*one.capability) for one in gpus)
    major, minor = divmod(gpus[0].driver, 1000)
    return Finding("GPU", "times kernels", True, f"{arches}, a driver of CUDA {major}.{minor // 10}")


def _attempt(name: str, purpose: str, probe: Callable[[], str]) -> Finding:
    try:
        return Finding(name, purpose, True, probe())
    except Unsupported as reason:
        return Finding(name, purpose, False, str(reason))
    except Exception as error:  # a broken installation is a finding like any other
        return Finding(name, purpose, False, f"{type(error).__name__}: {error}")


def _device(name: str) -> str:
    with closing(open_device(name)) as device:
        return f"{device.gpu}, plans for {device.arch}"


def _nvrtc() -> str:
    from nnzbench.devices.build import toolchain

    major, minor = toolchain.nvrtc_version()
    arches = toolchain.supported_arches()
    return f"CUDA {major}.{minor}, {arches[0]} to {arches[-1]}"


def _nvjitlink() -> str:
    from nnzbench.devices.build import toolchain

    return toolchain.compiler_id("ptx")


def _nvcc() -> str:
    found = shutil.which("nvcc")
    if found is None:
        raise Unsupported("not on PATH; it comes with the CUDA toolkit")
    done = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=30, check=False)
    lines = [line for line in done.stdout.splitlines() if "release" in line]
    return lines[0].strip() if lines else found


def _package(names: tuple[str, ...], purpose: str, extra: str) -> Finding:
    for name in names:
        try:
            return Finding(name, purpose, True, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            continue
    return Finding(names[-1], purpose, False, f"not installed; pip install 'nnzbench[{extra}]'")


def _cudnn() -> str:
    from nnzbench.kernels.vendor.cudnn import load_frontend

    frontend = load_frontend()
    return f"{frontend.backend_version_string()}, frontend {frontend.__version__}"


def _cusparselt() -> str:
    from nnzbench.kernels.vendor.cusparselt import library_version

    return library_version()


def _dlmc() -> str:
    from nnzbench.data.problems import tables
    from nnzbench.data.problems.sources import find_real

    wanted = [p.source for p in tables.load("sparsert_table1", real=True) if p.source.startswith("dlmc:")]
    there = sum(find_real(source) is not None for source in wanted)
    text = f"{there} of {len(wanted)} of sparsert_table1 found"
    if there < len(wanted):
        raise Unsupported(f"{text}; nnzbench fetch dlmc downloads them")
    return text


def _weights() -> str:
    if not any((root / "real_weights.npz").is_file() for root in paths.data_roots()):
        raise Unsupported("no real_weights.npz in the folders of NNZBENCH_DATA or in the cache")
    return "real_weights.npz found"


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def command(as_json: bool) -> None:
    """Say what is missing on this machine and what brings it, then what works."""
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in examine()], indent=2))
        return
    found = sorted(examine(), key=lambda one: one.ok)
    for one in found:
        mark = click.style("yes", fg="green") if one.ok else click.style("no ", fg="yellow")
        click.echo(f"{mark}  {one.name:18} {one.detail}" + ("" if one.ok else f"  [{one.purpose}]"))
    click.echo(f"{sum(one.ok for one in found)} of {len(found)} found")
