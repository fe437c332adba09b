"""What a kernel hands to a device: plans are plain data, prepared callables are all that is timed.

Plans may belong together: one computes from what others left in shared buffers (`chain`), or many share work.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Uint32s = NDArray[np.uint32]
Dim3 = tuple[int, int, int]
Arg = str | int | float
T = TypeVar("T")


class Unsupported(Exception):
    """A kernel, library or device can't run this problem; the message is the reason shown in the record."""


def printable(text: str) -> str:
    """The text with what a terminal would act upon as U+FFFD: names out of files go into sentences for the user."""
    return text if text.isprintable() else "".join(one if one.isprintable() else "\ufffd" for one in text)


def one_line(error: BaseException) -> str:
    """What an error of a library or the system says, fit for a sentence: one line, at most 200 characters."""
    return printable(" ".join(str(error).split())[:200]) or type(error).__name__


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
    cluster: Dim3 = (1, 1, 1)
    """Blocks of a cluster (sm_90 and later); the grid counts blocks all the same, and is a multiple of it.

    The device `pycuda` passes neither this nor `overlaps` on, and refuses the plan."""
    overlaps: bool = False
    """Whether it may start before the launch before it has ended (programmatic dependent launch): the kernel waits
    for that one's results by itself (`griddepcontrol.wait`)."""


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
    tolerance: str = ""
    """Class of `check.TOLERANCE` where it is not that of `math`."""
    generate_ms: float = 0.0
    """Host time spent inspecting the matrix and generating code, milliseconds."""
    cpu_source: str = ""
    """For a `ptx` plan: equivalent CUDA C++ text that the cpu device runs instead, same launches and buffers."""
    features: str = ""
    """`a` for a program that uses instructions of its architecture alone (wgmma): it is compiled for `sm_90a`, say."""
    unpermute: Callable[[Array], Array] | None = None
    """Maps the raw output buffer to the problem's layout before the check, where a kernel uses its own.

    Every device applies it when it reads the output.
    """

    def result(self, raw: Array) -> Array:
        """The output buffer's contents in the problem's layout and type: what `Prepared.read` gives on every device."""
        return raw if self.unpermute is None else self.unpermute(raw)

    def overlapping(self) -> Plan:
        """The plan for a graph of launches that overlap: programs are told by `OVERLAPS`, and wait by themselves."""
        launches = tuple(replace(one, overlaps=True) for one in self.launches)
        return replace(self, defines={**self.defines, "OVERLAPS": 1}, launches=launches)

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


class Held(Protocol):
    """A plan's buffer on a device."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self) -> Array:
        """Waits, then copies to the host."""

    def write(self, array: Array) -> None:
        """Copies `array`, of the same shape and type, to the device."""


@dataclass(frozen=True)
class Ends:
    """The dense operand and the result of a library's product in device memory, each row-major or the other way."""

    b: Held
    c: Held
    b_turned: bool
    c_turned: bool


@dataclass
class Prepared:
    """A compiled and uploaded candidate. Only `run` is ever timed."""

    run: Callable[[], None]
    """Enqueues the whole computation once on the device's stream; no allocation, no synchronisation."""
    read: Callable[[], Array]
    """Waits, then copies the output to the host, in the problem's layout (see `Plan.unpermute`)."""
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
    arrays: Mapping[str, Held] = field(default_factory=dict)
    """Of a plan, its buffers by name; of a library, what holds the weights, where it can run over copies of that."""
    rotates: bool = False
    """Whether one run goes through more weights than L2 holds, as a whole network's does."""
    ends: Ends | None = None
    """Of a library's product; a plan has them among `arrays`."""
    copied: Callable[[Collection[str]], Callable[[], None]] | None = None
    """Copies the named arrays on the device and gives a `run` over the copies; all others, the output too, are shared.

    Code that holds weights is copied as well. The copies live as long as the `run`, and at most until `close`."""


@dataclass(frozen=True)
class Candidate:
    """One variant on one problem, ready to be prepared."""

    variant: str
    math: str
    prepare: Callable[[], Prepared]
    plan: Plan | None = None
    """What `prepare` compiles, so that many can be compiled at once; None for a library."""
    truth: Callable[[], Any] | None = None
    """Gives the `Reference` of a candidate whose operands are not the problem's; None for the problem's own."""
    operands: Any = None
    """Those `Operands`, of a candidate with a plan."""
    tolerance: str = ""
    """Class of `check.TOLERANCE` where it is not that of `math`."""
    ready: Callable[[], None] | None = None
    """Does ahead what of `prepare` needs no GPU; None where there is no such thing. Raises what `prepare` would."""
    of_file: bool = False
    """Whether it calls a function of a user's file, and has no plan; it must follow other values, by its `ends`."""


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


