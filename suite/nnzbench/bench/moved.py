"""Whether a kernel's result follows its weights: one of each row, picked at random, becomes the largest by far.

The check of all elements lets a weight pass that a kernel drops, or keeps from before, if its product is below the
tolerance's share of its row's sum: in bf16 most of a row with a hundred weights are. Made so large none is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from nnzbench.core.plan import Array, Candidate, Unsupported
from nnzbench.data.problems.check import passes, relative_error, why
from nnzbench.data.problems.operands import Operands, round_to
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import Reference
from nnzbench.devices import Device
from nnzbench.kernels.registry import AnyKernel, candidates

OPS = ("spmm", "spmv")
TIMES = 4.0
"""The new weight over the largest of the matrix, with the other sign."""
ELEMENTS = 1 << 22
"""Of the result that are compared at most: whole rows, picked at random."""
MOST_MS = 500.0
"""A candidate that takes longer to prepare is not prepared again."""
LOOKED_AT = 8
"""Candidates among which the same one is looked for."""


@dataclass(frozen=True)
class Moved:
    """Operands with other weights, and what some `rows` of the result then are."""

    operands: Operands
    rows: Array
    truth: Reference


def moved(problem: Problem, operands: Operands, truth: Reference) -> Moved | None:
    """Changes one weight of each row that has any; None where no float64 result follows from `truth` at once."""
    matrix = operands.sparse
    if problem.op not in OPS or not matrix.nnz or not (b := operands.dense["b"]).size:
        return None
    rng = np.random.default_rng([problem.seed, 0xA])
    rows = np.flatnonzero(matrix.row_lengths)
    at = matrix.offsets[rows] + rng.integers(matrix.row_lengths[rows])
    before = matrix.values[at].astype(np.float64)
    after = np.where(before > 0, -TIMES, TIMES) * np.abs(matrix.values.astype(np.float32)).max()
    values = matrix.values.copy()
    values[at] = (
        np.clip(after, -127, 127) if values.dtype.kind == "i" else round_to(after.astype(np.float32), problem.dtype)
    )
    picked = rng.permutation(len(rows))[: max(1, ELEMENTS // b.shape[1])]
    rows, at, before = rows[picked], at[picked], before[picked, None]
    now, of_b = values[at, None].astype(np.float64), b[matrix.indices[at]].astype(np.float64)
    value = truth.value[rows] + (now - before) * of_b
    scale = truth.scale[rows] + (np.abs(now) - np.abs(before)) * np.abs(of_b)
    return Moved(replace(operands, sparse=matrix.with_values(values)), rows, Reference(value, scale))


def astray(kernel: AnyKernel, candidate: Candidate, problem: Problem, known: Moved, device: Device) -> str:
    """What is wrong with the candidate's result over the changed weights; empty where nothing is, or it can't be told.

    It is planned and prepared anew, which says as much of kernels that keep weights packed. But where they are part of
    its program, which would be compiled for this alone, nothing is done.
    """
    found = islice(candidates(kernel, problem, known.operands, device), LOOKED_AT)
    try:
        again = next((one for one in found if one.variant == candidate.variant), None)
        if again is None or again.plan is None or _program(again) != _program(candidate):
            return ""
        prepared = again.prepare()
    except Unsupported:
        return ""
    try:
        prepared.poison()
        prepared.run()
        result = prepared.read()[known.rows]
    finally:
        prepared.close()
    tolerance = candidate.tolerance or candidate.math
    error = relative_error(result, known.truth)
    return "" if passes(error, tolerance) else why(result, known.truth, error, tolerance)


def _program(candidate: Candidate) -> tuple[str, Mapping[str, int | str]] | None:
    return (candidate.plan.source, candidate.plan.defines) if candidate.plan is not None else None
