"""The recorded experiments of one GPU as claims need them: timed rows, and the problems that there should be."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from nnzbench import paths, tables
from nnzbench.problem import Problem
from nnzbench.report.frames import GPU_DEVICES, load

_COLUMNS = (
    "stem", "kernel", "variant", "math", "policy", "source", "sparsity", "m", "k", "nnz", "own", "median_us",
    "floor_us", "gflops",
)  # fmt: skip
_SUFFIX = re.compile(r"(_(?:dlmc|weights|standin))?(_(?:f16|bf16))?$")


def stem(problem: str) -> str:
    """A problem's name without dtype and without what tells real data from its stand-in."""
    return _SUFFIX.sub("", problem)


class Records:
    """Reads each experiment once. Raises `RecordError` for a file that breaks the schema."""

    def __init__(self, reports: Path, gpu: str) -> None:
        self.gpu = gpu
        self._folder = reports / gpu
        self._frames: dict[str, pd.DataFrame] = {}

    def rows(self, experiment: str, policy: str, math_class: str, kernels: Sequence[str]) -> pd.DataFrame:
        """Checked, timed rows of these kernels, of every kernel of this project for none."""
        frame = self._frame(experiment)
        chosen = frame["kernel"].isin(list(kernels)) if kernels else frame["own"].astype(bool)
        return frame[chosen & (frame["policy"] == policy) & (frame["math"] == math_class)]

    def expected(self, experiment: str, math_class: str) -> frozenset[str]:
        """Stems of the problems of the experiment's table in the dtype that goes with an arithmetic class."""
        dtype = "f16" if math_class == "f16" else "f32"
        return frozenset(stem(p.name) for p in _problems(experiment) if p.dtype == dtype)

    def count(self, experiment: str, name: str) -> int:
        """How often a problem, by its stem, occurs in its model."""
        return _counts(experiment).get(name, 1)

    def gap(self, experiment: str, what: str, policy: str) -> str:
        """Why there is no number: nothing recorded, or no problem with all the times."""
        if self._frame(experiment).empty:
            return f"{experiment} is not recorded on this GPU yet."
        return f"No problem of {experiment} has a checked {policy} time of {what}."

    def fp32_peak(self) -> float:
        """TFLOP/s of the data sheet, 0 where it is unknown."""
        sheet = pd.read_csv(paths.datasets() / "gpus.csv").set_index("slug")["fp32_tflops"]
        return float(sheet.get(self.gpu, 0.0))

    def _frame(self, experiment: str) -> pd.DataFrame:
        if experiment not in self._frames:
            self._frames[experiment] = self._read(self._folder / experiment)
        return self._frames[experiment]

    def _read(self, folder: Path) -> pd.DataFrame:
        empty = pd.DataFrame(columns=list(_COLUMNS)).astype({"variant": str, "source": str, "own": bool})
        if not (folder / "records.csv").is_file():
            return empty
        results = load(folder)
        if results.device not in GPU_DEVICES:
            return empty
        frame = results.frame[(results.frame["status"] == "ok") & results.frame["median_us"].notna()]
        return frame.assign(stem=[stem(name) for name in frame["problem"]])[list(_COLUMNS)]


@functools.cache
def _problems(experiment: str) -> tuple[Problem, ...]:
    return tuple(tables.load(experiment, False))


@functools.cache
def _counts(experiment: str) -> dict[str, int]:
    """Counts are told apart by label, as in networks, where a layer has a label of its own."""
    path = paths.datasets() / "problems" / f"{experiment}.csv"
    if not path.is_file():
        return {}
    table = pd.read_csv(path, dtype={"label": str})
    if "count" not in table.columns or table["label"].duplicated().any():
        return {}
    counts = dict(zip(table["label"], table["count"], strict=True))
    return {stem(p.name): int(counts[p.label]) for p in _problems(experiment) if p.label in counts}
