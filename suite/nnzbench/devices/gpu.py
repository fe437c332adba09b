"""A CUDA GPU as a device: plans to launches, arrays to device memory, over a thin backend per GPU library.

Everything is enqueued on one stream of the backend, so that uploads, launches, vendor calls and timing are ordered.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from nnzbench.core.architectures import Part
from nnzbench.core.plan import Arg, Array, Launch, Plan, Prepared, Resources, Unsupported, one_line, poison_value
from nnzbench.devices import DeviceLost
from nnzbench.devices.build.cache import Job, build
from nnzbench.devices.build.pool import compile_one, limit_s
from nnzbench.devices.gpu_backend import Backend, BoundLaunch, GpuFacts, Scalar
from nnzbench.devices.gpu_timer import GpuTimer
from nnzbench.devices.nvml import Clocks, open_clocks

T = TypeVar("T")

DEFAULT_SHARED_BYTES = 48 * 1024
"""Shared memory a block may have without opting in, static and dynamic together.

A limit on the dynamic part that is not above it counts as none, though both parts together may be: on an H200 (driver
580) a launch of 49,024 bytes beside 160 static ones was an invalid argument. Such a launch asks for a little more.
"""

_FATAL = (
    "illegal memory access",
    "misaligned address",
    "illegal instruction",
    "unspecified launch failure",
    "launch timed out",
    "device-side assert",
    "invalid program counter",
    "hardware stack error",
    "uncorrectable ecc",
    "operation not supported on global/shared address space",
    "context is destroyed",
)
"""Driver messages after which every call of the process fails."""


_SHORT = re.compile(r"out.of.memory|alloc(?:ation)?_failed|memoryallocation|insufficient_resources", re.IGNORECASE)
PAUSES_S = (0.5, 2.0, 6.0)
"""Before what fails for want of memory is tried again: other processes that share the machine may have it till then."""


def short_of_memory(reason: object) -> bool:
    """Whether an error, or its text, says that memory is used up, the GPU's or the host's."""
    return _SHORT.search(str(reason)) is not None


class LaunchError(RuntimeError):
    """A launch or the work it started failed; the message is the driver's, in one sentence."""


@dataclass(frozen=True)
class Built:
    """A compiled plan: the cubin itself, what its entries use, and what compiling took."""

    cubin: bytes
    resources: dict[str, Resources]
    compile_ms: float


def build_plan(plan: Plan, arch: str, link: str = "") -> Built:
    """Compiles with NVRTC or assembles with nvJitLink, through the shared cache. Raises `CompileError`.

    `link`: the architecture to run on where `arch`'s code is only checked there.
    """
    job = Job.of(plan, arch, link)
    compiled = build(job.program()) if plan.language == "cuda" else compile_one(job, limit_s([job]))
    return Built(compiled.path.read_bytes(), dict(compiled.resources), compiled.compile_ms)


def _program(stage: Plan) -> str:
    """Equal for stages that one compiled program serves."""
    return Job.of(stage, "").identity()


def translate(error: Exception) -> Exception:
    """The driver's error as `DeviceLost` where the context is gone for good, else as `LaunchError`."""
    lost = any(message in str(error).lower() for message in _FATAL)
    return (DeviceLost if lost else LaunchError)(one_line(error))


def as_scalar(arg: Arg | Scalar) -> Scalar:
    """A kernel argument with its C type: int as int32, float as float32, a NumPy scalar as it is."""
    if isinstance(arg, Scalar):
        return arg
    if isinstance(arg, int):
        if not -(2**31) <= arg < 2**31:
            raise ValueError(f"the integer argument {arg} does not fit in 32 bits")
        return np.int32(arg)
    return np.float32(arg)


