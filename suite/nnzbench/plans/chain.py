"""Several plans as one: each computes from what those before it left in shared buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

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
