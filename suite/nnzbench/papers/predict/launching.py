"""What `gpu_studies.py launching` measured: published ways of launching, and what published programs do otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pandas as pd

from nnzbench.data.problems.experiment import Policy
from nnzbench.results.crossover import times_as_fast
from nnzbench.results.records.record import RecordError
from nnzbench.results.result_set import geometric_mean

FOLDER, FILE = "launching", "launching.csv"
PROGRAMS = {
    "sputnik": "Sputnik, the paper's rule, as this suite runs it",
    "sputnik_unscaled": "the same, indices not scaled ahead (as the authors' fp16 kernel)",
    "sputnik_unsorted": "the same, rows in their order (as SSpMM calls it)",
    "cublas": "cuBLAS fp16, sums in fp32",
    "cublas_f16_sums": "cuBLAS fp16, sums in fp16 (as SSpMM calls it)",
}
CHANGES = (("sputnik_unscaled", "sputnik"), ("sputnik_unsorted", "sputnik_unscaled"), ("cublas_f16_sums", "cublas"))
"""Programs that differ in one thing, the published one first."""
WAYS: tuple[Policy | Literal["pair"], ...] = ("hot", "loop", "pair")
"""The policies of that name, and a pair of events around each launch while the GPU has nothing else to do."""


def tables(reports: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    """By slug of a GPU: a row per problem, program and way, with `us`. Raises `RecordError` for another table."""
    for path in sorted(reports.glob(f"*/{FOLDER}/{FILE}")):
        try:
            yield path.parts[-3], pd.read_csv(path)[["problem", "program", "way", "us"]].astype({"us": float})
        except (KeyError, ValueError) as error:
            raise RecordError(f"{path}: not the times of ways of launching ({error})") from None


def over(table: pd.DataFrame, above: tuple[str, str], below: tuple[str, str]) -> tuple[float, float]:
    """Geometric mean of a program and way's times over another's, and the mean difference, µs."""
    wide = table.pivot(index="problem", columns=["program", "way"], values="us")[[above, below]].dropna()
    ratio = geometric_mean(list(map(times_as_fast, wide[below], wide[above])))
    return ratio, float((wide[above] - wide[below]).mean())
