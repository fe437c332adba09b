"""What a program reads and says: launches and buffers in one file (format in cxx/program.cpp), sanitizers' findings."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from nnzbench.devices.cpu import LaunchError
from nnzbench.plans.architectures import ARCHITECTURES
from nnzbench.plans.plan import Array, Launch, Plan, Unsupported, poison_value

_MAX_BLOCK = (1024, 1024, 64)
_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_THREADS = 1024
_MAX_SHARED = max(one.block_shared_bytes for one in ARCHITECTURES.values())
_ALIGN = 64


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
        """Replaces the contents."""
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


def write(plan: Plan, folder: Path) -> Job:
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


def first(log: str) -> str | None:
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


def words(log: str) -> str:
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