def bf16_bits(array: Array) -> Array:
    """bf16 as devices store it: the upper halves of the float32 numbers, already rounded, that the host has of it."""
    return (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def from_bf16(bits: Array) -> Array:
    """The float32 numbers whose upper halves are given, in any type of 16 bits."""
    return (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def poison_value(dtype: np.dtype[Any]) -> float | int:
    """NaN for floating outputs, the largest value for integers."""
    return float("nan") if np.issubdtype(dtype, np.floating) else int(np.iinfo(dtype).max)


@dataclass(frozen=True)
class Step:
    """One plan of a chain. `shared` maps its buffers to names of the chain; other buffers stay its own."""

    plan: Plan
    shared: Mapping[str, str] = field(default_factory=dict)


def chain(variant: str, steps: Sequence[Step]) -> Plan:
    """The plan that runs `steps` (CUDA plans) in order; its output is the last one's.

    Of buffers that share a name, the largest is kept: a later step may want padding behind what an earlier one writes.
    Raises `ValueError` where two that share a name describe different structure.
    """
    buffers: dict[str, Array] = {}
    launches: list[Launch] = []
    for number, step in enumerate(steps):
        names = {name: step.shared.get(name, f"{number}.{name}") for name in step.plan.buffers}
        for name, array in step.plan.buffers.items():
            held = buffers.get(names[name])
            if held is not None and held is not array and not _agree(held, array):
                raise ValueError(f"step {number} of {variant}: '{name}' is not the '{names[name]}' of an earlier step")
            if held is None or held.nbytes < array.nbytes:
                buffers[names[name]] = array
        for launch in step.plan.launches:
            launches.append(
                replace(
                    launch,
                    args=tuple(names[arg] if isinstance(arg, str) else arg for arg in launch.args),
                    source=launch.source or step.plan.source,
                    defines=launch.defines if launch.source else step.plan.defines,
                )
            )
    first, last = steps[0].plan, steps[-1].plan
    return replace(
        last,
        variant=variant,
        source=first.source,
        defines=first.defines,
        buffers=buffers,
        output=steps[-1].shared.get(last.output, f"{len(steps) - 1}.{last.output}"),
        launches=tuple(launches),
        generate_ms=sum(step.plan.generate_ms for step in steps),
    )


def _agree(one: Array, other: Array) -> bool:
    """Whether the shorter of two buffers is the beginning of the longer; results of a step before may differ."""
    if one.dtype != other.dtype or not np.issubdtype(one.dtype, np.integer):
        return one.dtype == other.dtype
    size = min(one.size, other.size)
    return bool(np.array_equal(one.reshape(-1)[:size], other.reshape(-1)[:size]))


Made = dict[Hashable, tuple[Any, float]]
"""What was made by key, and the seconds that it took."""

_owned: dict[int, Made] = {}
"""By the identity of what it was made of, which takes its entry along when it goes."""


def _made_for(owner: object) -> Made:
    if id(owner) not in _owned:
        _owned[id(owner)] = {}
        weakref.finalize(owner, _owned.pop, id(owner))
    return _owned[id(owner)]


class SharedWork:
    """What some plans have in common, by key, with the seconds that it took."""

    def __init__(self) -> None:
        self._made: Made = {}
        self._saved = 0.0

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` returned the first time for this `key`, which names the kind of thing made."""
        return self._once(self._made, key, make)

    def once_for(self, owner: object, key: Hashable, make: Callable[[], T]) -> T:
        """As `once`, for all who name this `owner` and as long as it lives: a matrix that several problems have.

        What is made must not refer to the owner, which would then never die.
        """
        return self._once(_made_for(owner), key, make)

    def _once(self, made: Made, key: Hashable, make: Callable[[], T]) -> T:
        if key in made:
            value, seconds = made[key]
            self._saved += seconds
        else:
            timed = self.timer()
            value = make()
            made[key] = value, timed() / 1e3
        return value  # type: ignore[no-any-return]

    def forget(self, key: Hashable) -> None:
        """Drops what was made for `key`, which may take much memory."""
        self._made.pop(key, None)

    def timer(self) -> Callable[[], float]:
        """A function that tells the milliseconds since now, as they would be if nothing had been made before."""
        start, saved = time.perf_counter(), self._saved
        return lambda: 1e3 * (time.perf_counter() - start + self._saved - saved)
