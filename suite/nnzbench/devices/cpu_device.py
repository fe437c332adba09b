"""The cpu device: executes the very same `.cu` files on the processor, optionally under sanitizers.

Its times mean nothing for a GPU and are never recorded. Architecture-dependent code takes its sm_80 path. A program
reads launches and buffers from one file, whose format is in `cpu/cxx/program.cpp`.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nnzbench.core import paths
from nnzbench.core.architectures import ARCHITECTURES
from nnzbench.core.plan import Array, Launch, Plan, Prepared, Unsupported, poison_value
from nnzbench.devices import Timer
from nnzbench.devices.cpu.build import BUILDS, Program, compiler, program

_MAX_BLOCK = (1024, 1024, 64)
_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_THREADS = 1024
_MAX_SHARED = max(one.block_shared_bytes for one in ARCHITECTURES.values())
_ALIGN = 64


class LaunchError(RuntimeError):
    """A launch is ill-formed, or the kernel crashed or broke a rule of barriers and warps (names the line)."""


class SanitizerError(LaunchError):
    """A sanitizer's first finding with the `.cu` file and line; `log` is its whole report."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


@dataclass
class Held:
    """One buffer in the file that the programs work on."""

    data: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int

    def read(self) -> Array:
        """A copy, as the last run or `write` left it."""
        flat = np.fromfile(self.data, self.dtype, math.prod(self.shape), offset=self.offset)
        return flat.reshape(self.shape)

    def write(self, array: Array) -> None:
        with self.data.open("r+b") as file:
            file.seek(self.offset)
            file.write(_bytes(array))


@dataclass(frozen=True)
class Job:
    """A plan on disk; the programs' results land in `data`."""

    descriptions: tuple[Path, ...]
    """One file per stage of the plan, to be run in order over the same data."""
    data: Path
    held: Mapping[str, Held]
    output: Held

    def poison(self) -> None:
        """Fills the output with NaN, integers with their largest value."""
        self.output.write(np.full(self.output.shape, poison_value(self.output.dtype), self.output.dtype))


def write_job(plan: Plan, folder: Path) -> Job:
    """Writes the plan's launches and buffers. Raises `LaunchError` or `Unsupported` for what no GPU would launch."""
    if plan.output not in plan.buffers:
        raise LaunchError(f"{plan.variant}: the output '{plan.output}' is not among its buffers")
    names = {name: index for index, name in enumerate(plan.buffers)}
    held: dict[str, Held] = {}
    end = 0
    buffers = []
    with (folder / "data").open("wb") as data:
        for name, array in plan.buffers.items():
            held[name] = Held(folder / "data", array.shape, array.dtype, end)
            buffers.append(f"buffer {end} {array.nbytes} {name}")
            data.seek(end)
            data.write(_bytes(array))
            end += math.ceil(array.nbytes / _ALIGN) * _ALIGN
        data.truncate(max(end, _ALIGN))
    descriptions = []
    for number, stage in enumerate(plan.stages()):
        launches = [_launch_line(launch, names) for launch in stage.launches if _checked(launch)]
        descriptions.append(folder / f"job{number}")
        descriptions[-1].write_text("\n".join([*buffers, *launches]) + "\n")
    return Job(tuple(descriptions), folder / "data", held, held[plan.output])


