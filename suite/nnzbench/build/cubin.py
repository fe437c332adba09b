"""What a compiled kernel uses: read from the assembler's log and from the cubin, which is an ELF64 file."""

from __future__ import annotations

import re
import struct

from nnzbench.plans.plan import Resources

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_LINKED = re.compile(r"Function properties for '(\w+)':\s*\ninfo\s*: used (\d+) registers")


def code_bytes(image: bytes) -> dict[str, int]:
    """Bytes of machine code per function: the size of each `.text.<name>` section. Raises ValueError if not ELF64."""
    if image[:5] != b"\x7fELF\x02":
        raise ValueError("not an ELF64 file")
    try:
        (table,) = struct.unpack_from("<Q", image, 0x28)
        entry_size, count, names_index = struct.unpack_from("<HHH", image, 0x3A)
        # sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size
        sections = [struct.unpack_from("<IIQQQQ", image, table + i * entry_size) for i in range(count)]
        names_at = sections[names_index][4]
    except (struct.error, IndexError, OverflowError):
        raise ValueError("the ELF section table is cut off") from None
    sizes = {}
    for name_offset, _, _, _, _, size in sections:
        start = names_at + name_offset
        name = image[start : image.index(b"\0", start)].decode()
        if name.startswith(".text."):
            sizes[name.removeprefix(".text.")] = size
    return sizes


def resources(log: str, image: bytes) -> dict[str, Resources]:
    """Registers, static shared memory, spills (stores plus loads) and code size of each entry named in `log`.

    A kernel that calls functions which were not inlined reports their spills too, and, once linked, the registers
    of the deepest call. An entry whose registers the log does not tell is left out rather than guessed.
    """
    sizes = code_bytes(image)
    linked = {name: int(count) for name, count in _LINKED.findall(log)}
    parts = _ENTRY.split(log)
    found = {}
    for entry, text in zip(parts[1::2], parts[2::2], strict=True):
        used = _USED.search(text)
        if used is None or entry not in sizes:
            continue
        shared = _SHARED.search(text[used.start() : text.find("\n", used.start())])
        found[entry] = Resources(
            registers=max(int(used[1]), linked.get(entry, 0)),
            shared_bytes=int(shared[1]) if shared else 0,
            spill_bytes=sum(int(stores) + int(loads) for stores, loads in _SPILLS.findall(text)),
            code_bytes=sizes[entry],
        )
    return found
