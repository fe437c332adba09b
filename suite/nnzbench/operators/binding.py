"""Which buffers of a plan are the caller's arrays, and which are the weights: what a plan says only by its data."""

from __future__ import annotations

import numpy as np

from nnzbench.kernels.registry import about
from nnzbench.measure.roofline import INDEX_BYTES
from nnzbench.plans.plan import Array, Plan, Resources, Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

ITEM_BYTES = {"f32": 4, "f16": 2, "bf16": 2}


def stored(array: Array, bf16: bool) -> Array:
    """An operand as it lies in device memory: bf16, kept on the host as rounded float32, by its upper 16 bits."""
    if not bf16:
        return array
    return (np.ascontiguousarray(array, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)


def inputs(plan: Plan, operands: Operands) -> dict[str, str]:
    """The buffers that hold a dense operand as it is, by the operand's name.

    An operand that the kernel rearranges (pads, casts) has none: its plan runs on that data alone.
    """
    found: dict[str, str] = {}
    for name, operand in operands.dense.items():
        wanted = stored(operand, plan.math == "bf16")
        for buffer, array in plan.buffers.items():
            same_kind = buffer != plan.output and array.shape == wanted.shape and array.dtype == wanted.dtype
            if same_kind and (np.shares_memory(array, wanted) or np.array_equal(array, wanted)):
                found[name] = buffer
    return found


def require_inputs(plan: Plan, operands: Operands) -> dict[str, str]:
    """`inputs` of a plan whose buffers are a caller's operand and result. Raises `Unsupported` for another."""
    found = inputs(plan, operands)
    if plan.unpermute is not None and plan.math != "bf16":  # of bf16 it only makes numbers of 16 bits
        raise Unsupported(f"{plan.variant} leaves the result in a layout of its own")
    for name in operands.dense:
        if name not in found:
            raise Unsupported(f"{plan.variant} keeps the dense operand '{name}' in a form of its own")
    return found


def weights_bytes(plan: Plan, operands: Operands, resources: Resources | None = None) -> int:
    """Bytes of device memory that the plan needs beside dense operands and result: packed weights and workspace.

    Generated programs carry their weights, so that their code counts.
    """
    others = {*inputs(plan, operands).values(), plan.output}
    kept = sum(array.nbytes for name, array in plan.buffers.items() if name not in others)
    return kept + (resources.code_bytes if resources and plan.language == "ptx" else 0)


def stored_bytes(kernel: str, problem: Problem, rows: int, columns: int, nnz: int) -> int:
    """The same as the kernel says of itself, without a plan: all weights, or values and their structure."""
    said, item = about(kernel), ITEM_BYTES[problem.dtype]
    if said.work == "dense":
        return rows * columns * item
    if said.operand_bytes:
        return said.operand_bytes(problem, nnz)
    structure = said.structure_bytes(problem, nnz) if said.structure_bytes else INDEX_BYTES * (nnz + rows + 1)
    return structure + nnz * item
