"""The estimator of a kernel's time on a GPU: a sum of costs over sizes, and what recorded problems near by took beyond.

The sum (launch, products, outputs, ...: constants of at least 0 by least squares of relative errors) carries an
estimate to sizes that nothing was recorded at. The logarithm of what was measured over the sum is then taken for a
Gaussian process over the sizes in octaves ("kriging"): one part that changes slowly, over eight octaves, and one that
changes within one, since libraries and tilings switch. A structured pattern (2:4, balanced, blocks) has a part of its
own, which changes slowly too: on 2:4 some kernels take twice as long as on other patterns of the same sizes. The
constants are the same for all kernels and were chosen by errors on recorded rows whose layer sizes, experiment or width
was held out.

Below the narrowest recorded width the estimate at that width is kept, as far as a tile of columns goes. Of the kernels
that are recorded at narrow widths in fp16, some take as long there as at 32 columns and some half of it; with these
rows held out, times that fell with the width came out at two thirds of those measured on average (a third at worst),
and the kernel whose time was carried too far down was called the fastest. Libraries apart, which
may have another algorithm for few columns, that time is rarely too short: with a kernel's rows below 2, 4, 8, 16 or 32
columns held out (SpMM, fp16 and fp32, H100 and H200), 1,056 such times were shorter than dense by `answer.SURELY`, and
but for four of them the kernel was in fact faster; so was each of the 714 that were the least of their problem
(`recorded.widened`).

On a GPU without records an estimate is that of the recorded GPU most like it, carried over by what bounds its work on
the two (`Carry`). None is shorter than its bytes take from that GPU's memory, where they have to come from there.
Beside an estimate stands what nine in ten such times were within, of layer sizes that it had not seen (`Model.within`);
of a GPU without records joined with the same of GPUs held out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import scipy  # its parts are loaded when they are first used
from numpy.typing import NDArray

from nnzbench.core.gpus import Gpu
from nnzbench.data.problems.experiment import WARM
from nnzbench.kernels.cost_rule import fit_constants
from nnzbench.papers.predict.model import carried
from nnzbench.results.records.describe import UNSTRUCTURED, pattern_of

Floats = NDArray[np.float64]
Kinds = NDArray[np.str_]

FAR_OCTAVES = 3.0
"""With nothing recorded nearer, an estimate is a guess."""
FAR = f"is not recorded within {FAR_OCTAVES:g} octaves"
"""Why an estimate is a guess that nothing recorded is near, as what follows the kernel's name."""
ASKED = 0.92
"""Share of held-out errors that an interval holds, to hold nine in ten times of layers that were not looked at."""
INDEX_BYTES = 4
NEAREST = 6
"""Recorded problems that are told as the nearest."""
FOLDS = 5
PARTS = ((0.4, 8.0), (0.15, 1.0))
"""Standard deviation of each part of the process, and its length in octaves."""
OF_KIND = (0.4, 8.0)
"""The same of what rows of one structured kind of pattern have in common, beside the parts of all."""
NOISE = 0.05
"""Relative; two patterns of the same sizes differ by more than two measurements of one."""
COLUMN_TILE = 32
"""Columns of a dense operand come in tiles of so many; for kernels that leave zeros out, from half a tile on."""


@dataclass(frozen=True)
class Sizes:
    """What an estimate knows of a problem."""

    m: int
    k: int
    n: int
    nnz: int
    kind: str = UNSTRUCTURED
    """Of its pattern, as `describe.pattern_of` names it. The time of a dense product does not depend on it."""


@dataclass(frozen=True)
class Carry:
    """How one kernel's times on a recorded GPU are those of another."""

    source: Gpu
    target: Gpu
    factor: float
    """By what a library's times are off beyond what data sheets say, from published ones."""
    within: float
    """Fraction that nine in ten of such times, held out GPU by GPU, are within."""


_STRIP = 64
"""Rows whose likeness to others stays in the cache."""
Table = dict[str, Floats]
_SIZES = ("m", "k", "n", "nnz")


