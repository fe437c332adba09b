"""Whether results follow other values than those that candidates were first checked on.

Of every kernel: one weight of each row, picked at random, becomes the largest by far. The check of all elements lets a
weight pass that a kernel drops, or keeps from before, if its product is below the tolerance's share of its row's sum:
in bf16 most of a row with a hundred weights are. Made so large none is.

Of a kernel from outside, whose plans are made of the problem's operands and could hold the result: the dense operands
get other values, drawn when the plans are there already, at the same addresses.
"""

from __future__ import annotations

import functools
import secrets
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from nnzbench.bench.timing import Batch
from nnzbench.core.plan import Array, Candidate, Plan, Prepared, Unsupported
from nnzbench.data.problems.check import Wrong, held
from nnzbench.data.problems.experiment import Policy
from nnzbench.data.problems.operands import Operands, operands_of, round_to
from nnzbench.data.problems.problem import NETWORKS, DType, Problem
from nnzbench.data.problems.reference import Reference, reference
from nnzbench.devices import Device, Timer
from nnzbench.devices.gpu_timer import forget_persisting_l2
from nnzbench.kernels.registry import AnyKernel, candidates
from nnzbench.kernels.vendor.support import to_storage

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


def follow(kernel: AnyKernel, candidate: Candidate, problem: Problem, known: Moved, device: Device) -> None:
    """Raises `Wrong` where the candidate's result over the changed weights is; passes where that can't be told.

    It is planned and prepared anew, which says as much of kernels that keep weights packed. But where they are part of
    its program, which would be compiled for this alone, nothing is done.
    """
    found = islice(candidates(kernel, problem, known.operands, device), LOOKED_AT)
    try:
        again = next((one for one in found if one.variant == candidate.variant), None)
        if again is None or _program(again) != _program(candidate):
            return
        prepared = again.prepare()
    except Unsupported:
        return
    try:
        prepared.poison()
        prepared.run()
        result = prepared.read()[known.rows]
    finally:
        prepared.close()
    held(result, known.truth, candidate.tolerance or candidate.math)


def _program(candidate: Candidate) -> tuple[str, Mapping[str, int | str]] | None:
    return (candidate.plan.source, candidate.plan.defines) if candidate.plan is not None else None


PAIRS = 5
"""Cold launches over new values, each followed by one over the same values."""
SLOWER, SLOWER_US = 1.5, 3.0
"""A launch over new values that takes this many times as long, and so many microseconds more, did work that a launch
over the same values left out: the L2 cache is overwritten before both."""


@dataclass(frozen=True)
class Values:
    """Dense operands, and the float64 result of them."""

    dense: Mapping[str, Array]
    truth: Callable[[], Reference]


@dataclass(frozen=True)
class Outside:
    """A problem's operands as its plans were made of them, and others that nothing but this process has seen."""

    problem: Problem
    given: Values
    other: Values


def outside(problem: Problem, operands: Operands, truth: Callable[[], Reference]) -> Outside:
    """Draws the other values; for `sparse_softmax`, whose input is the sparse operand, those of its nonzeros."""
    hidden = replace(problem, seed=secrets.randbits(63))
    drawn = operands_of(hidden, operands.sparse, operands.pattern)
    given = operands.dense
    if not given:
        values = operands.sparse.values
        mixed = values[np.random.default_rng(hidden.seed).permutation(values.size)]
        given, drawn = {"values": values}, replace(drawn, sparse=operands.sparse.with_values(mixed))
    dense = drawn.dense or {"values": drawn.sparse.values}
    other = functools.cache(lambda: reference(problem, drawn))
    return Outside(problem, Values(given, truth), Values(dense, other))