class DeviceArray:
    """An array in device memory, C-contiguous."""

    def __init__(self, device: GpuDevice, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._device, self.shape, self.dtype = device, shape, dtype
        self.size_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self._memory = device.backend.allocate(max(self.size_bytes, 1))
        self.pointer = device.backend.pointer(self._memory)

    def _do(self, call: Callable[[Backend], None]) -> None:
        if self.size_bytes:
            self._device.guarded(lambda: call(self._device.backend))

    def write(self, array: Array) -> None:
        """Copies `array`, of the same shape and type, to the device."""
        self._do(lambda backend: backend.upload(self.pointer, np.ascontiguousarray(array)))

    def read(self) -> Array:
        """Waits for the stream and copies to the host."""
        result = np.empty(self.shape, self.dtype)
        self._do(lambda backend: backend.download(self.pointer, result))
        if not self.size_bytes:
            self._device.synchronise()
        return result

    def copy(self) -> DeviceArray:
        """Another array with the same contents. Raises `LaunchError` where there is not enough memory."""
        other = self._device.empty(self.shape, self.dtype)
        self._do(lambda backend: backend.copy(other.pointer, self.pointer, self.size_bytes))
        return other

    def poison(self) -> None:
        """Enqueues filling with NaN (integers: the largest value), so that unwritten elements fail the check."""
        if self.dtype.kind == "i":
            self.write(np.full(self.shape, poison_value(self.dtype), self.dtype))
        else:  # ones are NaN in every floating-point type
            self._do(lambda backend: backend.fill(self.pointer, 0xFF, self.size_bytes))

    def close(self) -> None:
        """Drops the memory; safe to call twice."""
        self._memory = None


class GpuDevice:
    """Runs plans on the backend's GPU and lends its memory and stream to vendor libraries."""

    link = ""

    def __init__(
        self,
        backend: Backend,
        build: Callable[[Plan, str], Built] = build_plan,
        clocks: Clocks | None = None,
    ) -> None:
        self.backend, self.name = backend, backend.name
        self.gpu, self.number = slug(backend.facts.name), backend.facts.number
        """The number is the GPU's among those of this process."""
        self.compiles_from_cache = build is build_plan
        self.clocks = clocks if clocks is not None else open_clocks(backend.facts.pci_bus_id)
        self._build = build
        self._libraries: dict[str, Any] = {}
        self._timer: GpuTimer | None = None
        self._delay: Prepared | None = None
        self._loaded: tuple[Plan, dict[str, tuple[Plan, Built]]] | None = None
        self.alone: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
        """For what runs before its `prepare`: waits until no other process measures on the GPU; see `Session`."""
        self.shared = False
        """Whether there are such processes."""

    @property
    def facts(self) -> GpuFacts:
        return self.backend.facts

    @property
    def arch(self) -> str:
        """Such as `sm_90`, with the multiprocessors that plans are made for."""
        major, minor = self.facts.compute_capability
        return Part(f"sm_{major}{minor}", self.facts.sms)

    @property
    def timer(self) -> GpuTimer:
        """Events, graphs and clocks of this GPU. Raises `Unsupported` where its delay kernel can't be compiled."""
        if self._timer is None:
            delay = Plan("delay", "cuda", "peaks.cu", {}, {"unused": np.zeros(1, np.float32)}, "unused", (_DELAY,))
            self._delay = self.prepare(delay)
            self._timer = GpuTimer(self.backend, self.guarded, self._delay.run, self.facts.l2_bytes, self.clocks)
        return self._timer

    def guarded(self, call: Callable[[], T]) -> T:
        """Calls, turning the library's errors into `LaunchError` or `DeviceLost`."""
        try:
            return call()
        except self.backend.errors as error:
            raise translate(error) from error

    def synchronise(self) -> None:
        """Waits for everything enqueued; raises what it failed with."""
        self.guarded(self.backend.synchronise)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> DeviceArray:
        """Uninitialised device memory. Raises `LaunchError` where there is not enough."""
        return self.guarded(lambda: DeviceArray(self, shape, np.dtype(dtype)))

    def used_bytes(self) -> int:
        """Bytes of the GPU's memory in use by all programs, what the library pools for later included."""
        return self.guarded(self.backend.used_bytes)

    def release(self) -> None:
        """Waits, then gives freed memory that is kept for later back to the driver."""
        self.synchronise()
        self.guarded(self.backend.release)

    def separate(self) -> contextlib.AbstractContextManager[Any]:
        """While it is open, memory comes from the driver and never from what an earlier, larger piece left over."""
        return self.backend.separate()

    def upload(self, array: Array) -> DeviceArray:
        result = self.empty(array.shape, array.dtype)
        result.write(array)
        return result

    def library(self, key: str, opened: Callable[[], T]) -> T:
        """The library handle kept under `key`, opened at its first use and closed (`close()`) with the device."""
        if key not in self._libraries:
            self._libraries[key] = opened()
        handle: T = self._libraries[key]
        return handle

    def capturable(self, run: Callable[[], None]) -> bool:
        """Whether `run` (already run once) can be captured into a graph that replays without an error."""
        try:
            self.timer.capture(run, 1)()
            self.synchronise()
        except (LaunchError, Unsupported):
            return False
        return True

    def preload(self, plan: Plan) -> None:
        """Compiles, or reads from the cache, what the next `prepare` needs if it is of this plan; needs no GPU."""
        self._loaded = plan, self._builds(plan)

    def prepare(self, plan: Plan) -> Prepared:
        """Compiles, uploads and binds arguments. Raises `CompileError`, `Unsupported`, `LaunchError`."""
        loaded, self._loaded = self._loaded, None
        builds = loaded[1] if loaded is not None and loaded[0] is plan else self._builds(plan)
        started = time.perf_counter()
        given = {name: np.asarray(array) for name, array in plan.buffers.items()}
        arrays = {  # what the output holds before it is poisoned says nothing
            name: self.empty(array.shape, array.dtype) if name == plan.output else self.upload(array)
            for name, array in given.items()
        }
        modules = self._load(builds)
        calls = self._bind_all(plan, builds, arrays, modules)
        _, first = next(iter(builds.values()))
        resources = first.resources.get(plan.launches[0].entry) if plan.launches else None
        output = arrays[plan.output]

        def copied(names: Collection[str]) -> Callable[[], None]:
            mine = {name: array.copy() if name in names else array for name, array in arrays.items()}
            programs = self._load(builds) if plan.language == "ptx" else modules
            return self._run(self._bind_all(plan, builds, mine, programs), mine)

        def close() -> None:
            self.synchronise()
            calls.clear()
            for array in arrays.values():
                array.close()

        prepare_ms = (time.perf_counter() - started) * 1e3 + plan.generate_ms
        compile_ms = sum(built.compile_ms for _, built in builds.values())
        run = self._run(calls, arrays)
        done = output.poison, close, resources, compile_ms, prepare_ms
        return Prepared(run, lambda: plan.result(output.read()), *done, arrays=arrays, copied=copied)

    def _run(self, calls: list[Callable[[], None]], arrays: Mapping[str, DeviceArray]) -> Callable[[], None]:
        errors = self.backend.errors

        def run(keep: Any = arrays) -> None:  # whoever holds `run` alone still holds the memory
            try:
                for call in calls:
                    call()
            except errors as error:
                raise translate(error) from error

        return run

    def bind(self, plan: Plan, arrays: Mapping[str, DeviceArray]) -> Callable[[], None]:
        """Enqueues the plan's launches at each call, over `arrays` in place of its own buffers.

        For a launch of ours between a library's calls. Raises `CompileError`, `Unsupported`, `LaunchError`.
        """
        return self._run(self.bind_each(plan, arrays), arrays)

    def compiled(self, plan: Plan) -> tuple[tuple[bytes, ...], tuple[tuple[int, Launch], ...]]:
        """The plan's cubins, and each launch with the number of its cubin. Raises as `prepare` does."""
        builds = self._builds(plan)
        numbers = {name: number for number, name in enumerate(builds)}
        launches = [(numbers[_program(stage)], launch) for stage in plan.stages() for launch in stage.launches]
        return tuple(built.cubin for _, built in builds.values()), tuple(launches)

    def bind_each(self, plan: Plan, arrays: Mapping[str, DeviceArray]) -> list[Callable[[], None]]:
        """What enqueues each launch of the plan that has threads, in order, over `arrays` in place of its buffers.

        Raises as `bind` does; call them through `guarded`.
        """
        builds = self._builds(plan)
        return self._bind_all(plan, builds, arrays, self._load(builds))

    def _builds(self, plan: Plan) -> dict[str, tuple[Plan, Built]]:
        """Each program of the plan by its identity, with all of its launches, in the order of first use."""
        programs: dict[str, Plan] = {}
        for stage in plan.stages():
            before = programs[_program(stage)].launches if _program(stage) in programs else ()
            programs[_program(stage)] = replace(stage, launches=before + stage.launches)
        return {name: (program, self._build(program, self.arch)) for name, program in programs.items()}

    def _load(self, builds: Mapping[str, tuple[Plan, Built]]) -> dict[str, Any]:
        load = self.backend.load
        return {name: self.guarded(partial(load, built.cubin)) for name, (_, built) in builds.items()}

    def _bind_all(
        self,
        plan: Plan,
        builds: Mapping[str, tuple[Plan, Built]],
        arrays: Mapping[str, DeviceArray],
        modules: Mapping[str, Any],
    ) -> list[Callable[[], None]]:
        return [
            self._bind(modules[name], launch, *builds[name], arrays)
            for name, stage in ((_program(stage), stage) for stage in plan.stages())
            for launch in stage.launches
            if all(launch.grid) and all(launch.block)
        ]

    def _bind(
        self, module: Any, launch: Launch, plan: Plan, built: Built, arrays: Mapping[str, DeviceArray]
    ) -> Callable[[], None]:
        args = [np.uint64(arrays[a].pointer) if isinstance(a, str) else as_scalar(a) for a in launch.args]
        # an entry launched twice with different sizes needs the limit of the larger one
        dynamic = max(other.shared_bytes for other in plan.launches if other.entry == launch.entry)
        used = built.resources.get(launch.entry)
        total = dynamic + (used.shared_bytes if used else 0)
        if total > self.facts.shared_optin_bytes:
            limit = self.facts.shared_optin_bytes
            raise Unsupported(f"{launch.entry} needs {total} bytes of shared memory per block, this GPU has {limit}")
        opts_in = launch.shared_bytes == dynamic and total > DEFAULT_SHARED_BYTES
        size = max(dynamic, DEFAULT_SHARED_BYTES + 16) if opts_in else launch.shared_bytes
        if (launch.cluster != (1, 1, 1) or launch.overlaps) and not self.backend.attributes:
            raise Unsupported(
                f"{launch.entry} asks for a cluster of blocks or a programmatic launch, which {self.name} does not "
                "pass on: --device cupy"
            )
        limit = size if opts_in else 0
        where = (launch.entry, launch.grid, launch.block, args, size, limit, launch.cluster, launch.overlaps)
        return self.guarded(lambda: self.backend.launcher(module, BoundLaunch(*where)))

    def abandon(self) -> None:
        """Nothing: the driver ends a process's launches with it, and waiting for them here would hang."""

    def close(self) -> None:
        for handle in self._libraries.values():
            handle.close()
        self._libraries.clear()
        if self._timer is not None:
            self._timer.close()
        if self._delay is not None:
            self._delay.close()
        self._timer = self._delay = None
        self.backend.close()


_DELAY_CYCLES = 100_000  # about 50 us at 2 GHz: longer than the host takes to enqueue what is timed
_DELAY = Launch("delay", (1, 1, 1), (1, 1, 1), (_DELAY_CYCLES,))


def slug(name: str) -> str:
    """A GPU's name as a folder name: lower case, everything but letters and digits a hyphen."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
