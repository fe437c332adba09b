"""The contract between kernels and devices: plans are plain data, prepared callables are all that is timed.

Adding a kernel touches two places: `kernels_cu/<name>.cu` and one module in `nnzbench/kernels/` that calls
`register`. A vendor library is a kernel too; it yields prepared callables instead of plans.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from nnzbench.devices import Device
    from nnzbench.operands import Operands
    from nnzbench.problem import Problem

Array = NDArray[Any]
Dim3 = tuple[int, int, int]
Arg = str | int | float
T = TypeVar("T")


class Unsupported(Exception):
    """A kernel, library or device can't run this problem; the message is the reason shown in the record."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch. A `str` argument names a buffer, an `int` is passed as int32, a `float` as float32."""

    entry: str
    grid: Dim3
    block: Dim3
    args: tuple[Arg, ...]
    shared_bytes: int = 0
    """Dynamic shared memory per block, bytes."""
    source: str = ""
    """The program this launch is from where that is not the plan's own; then `defines` are its defines."""
    defines: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Everything a device needs to run one variant of a kernel on one problem."""

    variant: str
    language: Literal["cuda", "ptx"]
    source: str
    """A file of `kernels_cu/` by name (`sputnik_spmm.cu`), or the program text itself when it has a newline."""
    defines: Mapping[str, int | str]
    buffers: Mapping[str, Array]
    output: str
    """Name of the buffer that holds the result; devices poison it with NaN before the check."""
    launches: tuple[Launch, ...]
    math: str = "f32"
    """Arithmetic class, which sets the tolerance: `f32`, `tf32`, `f16`, `bf16` (inputs; fp32 accumulation)."""
    generate_ms: float = 0.0
    """Host time spent inspecting the matrix and generating code, milliseconds."""
    cpu_source: str = ""
    """For a `ptx` plan: equivalent CUDA C++ text that the cpu device runs instead, same launches and buffers."""
    features: str = ""
    """`a` for a program that uses instructions of its architecture alone (wgmma): it is compiled for `sm_90a`, say."""
    unpermute: Callable[[Array], Array] | None = None
    """Maps the raw output buffer to the problem's layout before the check, where a kernel uses its own."""

    def stages(self) -> tuple[Plan, ...]:
        """The plan as plans of one program each, to be run one after another over the same buffers.

        Neighbouring launches of the same program stay together; most plans are one stage, and then that is this plan.
        """
        runs: list[tuple[tuple[str, Mapping[str, int | str]], list[Launch]]] = []
        for launch in self.launches:
            wanted = (launch.source, launch.defines) if launch.source else (self.source, self.defines)
            if not runs or runs[-1][0] != wanted:
                runs.append((wanted, []))
            runs[-1][1].append(launch)
        if len(runs) <= 1 and not any(launch.source for launch in self.launches):
            return (self,)
        return tuple(
            replace(self, source=source, defines=defines, launches=tuple(launches))
            for (source, defines), launches in runs
        )


@dataclass(frozen=True)
class Resources:
    """What the compiler says of the plan's (first) kernel."""

    registers: int = 0
    shared_bytes: int = 0
    """Static shared memory per block."""
    spill_bytes: int = 0
    code_bytes: int = 0


@dataclass
class Prepared:
    """A compiled and uploaded candidate. Only `run` is ever timed."""

    run: Callable[[], None]
    """Enqueues the whole computation once on the device's stream; no allocation, no synchronisation."""
    read: Callable[[], Array]
    """Waits, then copies the output to the host."""
    poison: Callable[[], None]
    """Fills the output with NaN bits, so that unwritten elements fail the check."""
    close: Callable[[], None]
    """Frees device memory."""
    resources: Resources | None = None
    compile_ms: float = 0.0
    """Compile or assemble time; the cached artefact's original time when it came from the cache."""
    prepare_ms: float = 0.0
    """Host-side preparation: inspection, format conversion, upload, library preprocess."""
    capturable: bool = True
    """False where a library call can't be captured into a CUDA graph; hot timing then uses a stream loop."""


@dataclass(frozen=True)
class Candidate:
    """One variant on one problem, ready to be prepared."""

    variant: str
    math: str
    prepare: Callable[[], Prepared]
    notes: Mapping[str, str] = field(default_factory=dict)
    plan: Plan | None = None
    """What `prepare` compiles, so that many can be compiled at once; None for a library."""
    tolerance: str = ""
    """Class of `check.TOLERANCE` where it is not that of `math`."""


@runtime_checkable
class Kernel(Protocol):
    """A kernel of ours or of a paper: yields plans. Raises `Unsupported` with a reason."""

    @property
    def name(self) -> str: ...
    @property
    def paper(self) -> str: ...
    @property
    def ops(self) -> frozenset[str]: ...
    @property
    def dtypes(self) -> frozenset[str]: ...
    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """Every variant worth trying, launch geometry included. `arch` is such as `sm_90`."""
        ...


@runtime_checkable
class VendorKernel(Protocol):
    """A vendor library: yields candidates, one per algorithm, layout and math mode."""

    @property
    def name(self) -> str: ...
    @property
    def paper(self) -> str: ...
    @property
    def ops(self) -> frozenset[str]: ...
    @property
    def dtypes(self) -> frozenset[str]: ...
    def candidates(self, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        """Every algorithm on this device; raises `Unsupported` where the library or device is missing."""
        ...


AnyKernel = Kernel | VendorKernel

_registry: dict[str, AnyKernel] = {}


def register(kernel: AnyKernel) -> None:
    """Adds a kernel under its name; a second one of the same name is an error."""
    if kernel.name in _registry:
        raise ValueError(f"kernel '{kernel.name}' is registered twice")
    _registry[kernel.name] = kernel


def kernels() -> dict[str, AnyKernel]:
    """Every registered kernel by name, after importing each module of `nnzbench.kernels` once."""
    package = importlib.import_module("nnzbench.kernels")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"nnzbench.kernels.{module.name}")
    return dict(sorted(_registry.items()))


def candidates(kernel: AnyKernel, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
    """The candidates of any kernel: a vendor's own, or one per plan.

    Raises `Unsupported` where the kernel has none for this op or dtype.
    """
    if problem.op not in kernel.ops:
        raise Unsupported(f"{kernel.name} does not compute {problem.op}")
    if problem.dtype not in kernel.dtypes:
        raise Unsupported(f"{kernel.name} has no {problem.dtype} form")
    if isinstance(kernel, VendorKernel):
        yield from kernel.candidates(problem, operands, device)
        return
    for plan in kernel.plans(problem, operands, device.arch):
        yield Candidate(plan.variant, plan.math, lambda plan=plan: device.prepare(plan), plan=plan)  # type: ignore[misc]


def plans_that_fit(choices: Iterable[T], make: Callable[[T], Plan], otherwise: str) -> Iterator[Plan]:
    """The plan of each choice that does not refuse.

    Raises `Unsupported` where all do, with the last one's reason, or `otherwise` for no choices.
    """
    refusal = Unsupported(otherwise)
    found = False
    for choice in choices:
        try:
            plan = make(choice)
        except Unsupported as error:
            refusal = error
            continue
        found = True
        yield plan
    if not found:
        raise refusal


def poison_value(dtype: np.dtype[Any]) -> float | int:
    """NaN for floating outputs, the largest value for integers."""
    return float("nan") if np.issubdtype(dtype, np.floating) else int(np.iinfo(dtype).max)
