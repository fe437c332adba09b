"""What a kernel from outside must stand beside the checks of ours: operands whose values it could not know.

Its plans are made of the problem's operands, so that they could hold the result. Here the dense operands get other
values, drawn when the plans are there already, at the same addresses: the result must follow them.
"""

from __future__ import annotations

import functools
import secrets
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from nnzbench.bench.timing import Batch
from nnzbench.core.plan import Array, Plan, Prepared, Unsupported
from nnzbench.data.problems.check import passes, relative_error, why
from nnzbench.data.problems.experiment import Policy
from nnzbench.data.problems.operands import Operands, operands_of
from nnzbench.data.problems.problem import NETWORKS, DType, Problem
from nnzbench.data.problems.reference import Reference, reference
from nnzbench.devices import Timer
from nnzbench.devices.gpu_timer import forget_persisting_l2
from nnzbench.kernels.vendor.support import to_storage

PAIRS = 5
"""Cold launches over new values, each followed by one over the same values."""
SLOWER, SLOWER_US = 1.5, 3.0
"""A launch over new values that takes this many times as long, and so many microseconds more, did work that a launch
over the same values left out: the L2 cache is overwritten before both."""


class Cheat(Exception):
    """The candidate does not compute what it is given; the message is one sentence, `error` its relative error."""

    def __init__(self, sentence: str, error: float | None = None) -> None:
        super().__init__(sentence)
        self.error = error


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
    """One prepared candidate from outside. Raises `Unsupported` where its plan has an operand in a form of its own."""

    def __init__(self, prepared: Prepared, plan: Plan, tolerance: str, known: Outside) -> None:
        self._prepared, self._tolerance, self._known = prepared, tolerance, known
        self._places = dict(_places(plan, known))
        self._buffers = {id(values): self._filled(values) for values in (known.given, known.other)}
        self._now = known.given
        self._timed = 0
        self._replay: tuple[Values, Array] | None = None

    def check(self) -> float:
        """The error over other values, launched twice, each time into a poisoned output. Raises `Cheat`."""
        self._write(self._known.other)
        errors = []
        for which in ("with other values of the operands", "launched again over the same values"):
            self._prepared.poison()
            self._prepared.run()
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
        """The error of the sample that was kept; the operands end as they were given. Raises `Cheat`."""
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
            raise Cheat(f"a launch over new values takes {fresh:.3g} us, and over the same values again {stale:.3g} us")
        return error

    def _another(self) -> Values:
        return self._known.other if self._now is self._known.given else self._known.given

    def _passing(self, which: str, values: Values, result: Array) -> float:
        error = relative_error(result, values.truth())
        if not passes(error, self._tolerance):
            raise Cheat(f"{which}: {why(result, values.truth(), error, self._tolerance)}", error)
        self._intact()
        return error

    def _filled(self, values: Values) -> dict[str, Array]:
        """What the buffers that hold operands then have in them."""
        dtype = self._known.problem.dtype
        return {name: _forms(values.dense[operand], dtype)[form] for name, (operand, form) in self._places.items()}

    def _write(self, values: Values) -> None:
        for name, array in self._buffers[id(values)].items():
            held = self._prepared.arrays[name]
            held.write(array.view(held.dtype).reshape(held.shape))
        self._now = values

    def _intact(self) -> None:
        """Raises `Cheat` where a buffer no longer holds the operand that was written there."""
        for name, wanted in self._buffers[id(self._now)].items():
            if not _same(self._prepared.arrays[name].read(), wanted):
                raise Cheat(f"it changed its operand {self._places[name][0]}, in the buffer '{name}'")


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
