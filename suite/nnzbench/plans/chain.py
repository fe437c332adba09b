"""Plans that belong together: one that computes from what others left in shared buffers, and work that many share."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from nnzbench.plans.plan import Array, Launch, Plan


@dataclass(frozen=True)
class Step:
    """One plan of a chain. `shared` maps its buffers to names of the chain; other buffers stay its own."""

    plan: Plan
    shared: Mapping[str, str] = field(default_factory=dict)


def chain(variant: str, steps: Sequence[Step]) -> Plan:
    """The plan that runs `steps` (CUDA plans) in order; its output is the last one's.

    Of buffers that share a name, the largest is kept: a later step may want padding behind what an earlier one writes.
    Raises `ValueError` where two that share a name describe different structure.
    """
    buffers: dict[str, Array] = {}
    launches: list[Launch] = []
    for number, step in enumerate(steps):
        names = {name: step.shared.get(name, f"{number}.{name}") for name in step.plan.buffers}
        for name, array in step.plan.buffers.items():
            held = buffers.get(names[name])
            if held is not None and held is not array and not _agree(held, array):
                raise ValueError(f"step {number} of {variant}: '{name}' is not the '{names[name]}' of an earlier step")
            if held is None or held.nbytes < array.nbytes:
                buffers[names[name]] = array
        for launch in step.plan.launches:
            launches.append(
                replace(
                    launch,
                    args=tuple(names[arg] if isinstance(arg, str) else arg for arg in launch.args),
                    source=launch.source or step.plan.source,
                    defines=launch.defines if launch.source else step.plan.defines,
                )
            )
    first, last = steps[0].plan, steps[-1].plan
    return replace(
        last,
        variant=variant,
        source=first.source,
        defines=first.defines,
        buffers=buffers,
        output=steps[-1].shared.get(last.output, f"{len(steps) - 1}.{last.output}"),
        launches=tuple(launches),
        generate_ms=sum(step.plan.generate_ms for step in steps),
    )


def _agree(one: Array, other: Array) -> bool:
    """Whether the shorter of two buffers is the beginning of the longer; results of a step before may differ."""
    if one.dtype != other.dtype or not np.issubdtype(one.dtype, np.integer):
        return one.dtype == other.dtype
    size = min(one.size, other.size)
    return bool(np.array_equal(one.reshape(-1)[:size], other.reshape(-1)[:size]))


T = TypeVar("T")
Made = dict[Hashable, tuple[Any, float]]
"""What was made by key, and the seconds that it took."""

_owned: dict[int, Made] = {}
"""By the identity of what it was made of, which takes its entry along when it goes."""


def _made_for(owner: object) -> Made:
    if id(owner) not in _owned:
        _owned[id(owner)] = {}
        weakref.finalize(owner, _owned.pop, id(owner))
    return _owned[id(owner)]


class SharedWork:
    """What some plans have in common, by key, with the seconds that it took."""

    def __init__(self) -> None:
        self._made: Made = {}
        self._saved = 0.0

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` returned the first time for this `key`, which names the kind of thing made."""
        return self._once(self._made, key, make)

    def once_for(self, owner: object, key: Hashable, make: Callable[[], T]) -> T:
        """As `once`, for all who name this `owner` and as long as it lives: a matrix that several problems have.

        What is made must not refer to the owner, which would then never die.
        """
        return self._once(_made_for(owner), key, make)

    def _once(self, made: Made, key: Hashable, make: Callable[[], T]) -> T:
        if key in made:
            value, seconds = made[key]
            self._saved += seconds
        else:
            timed = self.timer()
            value = make()
            made[key] = value, timed() / 1e3
        return value  # type: ignore[no-any-return]

    def forget(self, key: Hashable) -> None:
        """Drops what was made for `key`, which may take much memory."""
        self._made.pop(key, None)

    def timer(self) -> Callable[[], float]:
        """A function that tells the milliseconds since now, as they would be if nothing had been made before."""
        start, saved = time.perf_counter(), self._saved
        return lambda: 1e3 * (time.perf_counter() - start + self._saved - saved)
