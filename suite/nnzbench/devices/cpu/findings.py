"""The first finding of a sanitizer's report as one sentence with the `.cu` lines it concerns."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
        return f"{_base(found['where'])}:{found['line']}: {found['what']}"
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


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1]