class Guard:
    """One prepared candidate from outside, of a plan or with `ends`.

    Raises `Unsupported` where its plan has an operand in a form of its own.
    """

    def __init__(self, prepared: Prepared, plan: Plan | None, tolerance: str, known: Outside) -> None:
        self._prepared, self._tolerance, self._known = prepared, tolerance, known
        self._held = {"b": prepared.ends.b} if plan is None and prepared.ends is not None else prepared.arrays
        self._places = dict(_places(plan, known)) if plan is not None else {"b": ("b", 0)}
        self._buffers = {id(values): self._filled(values) for values in (known.given, known.other)}
        self._now = known.given
        self._timed = 0
        self._replay: tuple[Values, Array] | None = None

    def check(self, run: Callable[[], None]) -> float:
        """The error of `run` over other values, launched twice, each time into a poisoned output. Raises `Wrong`."""
        self._write(self._known.other)
        errors = []
        for which in ("with other values of the operands", "launched again over the same values"):
            self._prepared.poison()
            run()
            errors.append(self._passing(which, self._now, self._prepared.read()))
        self._write(self._known.given)
        return max(errors)

    def renewing(self, policy: Policy, batch: Batch) -> Batch:
        """Samples of `batch`, one at a time, each over new values, which a launch outside it has seen, into a poisoned
        output; the output of a sample picked at random is kept. Cold, nothing persists in L2.
        """

        def take(count: int) -> list[float]:
            found: list[float] = []
            for _ in range(count):
                self._write(self._another())
                self._prepared.run()  # leaves the operands where the last launch leaves them: hot stays hot
                self._prepared.poison()
                if policy == "cold":
                    forget_persisting_l2()
                found += batch(1)
                self._timed += 1
                if secrets.randbelow(self._timed) == 0:  # each with the same probability, however many there will be
                    self._replay = self._now, self._prepared.read()
            return found

        return take

    def check_timing(self, timer: Timer) -> float:
        """The error of the sample that was kept; the operands end as they were given. Raises `Wrong`."""
        error = 0.0
        if self._replay is not None:
            error = self._passing("in a timed launch picked at random", *self._replay)
        new, same = [], []
        for _ in range(PAIRS):
            self._write(self._another())
            forget_persisting_l2()
            new += timer.cold_us(self._prepared.run, 1)
            same += timer.cold_us(self._prepared.run, 1)
        fresh, stale = statistics.median(new), statistics.median(same)
        self._intact()
        self._write(self._known.given)
        if fresh > SLOWER * stale + SLOWER_US:
            raise Wrong(f"a launch over new values takes {fresh:.3g} us, and over the same values again {stale:.3g} us")
        return error

    def _another(self) -> Values:
        return self._known.other if self._now is self._known.given else self._known.given

    def _passing(self, which: str, values: Values, result: Array) -> float:
        error = held(result, values.truth(), self._tolerance, f"{which}: ")
        self._intact()
        return error

    def _filled(self, values: Values) -> dict[str, Array]:
        """What the buffers that hold operands then have in them."""
        dtype = self._known.problem.dtype
        return {name: _forms(values.dense[operand], dtype)[form] for name, (operand, form) in self._places.items()}

    def _write(self, values: Values) -> None:
        for name, array in self._buffers[id(values)].items():
            buffer = self._held[name]
            buffer.write(array.view(buffer.dtype).reshape(buffer.shape))
        self._now = values

    def _intact(self) -> None:
        """Raises `Wrong` where a buffer no longer holds the operand that was written there."""
        for name, wanted in self._buffers[id(self._now)].items():
            if not _same(self._held[name].read(), wanted):
                raise Wrong(f"it changed its operand {self._places[name][0]}, in the buffer '{name}'")


def _forms(array: Array, dtype: DType) -> list[Array]:
    """An operand as a buffer may hold it: as it is given, or transposed; of bf16 and f8 the bits too."""
    kinds = [array]
    if dtype in ("bf16", "f8"):
        kinds.append(to_storage(array, dtype))
    turned = [np.ascontiguousarray(one.T) for one in kinds if one.ndim == 2]
    return [np.ascontiguousarray(one) for one in kinds] + turned


def _places(plan: Plan, known: Outside) -> Iterator[tuple[str, tuple[str, int]]]:
    """The buffers that hold a dense operand: its name and form."""
    missing = set(known.given.dense) - {"bias"}
    for operand, array in known.given.dense.items():
        for form, wanted in enumerate(_forms(array, known.problem.dtype)):
            for name, buffer in plan.buffers.items():
                if name != plan.output and _same(np.asarray(buffer), wanted):
                    missing.discard(operand)
                    yield name, (operand, form)
    if missing and (known.problem.op not in NETWORKS or len(missing) == len(known.given.dense)):
        raise Unsupported(
            f"no buffer of {plan.variant} holds the operand {min(missing)} as it is given, or transposed: what is made "
            "of it belongs into the launches, which are timed"
        )


def _same(one: Array, other: Array) -> bool:
    return one.nbytes == other.nbytes and np.ascontiguousarray(one).tobytes() == other.tobytes()
