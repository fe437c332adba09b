"""The answers of `estimate` at a grid of sizes, for index.html, which reads between its points in logarithms.

Of each point the fastest dense and the best sparse kernel by the verdict on a layer of these sizes, its zeros anywhere.
Kernels that take layers of certain sizes alone are left out: a point stands for what lies beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from nnzbench.advise.answer import FEW_ZEROS, SURELY, Answer, Entry, Width, ranked
from nnzbench.advise.estimate import Takers
from nnzbench.advise.layer import load
from nnzbench.advise.recorded import LEAST_CERTAIN, Recorded
from nnzbench.advise.recorded import load as load_records
from nnzbench.data.problems.problem import DType
from nnzbench.kernels.registry import about
from nnzbench.papers.predict.estimator import Floats, Model, Sizes
from nnzbench.results.records.describe import UNSTRUCTURED
from nnzbench.results.records.record import RecordError

SIZES = tuple(2**at for at in range(8, 16))
"""Rows, and columns of the matrix."""
WIDTHS = (1, 2, 4, 8, 16, 17, 32, 33, 64, 65, 96, 97, 128, 129, 256, 512, 1024, 2048, 4096)
"""A tile of 32 columns costs the same from 17 on, and the next from 33."""
SHARES = (0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
"""Of nonzeros."""
DTYPES: tuple[DType, ...] = ("f16", "f32")
RANKED = ("stream", "hot")
"""Policies that times are ranked by, first the one that is preferred."""
STEPS = 256
"""Of a time's logarithm to base 2: to 0.3 %."""
_ODD = "600x600@0.9"
"""A layer of sizes that few tiles divide: what takes it takes others."""
POINTS = {"axes": [SIZES, SIZES, WIDTHS, SHARES], "steps": STEPS, "surely": SURELY, "fewZeros": 100 * FEW_ZEROS}
"""As the page has them."""
_AT_ONCE = 64
"""Points whose likeness to recorded rows stays in the cache."""
_POINTS = [Sizes(m, k, n, round(share * m * k)) for m in SIZES for k in SIZES for n in WIDTHS for share in SHARES]
_COLUMNS, _NONZEROS = (np.array([getattr(one, name) for one in _POINTS]) for name in ("n", "nnz"))


class _Times(NamedTuple):
    us: Floats
    guess: NDArray[np.bool_]
    refused: NDArray[np.bool_]
    within: tuple[float, float]
    """At one column, and at more."""
    narrowest: int
    """Fewer columns take as long as so many."""
    most: int | None
    """Nonzeros that its code has room for."""


def of_gpu(reports: Path, gpu: str) -> dict[str, Any]:
    """By arithmetic the `grids` of a GPU's records; nothing where too little is recorded, or is refused."""
    try:
        known = load_records(gpu, [reports])
    except RecordError:
        return {}
    return {dtype: found for dtype in DTYPES if (found := grids(known, dtype))}


def grids(recorded: Recorded, dtype: DType) -> dict[str, dict[str, Any]]:
    """By policy that times are ranked by, the lists of `_grid`; none where either side is not recorded."""
    (layer,) = load([_ODD])
    takers, times = Takers(layer, recorded.arch), {}
    with threadpool_limits(limits=1, user_api="blas"):  # of small systems: threads spend most of it on each other
        for (kernel, maths, policy), model in recorded.models("spmm", dtype).items():
            if maths == dtype and model.knows(UNSTRUCTURED) and model.held_out_error() <= LEAST_CERTAIN:
                ns = [n for n in WIDTHS if not takers.asked(kernel, layer.problem("spmm", n, dtype))[0]]
                if about(kernel).work == "dense" or ns:
                    vectors = recorded.models("spmv", dtype).get((kernel, maths, policy))
                    times[kernel, policy] = _times(kernel, model, vectors, np.isin(_COLUMNS, ns))
    sides = {policy: {about(kernel).work == "dense" for kernel, of in times if of == policy} for policy in RANKED}
    return {policy: _grid(times, policy, dtype) for policy, found in sides.items() if len(found) == len((True, False))}


