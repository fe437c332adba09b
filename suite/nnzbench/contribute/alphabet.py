"""What each column of records.csv and tuning.csv may hold at all: words that there are, names of plain letters, numbers
in range. Other checks look only at rows that pass, so that none of them meets a value it does not know."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args

from nnzbench.devices import DEVICES
from nnzbench.kernels.registry import known
from nnzbench.measure.attempts import CHECK
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.plans.architectures import ARCHITECTURES
from nnzbench.problems.check import TOLERANCE
from nnzbench.problems.experiment import POLICIES
from nnzbench.problems.problem import DType
from nnzbench.records.folder import Scope, Tuning
from nnzbench.records.record import Record
from nnzbench.records.selection import listed, math_class

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
    "pattern": re.compile(r"[0-9a-f]{0,16}"),
    "source": re.compile(r"[A-Za-z0-9_./:%+-]{0,200}"),
    "variant": re.compile(r"[A-Za-z0-9_.:+-]{0,120}"),
    "gpu": re.compile(r"[a-z0-9-]{1,80}"),
    "environment": re.compile(r"environment(-\d{1,4})?\.json"),
    "policies": re.compile(r"[a-z]+(\+[a-z]+)*"),
    "untuned": re.compile(r"[A-Za-z0-9_.:+ -]{0,2000}"),
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
    **dict.fromkeys(("registers", "candidates", "ok"), (0, 2**20)),
    "shared_bytes": (0, 2**20),
    **dict.fromkeys(("spill_bytes", "code_bytes"), (0, 2**30)),
    **dict.fromkeys(("seconds", "gpu_seconds"), (0, 1e7)),
}
LONGEST = 400
"""Characters of a sentence, such as a reason."""
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
        math = math_class(row)
        most = TOLERANCE["winograd" if math == "f32" else math]
        if row.status == "ok" and row.relative_error is not None and row.relative_error > most:
            yield f"line {line}: the error {row.relative_error:g} is above {most:g}, and the row says 'ok'"


def tuning(found: Sequence[Tuning]) -> Iterator[str]:
    """The same of tuning.csv."""
    for text in _cells(found):
        yield f"tuning.csv, {text}"
    for line, row in enumerate(found, start=2):
        if row.kernel not in known():
            yield f"tuning.csv, line {line}: there is no kernel `{shown(row.kernel)}` in this version"
        if row.ok > row.candidates or row.gpu_seconds > 1.01 * row.seconds + 0.01:
            yield f"tuning.csv, line {line}: more came out of the candidates or the seconds than went in"


def shown(text: str) -> str:
    """A value in a sentence: its start, what can't be printed as question marks."""
    return "".join(one if one.isprintable() else "?" for one in text[:60])


def _cells(found: Sequence[Any]) -> Iterator[str]:
    columns = vars(found[0]) if found else {}
    for column in columns.keys() & _WORDS.keys():
        allowed = _WORDS[column]
        for value, line in _first(found, column):
            if value not in allowed:
                yield f"line {line}: `{column}` is '{shown(value)}', which is none of {', '.join(allowed)}"
    for column in columns.keys() & _NAMES.keys():
        for value, line in _first(found, column):
            if not _NAMES[column].fullmatch(value):
                yield f"line {line}: `{column}` is '{shown(value)}', which no `{column}` is written like"
    for column in columns.keys() & _RANGES.keys():
        least, most = _RANGES[column]
        for value, line in _first(found, column):
            if value is not None and not least <= value <= most:
                yield f"line {line}: `{column}` is {value:g}, which is not from {least:g} to {most:g}"


def _first(found: Iterable[Any], column: str) -> Iterable[tuple[Any, int]]:
    """Each value of a column with its first line: hundreds of thousands of rows have few."""
    lines: dict[Any, int] = {}
    for line, row in enumerate(found, start=2):  # a cell never holds a newline
        lines.setdefault(getattr(row, column), line)
    return lines.items()
