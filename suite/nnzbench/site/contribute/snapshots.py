"""What cells and snapshots of a result set may hold.

Each column of records.csv and tuning.csv holds words that there are, names of plain letters, numbers in range: other
checks look only at rows that pass, so that none of them meets a value it does not know. The environment snapshots
beside them are present, about this GPU, and name no machine or person.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, get_args

from nnzbench.bench.attempts import CHECK
from nnzbench.bench.session import SCHEMA
from nnzbench.core.architectures import ARCHITECTURES
from nnzbench.data.problems.check import TOLERANCE
from nnzbench.data.problems.experiment import POLICIES
from nnzbench.data.problems.problem import NETWORKS, DType
from nnzbench.devices import DEVICES
from nnzbench.devices.gpu import slug
from nnzbench.kernels.registry import known
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.results.records.beside import ENERGY, TUNING, Scope, Tuning, Window
from nnzbench.results.records.record import Record
from nnzbench.results.records.sanitise import DEEPEST, LONGEST, TABLES
from nnzbench.results.records.selection import listed

LOOSEST = {"f32": "winograd", "f16": "f16_sums"}
"""The class with the largest tolerance among those of a row's arithmetic, of which a row does not say which."""
OPS = frozenset({"spmm", "sddmm", "sparse_softmax", "spmv", "conv2d", "conv1d", "gemm"})
"""What `Problem.recorded_op` gives."""
_WORDS: dict[str, Sequence[str]] = {
    "op": sorted(OPS),
    "dtype": sorted(get_args(DType)),
    "device": sorted(DEVICES),
    "policy": sorted({*POLICIES, CHECK}),
    "arch": list(ARCHITECTURES),
    "scope": get_args(Scope),
}
_NAMES = {
    "problem": re.compile(r"[A-Za-z0-9._]{1,200}"),
    "shape": re.compile(r"[a-z0-9_]{0,100}"),
    "pattern_hash": re.compile(r"[0-9a-f]{0,16}"),
    "source": re.compile(r"[A-Za-z0-9_./:%+-]{0,200}"),
    "variant": re.compile(r"[A-Za-z0-9_.:+-]{0,120}"),
    "gpu": re.compile(r"[a-z0-9-]{1,80}"),
    "environment": re.compile(r"environment(-\d{1,4})?\.json"),
    "policies": re.compile(r"[a-z]+(\+[a-z]+)*"),
    "untuned": re.compile(r"[A-Za-z0-9_.:+ -]{0,2000}"),
    "throttled": re.compile(r"[a-z_, ]{0,200}"),
}
_RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("m", "k", "n"), (0, 2**31)),
    "sparsity": (0, 1),
    "nnz": (0, 2**40),
    "samples": (1, 1e6),
    "sm_clock_mhz": (50, 5000),
    "flops": (0, 1e18),
    "bytes": (0, 1e14),
    **dict.fromkeys(("prepare_ms", "compile_ms"), (0, 1e8)),
    **dict.fromkeys(("joules", "integral_joules"), (0, 1e7)),
    "temperature_c": (-50, 150),
    **dict.fromkeys(("registers", "candidates", "ok"), (0, 2**20)),
    "shared_bytes": (0, 2**20),
    **dict.fromkeys(("spill_bytes", "code_bytes"), (0, 2**30)),
    **dict.fromkeys(("seconds", "gpu_seconds"), (0, 1e7)),
}
_ANY = (-math.inf, math.inf)
_RULED = {*_WORDS, *_NAMES, *_RANGES}
_MARKUP = re.compile(r"<[A-Za-z/!?]|\]\(|&\w*[#;]|\bjavascript:|^[=+@]")


def strange(text: str) -> str:
    """What makes a sentence unfit to be shown, in words; empty for nothing. Time is linear in its length."""
    if len(text) > LONGEST:
        return f"{len(text)} characters"
    if not text.isprintable():
        return "control characters"
    return "markup" if _MARKUP.search(text) else ""


def rows(found: Sequence[Record]) -> Iterator[str]:
    """Cells of records that are not in the alphabet of their column, one sentence for each value."""
    foreign = sorted({row.kernel for row in found} - set(known()))
    if foreign:
        yield f"there is no kernel {listed([shown(one) for one in foreign])} in this version"
    yield from _cells(found)
    for experiment in sorted({row.experiment for row in found} - set(EXPERIMENTS)):
        yield f"'{shown(experiment)}' is not an experiment"
    for reason, line in _first(found, "reason"):
        if what := strange(reason):
            yield f"line {line}: `reason` holds {what}"


def errors(found: Sequence[Record]) -> Iterator[str]:
    """Rows that passed no check: their error is above what their arithmetic may have."""
    for line, row in enumerate(found, start=2):
        math = row.math
        network = math == "f8" and row.shape in NETWORKS
        most = TOLERANCE["f8_network" if network else LOOSEST.get(math, math)]
        if row.status == "ok" and row.relative_error is not None and row.relative_error > most:
            yield f"line {line}: the error {row.relative_error:g} is above {most:g}, and the row says 'ok'"