def _times(kernel: str, model: Model, vectors: Model | None, taken: NDArray[np.bool_]) -> _Times:
    """A kernel's times at all points; at one column by the rows of products with vectors where these are nearer."""
    dense, within = about(kernel).work == "dense", [model.within()] * 2
    us, guess = _estimates(model, _POINTS, len(SHARES) if dense else 1)  # how many are zero changes no dense time
    if vectors is not None:
        at = np.flatnonzero(_COLUMNS == 1)
        some = [_POINTS[one] for one in at]
        nearer = vectors.distances(some) < model.distances(some)
        us[at[nearer]], guess[at[nearer]] = (found[nearer] for found in _estimates(vectors, some, 1))
        within[0] = max(within[0], vectors.within() if nearer.any() else 0.0)
    most = int(model.rows["nnz"].max()) if about(kernel).weights_in_code else None
    refused = ~(taken & (most is None or most >= _NONZEROS)) & (not dense)
    return _Times(us, guess, refused, (within[0], within[1]), model.widened(_POINTS[0]) or 1, most)


def _estimates(model: Model, sizes: Sequence[Sizes], step: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Microseconds, and whether they are guesses; of every `step`th for those that follow it too."""
    parts = [sizes[at : at + step * _AT_ONCE : step] for at in range(0, len(sizes), step * _AT_ONCE)]
    us, why = (np.concatenate([asked(part) for part in parts]) for asked in (model.at, model.guesses))
    return us.repeat(step), why.repeat(step) != ""


def _grid(times: Mapping[tuple[str, str], _Times], policy: str, dtype: DType) -> dict[str, Any]:
    """Of each point the `dense` and the `sparse` kernel of the verdict (places in `kernels`; none where nothing is
    recorded near), and whether the sparse one is slower `cold` alone. `kernels`: label, `within`, `narrowest`, `most`,
    and if it is any point's, `STEPS` of the logarithms of its times at all points, each as what it is more than the
    one before."""
    mine = {kernel: one for (kernel, of), one in times.items() if of == policy}
    names = list(mine)
    columns: dict[str, list[Any]] = {"dense": [], "sparse": [], "cold": []}
    for at, sizes in enumerate(_POINTS):
        entries = []
        for kernel, known in mine.items():
            if not known.guess[at] and not known.refused[at]:
                us, streamed, cold = float(known.us[at]), policy == "stream", times.get((kernel, "cold"))
                as_width = known.narrowest if sizes.n < known.narrowest else None
                entry = Entry(
                    kernel, dtype, hot_us=None if streamed else us, stream_us=us if streamed else None,
                    cold_us=None if streamed or cold is None else float(cold.us[at]), as_width=as_width,
                    within=None if as_width else known.within[sizes.n > 1],
                )  # fmt: skip
                entries.append(entry)
        width = Width(sizes.n, ranked(entries))
        verdict = Answer("", "spmm", dtype, sizes.m, sizes.k, sizes.nnz, "", True, (width,)).verdict(width)
        sparse = next((one for one in (verdict.chosen, verdict.other) if one and not one.dense), None)
        columns["cold"].append(int(verdict.reason == "cold"))
        for side, one in (("dense", width.baseline(dtype)), ("sparse", sparse)):
            columns[side].append(names.index(one.kernel) if one else None)
    used, kernels = {*columns["dense"], *columns["sparse"]}, []
    for place, (kernel, known) in enumerate(mine.items()):
        steps = np.diff(np.rint(STEPS * np.log2(known.us)).astype(int), prepend=0).tolist() if place in used else []
        kernels.append((Entry(kernel, dtype).label, known.within, known.narrowest, known.most, steps))
    return {"kernels": kernels, **columns}
