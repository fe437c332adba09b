"""Rows of the schema nnzbench/1, which had some of their columns in names and in sentences: read as those of today.

Archives and older folders are read through this for as long as the package is of this major version; what is published
was rewritten once.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from nnzbench.data.matrices.formats import MatrixError
from nnzbench.data.problems import tables
from nnzbench.data.problems.problem import batch_of, parse, stem_of
from nnzbench.results.records.beside import tunings
from nnzbench.results.records.describe import CandidateColumns, of_candidate, pattern_of, searched, step_of

SCHEMA = "nnzbench/1"
COLUMNS = (
    "schema", "experiment", "problem", "op", "m", "k", "n", "shape", "dtype", "sparsity", "nnz", "pattern", "source",
    "kernel", "variant", "selected", "device", "gpu", "arch", "policy", "status", "reason", "median_us", "q1_us",
    "q3_us", "samples", "sm_clock_mhz", "flops", "bytes", "limit_us", "floor_us", "prepare_ms", "compile_ms",
    "registers", "shared_bytes", "spill_bytes", "code_bytes", "relative_error", "environment",
)  # fmt: skip
"""In their order; today's begin with them."""
_OF_NAME = ("label", "level", "kind", "batch", "count", "model", "place")
_THROTTLED = re.compile(r"throttled \(([a-z_, ]*)\)")


def columns(rows: pd.DataFrame, path: Path) -> dict[str, Any]:
    """The columns that these rows of the file lack, and those that have another meaning since."""
    parts = [
        _each(rows, ["experiment", "problem", "source"], _OF_NAME, lambda *one: of_name(*one).values()),
        _each(rows, ["op", "shape"], ("step",), lambda *one: (step_of(*one),)),
        _each(rows, ["source"], ("pattern",), lambda one: (pattern_of(one),)),
        _each(rows, ["kernel", "variant", "dtype"], CandidateColumns._fields, of_candidate),
        _each(rows, ["status", "policy", "reason"], ("settled", "throttled", "captured"), measured),
    ]  # fmt: skip
    found = pd.concat(parts, axis=1)
    timed = rows["median_us"].notna()
    found["settled"] &= timed
    found["captured"] &= timed
    return {
        **found.assign(**searched(rows.assign(choice=found["choice"]), tunings(path.parent))),
        "schema": rows["schema"].replace(SCHEMA, "nnzbench/2"),
        "pattern_hash": rows["pattern"],
        "metric": pd.Series("us", rows.index),
    }


def _each(rows: pd.DataFrame, keys: list[str], names: Iterable[str], of: Callable[..., Any]) -> pd.DataFrame:
    """`of` each row's values of `keys`, called once for rows that agree in them."""
    group = rows.groupby(keys, sort=False, dropna=False).ngroup()
    once = rows.loc[~group.duplicated(), keys].itertuples(index=False, name=None)
    found = pd.DataFrame([of(*cells) for cells in once], columns=list(names), dtype=object)
    return found.iloc[group].set_axis(rows.index).infer_objects()


def of_name(experiment: str, name: str, source: str) -> dict[str, Any]:
    """What a problem's name says, and its experiment's table of it."""
    parts = parse(name)
    label = parts["label"] if parts else name
    level = float(parts["level"]) if parts and re.fullmatch(r"\d{1,3}(\.\d{1,6})?", parts["level"]) else None
    kind = source.partition(":")[0]
    count, model, place = _lines(experiment).get(stem_of(name), (1, "", None))
    return dict(zip(_OF_NAME, (label, level, kind, batch_of(label), count, model, place), strict=True))


@functools.cache
def _lines(experiment: str) -> Mapping[str, tuple[int, str, int | None]]:
    """What the experiment's table says of each problem; empty where it has no table."""
    try:
        rows = tables.rows(experiment, full=True)
    except MatrixError:
        return {}
    return {stem_of(one.name): (one.count, one.model, one.place) for one in reversed(rows)}


def measured(status: str, policy: str, reason: str) -> tuple[bool, str, bool]:
    """Whether a time is settled, the reasons of throttling, and whether its launches were captured."""
    if status != "ok":
        return False, "", False
    found = _THROTTLED.search(reason)
    unsettled = "ended early" in reason or "median not settled" in reason
    return not unsettled, found[1] if found else "", policy in ("hot", "stream") and "not a graph" not in reason
