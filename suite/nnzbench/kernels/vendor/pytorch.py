"""PyTorch's own calls: what a user's one line costs, `torch.nn.functional.linear` over weights in a sparse layout, and
over weights in INT4.

`pytorch`: the pruned matrix in CSR, in BSR where blocks are empty, and of 2:4 patterns in its semi-structured layout by
CUTLASS and by cuSPARSELt. `pytorch_int4`: all weights, unpruned, in groups of 128 along k with a scale and a zero each
(`torch._weight_int4pack_mm`, bf16 activations): what a user quantises to who does not prune.

As in a network, activations are (n, k) and the result (n, m). PyTorch allocates a result at each call, from its own
pool: in a graph that is memory of a fixed address, as elsewhere.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.plan import Array, Candidate, Prepared, Unsupported, one_line
from nnzbench.data.matrices.formats import CSR, MatrixError
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import Reference, dense_reference
from nnzbench.devices.gpu import GpuDevice, LaunchError
from nnzbench.kernels.registry import About
from nnzbench.kernels.vendor.cusparse import MOST_OCCUPIED, occupied
from nnzbench.kernels.vendor.cusparselt import require_pattern
from nnzbench.kernels.vendor.support import Inputs, Preparing, before_pruning, finish, library

T = TypeVar("T")

BLOCKS = (16, 64)
"""Sides of the blocks of BSR: the least that PyTorch's Triton kernel takes, and one that fills its tensor cores."""
GROUP = 128
"""Weights along k that share a scale and a zero, as published checkpoints have it."""
INT4_MATH = "i4"
MOST_CODE = 15


def load_torch(gpu: bool = True) -> Any:
    """The module `torch`. Raises `Unsupported` where it is missing, or has no GPU and needs one."""
    try:
        import torch
    except ImportError:
        raise Unsupported("PyTorch is missing: pip install 'nnzbench[torch]'") from None
    if gpu and not torch.cuda.is_available():
        raise Unsupported("this PyTorch has no CUDA")
    return torch


def refusing(what: str, call: Callable[[], T]) -> T:
    """Calls PyTorch. Raises `Unsupported` where it has no such product, `LaunchError` where it fails on the GPU."""
    try:
        return call()
    except Exception as error:  # Triton's, which compiles BSR's kernel, are no RuntimeErrors
        text = f"{what}: {one_line(error)}"
        if "CUDA error" in text or "out of memory" in text:
            raise LaunchError(text) from None
        raise Unsupported(text) from None


class Weights:
    """A weight of PyTorch's, of whatever layout: copied for launches that must not find it in L2."""

    def __init__(self, value: Any, copy: Callable[[], Any], size: int) -> None:
        self.value, self._copy, self._size = value, copy, size
        self.shape, self.dtype = (size,), np.dtype(np.uint8)

    def copy(self) -> Weights:
        return Weights(self._copy(), self._copy, self._size)


class _Result:
    """What the last call returned, (n, m); the memory of the one before is given back first, so that a call which
    writes nothing finds the NaN that was put there."""

    def __init__(self, device: GpuDevice) -> None:
        self._device, self.value = device, None

    def read(self) -> Array:
        self._device.synchronise()
        value: Any = self.value
        return np.ascontiguousarray((value.float() if value.element_size() == 2 else value).cpu().numpy().T)

    def poison(self) -> None:
        value: Any = self.value
        if value is not None:
            value.fill_(float("nan"))

    def close(self) -> None:
        self.value = None


def prepare(
    inputs: Inputs, what: str, math: str, made: Callable[[Any], Weights], b: Array, product: Callable[[Any], Any]
) -> Prepared:
    """The product of activations `b` (k, n) with the weights that `made` makes. Raises `Unsupported`, `LaunchError`."""
    torch = load_torch()
    preparing, device = Preparing(inputs, "bf16" if math == INT4_MATH else math), inputs.device
    place = torch.device("cuda", device.facts.number)
    stream = torch.cuda.ExternalStream(device.backend.stream, place)
    with torch.cuda.stream(stream), torch.no_grad():
        x = refusing(what, lambda: to_tensor(torch, b, math).T.contiguous().to(place))
        weights = refusing(what, lambda: made(place))
        call = product(torch)
    output = _Result(device)

    def over(arrays: Sequence[Any]) -> Callable[[], None]:
        weight = arrays[0].value

        def run() -> None:
            output.value = None
            with torch.cuda.stream(stream), torch.no_grad():
                output.value = refusing(what, lambda: call(x, weight))

        return run

    return finish(preparing, over([weights]), output, (), [weights], over)  # type: ignore[list-item]


def to_tensor(torch: Any, array: Array, math: str) -> Any:
    """The array on the host in the type of that arithmetic class."""
    kinds = {"f32": torch.float32, "f16": torch.float16}
    return torch.from_numpy(np.ascontiguousarray(array, np.float32)).to(kinds.get(math, torch.bfloat16))


def _size(*tensors: Any) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)