class Model:
    """The recorded rows of one kernel in one arithmetic under one policy, and what follows from them.

    No time is estimated below `least_us`, what a launch of any kernel takes at least, or below what memory of `gpu`
    takes for its operands. A `library` may have another algorithm for other widths.
    """

    def __init__(
        self,
        rows: pd.DataFrame,
        dense: bool,
        sddmm: bool,
        item: int,
        least_us: float = 0.0,
        library: bool = False,
        *,
        policy: str = "hot",
        math_class: str = "f32",
        gpu: Gpu | None = None,
        carry: Carry | None = None,
        halved: bool = False,
        coded: bool = False,
    ) -> None:
        self.policy, self._math, self._gpu, self._carry = policy, math_class, gpu, carry
        self._halved, self._coded = halved, coded
        """Whether half of all weights are kept, for sparse tensor cores, and whether in fewer bits than a value has."""
        self.rows = rows.reset_index(drop=True)
        self._library = library
        self._dense, self._sddmm, self._item, self._least_us = dense, sddmm, item, least_us
        self._us = self.rows["median_us"].to_numpy(float)
        self._sizes = [self.rows[name].to_numpy(float) for name in _SIZES]

    @cached_property
    def kinds(self) -> Kinds:
        """Of each row, the kind of its pattern; that of a dense product's counts as unstructured."""
        return self._kinds(self.rows["source"].map(pattern_of))

    @cached_property
    def _places(self) -> Floats:
        return self._coordinates(*self._sizes)

    def _kinds(self, kinds: Sequence[str] | pd.Series) -> Kinds:
        return np.array([UNSTRUCTURED if self._dense else one for one in kinds], dtype=np.str_)

    def knows(self, kind: str) -> bool:
        """Whether a pattern of that kind is recorded, or any will do."""
        return self._dense or kind in self.kinds

    @property
    def widths(self) -> Floats:
        """Of each row, how many columns its dense operand has (sddmm: the length of its products)."""
        return self._sizes[self._wide]

    @property
    def _wide(self) -> int:
        return _SIZES.index("k" if self._sddmm else "n")

    def _not_narrower(self, sizes: Sequence[Floats], narrowest: float) -> list[Floats]:
        """The sizes, none narrower than `narrowest` or a tile."""
        least = min(narrowest, COLUMN_TILE)
        return [np.maximum(one, least) if at == self._wide else one for at, one in enumerate(sizes)]

    def _costs(self, m: Floats, k: Floats, n: Floats, nnz: Floats) -> Table:
        """What a time may be a sum of. Square roots stand for what grows until the GPU is full."""
        words = self._item / 4  # dense operands count in words of 4 bytes
        inner, outer = (n, k) if self._sddmm else (k, n)
        tiled = np.ceil(outer / COLUMN_TILE) * COLUMN_TILE
        outer = words * (tiled if self._dense else np.where(outer > COLUMN_TILE // 2, tiled, outer))
        table = {"launch": np.ones_like(m), "outputs": m * outer, "inputs": inner * outer, "rows": m, "columns": inner}
        if self._dense:
            weights = m * inner
            table |= {"weights": weights, "products": weights * outer, "filling": np.sqrt(weights * outer)}
            return table | {"depth": np.sqrt(inner), "spread": np.sqrt(m * outer)}
        length = nnz / m
        table |= {"nonzeros": nnz, "products": nnz * outer, "filling": np.sqrt(nnz * outer)}
        return table | {"length": length, "depth": np.sqrt(length), "spread": np.sqrt(nnz)}

    def _coordinates(self, m: Floats, k: Floats, n: Floats, nnz: Floats) -> Floats:
        """Sizes in octaves; a dense product does not depend on how many weights are zero."""
        filled = np.maximum(nnz, 1) / (m * (n if self._sddmm else k))
        axes = [np.log2(m), np.log2(k), np.log2(n)]
        return np.stack(axes if self._dense else [*axes, np.log2(filled)], axis=1)

    @cached_property
    def _alike(self) -> Floats:
        """The upper half: the other is the same, and no factor of Cholesky asks for it."""
        places, kinds, found = self._places, self.kinds, np.zeros((len(self._us), len(self._us)))
        for at in range(0, len(found), _STRIP):
            some = slice(at, at + _STRIP)
            found[some, at:] = _likeness(_octaves(places[some], places[at:]), kinds[some], kinds[at:])
        return found

    @cached_property
    def _fitted(self) -> _Fit:
        return _Fit(self._costs(*self._sizes), self._alike, self._us, self._least_us)

    def at(self, sizes: Sequence[Sizes]) -> Floats:
        """Estimated microseconds of each."""
        given, kinds = _arrays(sizes), self._kinds([one.kind for one in sizes])
        arrays = self._not_narrower(given, self.widths.min())
        alike = _likeness(self._octaves(arrays), kinds, self.kinds)
        found = self._fitted.at(self._costs(*arrays), alike)
        if carry := self._carry:
            floors = self.rows.get("floor_us", pd.Series(dtype=float)).dropna()
            launch = float(floors.median()) if len(floors) else 0.0
            found = carry.factor * carried(found, launch, self._work(*arrays), carry.source, carry.target, self.policy)
        return np.maximum(found, self._memory_us(*given))

    def _work(self, m: Floats, k: Floats, n: Floats, nnz: Floats) -> pd.DataFrame:
        """Operations and bytes, as of the recorded rows: CSR, or every weight of a dense product."""
        stored = m * k if self._dense else nnz
        weights = self._item * stored if self._dense else (self._item + INDEX_BYTES) * nnz + INDEX_BYTES * (m + 1)
        moved = (self._item * m * k / 2 if self._halved else weights) + self._item * n * (np.minimum(k, stored) + m)
        table = pd.DataFrame({"flops": 2 * stored * n, "bytes": moved, "m": m, "n": n})
        return table.assign(kind="dense" if self._dense or self._halved else "sparse", math=self._math)

    def _memory_us(self, m: Floats, k: Floats, n: Floats, nnz: Floats) -> Floats:
        """Least microseconds for the operands' bytes: all of them from memory, or if hot what L2 does not hold."""
        if self._gpu is None or self._sddmm:
            return np.zeros_like(m)
        stored = m * k if self._dense else nnz
        weights = 0.0 if self._coded else self._item * stored
        moved = weights + self._item * n * (np.minimum(k, stored) + m)
        held = self._gpu.l2_mb * 2**20 if self.policy in WARM else 0.0
        least: Floats = np.maximum(moved - held, 0.0) * 1e-3 / self._gpu.bandwidth_gbs
        return least

    def held_out_error(self, kind: str = UNSTRUCTURED) -> float:
        """Mean of |estimate / measured - 1| over rows whose layer sizes (m x k) the estimate had not seen.

        Over those of the kind of pattern, or over all where that is more: a kind may have two rows, met by chance.
        """
        parts = (self._held_out, self._held_out[self.kinds == kind])
        return float(np.max([np.abs(np.expm1(one)).mean() for one in parts if one.size]))

    def within(self, kind: str = UNSTRUCTURED, known: NDArray[np.bool_] | None = None) -> float:
        """Fraction that nine in ten times of unseen layer sizes are within: the interval of an estimate.

        A quantile of the held-out errors, as conformal prediction takes it; over the kind of pattern or over all as
        `held_out_error`, of the rows `known` where not of all.
        """
        some = np.ones(self._us.size, bool) if known is None else known
        parts = (self._held_out[some], self._held_out[some & (self.kinds == kind)])
        off = max(quantile(np.abs(one)) for one in parts if one.size)
        return float(np.expm1(np.hypot(off, np.log1p(self._carry.within)) if self._carry else off))

    @cached_property
    def _held_out(self) -> Floats:
        """Of each row the logarithm of estimate over measured; NaN where all have the same layer sizes."""
        found = np.full(self._us.size, np.nan)
        for number in range(FOLDS):
            out = self.folds == number
            if not out.all():
                found[out] = np.log(self.estimates(out) / self._us[out])
        return found

    @cached_property
    def folds(self) -> NDArray[np.int64]:
        """Of each row, which of `FOLDS` parts of the kernel's layer sizes (m x k) it belongs to."""
        inner = self.rows["n" if self._sddmm else "k"].to_numpy(np.int64)
        layers, where = np.unique(self.rows["m"].to_numpy(np.int64) * (1 << 32) + inner, return_inverse=True)
        parts: NDArray[np.int64] = np.random.default_rng(0).permutation(layers.size)[where] % FOLDS
        return parts

    def estimates(self, out: NDArray[np.bool_]) -> Floats:
        """Microseconds of the rows `out`, from the others alone; none where these are all or none."""
        if not out.any() or out.all():
            return np.full(np.count_nonzero(out), np.nan)
        known = ~out
        table = {name: values[known] for name, values in self._costs(*self._sizes).items()}
        kept = _Fit(table, self._alike[known][:, known], self._us[known], self._least_us)
        asked = self._not_narrower([one[out] for one in self._sizes], self.widths[known].min())
        alike = _likeness(self._octaves(asked)[:, known], self.kinds[out], self.kinds[known])
        return kept.at(self._costs(*asked), alike)

    def distances(self, sizes: Sequence[Sizes]) -> Floats:
        """Of each, how far the nearest recorded row is, octaves."""
        return self._nearest(_arrays(sizes))

    def remoteness(self, sizes: Sizes) -> tuple[bool, float]:
        """Whether no pattern of the kind is recorded, and how far the nearest row is, octaves."""
        return not self.knows(sizes.kind), float(self.distances([sizes])[0])

    def guess(self, sizes: Sizes) -> str:
        """Why its estimate is a guess there, as what follows the kernel's name; empty where it is none.

        That of a dense library below its recorded widths is none: held out, such estimates are as good as others.
        Nor is that of a kernel that takes the time of its narrowest width there (`widened`).
        """
        return str(self.guesses([sizes])[0])

    def guesses(self, sizes: Sequence[Sizes]) -> NDArray[np.str_]:
        """The same of each, of one kind of pattern all."""
        arrays, kind = _arrays(sizes), sizes[0].kind
        narrowest, widest = self.widths.min(), self.widths.max()
        if self._widens:
            arrays[self._wide] = np.maximum(arrays[self._wide], narrowest)
        width = arrays[self._wide]
        reasons = {
            f"is not recorded on {kind} patterns": np.full(width.size, not self.knows(kind)),
            FAR: self._nearest(arrays) > FAR_OCTAVES,
            f"is recorded from a width of {narrowest:.0f} on": (width < narrowest) & (not self._dense),
            f"is recorded up to a width of {widest:.0f}": width > widest,
        }
        return np.select(list(reasons.values()), list(reasons), "")

    def widened(self, sizes: Sizes) -> int | None:
        """The narrowest recorded width where its time stands for that of a narrower one, and rarely is too short."""
        narrowest = int(self.widths.min())
        return narrowest if self._widens and _arrays([sizes])[self._wide][0] < narrowest else None

    @property
    def _widens(self) -> bool:
        return not (self._library or self._sddmm) and self.widths.min() <= COLUMN_TILE

    def _nearest(self, sizes: Sequence[Floats]) -> Floats:
        nearest: Floats = self._tree.query(self._coordinates(*sizes))[0]
        return nearest

    @cached_property
    def _tree(self) -> Any:
        return scipy.spatial.KDTree(self._places)

    def _octaves(self, sizes: Sequence[Floats]) -> Floats:
        return _octaves(self._coordinates(*sizes), self._places)

    def near(self, sizes: Sizes) -> list[tuple[float, Any]]:
        """The recorded rows by distance in octaves, nearest first; of those as near, the same kind of pattern first."""
        distances = self._octaves(_arrays([sizes]))[0]
        order = np.lexsort((self.kinds != sizes.kind, distances.round(1)))[:NEAREST]
        return [(float(distances[at]), self.rows.iloc[at]) for at in order]


def quantile(off: Floats) -> float:
    """Of errors, what the next of their kind is within nine times in ten: the largest of few."""
    return float(np.sort(off)[min(off.size, math.ceil(ASKED * (off.size + 1))) - 1])


class _Fit:
    """The constants of the sum, and what the process weighs each row by; `alike` are the rows' covariances."""

    def __init__(self, table: Table, alike: Floats, us: Floats, least_us: float) -> None:
        self._least_us = min(least_us, float(us.min()))
        self._constants = fit_constants(table, us, self._least_us)
        beyond = np.log(us / self._sum(table))
        noisy = alike.copy()
        np.fill_diagonal(noisy, noisy.diagonal() + NOISE**2)
        weights = scipy.linalg.cho_solve(scipy.linalg.cho_factor(noisy, overwrite_a=True, check_finite=False), beyond)
        self._weights: Floats = np.asarray(weights, np.float64)

    def _sum(self, table: Table) -> Floats:
        total: Floats = sum(
            (self._constants.get(name, 0.0) * values for name, values in table.items()), np.full(1, self._least_us)
        )
        return np.maximum(total, 1e-3)

    def at(self, table: Table, alike: Floats) -> Floats:
        """Estimated microseconds, from covariances with the rows."""
        beyond: Floats = alike @ self._weights
        return np.maximum(self._sum(table) * np.exp(beyond), self._least_us)


def _arrays(sizes: Sequence[Sizes]) -> list[Floats]:
    return [np.array([getattr(one, name) for one in sizes], float) for name in _SIZES]


def _octaves(some: Floats, others: Floats) -> Floats:
    """Of each place how far each of the others is."""
    apart: Floats = np.zeros((len(some), len(others)))
    for one, other in zip(some.T, others.T, strict=True):
        step = one[:, None] - other
        apart += np.square(step, out=step)
    octaves: Floats = np.sqrt(apart, out=apart)
    return octaves


def _likeness(octaves: Floats, kinds: Kinds, other_kinds: Kinds) -> Floats:
    """Covariances of the process (Matern, 3/2) between places so far apart."""
    total = sum((_matern(octaves, *part) for part in PARTS), np.zeros(1))
    structured = kinds != UNSTRUCTURED
    if structured.any():
        same = kinds[structured, None] == other_kinds
        total[structured] += np.where(same, _matern(octaves[structured], *OF_KIND), 0.0)
    return total


def _matern(octaves: Floats, deviation: float, length: float) -> Floats:
    scaled = np.sqrt(3.0) * octaves
    scaled /= length
    covariances: Floats = np.exp(-scaled)
    scaled += 1
    scaled *= deviation**2
    covariances *= scaled
    return covariances
