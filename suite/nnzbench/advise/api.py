"""What `import nnzbench` offers: the answer for a matrix, and an operator to take along."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from nnzbench import devices, paths
from nnzbench.advise import estimate, layer, measured
from nnzbench.advise.answer import Answer
from nnzbench.advise.layer import EXPERIMENT, Image, Layer, Op, Pattern
from nnzbench.advise.measured import BUDGET_S, Question
from nnzbench.devices import Device
from nnzbench.kernels.registry import kernels
from nnzbench.matrices import files
from nnzbench.matrices.formats import CSR, MatrixError
from nnzbench.matrices.sparse_files import from_scipy
from nnzbench.measure.progress import Quiet
from nnzbench.measure.session import Session, open_session
from nnzbench.operators import packed
from nnzbench.operators.arrays import is_torch
from nnzbench.operators.errors import OperatorError
from nnzbench.operators.make import make
from nnzbench.operators.operator import Operator
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.problem import DType
from nnzbench.records.folder import Results

OPERATOR_SECONDS = 20.0


def best(
    matrix: Any,
    n: int | Sequence[int] = (1, 32, 256),
    *,
    dtype: DType | None = None,
    op: Op = "spmm",
    pattern: Pattern = "uniform",
    image: tuple[int, int] | None = None,
    pad: int = 0,
    stride: int = 1,
    kernels: Sequence[str] | None = None,
    budget: float = BUDGET_S,
    gpu: str | None = None,
    device: str | None = None,
    out: str | Path | None = None,
) -> Answer:
    """Which kernel is fastest for a matrix, against dense, at each width: what `nnzbench best` prints.

    `matrix` is what that command takes (a file, `FILE::name`, `4096x11008@0.9`), a SciPy sparse matrix, a 2-D NumPy
    array or a PyTorch tensor; zeros are zeros. `n` are columns of the dense operand (images of a convolution, the
    length of the products of sddmm). With `gpu` (`nvidia-h200`) the answer is estimated from recorded rows; `device` is
    `cupy`, `pycuda` or `cpu` (checks alone), by default the GPU. `budget` is seconds for all widths. Rows are kept in
    `<out>/<gpu>/mine/` where `out` is given, and dropped otherwise.

    Raises `MatrixError` for a matrix that can't be read or asked about, `RecordError` where nothing is recorded to
    estimate from, `Unsupported` without the device.
    """
    widths = (n,) if isinstance(n, int) else tuple(n)
    if not widths or any(not isinstance(one, int) or one < 1 for one in widths):
        raise MatrixError(f"n must be whole numbers from 1, not {n!r}")
    one = as_layer(matrix, pattern)
    whole = None if image is None else Image(*image, pad, stride)
    question = Question(widths, op, dtype, None if kernels is None else tuple(kernels), float(budget), whole)
    if gpu is not None:
        return estimate.answer(one, question, estimate.load(gpu, [paths.results(), paths.reports()]))
    session = _session(device)
    with tempfile.TemporaryDirectory(prefix="nnzbench-best-") as scratch:
        folder = Path(scratch if out is None else out) / session.device.gpu / EXPERIMENT
        with Results(folder, True, False, session.environment, lambda note: None) as results:
            return measured.answer(one, question, session, results, Quiet())


def operator(
    matrix: Any,
    n: int,
    *,
    dtype: DType | None = None,
    kernel: str | None = None,
    budget: float = OPERATOR_SECONDS,
    device: str | None = None,
) -> Operator:
    """Packs a matrix A (m, k) for products with dense matrices of `n` columns: `operator(b)` is A b.

    `matrix` is as in `best`. The fastest kernel found within `budget` seconds is taken, or `kernel`; it is checked
    against float64 first. Raises `OperatorError` where no kernel takes the matrix, `MatrixError` and `Unsupported` as
    `best` does.
    """
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise OperatorError(f"n must be a whole number from 1, not {n!r}")
    one = as_layer(matrix)
    session = _session(device)
    if kernel is not None and kernel not in session.kernels:
        raise OperatorError(f"there is no kernel '{kernel}': choose from {', '.join(session.kernels)}")
    problem = one.problem("spmm", n, dtype or one.dtype)
    names = None if kernel is None else [kernel]
    return make(problem, one.operands(problem), session, Quiet(), names, float(budget))


def load(folder: str | Path, *, device: str | None = None) -> Operator:
    """The operator that `Operator.save` wrote. Raises `OperatorError` for another folder, or another architecture."""
    found = packed.load(Path(folder))
    if device is None and not found.cubins:
        device = "cpu"
    return Operator(found, _device(device))


def as_layer(matrix: Any, pattern: Pattern = "uniform") -> Layer:
    """A layer of whatever names or holds one matrix. Raises `MatrixError`."""
    if isinstance(matrix, str | Path):
        found = layer.load([str(matrix)], (), pattern)
        return found[0]
    if isinstance(matrix, CSR):
        return layer.from_matrix(matrix)
    if sparse.issparse(matrix):
        return layer.from_matrix(from_scipy("matrix", matrix))
    kind: DType = "f32"
    if is_torch(matrix):
        kind = {"torch.float16": "f16", "torch.bfloat16": "bf16"}.get(str(matrix.dtype), "f32")  # type: ignore[assignment]
        matrix = matrix.detach().cpu().float().numpy()
    if not isinstance(matrix, np.ndarray) or matrix.dtype.kind not in "fbiu":
        raise MatrixError(f"a {type(matrix).__name__} is no matrix: give a file, a SciPy matrix, an array or a tensor")
    if matrix.dtype == np.float16:
        kind = "f16"
    made = layer.from_matrix(files.from_array("matrix", matrix), dtype=kind)
    return Layer(made.label, made.matrix, tuple(map(int, matrix.shape)), made.source, made.dtype)


@functools.cache
def _device(name: str | None) -> Device:
    return devices.open_device(name) if name else devices.open_gpu()


@functools.cache
def _session(name: str | None) -> Session:
    """Opened once: peaks are measured, and the GPU is warm, for all that follows."""
    return open_session(_device(name), kernels(), lambda note: None)


__all__ = ["Answer", "MatrixError", "Operator", "OperatorError", "Unsupported", "best", "load", "operator"]
