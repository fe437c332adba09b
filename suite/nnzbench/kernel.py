"""The contract between kernels and devices: plans are plain data, prepared callables are all that is timed.

Adding a kernel touches two places: `kernels_cu/<name>.cu` and one module in `nnzbench/kernels/` that calls
`register`. A vendor library is a kernel too; it yields prepared callables instead of plans.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from nnzbench.roles import OURS, RETIRED, About, Role

if TYPE_CHECKING:
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
    plan: Plan | None = None
    """What `prepare` compiles, so that many can be compiled at once; None for a library."""
    tolerance: str = ""
    """Class of `check.TOLERANCE` where it is not that of `math`."""


class DeviceLost(RuntimeError):
    """The device no longer answers (a fault corrupted its context); only a new process can go on."""


class Timer(Protocol):
    """What a GPU device offers for timing; the policies in `nnzbench.timing` are plain logic over it."""

    def capture(self, run: Callable[[], None], launches: int) -> Callable[[], None]:
        """Captures `launches` back-to-back runs into one CUDA graph; the result enqueues one replay of it."""
        ...

    def elapsed_us(self, body: Callable[[], None]) -> float:
        """Microseconds between two events recorded just before and after `body` enqueues its work; waits."""
        ...

    def cold_us(self, run: Callable[[], None], samples: int) -> list[float]:
        """For each sample: overwrite the L2 cache, then time one `run` between events. The overwrite is outside."""
        ...

    def sm_clock_mhz(self) -> float | None:
        """Current SM clock, None where it can't be read."""
        ...

    def throttle_reasons(self) -> tuple[str, ...]:
        """Active clock-throttle reasons (idle excluded), empty when none or unknown."""
        ...


class Device(Protocol):
    """Uploads, launches and reads back plans."""

    @property
    def name(self) -> str:
        """`cupy`, `pycuda` or `cpu`."""
        ...

    @property
    def gpu(self) -> str:
        """Slug of the device's name, such as `nvidia-h200`; `cpu` for the processor."""
        ...

    @property
    def arch(self) -> str:
        """Architecture that plans are made and compiled for, such as `sm_90`."""
        ...

    @property
    def compiles_from_cache(self) -> bool:
        """Whether programs come from the shared compile cache, so that many can be put there at once beforehand."""
        ...

    @property
    def timer(self) -> Timer | None:
        """None on the processor: its times mean nothing for a GPU and are never recorded."""
        ...

    def prepare(self, plan: Plan) -> Prepared:
        """Compiles and uploads. Raises `CompileError` or `Unsupported`."""
        ...

    def close(self) -> None:
        """Frees everything the device holds."""
        ...


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
_about: dict[str, About] = {}


def register(kernel: AnyKernel, about: About | None = None) -> None:
    """Adds a kernel under its name, with what it says of itself; without that it is a `guest`.

    A second kernel of the same name, or one of a retired name, is an error (`ValueError`).
    """
    if kernel.name in _registry:
        raise ValueError(f"kernel '{kernel.name}' is registered twice")
    if kernel.name in RETIRED:
        raise ValueError(f"kernel '{kernel.name}' was retired, and recorded rows have its name: choose another")
    about = about or About()
    _registry[kernel.name] = kernel
    _about[kernel.name] = replace(about, label=about.label or kernel.name, maths=about.maths or kernel.dtypes)


def kernels() -> dict[str, AnyKernel]:
    """Every registered kernel by name, after importing each module of `nnzbench.kernels` once."""
    _import_modules()
    return dict(sorted(_registry.items()))


@functools.cache
def _import_modules() -> None:
    package = importlib.import_module("nnzbench.kernels")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"nnzbench.kernels.{module.name}")


def about(name: str) -> About:
    """What the kernel of that name says of itself, retired ones included; a name nobody knows is a `guest`."""
    _import_modules()
    found = _about.get(name) if name in _registry else None
    return found or RETIRED.get(name) or About(label=name)


def known() -> dict[str, About]:
    """What every kernel that rows may name says of itself, in the order of legends: retired ones too."""
    names = sorted({*kernels(), *RETIRED}, key=lambda name: (about(name).rank, name))
    return {name: about(name) for name in names}


def dense_libraries(math: str) -> tuple[str, ...]:
    """Vendors' kernels that multiply by every weight and can do so in that arithmetic, in the order of legends."""
    return tuple(
        name for name, one in known().items() if (one.role, one.work) == ("library", "dense") and math in one.maths
    )


def ours(op: str) -> tuple[str, ...]:
    """Kernels written here that compute `op`, papers' methods and own designs, in the order of legends."""
    return tuple(
        name for name, one in known().items() if one.role in OURS and name in _registry and op in _registry[name].ops
    )


def role_of(name: str, variant: str) -> Role:
    """Whose a recorded row is, by its kernel and variant: where a kernel has a paper's mapping and ours, of either."""
    return about(name).role_of(variant)


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
