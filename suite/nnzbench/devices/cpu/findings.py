"""The first finding of a sanitizer's report as one sentence with the `.cu` lines it concerns."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ADDRESS = re.compile(r"ERROR: AddressSanitizer: (?P<what>.+)")
_UNDEFINED = re.compile(r"^(?P<where>\S+?):(?P<line>\d+):\d+: runtime error: (?P<what>.+)", re.MULTILINE)
_THREAD = re.compile(r"WARNING: ThreadSanitizer: (?P<what>.+?)(?: \(pid=\d+\))?$", re.MULTILINE)
_ACCESS = re.compile(
    r"^\s*((?:Previous )?(?:atomic )?(?:READ|WRITE|read|write) of size \d+)", re.MULTILINE | re.IGNORECASE
)
_FRAME = re.compile(r"^\s*#\d+ .*?([\w.-]+\.cuh?):(\d+)", re.MULTILINE)
_REGION = re.compile(r"is located (?P<at>.+?) (?P<bytes>\d+)-byte region \[(?P<start>0x[0-9a-f]+),")
_BUFFER = re.compile(r"^nnz-buffer (0x[0-9a-f]+) (.+)$", re.MULTILINE)


def first(log: str) -> str | None:
    """One sentence, None where the log holds no finding."""
    if found := _UNDEFINED.search(log):
        return f"{_base(found['where'])}:{found['line']}: {found['what']}"
    if found := _ADDRESS.search(log):
        what = re.split(r" on (?:unknown )?address ", found["what"])[0]
        return f"{what}: {'; '.join(_accesses(log[found.end() :])) or 'no .cu line known'}{_buffer(log)}"
    if found := _THREAD.search(log):
        return f"{found['what']}: {'; '.join(_accesses(log[found.end() :])) or 'no .cu line known'}"
    return None


def _accesses(report: str) -> Iterator[str]:
    """Each access with the innermost frame in a `.cu` file, or else in a shared `.cuh`."""
    starts = [*_ACCESS.finditer(report)]
    for access, following in zip(starts, [*starts[1:], None], strict=True):
        # a stack ends at the first empty line; the frames of the allocation come after it
        stack = re.split(r"\n\s*\n", report[access.end() : following.start() if following else len(report)])[0]
        frames = [f"{name}:{line}" for name, line in _FRAME.findall(stack)]
        own = [frame for frame in frames if ".cu:" in frame]
        if frames:
            yield f"{access[1].strip().lower()} at {(own or frames)[0]}"


def _buffer(log: str) -> str:
    region = _REGION.search(log)
    if region is None:
        return ""
    names = {int(address, 16): name for address, name in _BUFFER.findall(log)}
    name = names.get(int(region["start"], 16))
    what = f"buffer '{name}'" if name else "the block's dynamic shared memory"
    return f", {region['at']} {what} of {region['bytes']} bytes"


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1]