def _sparse(matrix: CSR, math: str, layout: str, place: Any) -> Weights:
    """The matrix in a sparse layout of PyTorch's, made on the GPU from its dense form."""
    torch = load_torch()
    dense = to_tensor(torch, matrix.to_dense(), math).to(place)
    if not layout.startswith("semi"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that its sparse tensors are in a beta state
            value = dense.to_sparse_csr() if layout == "csr" else dense.to_sparse_bsr((int(layout[3:]),) * 2)
        return Weights(value, value.clone, _size(value.crow_indices(), value.col_indices(), value.values()))
    kind = getattr(torch.sparse, f"SparseSemiStructuredTensor{layout.removeprefix('semi_').upper()}")
    return Weights(kind.from_dense(dense), lambda: kind.from_dense(dense), _size(dense) * 9 // 16)


@library(
    "PyTorch's sparse layouts",
    "spmm spmv",
    "f32 f16 bf16",
    About("library", "PyTorch", frozenset({"f32", "f16", "bf16"}), nothing_to_tune=True, rank=240),
)
def pytorch(problem: Problem, operands: Operands, gpu: GpuDevice) -> Iterator[Candidate]:
    """`linear(x, weight)` with the weight in each sparse layout that takes the pattern. Raises `Unsupported`."""
    load_torch()
    a, math, inputs = operands.sparse, problem.dtype, Inputs(gpu)
    layouts = ["csr"]
    for side in BLOCKS:
        if a.m % side == 0 and a.k % side == 0 and occupied(a, side) <= MOST_OCCUPIED:
            layouts.append(f"bsr{side}")
    if math != "f32" and _two_of_four(a, math):
        layouts += ["semi_cutlass", "semi_cusparselt"]
    for layout in layouts:
        made = partial(_sparse, a, math, layout)
        what = f"pytorch {layout}"
        yield Candidate(
            f"{math}_{layout}", math, partial(prepare, inputs, what, math, made, operands.dense["b"], _linear)
        )


def _linear(torch: Any) -> Callable[[Any, Any], Any]:
    linear: Callable[[Any, Any], Any] = torch.nn.functional.linear
    return linear


def _two_of_four(matrix: CSR, math: str) -> bool:
    try:
        require_pattern(matrix, math)
    except Unsupported:
        return False
    return True


def quantised(dense: Array) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]:
    """Codes (m, k) from 0 to 15 of a matrix, and the scale and zero (k / 128, m) of each group of 128 along k.

    A weight is (code - 8) scale + zero, over the range of its group. Raises `MatrixError` for another k.
    """
    m, k = dense.shape
    if k % GROUP:
        raise MatrixError(f"INT4 in groups of {GROUP} needs a k that is a multiple of them, not {k}.")
    groups = dense.astype(np.float32).reshape(m, k // GROUP, GROUP)
    least = groups.min(axis=2)
    scale = np.maximum((groups.max(axis=2) - least) / MOST_CODE, np.float32(1e-6))
    codes = np.clip(np.rint((groups - least[..., None]) / scale[..., None]), 0, MOST_CODE).astype(np.uint8)
    return codes.reshape(m, k), np.ascontiguousarray(scale.T), np.ascontiguousarray((least + 8 * scale).T)


def restored(codes: NDArray[np.uint8], scale: NDArray[np.float32], zero: NDArray[np.float32]) -> NDArray[np.float32]:
    """The weights (m, k) that codes stand for."""
    m, k = codes.shape
    groups = codes.reshape(m, k // GROUP, GROUP).astype(np.float32) - 8
    return (groups * scale.T[..., None] + zero.T[..., None]).reshape(m, k)


class _Int4:
    """The unpruned weights of a problem in INT4, and what is right with them: made once for all that take them."""

    def __init__(self, a: CSR, b: Array) -> None:
        self._a, self.b = a, b

    @functools.cached_property
    def parts(self) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]:
        codes, scale, zero = quantised(before_pruning(self._a))
        torch = load_torch()  # scales and zeros are stored as bf16
        return codes, *(torch.from_numpy(one).to(torch.bfloat16).float().numpy() for one in (scale, zero))

    def truth(self) -> Reference:
        torch = load_torch()
        return dense_reference(restored(*self.parts), to_tensor(torch, self.b, INT4_MATH).float().numpy())

    def weights(self, place: Any) -> Weights:
        torch = load_torch()
        codes, scale, zero = self.parts
        pairs = torch.from_numpy(np.ascontiguousarray(codes[:, ::2] << 4 | codes[:, 1::2])).to(place)
        packed = torch._convert_weight_to_int4pack(pairs, 8)
        scales = torch.from_numpy(np.stack([scale, zero], axis=-1)).to(torch.bfloat16).to(place)

        def copy() -> tuple[Any, Any]:
            return packed.clone(), scales.clone()

        return Weights((packed, scales), copy, _size(packed, scales))


def _int4_product(torch: Any) -> Callable[[Any, Any], Any]:
    def call(x: Any, weight: tuple[Any, Any]) -> Any:
        return torch._weight_int4pack_mm(x, weight[0], GROUP, weight[1])

    return call


@library(
    "PyTorch's product of weights in INT4",
    "spmm spmv",
    "f16 bf16",
    About(
        "library", "PyTorch INT4", frozenset({INT4_MATH}), work="dense", nothing_to_tune=True, rank=245,
        operand_bytes=lambda problem, nnz: problem.m * problem.k // 2 + problem.m * problem.k // GROUP * 4,
    ),
)  # fmt: skip
def pytorch_int4(problem: Problem, operands: Operands, gpu: GpuDevice) -> Iterator[Candidate]:
    """`torch._weight_int4pack_mm` on the weights before pruning. Raises `Unsupported` where k is no multiple of 128."""
    load_torch()
    if problem.k % GROUP:
        raise Unsupported(f"INT4 in groups of {GROUP} needs a k that is a multiple of them, not {problem.k}")
    case = _Int4(operands.sparse, operands.dense["b"])
    truth = functools.cache(case.truth)
    made = partial(prepare, Inputs(gpu), "pytorch int4", INT4_MATH, case.weights, case.b, _int4_product)
    yield Candidate(f"{INT4_MATH}_group{GROUP}_unpruned", INT4_MATH, made, truth=truth)
