"""Runs the PTX subset that the generator writes, a warp at a time with NumPy: checks the very text a GPU runs.

Global memory is one buffer per argument; a load or store outside them is an
error. Warps run one after another from barrier to barrier, in forward or backward order.
"""

import functools
import re
from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

LANES = 32
ALL = np.ones(LANES, bool)
ALL.setflags(write=False)
GAP = 1 << 33  # between buffers, so that a wild offset lands nowhere
_TYPES = {
    "f32": np.float32, "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "u64": np.uint64, "s64": np.int64,
    "b64": np.uint64, "u16": np.uint16, "b16": np.uint16, "f16": np.float16,
}  # fmt: skip


class PtxError(Exception):
    """The text does something the hardware would not forgive, or the interpreter does not know."""


class Kernel:
    """A parsed entry point."""

    def __init__(self, text: str) -> None:
        self.parameters = re.findall(r"\.param \.u64 (\w+)", text)
        body = text[text.index("{", text.index(".entry")) + 1 : text.rindex("}")]
        self.code: list[tuple[str, list[str], list[str]]] = []  # guard, parts of the operation, operands
        self.labels: dict[str, int] = {}
        self.tables: dict[str, list[str]] = {}
        for line in (line.strip() for line in body.splitlines()):
            table = re.match(r"(\w+): \.branchtargets (.*);", line)
            if table:
                self.tables[table[1]] = [label.strip() for label in table[2].split(",")]
            elif line.endswith(":"):
                self.labels[line[:-1]] = len(self.code)
            elif line and not line.startswith("."):
                self.code.append(_parse(line))
        missing = {label for labels in self.tables.values() for label in labels} - set(self.labels)
        if missing:
            raise PtxError(f"jump table names labels that do not exist: {sorted(missing)}")
        self.reached: set[int] = set()

    def launch(self, grid, threads, buffers, shared_bytes, backward=False, width=0):
        """Runs all blocks; `buffers` by parameter name without `p_`, written in place. `width`: of a 2-D block."""
        memory = Memory({name: buffers[name.removeprefix("p_")] for name in self.parameters})
        for y in range(grid[1]):
            for x in range(grid[0]):
                shared = Shared(shared_bytes)
                special = {"%ctaid.x": x, "%ctaid.y": y, "%nctaid.x": grid[0], "%nctaid.y": grid[1]}
                special["%ntid.x"] = width or threads
                warps = [self._warp(w, special, memory, shared, threads, width) for w in range(threads // LANES)]
                with np.errstate(over="ignore", invalid="ignore"):
                    _to_the_end(warps[::-1] if backward else warps)

    def _warp(self, warp, special, memory, shared, threads, width):
        registers: dict[str, Any] = {name: np.full(LANES, value, np.uint32) for name, value in special.items()}
        linear = np.arange(LANES) + warp * LANES
        registers["%tid.x"] = (linear % (width or threads)).astype(np.uint32)
        registers["%tid.y"] = (linear // (width or threads)).astype(np.uint32)
        registers["shared"] = np.zeros(LANES, np.uint32)
        at = 0
        while at < len(self.code):
            guard, parts, operands = self.code[at]
            self.reached.add(at)
            at += 1
            active = registers[guard.lstrip("!")] ^ guard.startswith("!") if guard else ALL
            name = parts[0]
            if name == "bra":
                if guard and active.any() != active.all():
                    raise PtxError(f"a branch divides a warp: {operands}")
                if active.all():
                    at = self.labels[operands[0]]
            elif name == "brx":
                index = registers[operands[0]]
                if not (index == index[0]).all():
                    raise PtxError("the jump index differs within a warp")
                at = self.labels[self.tables[operands[1]][int(index[0])]]
            elif name in ("bar", "barrier"):
                identity = operands[0]
                number = int(registers[identity][0]) if identity in registers else int(identity)
                yield number, int(operands[1]) if len(operands) > 1 else threads
            elif name == "ret":
                return
            else:
                _step(parts, operands, registers, active, memory, shared)


def _parse(line: str) -> tuple[str, list[str], list[str]]:
    found = re.fullmatch(r"(?:@(!?%\w+) )?([\w.]+)(?: (.*))?;", line)
    if not found:
        raise PtxError(f"can't parse: {line}")
    operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", found[3] or "")
    return found[1] or "", found[2].split("."), operands


def _to_the_end(warps: list[Generator[tuple[int, int], None, None]]) -> None:
    """Runs warps to their barriers, releases each barrier when all its threads have come."""
    waiting: dict[int, list[Generator[tuple[int, int], None, None]]] = {}
    ready = list(warps)
    while ready:
        warp = ready.pop(0)
        try:
            number, threads = next(warp)
        except StopIteration:
            continue
        waiting.setdefault(number, []).append(warp)
        if len(waiting[number]) * LANES == threads:
            ready += waiting.pop(number)
    if waiting:
        raise PtxError(f"barriers never complete: {sorted(waiting)}")


class Memory:
    """Global buffers, each far from the next."""

    def __init__(self, buffers: dict[str, NDArray[Any]]) -> None:
        self.names = list(buffers)
        self.data = [buffers[name].reshape(-1).view(np.uint8) for name in self.names]

    def base(self, name: str) -> int:
        return GAP * (self.names.index(name) + 1)

    def cells(self, address, size, writing):
        """The buffer all lanes address and their offsets in it; lanes may be in two buffers only when reading."""
        numbers = np.unique(address // GAP)
        if numbers.min() < 1 or numbers.max() > len(self.data) or (address % size).any():
            raise PtxError(f"access of {size} bytes outside every buffer or misaligned: {address.tolist()}")
        if numbers.size > 1:
            assert not writing
            parts = [self.data[n - 1] for n in numbers.tolist()]
            starts = np.cumsum([0, *[part.size for part in parts[:-1]]])
            which = np.searchsorted(numbers, address // GAP)
            sizes = np.array([part.size for part in parts])
            self._check(address % GAP + size, sizes[which])
            return np.concatenate(parts), starts[which] + address % GAP
        data = self.data[int(numbers[0]) - 1]
        self._check(address % GAP + size, data.size)
        return data, address % GAP

    @staticmethod
    def _check(end: NDArray[np.int64], size: Any) -> None:
        if (end > size).any():
            raise PtxError(f"access outside a buffer of {size} bytes, up to {end.max()}")


class Shared:
    """Shared memory of a block; what was not written reads as NaN, which no output may show."""

    def __init__(self, size: int) -> None:
        self.data = np.full(size, 0xFF, np.uint8)

    def cells(self, address, size, writing):
        if (address + size > self.data.size).any() or (address % size).any():
            raise PtxError(f"bad shared access of {size} bytes in {self.data.size}: {address.tolist()}")
        return self.data, address


def _step(parts, operands, registers, active, memory, shared):
    kind = _TYPES.get(parts[-1], np.uint32)

    def read(operand: str, dtype: Any = kind) -> NDArray[Any]:
        if operand in registers:
            value = registers[operand]
            return value if value.dtype == bool else _as(value, dtype)
        return _immediate(operand, dtype)

    def write(operand: str, value: NDArray[Any]) -> None:
        old = registers.get(operand)
        if old is not None and active is not ALL and not active.all() and old.dtype == value.dtype:
            value = np.where(active, value, old)
        registers[operand] = value

    name = parts[0]
    if name == "cp":
        _copy(parts, operands, registers, active, memory, shared)
        return
    out = operands[0]
    if name == "red":
        data, offsets = shared.cells(_address(out, registers)[active], 4, True)
        np.add.at(data.view(np.float32), offsets // 4, registers[operands[1]][active])
        return
    if name in ("ld", "st"):
        _access(parts, operands, registers, active, memory, shared)
    elif name == "setp":
        result = _compare(parts[1], read(operands[1]), read(operands[2]))
        registers[out] = result & registers[operands[3]] if parts[2] == "and" else result
    elif name == "selp":
        write(out, np.where(registers[operands[3]], read(operands[1]), read(operands[2])))
    elif name == "mov":
        if out.startswith("{"):
            halves = _as(registers[operands[1]], np.uint32)
            low, high = out.strip("{} ").split(", ")
            registers[low], registers[high] = (halves & 0xFFFF).astype(np.uint16), (halves >> 16).astype(np.uint16)
        elif operands[1].startswith("{"):
            low, high = (_as(registers[r], np.uint16).astype(np.uint32) for r in operands[1].strip("{} ").split(", "))
            registers[out] = low | (high << 16)
        else:
            write(out, read(operands[1]))
    elif name == "cvt":
        _convert(parts, out, operands[1], registers)
    elif name == "cvta":
        write(out, read(operands[1]))
    elif name == "fma":
        a, b, c = (read(x).astype(np.float64) for x in operands[1:])
        write(out, (a * b + c).astype(np.float32))  # rounded twice where the float64 sum is inexact
    elif name in ("mad", "mul") and parts[1] == "wide":
        product = read(operands[1]).astype(np.int64) * read(operands[2]).astype(np.int64)
        added = read(operands[3], np.int64) if name == "mad" else 0
        write(out, (product + added).astype(np.uint64))
    else:
        inputs = [read(x) for x in operands[1:]]
        write(out, np.asarray(_ARITHMETIC[name](*inputs)).astype(kind))


_ARITHMETIC: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "mad": lambda a, b, c: a * b + c,
    "min": np.minimum,
    "max": np.maximum,
    "and": lambda a, b: a & b,
    "shr": lambda a, b: a >> b,
    "shl": lambda a, b: a << b,
}


@functools.lru_cache(1024)
def _immediate(operand: str, dtype: Any) -> NDArray[Any]:
    """A constant in every lane, shared by all who read it."""
    bits = operand.startswith("0f")
    made = np.full(LANES, int(operand[2:], 16), np.uint32).view(np.float32) if bits else np.full(LANES, int(operand))
    made = made if bits else made.astype(dtype)
    made.setflags(write=False)
    return made


def _as(value: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Reads a register as another type: bits of the same width, else a zero extension."""
    dtype = np.dtype(dtype)
    if value.dtype.itemsize == dtype.itemsize:
        return value.view(dtype)
    return value.astype(dtype)


def _compare(relation: str, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return {"lt": a < b, "ge": a >= b}[relation]


def _convert(parts: list[str], out: str, source: str, registers: dict[str, Any]) -> None:
    value = registers[source]
    to, come = parts[-2], parts[-1]
    if (to, come) == ("f32", "f16"):
        registers[out] = _as(value, np.float16).astype(np.float32)
    elif (to, come) == ("f16", "f32"):
        registers[out] = _as(value, np.float32).astype(np.float16)
    else:
        registers[out] = _as(value, _TYPES[come]).astype(_TYPES[to])


def _access(parts, operands, registers, active, memory, shared):
    dtype = np.dtype(_TYPES[parts[-1]])
    storing = parts[0] == "st"
    place, listed = (operands[0], operands[1]) if storing else (operands[1], operands[0])
    names = [name.strip() for name in listed.strip("{}").split(",")]
    if parts[1] == "param":
        registers[names[0]] = np.full(LANES, memory.base(place.strip("[]")), np.uint64)
        return
    size = dtype.itemsize * len(names)
    if not active.any():
        for name in names if not storing else ():  # whatever was in the register
            registers.setdefault(
                name, np.full(LANES, np.nan, np.float32).view(dtype if dtype.itemsize == 4 else np.uint32)
            )
        return
    where = memory if parts[1] == "global" else shared
    data, offsets = where.cells(_address(place, registers)[active], size, storing)
    for i, name in enumerate(names):
        index = offsets[:, None] + np.arange(i * dtype.itemsize, (i + 1) * dtype.itemsize)
        if storing:
            value = _as(registers[name], dtype) if name in registers else np.full(LANES, int(name), dtype)
            data[index] = value[active].view(np.uint8).reshape(index.shape)
        else:
            old = registers.get(name)
            fresh = np.zeros(LANES, dtype) if old is None or old.dtype != dtype else old.copy()
            fresh[active] = data[index].reshape(-1).view(dtype)
            registers[name] = fresh


def _copy(parts, operands, registers, active, memory, shared):
    """Asynchronous copies land at the wait, the latest moment hardware may take."""
    pending = registers.setdefault("pending copies", [])
    if parts[2] == "wait_group":
        for to, data in pending:
            cells, offsets = shared.cells(to, 16, True)
            cells[offsets[:, None] + np.arange(16)] = data
        pending.clear()
    elif parts[2] != "commit_group" and active.any():
        to, come = _address(operands[0], registers)[active], _address(operands[1], registers)[active]
        data, offsets = memory.cells(come, 16, False)
        pending.append((to, data[offsets[:, None] + np.arange(16)]))


def _address(place: str, registers: dict[str, Any]) -> NDArray[np.int64]:
    base, _, offset = place.strip("[]").partition("+")
    return registers[base].astype(np.int64) + int(offset or 0)
