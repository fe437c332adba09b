"""Choosing without measuring: costs that are linear in a few features, with constants fitted to recorded runs.

Every candidate's time is predicted as (sum of constant * feature) * factor of the candidate; the least is chosen.
Constants stand in `datasets/selection_rule.csv`; `nnzbench fit rule` fits them to records and says how close to
the oracle the rule comes on matrices it was not fitted to.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nnzbench.core import paths
from nnzbench.core.plan import Int64s
from nnzbench.core.tiles import TileConfiguration
from nnzbench.data.matrices.formats import CSR

Features = Mapping[str, float]
COLUMNS = ("rule", "kind", "name", "value", "origin")
_TRUST = 5.0
"""Trials of a candidate at which half of what its factor explains is believed."""


Chosen = TypeVar("Chosen", bound=TileConfiguration)
"""A tile or strip that a rule chooses; its name is that of its factor."""


@dataclass(frozen=True)
class RuleCosts:
    """Constants of one rule: microseconds per unit of each feature, and how far each candidate is off on average."""

    constants: Mapping[str, float]
    factors: Mapping[str, float] = field(default_factory=dict)

    def predict(self, features: Features, candidate: str) -> float:
        """Microseconds. A feature without a constant costs nothing."""
        cost = sum(self.constants.get(name, 0.0) * value for name, value in features.items())
        return cost * self.factors.get(candidate, 1.0)


@dataclass(frozen=True)
class Trial:
    """One timed candidate: `contest` is the problem it competes on, `matrix` the identity of its pattern."""

    contest: str
    matrix: str
    candidate: str
    features: Features
    us: float


@dataclass(frozen=True)
class Score:
    """How near choices come to the fastest candidate of each contest: 100 is the oracle."""

    percent: float
    """Geometric mean over contests."""
    worst_percent: float
    contests: int


def fit_constants(
    table: Mapping[str, NDArray[np.float64]], us: NDArray[np.float64], offset_us: float = 0.0
) -> dict[str, float]:
    """Least squares of relative errors with constants of at least 0, microseconds per unit of each cost.

    `table` has each cost of every trial and `us` their times; `offset_us` is a cost of all that no constant holds.
    """
    names = sorted(table)
    costs = np.stack([table[name] for name in names], axis=1)
    scale = np.abs(costs).max(axis=0)
    scale[scale == 0] = 1.0
    solved = _at_least_0(costs / scale / us[:, None], (us - offset_us) / us)
    return dict(zip(names, (solved / scale).tolist(), strict=True))


def _at_least_0(costs: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares with constants of at least 0, by Lawson and Hanson's active sets: SciPy's takes long to load."""
    found, free = np.zeros(costs.shape[1]), np.zeros(costs.shape[1], bool)
    for _ in range(3 * free.size):
        gains = np.where(free, -np.inf, costs.T @ (wanted - costs @ found))
        if gains.max() <= 1e-10:
            break
        free[gains.argmax()] = True
        while True:
            tried = np.zeros(free.size)
            tried[free] = np.linalg.lstsq(costs[:, free], wanted, rcond=None)[0]
            below = free & (tried <= 0)
            if not below.any():
                break
            found += np.min(found[below] / (found[below] - tried[below])) * (tried - found)
            free &= found > 1e-14
        found = tried
    return found


def fit(trials: Sequence[Trial]) -> RuleCosts:
    """The constants of the trials' features; factors are what then remains, shrunk to 1.

    Raises `ValueError` without trials.
    """
    if not trials:
        raise ValueError("there are no trials to fit to")
    names = {name for trial in trials for name in trial.features}
    table = {name: np.array([trial.features.get(name, 0.0) for trial in trials]) for name in names}
    constants = fit_constants(table, np.array([trial.us for trial in trials]))
    plain = RuleCosts(constants)
    left: dict[str, list[float]] = {}
    for trial in trials:
        predicted = plain.predict(trial.features, trial.candidate)
        if predicted > 0:
            left.setdefault(trial.candidate, []).append(float(np.log(trial.us / predicted)))
    factors = {name: float(np.exp(sum(logs) / (len(logs) + _TRUST))) for name, logs in sorted(left.items())}
    return RuleCosts(constants, factors)


