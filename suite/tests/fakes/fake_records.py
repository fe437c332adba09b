"""Invented but plausible records for report tests. Never written under reports/."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from nnzbench.papers.catalogue import page_of
from nnzbench.report import published, render
from nnzbench.results.records import schema1
from nnzbench.results.records.describe import of_candidate, pattern_of, step_of
from nnzbench.results.records.record import SCHEMA, Record, append, frame_of, read_records
from nnzbench.results.records.selection import fastest
from nnzbench.results.result_set import derived, load

# kernel, variant, math, typical speed-up over cuBLAS fp32 at 90 % zeros
CANDIDATES = (
    ("sputnik", "heuristic_x32_k32", 1.12),
    ("sputnik", "x64_k32_v4", 1.35),
    ("sparsert", "ptx_n64_s4", 1.45),
    ("row_stream", "n128_v4", 1.6),
    ("cublas", "f32_default_nn", 1.0),
    ("cublas", "f32_default_nt", 0.9),
    ("cublas", "tf32_default_nn", 1.4),
    ("cublas", "f16_default_nn", 2.0),
    ("cublaslt", "f32_algo7_nn", 1.1),
    ("cublaslt", "tf32_algo3_nn", 1.5),
    ("cublaslt", "f16_algo3_nn", 2.1),
    ("cusparse", "default_row", 0.35),
    ("cusparse", "csr_alg2_preprocess", 0.6),
)


def record(**changes: Any) -> Record:
    """A valid timed row, with the given fields changed."""
    values: dict[str, Any] = dict.fromkeys((field.name for field in dataclasses.fields(Record)), None)
    values.update(
        schema=SCHEMA, experiment="sparsert_table1", problem="p", op="spmm", m=64, k=256, n=3136, shape="", dtype="f32",
        sparsity=0.9, nnz=1638, pattern_hash="0123abcd", source="dlmc:rn50/x", kernel="sputnik", variant="v",
        selected=False, device="cupy", gpu="nvidia-h200", arch="sm_90", policy="hot", status="ok", reason="",
        median_us=4.0, q1_us=3.9, q3_us=4.1, samples=30, sm_clock_mhz=1980.0, flops=1e7, bytes=2e6, limit_us=2.0,
        floor_us=0.5, prepare_ms=1.5, compile_ms=800.0, registers=40, shared_bytes=0, spill_bytes=0, code_bytes=4096,
        relative_error=1e-7, environment="environment.json",
    )  # fmt: skip
    values.update(changes)
    return described(Record(**_CELLS | {name: value for name, value in values.items() if value is not None}), changes)


_CELLS: dict[str, Any] = dict.fromkeys((field.name for field in dataclasses.fields(Record)), None) | {
    "settled": True, "captured": True, "throttled": "", "search": "all", "metric": "us", "choice": "search",
    "weights": "pruned", "work": "sparse",
}  # fmt: skip


def described(row: Record, changes: Mapping[str, Any] = MappingProxyType({})) -> Record:
    """The row with what its names, its place in its table and its sentences say in columns of their own, as a run
    writes it; `changes` are left as they are."""
    settled, throttled, captured = schema1.measured(row.status, row.policy, row.reason)
    timed = row.median_us is not None
    found = (
        schema1.of_name(row.experiment, row.problem, row.source)
        | of_candidate(row.kernel, row.variant, row.dtype)._asdict()
    )
    found |= {"step": step_of(row.op, row.shape), "pattern": pattern_of(row.source)}
    found |= {"settled": timed and settled, "throttled": throttled, "captured": timed and captured}
    return dataclasses.replace(row, **{name: value for name, value in found.items() if name not in changes})


def timed(kernel: str, us: float, variant: str = "v", **changes: Any) -> Record:
    """A valid row whose median and quartiles are `us`."""
    return record(**{"kernel": kernel, "variant": variant, "median_us": us, "q1_us": us, "q3_us": us, **changes})


Law = Callable[[int, int, int, int], float]
"""Microseconds by m, k, n and nonzeros."""


def by_law(
    laws: dict[tuple[str, str], Law], experiment: str, *sizes: Sequence[int], levels: Sequence[float] = (0.9,)
) -> list[Record]:
    """Selected rows of each kernel and variant on all products of m, k and n of `sizes`, whose times follow a law."""
    rows = []
    for m, k, n, level in itertools.product(*sizes, levels):
        nnz = round(m * k * (1 - level))
        told = {"experiment": experiment, "problem": f"{m}x{k}x{n}_{level}", "sparsity": level, "selected": True}
        for (kernel, variant), law in laws.items():
            rows.append(timed(kernel, law(m, k, n, nnz), variant, m=m, k=k, n=n, nnz=nnz, **told))
    return rows


def select(records: Iterable[Record]) -> list[Record]:
    """The same rows in the same order with `selected` true on the fastest alone, as a run leaves them."""
    rows = list(map(described, records))
    frame = frame_of(rows)
    flags = fastest(frame)
    return [dataclasses.replace(row, selected=bool(flag)) for row, flag in zip(rows, flags, strict=True)]


def failed(row: Record, status: str, reason: str) -> Record:
    """The same row without a time."""
    blank = dict.fromkeys(("median_us", "q1_us", "q3_us", "samples", "sm_clock_mhz", "limit_us", "relative_error"))
    marks = {"settled": False, "throttled": "", "captured": False, "selected": False}
    return dataclasses.replace(row, status=status, reason=reason, **blank, **marks)


def table1(seed: int = 0, policies: Iterable[str] = ("hot", "cold"), scale: float = 1.0) -> list[Record]:
    """All 31 rows of SparseRT's Table 1 with every candidate, selected as a run would."""
    rng = np.random.default_rng(seed)
    rows = []
    table = published.read("sparsert_table1_spmm", ("problem", "model", "m", "k", "n", "sparsity"))
    for row in table.rename(columns={"problem": "label", "sparsity": "level"}).itertuples():
        sparsity = row.level + (0.0098 if row.model == "resnet50" else 0.0)
        kind = "weights:mbv1" if row.model == "mobilenet_v1" else f"dlmc:{row.model}"
        base = 4 + 2e-9 * row.m * row.k * row.n * 8
        for kernel, variant, typical in CANDIDATES:
            sparse = not kernel.startswith("cublas")
            gain = typical * (1.4 if sparse and row.level == 0.95 else 1) * float(rng.uniform(0.75, 1.3))
            for policy in policies:
                time = base / gain * (scale if sparse else 1) + (3 if policy == "cold" else 0)
                rows.append(
                    record(
                        problem=f"{row.m}x{row.k}x{row.n}_{row.level:g}_{row.label}",
                        m=row.m, k=row.k, n=row.n, sparsity=sparsity, source=f"{kind}/{row.label}",
                        nnz=round((1 - sparsity) * row.m * row.k), kernel=kernel, variant=variant, policy=policy,
                        median_us=time, q1_us=time * 0.99, q3_us=time * 1.01, limit_us=time * 0.5,
                    )
                )  # fmt: skip
    return select(rows)