def tuning(found: Sequence[Tuning]) -> Iterator[str]:
    """The same of tuning.csv."""
    yield from _beside(TUNING.file, found)
    for line, row in enumerate(found, start=2):
        if row.ok > row.candidates or row.gpu_seconds > 1.01 * row.seconds + 0.01:
            yield f"tuning.csv, line {line}: more came out of the candidates or the seconds than went in"


def energy(found: Sequence[Window]) -> Iterator[str]:
    """The same of energy.csv."""
    yield from _beside(ENERGY.file, found)
    for line, row in enumerate(found, start=2):
        if what := private(row.reason) or strange(row.reason):
            yield f"energy.csv, line {line}: `reason` holds {what}"


def _beside(file: str, found: Sequence[Any]) -> Iterator[str]:
    yield from (f"{file}, {text}" for text in _cells(found))
    for kernel, line in _first(found, "kernel"):
        if kernel not in known():
            yield f"{file}, line {line}: there is no kernel `{shown(kernel)}` in this version"


def shown(text: str) -> str:
    """A value in a sentence: its start, what can't be printed as question marks."""
    return "".join(one if one.isprintable() else "?" for one in text[:60])


def _cells(found: Sequence[Any]) -> Iterator[str]:
    for column in _RULED & vars(found[0]).keys() if found else ():
        allowed, name, (least, most) = _WORDS.get(column), _NAMES.get(column), _RANGES.get(column, _ANY)
        for value, line in _first(found, column):
            where = f"line {line}: `{column}` is"
            if allowed and value not in allowed:
                yield f"{where} '{shown(value)}', which is none of {', '.join(allowed)}"
            elif name and not name.fullmatch(value):
                yield f"{where} '{shown(value)}', which no `{column}` is written like"
            elif column in _RANGES and value is not None and not least <= value <= most:
                yield f"{where} {value:g}, which is not from {least:g} to {most:g}"


def _first(found: Iterable[Any], column: str) -> Iterable[tuple[Any, int]]:
    """Each value of a column with its first line: hundreds of thousands of rows have few."""
    values = [*map(attrgetter(column), found)]  # a cell never holds a newline
    lines = dict(zip(reversed(values), range(len(values) + 1, 1, -1), strict=True))  # the first line of equals is last
    return sorted(lines.items(), key=itemgetter(1))


Snapshot = dict[str, Any]
_KEY = re.compile(r"[a-z][a-z0-9_]{0,60}")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
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


def read(texts: Mapping[str, str], rows: Iterable[Record | Window]) -> tuple[dict[str, Snapshot], list[str]]:
    """The snapshots that the rows name and that are what a run writes, and a sentence for each fault of the others."""
    found: dict[str, Snapshot] = {}
    faults = []
    for name in sorted({row.environment for row in rows}):
        try:
            snapshot = _read(texts.get(name))
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
            yield f"the snapshot '{name}' is of schema '{shown(snapshot['schema'])}', not {SCHEMA}"
        for mine in {snapshot["gpu"].get("slug", gpu), slug(snapshot["gpu"]["name"])} - {gpu}:
            yield f"the snapshot '{name}' is of GPU '{mine}' and its rows are of '{gpu}'"
        for key, value in _leaves(snapshot):
            if not isinstance(value, str):
                continue
            if what := strange(value):
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


def _read(text: str | None) -> Snapshot:
    """Raises `ValueError` whose message goes on a sentence that begins with the snapshot's name."""
    if text is None:
        raise ValueError("is missing")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("is not valid JSON") from None
    if not isinstance(found, dict):
        raise ValueError("is not a JSON object")
    return found


def _shape(snapshot: Snapshot) -> Iterator[str]:
    """Where its tables, names and types are not those that `measure.session.snapshot` gives."""
    for key, value in snapshot.items():
        if isinstance(value, dict) != (key in TABLES) or isinstance(value, list):
            yield f"has '{shown(key)}', which is {'no' if key in TABLES else 'a'} table"
            return
    if not isinstance(snapshot.get("gpu", {}).get("name"), str) or not snapshot["gpu"]["name"]:
        yield "does not describe the GPU"
    if not _COMMIT.fullmatch(str(snapshot.get("source", {}).get("commit"))):
        yield "names no commit of this project"
    for key, value in _leaves(snapshot):
        if key.count(".") >= DEEPEST:
            yield "is nested too deeply"
            return
        if not all(map(_KEY.fullmatch, key.split("."))):
            yield f"has a name '{shown(key)}'"
        number = isinstance(value, int | float) and not isinstance(value, bool)
        wanted = number if _NUMBERS.fullmatch(key) else isinstance(value, str) if _TEXTS.fullmatch(key) else True
        if not (wanted or value is None) or (number and not 0 <= value < 1e18):
            yield f"has '{key}' {shown(str(value))}, which it can't be"


def _leaves(snapshot: Snapshot) -> Iterator[tuple[str, Any]]:
    """Dotted names and values, without recursion: a table below `DEEPEST` others is one leaf."""
    waiting: list[tuple[str, Any]] = [("", snapshot)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict | list) and key.count(".") < DEEPEST:
            pairs = value.items() if isinstance(value, dict) else (("item", one) for one in value)
            waiting += [(f"{key}.{name}" if key else str(name), one) for name, one in pairs]
        else:
            yield key, value
