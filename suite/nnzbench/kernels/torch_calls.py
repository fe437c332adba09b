"""A user's function over PyTorch tensors as a kernel: Triton and PyTorch's own calls alike.

It computes `out` (m, n) from the sparse operand, or from what its `pack` made of that beside the timing, and from `b`
(k, n), by work on the current stream. Unlike plans it runs in the process that measures: what keeps it honest is that
graphs of it are checked and timed, over values that it has not seen (docs/outside-kernels.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nnzbench.core.plan import Array, Candidate, Ends, Prepared, Unsupported, one_line
from nnzbench.data.problems.check import TOLERANCE
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.devices import Device, DeviceLost
from nnzbench.devices.gpu import GpuDevice, LaunchError
from nnzbench.kernels.registry import About, register
from nnzbench.kernels.vendor.pytorch import Weights, load_torch, to_tensor
from nnzbench.kernels.vendor.support import Inputs, Preparing, finish

OPS, DTYPES = frozenset({"spmm", "spmv"}), frozenset({"f32", "f16", "bf16"})
Function = Callable[..., Any]


class TorchCSR(NamedTuple):
    """The sparse operand in CSR: columns ascend in each row, `offsets` and `indices` are int32."""

    offsets: Any
    indices: Any
    values: Any
    shape: tuple[int, int]


@dataclass(frozen=True)
class TorchKernel:
    """A kernel that consists of a function, and of one that packs the sparse operand for it."""

    name: str
    paper: str
    ops: frozenset[str]
    dtypes: frozenset[str]
    function: Function
    pack: Function | None
    math: str

    def candidates(self, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        """The one candidate; its preparation raises `Unsupported` without PyTorch or where no graph can be captured."""
        math = self.math or problem.dtype
        prepare = partial(self._prepare, operands, problem.dtype, math, device)
        yield Candidate(f"{math}_call", math, prepare, of_file=True)

    def _prepare(self, operands: Operands, dtype: str, math: str, device: Device) -> Prepared:
        gpu = device if isinstance(device, GpuDevice) else None
        torch, started = load_torch(gpu is not None), time.perf_counter()
        preparing = Preparing(Inputs(gpu), math) if gpu else None
        place = torch.device("cuda", gpu.facts.number) if gpu else torch.device("cpu")
        stream = torch.cuda.ExternalStream(gpu.backend.stream, place) if gpu else None

        def on_stream(do: Callable[[], Any]) -> Any:
            with torch.cuda.stream(stream) if gpu else nullcontext(), torch.no_grad():
                return do()

        def called(do: Callable[[], Any]) -> Any:
            """Of the user's code. Raises `LaunchError` where that fails."""
            try:
                return on_stream(do)
            except (Unsupported, DeviceLost, LaunchError):
                raise
            except Exception as error:
                raise LaunchError(f"{type(error).__name__}: {one_line(error)}") from error

        a, wait = operands.sparse, gpu.synchronise if gpu else lambda: None

        def placed(tensor: Any) -> Any:
            return tensor.to(place, copy=True)  # on the processor too: the function may write what it should not

        def packed() -> Any:
            offsets, indices = (placed(torch.from_numpy(np.ascontiguousarray(one))) for one in (a.offsets, a.indices))
            matrix = TorchCSR(offsets, indices, placed(to_tensor(torch, a.values, dtype)), (a.m, a.k))
            return self.pack(matrix) if self.pack else matrix

        given = operands.dense["b"]
        b = _OnDevice(given, on_stream(lambda: placed(to_tensor(torch, given, dtype))), on_stream, wait)
        result = np.zeros((a.m, given.shape[1]), np.float16 if dtype == "f16" else np.float32)
        out = _OnDevice(result, on_stream(lambda: placed(to_tensor(torch, result, dtype))), on_stream, wait)
        weights = _weights(called(packed), on_stream)
        ends = Ends(b, out, False, False)

        def over(arrays: Sequence[Any]) -> Callable[[], None]:
            matrix = arrays[0].value

            def run() -> None:
                called(lambda: self.function(matrix, b.tensor, out.tensor))

            return run

        if preparing is None:
            took = (time.perf_counter() - started) * 1e3
            return Prepared(over([weights]), out.read, out.poison, out.close, prepare_ms=took, ends=ends)
        ready = finish(preparing, over([weights]), out, (), [weights], over, ends)  # type: ignore[list-item]
        if not ready.capturable:
            ready.close()
            raise Unsupported(f"{self.name} can't be captured into a CUDA graph, in which it is checked and timed")
        return ready


class _OnDevice:
    """A dense operand or the result: a tensor of a fixed address. On the host bf16 is float32."""

    def __init__(self, array: Array, tensor: Any, on_stream: Function, wait: Callable[[], None]) -> None:
        self.shape, self.dtype, self.tensor = array.shape, array.dtype, tensor
        self._on_stream, self._wait = on_stream, wait

    def read(self) -> Array:
        self._wait()
        found: Array = self._on_stream(lambda: self.tensor.float().cpu().numpy())
        return found.astype(self.dtype)

    def write(self, array: Array) -> None:
        source = load_torch(gpu=False).from_numpy(np.ascontiguousarray(array))
        self._on_stream(lambda: self.tensor.copy_(source))

    def poison(self) -> None:
        self._on_stream(lambda: self.tensor.fill_(float("nan")))

    def close(self) -> None:
        self.tensor = None


def _weights(packed: Any, on_stream: Function) -> Weights:
    """What is copied for launches that must not find the weights in L2."""
    sizes: list[int] = []
    _each(packed, lambda one: sizes.append(one.numel() * one.element_size()))
    return Weights(packed, lambda: on_stream(lambda: _each(packed, lambda one: one.clone())), sum(sizes))


def _each(value: Any, do: Callable[[Any], Any]) -> Any:
    """`value` with `do` of each tensor in the place of that. Raises `LaunchError` for what can't be copied so."""
    if hasattr(value, "element_size"):
        return do(value)
    if isinstance(value, dict):
        return {name: _each(one, do) for name, one in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [_each(one, do) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if value is None or isinstance(value, (int, float, str)):
        return value
    raise LaunchError(f"`pack` returns a {type(value).__name__}: tensors, numbers, and tuples, lists or dicts of them")


def torch_kernel(
    ops: str, dtypes: str, *, pack: Function | None = None, math: str = "", paper: str = "none"
) -> Callable[[Function], Function]:
    """Registers a function `(a, b, out)` of tensors as the kernel of its name; several `ops` or `dtypes` in one string.

    `a` is a `TorchCSR`, or what `pack` returned of one. `math` is the arithmetic class where it is not that of the
    inputs, such as `tf32`. Raises `ValueError` for an op, dtype or class that it can't be.
    """
    asked = frozenset(ops.split()), frozenset(dtypes.split())
    for found, known in zip((*asked, {math} - {""}), (OPS, DTYPES, set(TOLERANCE)), strict=True):
        if not found <= known:
            raise ValueError(f"torch_kernel takes {', '.join(sorted(known))}, not {', '.join(sorted(found - known))}")

    def made(function: Function) -> Function:
        maths = frozenset({math}) if math else frozenset()
        register(TorchKernel(function.__name__, paper, *asked, function, pack, math), About(maths=maths))
        return function

    return made
