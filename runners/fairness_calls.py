"""Public Python calls of PyTorch and cupyx, as something that the suite can check and time; for fairness.py."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnzbench.devices import DeviceLost
from nnzbench.devices.gpu import GpuDevice
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Array, Prepared
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem


@dataclass(frozen=True)
class Call:
    """One public call on one problem's operands; `prepare` gets the arithmetic class."""

    name: str
    prepare: Callable[[str], Prepared]


def capturable(device: GpuDevice, run: Callable[[], None]) -> bool:
    """Whether a graph can hold `run`; a library that refuses to be captured raises errors of its own."""
    try:
        return device.capturable(run)
    except DeviceLost:
        raise
    except Exception:
        return False


def prepared(
    device: GpuDevice,
    make: Callable[[], Any],
    on_stream: Callable[[], AbstractContextManager[None]],
    to_numpy: Callable[[Any], Array],
) -> Prepared:
    """A public call as something that the suite can check and time; `make` enqueues it and returns its result."""
    latest: list[Any] = []

    def run() -> None:
        with on_stream():
            latest[:] = [make()]

    def read() -> Array:
        device.synchronise()
        return to_numpy(latest[0])

    run()  # libraries choose their algorithms in the first call
    device.synchronise()
    return Prepared(run, read, latest.clear, latest.clear, capturable=capturable(device, run))


class PyTorch:
    """PyTorch on the device's stream."""

    def __init__(self, torch: Any, device: GpuDevice) -> None:
        self.torch, self._device = torch, device
        self._stream = torch.cuda.ExternalStream(device.backend.stream)
        torch.backends.cudnn.benchmark = True

    def tensor(self, array: Array) -> Any:
        """A copy of `array` on the GPU."""
        return self.torch.from_numpy(np.ascontiguousarray(array)).to("cuda")

    def csr(self, matrix: CSR, values: Array) -> Any:
        """A sparse tensor with the pattern of `matrix`."""
        parts = (self.tensor(part) for part in (matrix.offsets, matrix.indices, values))
        return self.torch.sparse_csr_tensor(*parts, size=(matrix.m, matrix.k))

    def call(self, name: str, make: Callable[[], Any]) -> Call:
        """`make` as a call, in whatever arithmetic it is prepared for."""

        def prepare(math: str) -> Prepared:
            backends = self.torch.backends
            backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = math == "tf32"
            backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
            self.torch.cuda.synchronize()  # the operands were made on another stream
            return prepared(self._device, make, self._on_stream, self._to_numpy)

        return Call(name, prepare)

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        with self.torch.cuda.stream(self._stream), self.torch.no_grad():
            yield

    def _to_numpy(self, result: Any) -> Array:
        dense = result.values() if result.layout == self.torch.sparse_csr else result
        array: Array = dense.detach().cpu().numpy()
        return array


class Cupyx:
    """CuPy's sparse matrices on the device's stream."""

    def __init__(self, cupy: Any, sparse: Any, device: GpuDevice) -> None:
        self._cupy, self._sparse, self._device = cupy, sparse, device
        self._stream = cupy.cuda.ExternalStream(device.backend.stream)

    def product(self, name: str, matrix: CSR, b: Array) -> Call:
        """CSR times a column-major matrix, which saves cupyx a copy, or times a vector where `b` has one column."""
        with self._stream:
            parts = tuple(self._cupy.asarray(part) for part in (matrix.values, matrix.indices, matrix.offsets))
            left = self._sparse.csr_matrix(parts, shape=(matrix.m, matrix.k))
            right = self._cupy.asfortranarray(self._cupy.asarray(b if b.shape[1] > 1 else b[:, 0]))
        return Call(name, lambda math: prepared(self._device, lambda: left @ right, self._on_stream, self._to_numpy))

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        with self._stream:
            yield

    def _to_numpy(self, result: Any) -> Array:
        array: Array = self._cupy.asnumpy(result)
        return array if array.ndim == 2 else array[:, None]


@dataclass(frozen=True)
class Libraries:
    """The public libraries that are installed."""

    torch: PyTorch | None = None
    cupyx: Cupyx | None = None


