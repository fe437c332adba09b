"""Checks of the environment snapshots beside a result set: present, about this GPU, and naming no machine or person."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nnzbench.contribute import alphabet
from nnzbench.devices.gpu import slug
from nnzbench.measure.environment import SCHEMA
from nnzbench.records.record import Record

Snapshot = dict[str, Any]
MOST_BYTES = 1 << 20
_DEEPEST = 4
_KEY = re.compile(r"[a-z][a-z0-9_]{0,60}")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_TABLES = ("gpu", "peaks", "software", "packages", "overrides", "host", "source")
_NUMBERS = re.compile(r"peaks\..*|gpu\.(.*_bytes|.*_mhz|.*_w|sms|compute_processes)|host\.processor_count")
_TEXTS = re.compile(r"[^.]*|gpu\.(name|slug|driver|compute_capability)|(software|packages|overrides)\..*")
"""Leaves that are numbers, or text, where they are known."""

# each pattern tells by its rarest part and one character beside it: in time linear in the length of the text
_PATH = re.compile(r"(?<![\w.:/])(?:~?/(?!proc/)[A-Za-z_][\w.-]*/[\w.~-]|[A-Za-z]:\\)")
_PRIVATE = {
    "a network address": re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b"),
    "a user at a host": re.compile(r"[\w.+-]@[\w-]"),
    "a host name": re.compile(r"[\w-]\.(?:local|localdomain|internal|lan|cluster|corp|com|org|net|edu|gov)\b"),
    "a serial number": re.compile(r"\bGPU-[0-9a-f]{8}-"),
}
_PRIVATE_NAMES = frozenset({"hostname", "host_name", "node", "user", "username", "uuid", "serial", "ip", "path", "cwd"})


def private(text: str) -> str:
    """What in `text` could identify a machine or its user, in words; empty for nothing."""
    if _PATH.search(text):
        return "a path"
    return next((what for what, pattern in _PRIVATE.items() if pattern.search(text)), "")


def read(folder: Path, rows: Iterable[Record]) -> tuple[dict[str, Snapshot], list[str]]:
    """The snapshots that the rows name and that are what a run writes, and a sentence for each fault of the others."""
    found: dict[str, Snapshot] = {}
    faults = []
    for name in sorted({row.environment for row in rows}):
        try:
            snapshot = _read(folder, name)
        except ValueError as error:
            faults.append(f"the snapshot '{name}' {error}")
            continue
        wrong = [f"the snapshot '{name}' {text}" for text in _shape(snapshot)]
        if not wrong:
            found[name] = snapshot
        faults += wrong
    return found, faults


def faults(snapshots: Mapping[str, Snapshot], gpu: str) -> Iterator[str]:
    """What makes the snapshots of rows of that GPU unfit, one sentence each."""
    for name, snapshot in snapshots.items():
        if snapshot.get("schema", SCHEMA) != SCHEMA:
            yield f"the snapshot '{name}' is of schema '{alphabet.shown(snapshot['schema'])}', not {SCHEMA}"
        for mine in {snapshot["gpu"].get("slug", gpu), slug(snapshot["gpu"]["name"])} - {gpu}:
            yield f"the snapshot '{name}' is of GPU '{mine}' and its rows are of '{gpu}'"
        for key, value in _leaves(snapshot):
            if not isinstance(value, str):
                continue
            if what := alphabet.strange(value):
                yield f"the snapshot '{name}' holds {what} in '{key}'"
            if key.startswith(("software.", "packages.")):  # versions may look like addresses
                continue
            if what := "a name of the machine" if key.split(".")[-1] in _PRIVATE_NAMES else private(value):
                yield f"the snapshot '{name}' holds {what} in '{key}'"


def notes(snapshots: Mapping[str, Snapshot], unused: Sequence[str]) -> Iterator[str]:
    """What a reader should know and no rule forbids: code that differed from its commit, other work on the GPU."""
    for name, snapshot in snapshots.items():
        if snapshot["source"].get("dirty"):
            yield f"the code of '{name}' differed from commit {snapshot['source']['commit'][:12]}"
        processes = snapshot["gpu"].get("compute_processes") or 0
        if processes > 1:
            yield f"the snapshot '{name}' saw {processes} processes on the GPU"
        if snapshot["gpu"].get("mig"):
            yield f"the snapshot '{name}' was taken on a GPU divided by MIG"
    yield from (f"no row refers to the snapshot '{name}'" for name in unused)


def _read(folder: Path, name: str) -> Snapshot:
    """Raises `ValueError` whose message goes on a sentence that begins with the snapshot's name."""
    path = folder / name
    if not path.is_file():
        raise ValueError("is missing")
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"is longer than {MOST_BYTES} bytes")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ValueError("is not valid JSON") from None
    if not isinstance(found, dict):
        raise ValueError("is not a JSON object")
    return found


def _shape(snapshot: Snapshot) -> Iterator[str]:
    """Where its tables, names and types are not those that `machine.environment.snapshot` gives."""
    for key, value in snapshot.items():
        if isinstance(value, dict) != (key in _TABLES) or isinstance(value, list):
            yield f"has '{alphabet.shown(key)}', which is {'no' if key in _TABLES else 'a'} table"
            return
    if not isinstance(snapshot.get("gpu", {}).get("name"), str) or not snapshot["gpu"]["name"]:
        yield "does not describe the GPU"
    if not _COMMIT.fullmatch(str(snapshot.get("source", {}).get("commit"))):
        yield "names no commit of this project"
    for key, value in _leaves(snapshot):
        if key.count(".") >= _DEEPEST:
            yield "is nested too deeply"
            return
        if not all(map(_KEY.fullmatch, key.split("."))):
            yield f"has a name '{alphabet.shown(key)}'"
        number = isinstance(value, int | float) and not isinstance(value, bool)
        wanted = number if _NUMBERS.fullmatch(key) else isinstance(value, str) if _TEXTS.fullmatch(key) else True
        if not (wanted or value is None) or (number and not 0 <= value < 1e18):
            yield f"has '{key}' {alphabet.shown(str(value))}, which it can't be"


def _leaves(snapshot: Snapshot) -> Iterator[tuple[str, Any]]:
    """Dotted names and values, without recursion: a table below `_DEEPEST` others is one leaf."""
    waiting: list[tuple[str, Any]] = [("", snapshot)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict | list) and key.count(".") < _DEEPEST:
            pairs = value.items() if isinstance(value, dict) else (("item", one) for one in value)
            waiting += [(f"{key}.{name}" if key else str(name), one) for name, one in pairs]
        else:
            yield key, value
