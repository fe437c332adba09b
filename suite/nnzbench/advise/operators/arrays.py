"""A caller's arrays as pointers, from PyTorch, CuPy or DLPack, and the buffers of a plan that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnzbench.advise.operators.tokens import BIAS
from nnzbench.core.plan import Plan, Resources, Unsupported, one_line, printable
from nnzbench.data.problems.buffers import inputs
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.registry import about
from nnzbench.results.roofline import INDEX_BYTES

ALIGNMENT = 16
"""Bytes that kernels load at once."""
_NAMES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


class OperatorError(ValueError):
    """An operator can't be made, loaded or given this array; the message says what is wrong and what would do."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


@dataclass(frozen=True)
class View:
    """What a kernel needs of an array in device memory."""

    pointer: int
    shape: tuple[int, ...]
    dtype: str
    """`f32`, `f16`, `bf16`, or another type's name."""
    contiguous: bool
    device: int | None
    """Number of the GPU that holds it, None where that is not told."""
    stream: int
    """The stream that its library works on now."""
    empty: Callable[[tuple[int, int]], Any]
    """A new array of the same library, type and GPU."""
    array: Any
    """Keeps the memory."""


def is_torch(array: Any) -> bool:
    """Whether it is a PyTorch tensor, asked without importing PyTorch."""
    return type(array).__module__.partition(".")[0] == "torch" and hasattr(array, "data_ptr")


def view(array: Any, what: str) -> View:
    """The array's view. Raises `OperatorError` for what is not in a GPU's memory."""
    if is_torch(array):
        return _of_torch(array, what)
    if hasattr(array, "__cuda_array_interface__"):
        return _of_interface(array)
    if hasattr(array, "__dlpack__") and not isinstance(array, np.ndarray):
        import cupy

        try:
            return _of_interface(cupy.from_dlpack(array))
        except Exception as error:
            raise OperatorError(f"{what}: DLPack gives no array of this GPU ({one_line(error)})") from error
    kind = type(array).__name__
    raise OperatorError(
        f"{what}: a {kind} is not in a GPU's memory: give a CuPy array, a CUDA tensor, or anything with "
        "__cuda_array_interface__ or DLPack"
    )


def _of_torch(tensor: Any, what: str) -> View:
    import torch

    if not tensor.is_cuda:
        raise OperatorError(f"{what}: the tensor is on {tensor.device}, not on a GPU: move it there by .cuda()")
    name = str(tensor.dtype).removeprefix("torch.")
    return View(
        int(tensor.data_ptr()),
        tuple(map(int, tensor.shape)),
        _NAMES.get(name, name),
        bool(tensor.is_contiguous()),
        tensor.device.index,
        int(torch.cuda.current_stream(tensor.device).cuda_stream),
        lambda shape: torch.empty(shape, dtype=tensor.dtype, device=tensor.device),
        tensor,
    )


def _of_interface(array: Any) -> View:
    import cupy

    told = array.__cuda_array_interface__
    kind = np.dtype(told["typestr"])
    shape, strides = tuple(map(int, told["shape"])), told.get("strides")
    device = getattr(getattr(array, "device", None), "id", None)
    return View(
        int(told["data"][0]),
        shape,
        _NAMES.get(kind.name, kind.name),
        strides is None or _rows_first(shape, tuple(strides), kind.itemsize),
        device if isinstance(device, int) else None,
        int(cupy.cuda.get_current_stream().ptr),
        lambda wanted: cupy.empty(wanted, kind),
        array,
    )


def _rows_first(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    wanted = itemsize
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and stride != wanted:
            return False
        wanted *= size
    return True


def require(found: View, what: str, shape: tuple[int, ...], dtype: str, device: int) -> None:
    """Raises `OperatorError` naming the first thing that does not fit the operator."""
    if found.shape != shape:
        raise OperatorError(f"{what} must have the shape {shape}, not {found.shape}")
    if found.dtype != dtype:
        raise OperatorError(f"{what} must hold {dtype}, not {found.dtype}")
    if not found.contiguous:
        raise OperatorError(f"{what} must be row-major without gaps: make a contiguous copy")
    if found.device is not None and found.device != device:
        raise OperatorError(f"{what} is on GPU {found.device}, the operator on GPU {device}")
    if found.pointer % ALIGNMENT:
        raise OperatorError(f"{what} must begin at a multiple of {ALIGNMENT} bytes: make a copy of this slice")


ITEM_BYTES = {"f32": 4, "f16": 2, "bf16": 2}


def require_inputs(plan: Plan, operands: Operands, turned: bool = False) -> dict[str, str]:
    """`inputs` of a plan whose buffers are a caller's operand and result. Raises `Unsupported` for another."""
    found = inputs(plan, operands, turned)
    rearranged = plan.unpermute is not None and plan.math != "bf16"  # of bf16 it only makes numbers of 16 bits
    if rearranged and not turned:  # what is turned is read so, too
        raise Unsupported(f"{plan.variant} leaves the result in a layout of its own")
    for name in operands.dense:
        if name not in found:
            raise Unsupported(f"{plan.variant} keeps the dense operand '{name}' in a form of its own")
    return found


def weights_bytes(
    plan: Plan, operands: Operands, resources: Resources | None = None, bound: Mapping[str, str] | None = None
) -> int:
    """Bytes of device memory that the plan needs beside dense operands and result: packed weights and workspace.

    Generated programs carry their weights, so that their code counts. `bound` is `inputs` where it is known.
    """
    others = {*(inputs(plan, operands) if bound is None else bound).values(), plan.output, BIAS}
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