def write(folder: Path, rows: Iterable[Record], environment: dict[str, Any] | None = None) -> Path:
    """Writes records.csv, its fastest rows selected, and environment.json in `folder`, which it returns."""
    append(folder / "records.csv", select(rows))
    snapshot = environment or {"time": "2026-11-21T10:00:00Z", "gpu": {"name": "NVIDIA H200", "driver": "580.95"}}
    (folder / "environment.json").write_text(json.dumps(snapshot), encoding="utf-8")
    return folder


def to_frame(records: Iterable[Record]) -> pd.DataFrame:
    """The rows as those of a `ResultSet`, without what lies in the files beside them."""
    frame = frame_of(map(described, records))
    return derived(frame)


def tuned(folder: Path, scopes: Callable[[Record], Sequence[str]]) -> Path:
    """Writes the tuning.csv of the records in `folder`, which it returns: a line per scope of each row's kernel."""
    lines = {
        f"{row.problem},{row.dtype},{row.kernel},{row.device},{row.policy},1,1,0.5,{scope}": None
        for row in read_records(folder / "records.csv")
        for scope in scopes(row)
    }
    header = "problem,dtype,kernel,device,policies,candidates,ok,seconds,scope"
    (folder / "tuning.csv").write_text("\n".join([header, *lines, ""]), encoding="utf-8")
    return folder


def written(folder: Path) -> Path:
    """Draws the page of the records in `folder`, as `nnzbench report` does; the page's README.md."""
    results = load(folder)
    page = page_of(results.experiment)
    assert page is not None
    return render.write(page, results)


def replace_all(path, records):
    """A records file of these rows alone."""
    path.unlink(missing_ok=True)
    append(path, map(described, records))