def _bytes(array: Array) -> memoryview:
    """An array's bytes, rows first. `tofile` would not say what kept it from writing, such as a full disk."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _checked(launch: Launch) -> bool:
    """Whether there is anything to launch: a grid without blocks is not."""
    threads = math.prod(launch.block)
    if any(not 1 <= n <= limit for n, limit in zip(launch.block, _MAX_BLOCK, strict=True)) or threads > _MAX_THREADS:
        raise LaunchError(f"{launch.entry}: no GPU takes a block of {launch.block} threads")
    if any(not 0 <= n <= limit for n, limit in zip(launch.grid, _MAX_GRID, strict=True)):
        raise LaunchError(f"{launch.entry}: no GPU takes a grid of {launch.grid} blocks")
    if not 0 <= launch.shared_bytes <= _MAX_SHARED:
        raise Unsupported(
            f"{launch.entry} needs {launch.shared_bytes} bytes of shared memory, no GPU has them for a block"
        )
    return math.prod(launch.grid) > 0


def _launch_line(launch: Launch, names: Mapping[str, int]) -> str:
    numbers = [*launch.grid, *launch.block, launch.shared_bytes]
    arguments = [_argument(launch, argument, names) for argument in launch.args]
    return " ".join(["launch", launch.entry, *map(str, numbers), *arguments])


def _argument(launch: Launch, argument: object, names: Mapping[str, int]) -> str:
    if isinstance(argument, str):
        if argument not in names:
            raise LaunchError(f"{launch.entry}: argument '{argument}' names no buffer (there are {', '.join(names)})")
        return f"p{names[argument]}"
    if isinstance(argument, Integral):
        if not -(2**31) <= int(argument) < 2**31:
            raise LaunchError(f"{launch.entry}: argument {argument} does not fit into int32")
        return f"i{int(argument)}"
    if isinstance(argument, Real):
        return f"f{struct.unpack('<I', struct.pack('<f', float(argument)))[0]}"
    raise LaunchError(f"{launch.entry}: argument {argument!r} is neither a buffer's name, an int nor a float")


_ERROR = re.compile(r"ERROR: (?:Address|Thread|UndefinedBehavior)Sanitizer: (?P<what>.+)")
"""What AddressSanitizer finds, and where any of them is told that the program crashed."""
_UNDEFINED = re.compile(r"^(?P<where>\S+?):(?P<line>\d+):\d+: runtime error: (?P<what>.+)", re.MULTILINE)
_THREAD = re.compile(r"WARNING: ThreadSanitizer: (?P<what>.+?)(?: \(pid=\d+\))?$", re.MULTILINE)
_ACCESS = re.compile(
    r"^\s*((?:Previous )?(?:atomic )?(?:READ|WRITE|read|write) of size \d+)", re.MULTILINE | re.IGNORECASE
)
_CHECK = re.compile(r"Sanitizer:? CHECK failed: .+")
"""Of the sanitizer's own data, which lie beside the kernel's."""
_CRASH = re.compile(r"The signal is caused by an? (READ|WRITE|UNKNOWN) memory access")
_FRAME = re.compile(r"^\s*#\d+ .*?([\w.-]+\.cuh?):(\d+)", re.MULTILINE)
_REGION = re.compile(r"is located (?P<at>.+?) (?P<bytes>\d+)-byte region \[(?P<start>0x[0-9a-f]+),")
_BUFFER = re.compile(r"^nnz-buffer (0x[0-9a-f]+) (.+)$", re.MULTILINE)


def first_finding(log: str) -> str | None:
    """One sentence, None where the log holds no finding."""
    if found := _UNDEFINED.search(log):
        return f"{Path(found['where']).name}:{found['line']}: {found['what']}"
    if found := _ERROR.search(log):
        what = re.split(r" on (?:unknown )?address ", found["what"])[0]
        return f"{what}: {'; '.join(_accesses(log[found.end() :])) or 'no .cu line known'}{_buffer(log)}"
    if found := _THREAD.search(log):
        return f"{found['what']}: {'; '.join(_accesses(log[found.end() :])) or 'no .cu line known'}"
    if found := _CHECK.search(log):
        where = _frame(log[found.end() :])
        at = f"at {where}" if where else "no .cu line known"
        return f"the sanitizer's own data are broken, as after a write far from every buffer: {at}"
    return None


def first_words(log: str) -> str:
    """What a program wrote that ended with no finding, its first words first."""
    return _BUFFER.sub("", log).strip()[:500]


def _accesses(report: str) -> Iterator[str]:
    """Each access with the innermost frame in a `.cu` file, or else in a shared `.cuh`."""
    starts = [*_ACCESS.finditer(report)]
    if not starts:  # a crash: an access so far off that its size is not told, or none at all
        if frame := _frame(report):
            yield f"{_crash(report)}at {frame}"
        return
    for access, following in zip(starts, [*starts[1:], None], strict=True):
        if frame := _frame(report[access.end() : following.start() if following else len(report)]):
            yield f"{access[1].strip().lower()} at {frame}"


def _crash(report: str) -> str:
    """`read ` or `write ` where the signal tells; at an address no processor has, it says `READ` whatever it was."""
    cause = _CRASH.search(report)
    if cause is None:
        return ""
    unknown = cause[1] == "UNKNOWN" or "high value address" in report
    return "access " if unknown else f"{cause[1].lower()} "


def _frame(report: str) -> str:
    """The frame of a report's first stack that tells most, empty where none is known."""
    # a stack ends at the first empty line; the frames of the allocation come after it
    stack = re.split(r"\n\s*\n", report)[0]
    frames = [f"{name}:{line}" for name, line in _FRAME.findall(stack)]
    own = [frame for frame in frames if ".cu:" in frame]
    return next(iter(own or frames), "")


