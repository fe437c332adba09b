"""What a program reads: the launches as text and the buffers' bytes in one file (format in cxx/program.cpp)."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path

import numpy as np

from nnzbench.devices.cpu import LaunchError
from nnzbench.plans.architectures import ARCHITECTURES
from nnzbench.plans.plan import Array, Launch, Plan, Unsupported, poison_value

_MAX_BLOCK = (1024, 1024, 64)
_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_THREADS = 1024
_MAX_SHARED = max(one.block_shared_bytes for one in ARCHITECTURES.values())
_ALIGN = 64


@dataclass(frozen=True)
class Job:
    """A plan on disk; the programs' results land in `data`."""

    descriptions: tuple[Path, ...]
    """One file per stage of the plan, to be run in order over the same data."""
    data: Path
    output: Array
    """Only its shape and dtype are used after writing."""
    output_offset: int

    def read(self) -> Array:
        """A copy of the output as the last run or `poison` left it."""
        flat = np.fromfile(self.data, dtype=self.output.dtype, count=self.output.size, offset=self.output_offset)
        return flat.reshape(self.output.shape)

    def poison(self) -> None:
        """Fills the output with NaN, integers with their largest value."""
        value = poison_value(self.output.dtype)
        with self.data.open("r+b") as file:
            file.seek(self.output_offset)
            np.full(self.output.shape, value, self.output.dtype).tofile(file)


def write(plan: Plan, folder: Path) -> Job:
    """Writes the plan's launches and buffers. Raises `LaunchError` or `Unsupported` for what no GPU would launch."""
    if plan.output not in plan.buffers:
        raise LaunchError(f"{plan.variant}: the output '{plan.output}' is not among its buffers")
    names = {name: index for index, name in enumerate(plan.buffers)}
    offsets: dict[str, int] = {}
    end = 0
    buffers = []
    with (folder / "data").open("wb") as data:
        for name, array in plan.buffers.items():
            offsets[name] = end
            buffers.append(f"buffer {end} {array.nbytes} {name}")
            data.seek(end)
            np.ascontiguousarray(array).tofile(data)
            end += math.ceil(array.nbytes / _ALIGN) * _ALIGN
        data.truncate(max(end, _ALIGN))
    descriptions = []
    for number, stage in enumerate(plan.stages()):
        launches = [_launch_line(launch, names) for launch in stage.launches if _checked(launch)]
        descriptions.append(folder / f"job{number}")
        descriptions[-1].write_text("\n".join([*buffers, *launches]) + "\n")
    return Job(tuple(descriptions), folder / "data", plan.buffers[plan.output], offsets[plan.output])


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
