"""The files of a result set: plain ones, and in what `make contribute` packed, those that were packed.

`manifest.json` lies at the top of an archive: the SHA-256 of every other file in it. A set whose folder lies below one
must have the files that it names, and no records that it does not.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from nnzbench.records.beside import TABLES
from nnzbench.records.files import JOURNAL, PUBLISHED

NAME = "manifest.json"
SCHEMA = "nnzbench-manifest/1"
FILES = (JOURNAL, PUBLISHED, *TABLES)
MOST_BYTES = 1 << 30
_ABOVE = 4
"""Folders between a set and the top of its archive, at most: `<gpu>/<experiment>/as-sm_75/standin/`."""


def files(folder: Path) -> list[Path]:
    """What of a folder is recorded, and not drawn from it."""
    return [
        one
        for one in sorted(folder.iterdir())
        if one.name in FILES or (one.name.startswith("environment") and one.suffix == ".json")
    ]


def not_plain(folder: Path) -> Iterator[str]:
    """Files that may not be opened: links, pipes, devices, folders, and what is longer than any result set."""
    for path in files(folder):
        state = path.lstat()
        if not stat.S_ISREG(state.st_mode):
            yield f"{path.name} is not a plain file"
        elif state.st_size > MOST_BYTES:
            yield f"{path.name} is longer than {MOST_BYTES} bytes"


def text(root: Path, packed: Iterable[Path]) -> str:
    """The manifest of files below `root`."""
    hashes = {path.relative_to(root).as_posix(): _sha256(path) for path in packed}
    return json.dumps({"schema": SCHEMA, "files": hashes}, indent=1) + "\n"


def faults(folder: Path) -> Iterator[str]:
    """Files of the set that differ from the manifest above it; nothing where there is none."""
    top = next((one for one in folder.resolve().parents[:_ABOVE] if (one / NAME).is_file()), None)
    if top is None:
        return
    try:
        found = json.loads((top / NAME).read_text(encoding="utf-8"))
        named = (
            {top / name: str(sha256) for name, sha256 in found["files"].items()} if found["schema"] == SCHEMA else {}
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        named = {}
    if not named:
        yield f"the {NAME} above it is none"
        return
    mine = set(files(folder.resolve()))
    listed = {path for path in named if path.parent == folder.resolve()}
    for path in sorted(mine | listed):
        if path not in mine:
            yield f"{path.name} is in the manifest and not in its folder"
        elif named.get(path) != _sha256(path):
            yield f"{path.name} is not the file that the manifest names"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