def _buffer(log: str) -> str:
    region = _REGION.search(log)
    if region is None:
        return ""
    names = {int(address, 16): name for address, name in _BUFFER.findall(log)}
    name = names.get(int(region["start"], 16))
    what = f"buffer '{name}'" if name else "the block's dynamic shared memory"
    return f", {region['at']} {what} of {region['bytes']} bytes"


__all__ = ["CpuDevice", "LaunchError", "SanitizerError", "open_device"]

_TIME_LIMIT_S = 600
_running: list[subprocess.Popen[bytes]] = []
"""Kernels' programs at work."""
_CRASHES = {
    **dict.fromkeys(("SIGSEGV", "SIGBUS"), ": an access out of bounds or misaligned; the asan build finds where"),
    "SIGFPE": ": an integer divided by zero; the ubsan build finds where",
    "SIGKILL": ": ended from outside, as where memory runs out",
}
"""What a signal says of a kernel, nothing for others."""
# The compiler's own symbolizer is used: an external one may outlive the program.
_SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:exitcode=66:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:exitcode=66:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=66:report_thread_leaks=0",
}


class CpuDevice:
    """Runs plans as programs of their own, so that a kernel's crash or endless loop is an exception here.

    `build`: `plain`; `asan` finds accesses outside buffers and shared arrays, misaligned vectors and undefined
    arithmetic, `ubsan` the latter two alone; `tsan` finds missing barriers and blocks that write the same place.
    `order`: in which order runnable threads and blocks get their turn: `forward`, `backward` or `random:<seed>`.
    A kernel whose result depends on it lacks a barrier.
    `arch`: whose plans run; the code path is sm_80's, or the one under `NNZ_CPU`, for all of them.
    """

    name = "cpu"
    gpu = "cpu"
    link = ""
    compiles_from_cache = False
    timer: Timer | None = None

    def __init__(
        self,
        build: Literal["plain", "asan", "ubsan", "tsan"] = "plain",
        order: str = "forward",
        arch: str = "sm_80",
    ) -> None:
        if build not in BUILDS:
            raise Unsupported(f"unknown build '{build}' of the cpu device: choose one of {', '.join(BUILDS)}")
        kind, _, seed = order.partition(":")
        if kind not in ("forward", "backward", "random") or (kind == "random") != seed.isdigit():
            raise Unsupported(f"unknown order '{order}': choose forward, backward or random:<seed>")
        compiler()
        self.arch = arch
        self._build: Literal["plain", "asan", "ubsan", "tsan"] = build
        self._order = (kind, seed or "0")
        self._cleanups: list[Callable[[], object]] = []

    def checking(self, arch: str) -> CpuDevice:
        """The same build and order, for the plans of another architecture."""
        return CpuDevice(self._build, ":".join(self._order) if self._order[0] == "random" else self._order[0], arch)

    def prepare(self, plan: Plan) -> Prepared:
        """Builds the plan's program and writes its buffers.

        Raises `CompileError`, `Unsupported`, `LaunchError` where a launch doesn't fit its kernel, `CannotWrite` where
        programs or temporary files can't be written. `run` raises `LaunchError` for divergent barriers, deadlocks,
        impossible shuffles and crashes, `SanitizerError` for findings.
        """
        if any(launch.cluster != (1, 1, 1) for launch in plan.launches):
            raise Unsupported(f"{plan.variant} needs clusters of blocks, which the cpu device does not run")
        started = time.perf_counter()
        with paths.writing(Path(os.environ.get("TMPDIR") or "/tmp")):
            held = contextlib.ExitStack()
            folder = held.enter_context(paths.scratch("nnzbench-cpu-"))
        cleanup = weakref.finalize(self, held.close)
        self._cleanups.append(cleanup)
        try:
            with paths.writing(folder):
                written = write_job(plan, folder)
            prepare_ms = 1e3 * (time.perf_counter() - started)
            built = [program(stage, self._build) for stage in plan.stages()]
            for made, description in zip(built, written.descriptions, strict=True):
                _execute([str(made.path), "check", str(description)], folder)
        except BaseException:
            cleanup()
            raise

        return Prepared(
            run=lambda: self._run(built, written),
            read=lambda: plan.result(written.output.read()),
            poison=written.poison,
            close=cleanup,
            compile_ms=sum({made.path: made.compile_ms for made in built}.values()),
            prepare_ms=prepare_ms,
            capturable=False,
            arrays=written.held,
        )

    def abandon(self) -> None:
        """Ends the kernel's program that is running, if any, and removes what was written."""
        for child in list(_running):
            _end(child)
        self.close()

    def close(self) -> None:
        for cleanup in self._cleanups:
            cleanup()
        self._cleanups.clear()

    def _run(self, built: Sequence[Program], written: Job) -> None:
        # at least two, so that blocks that write the same place race even on one core
        workers = min(BUILDS[self._build].max_workers, max(os.cpu_count() or 1, 2))
        limits = [str(workers), str(_TIME_LIMIT_S)]
        for made, description in zip(built, written.descriptions, strict=True):
            files = [str(description), str(written.data)]
            _execute([str(made.path), "run", *files, *self._order, *limits], written.data.parent)


