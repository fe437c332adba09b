"""The matrices of the trial, what is asked about each, and what was found; for best_trial.py."""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nnzbench import paths
from nnzbench.advise import layer
from nnzbench.advise.layer import Layer
from nnzbench.advise.measured import BUDGET_S
from nnzbench.matrices.formats import MatrixError
from nnzbench.matrices.index import DlmcEntry
from nnzbench.problems.problem import DType
from nnzbench.problems.sources import find_real
from nnzbench.records import files
from nnzbench.records.record import read_frame

CASES: tuple[tuple[DType, int], ...] = (("f32", 32), ("f16", 256), ("f32", 256), ("f16", 32))


@dataclass(frozen=True)
class Case:
    """What is asked about one matrix."""

    matrix: str
    dtype: DType
    n: int


@dataclass(frozen=True)
class Outcome:
    """One case: the fastest sparse kernel within the time and of all, and the least hot time of each kernel."""

    matrix: str
    dtype: DType
    n: int
    gpu: str
    commit: str
    found: str
    found_us: float
    best: str
    best_us: float
    tried: int
    candidates: int
    seconds: float
    """What the search without a limit took beyond the one within the time."""
    measured: dict[str, float]
    """Microseconds by kernel, in the arithmetic asked for."""
    estimated: dict[str, float] = field(default_factory=dict)
    """The same without the GPU, once summed up: from rows of none of these matrices."""
    estimated_beside: dict[str, float] = field(default_factory=dict)
    """The same, from the times of the other matrices, too."""
    given_s: float = BUDGET_S / 4
    """What the first search had; the lines of the first runs don't tell."""


def case_file() -> Path:
    """The table of cases."""
    return paths.datasets() / "best_trial.csv"


def read_cases() -> list[Case]:
    """The cases in their order."""
    with case_file().open(newline="", encoding="utf-8") as file:
        return [Case(row["matrix"], row["dtype"], int(row["n"])) for row in csv.DictReader(file)]  # type: ignore[arg-type]


def write_cases(cases: Iterable[Case]) -> None:
    """Writes the table."""
    with paths.replacing(case_file()) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("matrix", "dtype", "n"))
        writer.writerows((one.matrix, one.dtype, one.n) for one in cases)


def measured_sources(folders: Iterable[Path]) -> set[str]:
    """DLMC paths whose own pattern any recorded row was measured on."""
    found = set()
    for folder in folders:
        for one in files.folders(folder):
            sources = read_frame(files.records_file(one))["source"].unique()
            found |= {source.removeprefix("dlmc:") for source in sources if source.startswith("dlmc:")}
    return found


def choose(entries: Sequence[DlmcEntry], seen: set[str], count: int) -> list[Case]:
    """`count` unseen ones, evenly over model, method, level and size."""

    def stratum(one: DlmcEntry) -> tuple[str, str, float, int, str]:
        return one.model, one.method, float(one.target_sparsity), one.rows * one.cols, one.path

    left = sorted((one for one in entries if one.path not in seen), key=stratum)
    step = len(left) / max(count, 1)
    chosen = [left[int((at + 0.5) * step)] for at in range(min(count, len(left)))]
    return [Case(one.path, *CASES[at % len(CASES)]) for at, one in enumerate(chosen)]


def layer_of(case: Case) -> Layer:
    """The matrix as `nnzbench best` reads it. Raises `MatrixError` where it is not on disk."""
    file = find_real(f"dlmc:{case.matrix}")
    if file is None:
        raise MatrixError(f"{case.matrix} is not on disk: run `nnzbench fetch dlmc`, or set NNZBENCH_DATA")
    (one,) = layer.load([str(file)])
    label = case.matrix.removesuffix(".smtx").replace("/", ".")
    return Layer(label, one.matrix, one.shape, f"dlmc:{case.matrix}", case.dtype)


def read(folder: Path) -> list[Outcome]:
    """The outcomes of all parts, in the order of the cases, those of an earlier sum where no part has any since.

    A line that a kill cut short is none.
    """
    found = []
    for path in sorted(folder.glob("trial*.jsonl"), key=lambda path: (path.name != "trial.jsonl", path.name)):
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                found.append(Outcome(**json.loads(line)))
    order = {one: at for at, one in enumerate(read_cases())}
    last = {Case(one.matrix, one.dtype, one.n): one for one in found}
    return [last[case] for case in sorted(last, key=lambda case: (order.get(case, len(order)), case.matrix))]


def part_of(cases: Sequence[Case], part: int, parts: int) -> list[Case]:
    """Every so manieth pair, as types take turns and the kernels of one have more to compile."""
    return [one for at, one in enumerate(cases) if at // 2 % parts == part - 1]
