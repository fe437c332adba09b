"""A prepared candidate over copies of its weights: as many as L2 does not hold for `stream`, one for other policies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from nnzbench.core.plan import Candidate, Prepared, Unsupported
from nnzbench.data.problems.buffers import weights_of
from nnzbench.data.problems.operands import Operands
from nnzbench.devices import Timer
from nnzbench.devices.gpu import short_of_memory

MOST_COPIES = 1000
"""Smaller weights than 4x L2 over this are in L2 in part."""


def weight_names(candidate: Candidate, prepared: Prepared, operands: Operands | None) -> tuple[str, ...]:
    """Which of `prepared.arrays` are weights. Raises `Unsupported` where it can't run over copies of them."""
    plan, operands = candidate.plan, candidate.operands or operands
    if prepared.copied is None or (plan is not None and operands is None):
        raise Unsupported("it can't run over copies of its weights")
    return weights_of(plan, operands) if plan is not None and operands is not None else tuple(prepared.arrays)


def over_copies(
    candidate: Candidate, prepared: Prepared, operands: Operands | None, timer: Timer
) -> list[Callable[[], None]]:
    """Its own run, then those over copies: two or more, together more than L2 keeps until the next round.

    Raises `Unsupported` as `weight_names`, `LaunchError` where there is no memory.
    """
    if prepared.rotates:
        return [prepared.run]
    names = weight_names(candidate, prepared, operands)
    held = [prepared.arrays[name] for name in names]
    size = sum(math.prod(one.shape) * one.dtype.itemsize for one in held)
    if candidate.plan is not None and candidate.plan.language == "ptx" and prepared.resources is not None:
        size += prepared.resources.code_bytes
    count = min(MOST_COPIES, max(2, math.ceil(timer.flush_bytes / max(1, size))))
    copied = prepared.copied or (lambda _: prepared.run)
    return [prepared.run, *(copied(names) for _ in range(count - 1))]


def at_two_places(candidate: Candidate, prepared: Prepared, operands: Operands | None) -> list[Callable[[], None]]:
    """Its own run and, where its weights can be copied and there is memory, one over a copy of them."""
    if prepared.rotates:
        return [prepared.run]
    try:
        names = weight_names(candidate, prepared, operands)
        return [prepared.run, prepared.copied(names)] if prepared.copied and names else [prepared.run]
    except Exception as error:  # libraries have their own
        if isinstance(error, Unsupported) or short_of_memory(error):
            return [prepared.run]
        raise


def each(runs: Sequence[Callable[[], None]]) -> None:
    """Enqueues one after another."""
    for run in runs:
        run()