def _execute(command: list[str], folder: Path) -> None:
    """Runs a program in a process group of its own, output to files; raises what went wrong."""
    code = _wait(command, folder)
    log = (folder / "stderr").read_text(errors="replace")
    setarch = shutil.which("setarch")
    if "unexpected memory mapping" in log and setarch:  # an older libtsan under many bits of address randomisation
        code = _wait([setarch, "-R", *command], folder)
        log = (folder / "stderr").read_text(errors="replace")
    sys.stdout.write((folder / "stdout").read_text(errors="replace"))  # what the kernel printed
    for line in log.splitlines():
        if line.startswith("nnz-error: "):
            raise LaunchError(line.removeprefix("nnz-error: "))
    if finding := first_finding(log):
        raise SanitizerError(finding, log)
    if code == -signal.SIGALRM:
        raise LaunchError(f"the kernel did not end within {_TIME_LIMIT_S} s")
    if code < 0:
        name = signal.Signals(-code).name
        raise LaunchError(f"the kernel crashed with {name}{_CRASHES.get(name, '')}")
    if code != 0:
        raise LaunchError(f"the kernel's program ended with status {code}: {first_words(log)}")


def _wait(command: list[str], folder: Path) -> int:
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, **_SANITIZER_OPTIONS},
            start_new_session=True,
        )
        _running.append(child)
        try:
            return child.wait()
        finally:
            _end(child)
            _running.remove(child)
            child.wait()


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends the program and whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def open_device() -> CpuDevice:
    """The plain build in forward order. Raises `Unsupported` naming what to install where no C++ compiler is found."""
    return CpuDevice()
