"""The answer without the GPU: times estimated from what was recorded on it, with the error that such estimates have.

Each kernel's time follows from its own recorded rows of that op, type and policy (`model.Model`), and from what the
trial of `best` measured of it. The error beside it is that of the same estimate on problems whose layer sizes were held
out.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from nnzbench.advise.answer import FAR_OCTAVES, Answer, Entry, Near, Width, ranked
from nnzbench.advise.crossover import crossing
from nnzbench.advise.layer import Layer
from nnzbench.advise.measured import Question
from nnzbench.advise.model import Model, Sizes
from nnzbench.advise.recorded import FEWEST, LEAST_CERTAIN, Recorded, certain_hot
from nnzbench.advise.taking import that_run
from nnzbench.kernels.registry import about
from nnzbench.operators.binding import stored_bytes
from nnzbench.problems.experiment import POLICIES
from nnzbench.problems.problem import DType, Problem
from nnzbench.records.record import RecordError

_WIDTHS = tuple(sorted({round(2 ** (step / 2)) for step in range(27)}))
"""Widths that the crossover is looked for at."""


def answer(layer: Layer, question: Question, recorded: Recorded, every: bool = True) -> Answer:
    """The estimate for one layer. Raises `RecordError` where too little of its kind is recorded.

    With `every`, each kernel is asked whether it takes this matrix, which packs it; else those up to the fastest.
    """
    dtype = question.dtype or layer.dtype
    models = recorded.models(question.op, dtype)
    if question.kernels is not None:
        models = {key: model for key, model in models.items() if key[0] in question.kernels}
    if not models:
        types: tuple[DType, ...] = ("f32", "f16", "bf16")
        enough = [name for name in types if question.kernels is None and recorded.models(question.op, name)]
        raise RecordError(
            f"too little of {question.op} in {dtype} is recorded on {recorded.gpu} to estimate from (fewer than "
            f"{FEWEST} problems of every kernel)" + (f"; enough with --dtype {' or '.join(enough)}" if enough else "")
        )
    able: dict[tuple[str, int], str] = {}
    widths = tuple(_width(layer, question, n, dtype, models, recorded, able, every) for n in question.ns)
    curve: tuple[tuple[int, float, float], ...] = ()
    if question.op == "spmm":
        refused = {kernel for (kernel, _), reason in able.items() if reason}
        kept = {key: one for key, one in models.items() if key[0] not in refused}
        points = {point[0]: point for point in _curve(layer, dtype, kept)}
        for width in widths:  # a kernel may take one width alone
            dense, sparse = width.rival(dtype), width.sparse(dtype)
            if dense and sparse and dense.hot_us and sparse.hot_us and not width.far:
                points[width.n] = (width.n, dense.hot_us, sparse.hot_us)
        curve = tuple(sorted(points.values()))
    return Answer(
        layer.label, question.op, dtype, layer.matrix.m, layer.matrix.k, layer.matrix.nnz, recorded.gpu, True, widths,
        crossing(curve), layer.note, curve,
    )  # fmt: skip


def _sizes(layer: Layer, problem: Problem) -> Sizes:
    return Sizes(problem.m, problem.k, problem.n, layer.matrix.nnz)


def _width(
    layer: Layer,
    question: Question,
    n: int,
    dtype: DType,
    models: dict[tuple[str, str, str], Model],
    recorded: Recorded,
    able: dict[tuple[str, int], str],
    every: bool,
) -> Width:
    problem = layer.problem(question.op, n, dtype, question.image)
    sizes = _sizes(layer, problem)
    if question.op == "spmm" and n == 1:
        models = _of_vectors(models, recorded.models("spmv", dtype), sizes)
    entries = []
    far = _far(models, sizes)
    for kernel, maths in dict.fromkeys(key[:2] for key in models):
        hot, cold = (models.get((kernel, maths, policy)) for policy in POLICIES)
        model = hot or cold
        assert model is not None
        if not model.held_out_error <= LEAST_CERTAIN:
            reason = (
                f"estimates of it are off by {100 * model.held_out_error:.0f} % on average, from {len(model.rows)} rows"
            )
            entries.append(Entry(kernel, maths, reason=reason))
            continue
        if (kernel, maths) in far:
            reason = f"none of its recorded problems is within {FAR_OCTAVES:g} octaves"
            entries.append(Entry(kernel, maths, reason=reason))
            continue
        near_rows = [row for _, row in model.near(sizes)]
        nearest = next((row for row in near_rows if row["variant"]), near_rows[0])  # a trial's rows name none
        entries.append(
            Entry(
                kernel,
                maths,
                str(nearest["variant"]),
                float(hot.at([sizes])[0]) if hot else None,
                float(cold.at([sizes])[0]) if cold else None,
                stored_bytes(kernel, problem, layer.matrix.m, layer.matrix.k, layer.matrix.nnz),
                _packing_ms(kernel, model, nearest, sizes),
                uncertainty=model.held_out_error,
            )
        )
    entries = that_run(entries, layer, problem, recorded.arch, able, every)
    best = next((one for one in ranked(entries) if one.us is not None and not one.dense), None)
    near: tuple[Near, ...] = ()
    if best is not None:
        model = models.get((best.kernel, best.math, "hot")) or models[best.kernel, best.math, "cold"]
        found = {(row["experiment"], row["problem"]): octaves for octaves, row in reversed(model.near(sizes))}
        near = tuple(Near(*name, octaves) for name, octaves in sorted(found.items(), key=lambda one: one[1])[:3])
    return Width(n, ranked(entries), near=near)


def _of_vectors(
    models: dict[tuple[str, str, str], Model], vectors: dict[tuple[str, str, str], Model], sizes: Sizes
) -> dict[tuple[str, str, str], Model]:
    """The models, of dense kernels those of SpMV where these are nearer: one column is the same product to them."""

    def nearer(key: tuple[str, str, str]) -> bool:
        return bool(vectors[key].distances([sizes])[0] < models[key].distances([sizes])[0])

    dense = [key for key in models if key in vectors and about(key[0]).work == "dense"]
    return {**models, **{key: vectors[key] for key in dense if nearer(key)}}


def _packing_ms(kernel: str, model: Model, row: Any, sizes: Sizes) -> float | None:
    """The nearest row's, in proportion to what is packed (nonzeros, or all weights), but no less than any recorded.

    So is the compilation of programs that hold the weights; another takes as long as that of the nearest row.
    """
    if pd.isna(row["prepare_ms"]):
        return None
    dense, coded = about(kernel).work == "dense", about(kernel).weights_in_code
    here, there = (sizes.m * sizes.k, row["m"] * row["k"]) if dense else (sizes.nnz, row["nnz"])
    share = max(here, 1) / max(float(there), 1.0)
    total = max(float(row["prepare_ms"]) * share, float(model.rows["prepare_ms"].min()))
    if not pd.isna(row["compile_ms"]):
        compiled = float(row["compile_ms"])
        total += max(compiled * share, float(model.rows["compile_ms"].min())) if coded else compiled
    return total


def _far(models: dict[tuple[str, str, str], Model], sizes: Sizes) -> set[tuple[str, str]]:
    """Kernels (and arithmetic) to leave out: nothing near is recorded of them, and something is of others.

    Dense and sparse kernels apart, since an answer needs both.
    """
    far: set[tuple[str, str]] = set()
    for dense in (True, False):
        side: dict[tuple[str, str], float] = {}
        for (kernel, maths, _), model in models.items():
            if (about(kernel).work == "dense") == dense and model.held_out_error <= LEAST_CERTAIN:
                distance = float(model.distances([sizes])[0])
                side[kernel, maths] = min(distance, side.get((kernel, maths), math.inf))
        if side and min(side.values()) <= FAR_OCTAVES:
            far |= {key for key, octaves in side.items() if octaves > FAR_OCTAVES}
    return far


def _curve(
    layer: Layer, dtype: DType, models: dict[tuple[str, str, str], Model]
) -> tuple[tuple[int, float, float], ...]:
    """Fastest dense and fastest sparse estimates at the widths near which both sides have recorded problems."""
    matrix = layer.matrix
    widths = np.array(_WIDTHS)
    asked = [Sizes(matrix.m, matrix.k, n, matrix.nnz) for n in _WIDTHS]
    sides = {dense: np.full(len(asked), math.inf) for dense in (True, False)}
    for kernel, model in certain_hot(models, dtype):
        recorded = (model.rows["n"].min() <= widths) & (widths <= model.rows["n"].max())
        near = recorded & (model.distances(asked) <= FAR_OCTAVES)
        dense = about(kernel).work == "dense"
        sides[dense] = np.minimum(sides[dense], np.where(near, model.at(asked), math.inf))
    points = zip(_WIDTHS, sides[True], sides[False], strict=True)
    return tuple((n, float(a), float(b)) for n, a, b in points if a < math.inf and b < math.inf)
