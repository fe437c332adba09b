"""The claims, and invented records whose verdicts on them are known beforehand. Not a test file."""

from __future__ import annotations

import functools
from pathlib import Path

from fake_records import timed, write

from nnzbench.data.problems.tables import load
from nnzbench.papers.claims import verdicts
from nnzbench.papers.claims.authors import Authors
from nnzbench.papers.claims.claim import read
from nnzbench.papers.claims.quantities import Records
from nnzbench.papers.claims.verdicts import Verdict, judge
from nnzbench.results.records.record import Record

AUTHORS_GPU = "nvidia-h200"
"""On which the authors' codes were timed."""
GPU = "nvidia-h100-80gb-hbm3"
"""On which they were not, so that records alone judge."""
CLAIMS = {claim.id: claim for claim in read()}


@functools.cache
def of_nothing() -> tuple[Verdict, ...]:
    """The verdicts where nothing is recorded."""
    return tuple(judge(Records(Path("nowhere"), GPU)))


def row(problem: str, kernel: str, us: float, variant: str = "v", experiment: str = "sparsert_table1", **changes):
    return timed(kernel, us, variant, experiment=experiment, problem=problem, **changes)


def names(experiment: str, part: str = "", dtype: str = "f32") -> list[str]:
    return [p.name for p in load(experiment, False) if part in p.name and p.dtype == dtype]


def table1(speedup: float, level: str = "95", keep: int = 99) -> list[Record]:
    """SparseRT's own kernel at `speedup` over the best dense product in fp32, TF32 at 4 us and fp16 at 2."""
    rows = []
    for name in names("sparsert_table1", f"_{level}_")[:keep]:
        rows += [
            row(name, "sparsert_paper", 10 / speedup),
            row(name, "cublas", 12.0, "f32_rowmajor"),
            row(name, "cublaslt", 10.0, "f32_rowmajor_algo01"),
            row(name, "cublas", 4.0, "tf32_rowmajor"),
            row(name, "cublas", 2.0, "f16_rowmajor", dtype="f16"),
            row(name, "cusparse", 15 / speedup, "csr_alg2_row"),
            row(name, "sparsert_paper", 20 / speedup, policy="cold"),
            row(name, "cublas", 10.0, "f32_rowmajor", policy="cold"),
        ]
    return rows


def figure1(crossing: float) -> list[Record]:
    """Time falls linearly with density and meets cuBLAS's 10 us at `crossing`; cuSPARSE takes three times as long."""
    rows = []
    for p in load("sputnik_figure1", False):
        us = 10 * (1 - p.sparsity) / (1 - crossing)
        rows += [
            row(p.name, "sputnik", us, "heuristic_x", p.experiment, sparsity=p.sparsity),
            row(p.name, "sputnik", us / 2, "y1_other", p.experiment, sparsity=p.sparsity),
            row(p.name, "cublas", 10.0, "f32_rowmajor", p.experiment, sparsity=p.sparsity),
            row(p.name, "cublas", 1e-3, "tf32_rowmajor", p.experiment, sparsity=p.sparsity),
            row(p.name, "cusparse", 3 * us, "csr_default_col", p.experiment, sparsity=p.sparsity),
        ]
    return rows


class Judged(dict[str, Verdict]):
    """The verdicts on the records of a GPU, each made when it is asked for."""

    def __init__(self, reports: Path, gpu: str) -> None:
        self.records = Records(reports, gpu)
        self.authors = Authors(self.records)

    def __missing__(self, claim: str) -> Verdict:
        self[claim] = verdicts._judge(CLAIMS[claim], self.records, self.authors)
        return self[claim]


def judged(tmp_path: Path, *sets: list[Record], gpu: str = GPU) -> Judged:
    """The verdicts on the claims by records, which are written to the folders of their experiments."""
    for rows in sets:
        write(tmp_path / gpu / rows[0].experiment, rows)
    return Judged(tmp_path, gpu)