def torch_products(libraries: Libraries, problem: Problem, operands: Operands) -> list[Call]:
    """torch.mm with the weights in either layout."""
    if libraries.torch is None:
        return []
    torch = libraries.torch.torch
    a, b = libraries.torch.tensor(operands.sparse.to_dense()), libraries.torch.tensor(operands.dense["b"])
    transposed = a.t().contiguous()
    out = torch.empty(problem.m, problem.n, device="cuda", dtype=a.dtype)
    return [
        libraries.torch.call("torch.mm", lambda: torch.mm(a, b, out=out)),
        libraries.torch.call("torch.mm, weights transposed", lambda: torch.mm(transposed.t(), b, out=out)),
    ]


def sparse_products(libraries: Libraries, problem: Problem, operands: Operands) -> list[Call]:
    """Sparse CSR times dense: PyTorch with either layout of the dense matrix, cupyx in fp32."""
    found = []
    if libraries.torch is not None:
        a = libraries.torch.csr(operands.sparse, operands.sparse.values)
        b = libraries.torch.tensor(operands.dense["b"])
        columns = b.t().contiguous().t()
        found.append(libraries.torch.call("torch.sparse_csr @ dense", lambda: a @ b))
        found.append(libraries.torch.call("torch.sparse_csr @ col-major", lambda: a @ columns))
    if libraries.cupyx is not None and problem.dtype == "f32":
        found.append(libraries.cupyx.product("cupyx csr @ dense", operands.sparse, operands.dense["b"]))
    return found


def sampled_products(libraries: Libraries, problem: Problem, operands: Operands) -> list[Call]:
    """torch.sparse.sampled_addmm."""
    if libraries.torch is None:
        return []
    sparse = libraries.torch.torch.sparse
    mask = libraries.torch.csr(operands.sparse, np.zeros_like(operands.sparse.values))
    a, b = (libraries.torch.tensor(operands.dense[name]) for name in ("a", "b"))
    return [libraries.torch.call("torch sampled_addmm", lambda: sparse.sampled_addmm(mask, a, b.t(), beta=0.0))]


def convolutions(libraries: Libraries, problem: Problem, operands: Operands) -> list[Call]:
    """torch's conv2d in benchmark mode, NCHW and NHWC."""
    if libraries.torch is None or problem.conv is None:
        return []
    torch, c = libraries.torch.torch, problem.conv
    x = libraries.torch.tensor(operands.dense["x"])
    w = libraries.torch.tensor(operands.sparse.to_dense().reshape(c.filters, c.channels, c.r, c.s))
    xl, wl = (one.contiguous(memory_format=torch.channels_last) for one in (x, w))
    conv = functools.partial(torch.nn.functional.conv2d, stride=c.stride, padding=(c.pad_h, c.pad_w))
    return [
        libraries.torch.call("conv2d benchmark", lambda: conv(x, w)),
        libraries.torch.call("conv2d benchmark channels_last", lambda: conv(xl, wl)),
    ]


def structured_products(libraries: Libraries, problem: Problem, operands: Operands) -> list[Call]:
    """2:4 weights in torch's semi-structured format, the dense matrix in either layout."""
    if libraries.torch is None:
        return []
    torch = libraries.torch.torch
    torch.sparse.SparseSemiStructuredTensor._FORCE_CUTLASS = False  # so that cuSPARSELt computes it
    packed = torch.sparse.to_sparse_semi_structured(libraries.torch.tensor(operands.sparse.to_dense()))
    b = libraries.torch.tensor(operands.dense["b"])
    columns = b.t().contiguous().t()
    return [
        libraries.torch.call("torch semi-structured mm", lambda: torch.mm(packed, b)),
        libraries.torch.call("torch semi-structured mm col", lambda: torch.mm(packed, columns)),
    ]


def find_libraries(device: GpuDevice) -> tuple[Libraries, dict[str, str]]:
    """What is installed, and versions by name; what is missing is named on stderr."""
    torch, cupy, cupyx = (_optional(name) for name in ("torch", "cupy", "cupyx.scipy.sparse"))
    if torch is not None and not torch.cuda.is_available():
        print("PyTorch finds no GPU: its calls are skipped", file=sys.stderr)
        torch = None
    versions = {} if torch is None else {"torch": torch.__version__, "torch_cudnn": str(torch.backends.cudnn.version())}
    if cupyx is not None:
        versions["cupy"] = cupy.__version__
    return Libraries(
        None if torch is None else PyTorch(torch, device),
        None if cupyx is None else Cupyx(cupy, cupyx, device),
    ), versions


def _optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"{name} is missing: its calls are skipped", file=sys.stderr)
        return None
