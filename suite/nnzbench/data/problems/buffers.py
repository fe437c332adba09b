"""Which buffers of a plan hold dense operands, and which the weights."""

from __future__ import annotations

import numpy as np

from nnzbench.core.plan import Array, Plan, bf16_bits
from nnzbench.data.problems.operands import Operands


def stored(array: Array, bf16: bool) -> Array:
    """An operand as it lies in device memory: bf16, kept on the host as rounded float32, by its upper 16 bits."""
    return bf16_bits(array) if bf16 else array


def inputs(plan: Plan, operands: Operands, turned: bool = False) -> dict[str, str]:
    """The buffers that hold a dense operand as it is (or, if `turned`, by columns), by the operand's name.

    An operand that the kernel rearranges (pads, casts) has none: its plan runs on that data alone.
    """
    found: dict[str, str] = {}
    for name, operand in operands.dense.items():
        wanted = stored(operand.T if turned else operand, plan.math == "bf16")
        for buffer, array in plan.buffers.items():
            same_kind = buffer != plan.output and array.shape == wanted.shape and array.dtype == wanted.dtype
            if same_kind and (np.shares_memory(array, wanted) or np.array_equal(array, wanted)):
                found[name] = buffer
    return found


def weights_of(plan: Plan, operands: Operands) -> tuple[str, ...]:
    """The buffers that neither hold a dense operand nor the result nor zeros alone, which are workspace."""
    others = {plan.output, *(name for turned in (False, True) for name in inputs(plan, operands, turned).values())}
    return tuple(name for name, array in plan.buffers.items() if name not in others and _any(array))


def _any(array: Array) -> bool:
    """Whether there is anything but zeros: of most arrays the beginning says so, and they may have gigabytes."""
    return bool(np.any(array.reshape(-1)[:4096])) or bool(np.any(array))
