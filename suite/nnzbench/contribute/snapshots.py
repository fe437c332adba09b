"""Checks of the environment snapshots beside a result set: present, about this GPU, and naming no machine or person."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nnzbench.contribute import possible
from nnzbench.measure.environment import SCHEMA
from nnzbench.records.record import Record

_PATH = re.compile(r"(?<![\w.:/])(?:~?/(?!proc/)[A-Za-z_][\w.-]*/[\w.~-]|[A-Za-z]:\\)")
_PRIVATE = {
    "a network address": re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b"),
    "a user at a host": re.compile(r"[\w.+-]+@[\w-]+"),
    "a host name": re.compile(r"\b[\w-]+\.(?:local|localdomain|internal|lan|cluster|corp|com|org|net|edu|gov)\b"),
    "a serial number": re.compile(r"\bGPU-[0-9a-f]{8}-"),
}
_PRIVATE_NAMES = frozenset({"hostname", "host_name", "node", "user", "username", "uuid", "serial", "ip", "path", "cwd"})


def private(text: str) -> str:
    """What in `text` could identify a machine or its user, in words; empty for nothing."""
    if _PATH.search(text):
        return "a path"
    return next((what for what, pattern in _PRIVATE.items() if pattern.search(text)), "")


def faults(folder: Path, rows: Iterable[Record]) -> list[str]:
    """What makes the snapshots that the rows name unfit, one sentence each."""
    records = list(rows)
    found = []
    for name in sorted({row.environment for row in records}):
        mine = [row for row in records if row.environment == name]
        snapshot, problem = _read(folder, name)
        if snapshot is None:
            found.append(problem)
            continue
        found += _about(name, snapshot, mine[0])
        found += possible.floors(mine, {name: snapshot})
        found += [
            f"the snapshot '{name}' holds {what} in '{key}'"
            for key, value in _leaves("", snapshot)
            if not key.startswith(("software.", "packages."))  # versions may look like addresses
            and (what := "a name of the machine" if key.split(".")[-1] in _PRIVATE_NAMES else private(value))
        ]
    return found


def notes(folder: Path, rows: Iterable[Record]) -> list[str]:
    """What a reader should know and no rule forbids: code that differed from its commit, other work on the GPU."""
    names = sorted({row.environment for row in rows})
    found = []
    for name in names:
        snapshot, _ = _read(folder, name)
        source = _table(snapshot or {}, "source")
        if snapshot is None:
            continue
        if not source.get("commit"):
            found.append(f"the snapshot '{name}' names no commit")
        elif source.get("dirty"):
            found.append(f"the code of '{name}' differed from commit {str(source['commit'])[:12]}")
        processes = _table(snapshot, "gpu").get("compute_processes")
        if isinstance(processes, int) and processes > 1:
            found.append(f"the snapshot '{name}' saw {processes} processes on the GPU")
        if _table(snapshot, "gpu").get("mig"):
            found.append(f"the snapshot '{name}' was taken on a GPU divided by MIG")
    unused = sorted({path.name for path in folder.glob("environment*.json")} - set(names))
    return [*found, *(f"no row refers to the snapshot '{name}'" for name in unused)]


def _about(name: str, snapshot: dict[str, Any], row: Record) -> list[str]:
    gpu = snapshot.get("gpu")
    if not isinstance(gpu, dict) or not gpu.get("name"):
        return [f"the snapshot '{name}' does not describe the GPU"]
    found = []
    if snapshot.get("schema", SCHEMA) != SCHEMA:
        found.append(f"the snapshot '{name}' is of schema '{snapshot['schema']}', not {SCHEMA}")
    if gpu.get("slug", row.gpu) != row.gpu:
        found.append(f"the snapshot '{name}' is of GPU '{gpu['slug']}' and its rows are of '{row.gpu}'")
    return found


def _read(folder: Path, name: str) -> tuple[dict[str, Any] | None, str]:
    if not name or Path(name).name != name or not (folder / name).is_file():
        return None, f"the snapshot '{name}' is missing"
    try:
        found = json.loads((folder / name).read_text(encoding="utf-8"))
    except ValueError:
        return None, f"the snapshot '{name}' is not valid JSON"
    return (found, "") if isinstance(found, dict) else (None, f"the snapshot '{name}' is not a JSON object")


def _table(snapshot: dict[str, Any], name: str) -> dict[str, Any]:
    found = snapshot.get(name)
    return found if isinstance(found, dict) else {}


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(f"{prefix}.{name}" if prefix else str(name), inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(prefix, inner)
    elif isinstance(value, str):
        yield prefix, value