def contests(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """The trials of each contest, in order."""
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        found.setdefault(trial.contest, []).append(trial)
    return found


def score(trials: Sequence[Trial], chosen: Mapping[str, str]) -> Score:
    """The score of one choice per contest.

    Contests with one candidate leave nothing to choose and do not count, nor do those whose choice was not timed.
    """
    ratios = []
    for name, timed in contests(trials).items():
        took = [trial.us for trial in timed if trial.candidate == chosen.get(name)]
        if took and len({trial.candidate for trial in timed}) > 1:
            ratios.append(min(trial.us for trial in timed) / min(took))
    if not ratios:
        return Score(float("nan"), float("nan"), 0)
    logs = np.log(ratios)
    return Score(100 * float(np.exp(logs.mean())), 100 * float(min(ratios)), len(ratios))


def choices(costs: RuleCosts, trials: Sequence[Trial]) -> dict[str, str]:
    """The candidate of least predicted time in each contest; none of whose features has a constant comes last."""

    def predicted(trial: Trial) -> float:
        return costs.predict(trial.features, trial.candidate) or math.inf

    return {name: min(timed, key=predicted).candidate for name, timed in contests(trials).items()}


def slowest(trials: Sequence[Trial]) -> dict[str, str]:
    """The slowest candidate of each contest: what a wrong choice can cost."""
    return {name: max(timed, key=lambda trial: trial.us).candidate for name, timed in contests(trials).items()}


def cross_validate(trials: Sequence[Trial], folds: int = 5) -> Score:
    """The score on matrices not fitted to: all trials of one matrix are in one fold, each fold is judged by the rest.

    Raises `ValueError` for fewer matrices than folds.
    """
    matrices = sorted({trial.matrix for trial in trials})
    if len(matrices) < folds:
        raise ValueError(f"{len(matrices)} matrices can't be split into {folds} folds")
    fold = {matrix: at % folds for at, matrix in enumerate(matrices)}
    chosen: dict[str, str] = {}
    for held in range(folds):
        costs = fit([trial for trial in trials if fold[trial.matrix] != held])
        chosen |= choices(costs, [trial for trial in trials if fold[trial.matrix] == held])
    return score(trials, chosen)


def path() -> Path:
    """The file of the constants in use."""
    return paths.datasets() / "selection_rule.csv"


@cache
def load(rule: str) -> RuleCosts:
    """The constants of `rule` in use. Raises `KeyError` where the file has none."""
    with path().open(newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["rule"] == rule]
    if not rows:
        raise KeyError(f"{path().name} has no constants of the rule '{rule}'")
    parts: dict[str, dict[str, float]] = {"constant": {}, "factor": {}}
    for row in rows:
        parts[row["kind"]][row["name"]] = float(row["value"])
    return RuleCosts(parts["constant"], parts["factor"])


def cheapest(rule: str, options: Iterable[Chosen], features: Callable[[Chosen], Features]) -> Chosen:
    """The option of least predicted time, by the constants of `rule`; the first of equals."""
    costs = load(rule)
    return min(options, key=lambda option: costs.predict(features(option), option.name))


def save(target: Path, rules: Mapping[str, RuleCosts], origin: str) -> None:
    """Writes the constants of `rules`, and keeps those of other rules; `origin` says what they were fitted to."""
    kept: list[dict[str, str]] = []
    if target.exists():
        with target.open(newline="", encoding="utf-8") as stream:
            kept = [row for row in csv.DictReader(stream) if row["rule"] not in rules]
    with target.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([row[name] for name in COLUMNS] for row in kept)
        for rule, costs in rules.items():
            for kind, values in (("constant", costs.constants), ("factor", costs.factors)):
                writer.writerows([rule, kind, name, f"{value:.6g}", origin] for name, value in values.items())


FAMILIES = ("sputnik", "row_stream", "ring", "sparsert", "tensor_spmm", "delta_spmv")
DENSE_BYTES = {"f32": 4, "f16": 2, "f8": 2}
"""Of an element of B where A's values are of that type."""


def family_rule(dtype: str) -> str:
    """The rule that ranks families for values of `dtype`: of FP8 they have costs of their own."""
    return "family_f8" if dtype == "f8" else "family"


def family_features(family: str, k: int, n: int, lengths: Int64s, *, itemsize: int, sms: int) -> dict[str, float]:
    """What bounds any SpMM kernel, under the family's own names so that each has constants of its own.

    `lengths` (m,) are the nonzeros of A's rows; work that multiprocessors share is per multiprocessor, dense operands
    count in words of 4 bytes. Weights and tiles, zeros counted, are what tensor cores multiply.
    """
    nonzeros, columns = float(lengths.sum()), n * itemsize / 4
    values = {
        "launch": 1.0,
        "products": nonzeros * columns / sms,
        "outputs": lengths.size * columns / sms,
        "nonzeros": nonzeros / sms,
        "longest": float(lengths.max(initial=0)),
        "depth": float(k),
        "weights": lengths.size * float(k) / sms,
        "tiles": lengths.size * float(k) * columns / sms,
    }
    return {f"{family}.{name}": value for name, value in values.items()}


def ranked_families(matrix: CSR, n: int, dtype: str, sms: int) -> list[str]:
    """The families by predicted time for `n` columns, the fastest first; those that the rule knows nothing of left out.

    Raises `KeyError` where the rule was not fitted yet.
    """
    costs = load(family_rule(dtype))

    def predicted(family: str) -> float:
        features = family_features(family, matrix.k, n, matrix.row_lengths, itemsize=DENSE_BYTES[dtype], sms=sms)
        return costs.predict(features, family)

    return sorted((family for family in FAMILIES if family in costs.factors), key=predicted)
