"""What `import nnzbench` offers: the answer for a matrix, and an operator to take along."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from nnzbench import devices
from nnzbench.advise import estimate, layer, measured, packing, recorded
from nnzbench.advise.answer import Answer
from nnzbench.advise.layer import BUDGET_S, EXPERIMENT, Layer, Op, Pattern
from nnzbench.advise.operators.archive import Packing, Saved, load_operator
from nnzbench.advise.operators.arrays import OperatorError, is_torch
from nnzbench.advise.operators.make import make, remake
from nnzbench.advise.operators.operator import Operator
from nnzbench.advise.operators.tokens import kernels_for
from nnzbench.bench.session import Session, open_session
from nnzbench.core.plan import Unsupported
from nnzbench.core.progress import RunProgress
from nnzbench.data.matrices import files
from nnzbench.data.matrices.files import from_scipy
from nnzbench.data.matrices.formats import CSR, MatrixError
from nnzbench.data.problems.experiment import unknown
from nnzbench.data.problems.problem import DType
from nnzbench.devices import Device
from nnzbench.kernels import registry
from nnzbench.results.records.folder import Kept, Results
from nnzbench.results.records.record import RecordError

OPERATOR_SECONDS = 20.0


def best(
    matrix: Any,
    n: int | Sequence[int] | None = None,
    *,
    dtype: DType | None = None,
    op: Op = "spmm",
    pattern: Pattern = "uniform",
    image: tuple[int, int] | None = None,
    pad: int = 0,
    stride: int = 1,
    kernels: str | Sequence[str] | None = None,
    budget: float = BUDGET_S,
    gpu: str | None = None,
    device: str | None = None,
    out: str | Path | None = None,
) -> Answer:
    """Which kernel is fastest for a matrix, against dense, at each width: what `nnzbench best` prints.

    `matrix` is what that command takes (a file, `FILE::name`, `4096x11008@0.9`), a SciPy sparse matrix, a 2-D NumPy
    array or a PyTorch tensor; zeros are zeros. `n` are columns of the dense operand (images of a convolution, the
    length of the products of sddmm), by default 1, 32 and 256. With `gpu` (`nvidia-h200`) the answer is estimated from
    recorded rows; `device` is `cupy`, `pycuda`, `cuda-core` or `cpu` (checks alone), by default the GPU. `budget` is
    seconds for all widths. Rows are kept in `<out>/<gpu>/mine/` where `out` is given, and dropped otherwise.

    Raises `MatrixError` for a matrix that can't be read or a question that can't be asked, `RecordError` where nothing
    is recorded to estimate from, `Unsupported` without the device.
    """
    asked = layer.question(op, n, dtype, kernels, budget, image, pad, stride, gpu=gpu, device=device, out=out)
    one = as_layer(matrix, pattern, op)
    if gpu is not None:
        return estimate.answer(one, asked, recorded.load(gpu, recorded.usual_folders()))
    session = _session(device)
    if out is None:
        return measured.answer(one, asked, session, Kept(), RunProgress(), _known(device))
    folder = Path(out) / session.device.gpu / EXPERIMENT
    with Results(folder, True, False, session.environment, lambda note: None) as results:
        return measured.answer(one, asked, session, results, RunProgress(), _known(device))


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
    if not layer.is_width(n):
        raise OperatorError(f"n must be a whole number from 1, not {n!r}")
    asked = layer.question("spmm", n, dtype, None, budget, None, 0, 1)
    able = kernels_for("columns", registry.kernels())
    if kernel is not None and kernel not in able:
        raise OperatorError(unknown("kernel that packs weights", kernel, able))
    one, session = as_layer(matrix), _session(device)
    problem = one.problem("spmm", int(n), asked.dtype or one.dtype)
    names = None if kernel is None else [kernel]
    return make(problem, one.operands(problem), session, RunProgress(), names, asked.budget_s)


def load(folder: str | Path, *, device: str | None = None, trust: bool = False) -> Operator:
    """The operator that `Operator.save` wrote, packed and compiled again from this project's own sources.

    `trust` also takes a program that has changed since the operator was saved. Raises `OperatorError` for that without
    it, for another folder, or another architecture.
    """
    found = load_operator(Path(folder))
    opened = open_device("cpu" if device is None and found.facts.hot_us is None else device)
    return remake(found, opened, registry.kernels(), trust)


def packed_layer(
    matrix: Any, tokens: int | Sequence[int], *, budget: float = BUDGET_S, device: str | None = None
) -> tuple[Packing, dict[int, Saved]]:
    """What is chosen for a matrix by at most so many tokens, and the operators to be made of it: `Archive.saved`.

    A choice made before for the same pattern, tokens, GPU and driver is taken again. Raises as `best` does, and
    `OperatorError` where the budget is too short for any sparse kernel.
    """
    one, session = as_layer(matrix), _session(device)
    question = replace(layer.question("spmm", tokens, None, None, budget, None, 0, 1), crossover=False)
    packer = packing.packer(session, True)
    if not packer.recall(one, question):
        answered = measured.answer(one, question, session, Kept(), RunProgress(), _known(device))
        if session.device.timer and not any(width.sparse(answered.dtype) for width in answered.widths):
            raise OperatorError(f"no sparse kernel was timed within {budget:g} s: give more by budget")
        packer.add(one, question, answered)
    (name,) = packer.layers
    return packer.layers[name], packer.archive().saved(name)


def as_layer(matrix: Any, pattern: Pattern = "uniform", op: Op = "spmm") -> Layer:
    """A layer of whatever names or holds one matrix. Raises `MatrixError`."""
    if isinstance(matrix, str | Path):
        found = layer.load([str(matrix)], (), pattern, op)
        return found[0]
    if isinstance(matrix, CSR):
        return layer.from_matrix(matrix)
    if scipy.sparse.issparse(matrix):
        return layer.from_matrix(from_scipy("matrix", matrix))
    kind = layer.DTYPES.get(str(getattr(matrix, "dtype", "")).removeprefix("torch."), "f32")
    if is_torch(matrix):
        matrix = matrix.detach().cpu().float().numpy()
    if not isinstance(matrix, np.ndarray) or matrix.dtype.kind not in "fbiu":
        raise MatrixError(f"a {type(matrix).__name__} is no matrix: give a file, a SciPy matrix, an array or a tensor")
    made = layer.from_matrix(files.from_array("matrix", matrix), dtype=kind)
    return Layer(made.label, made.matrix, tuple(map(int, matrix.shape)), made.source, made.dtype)


@functools.cache
def open_device(name: str | None) -> Device:
    """The device of that name, by default the GPU, opened once. Raises `Unsupported` without it."""
    return devices.open_device(name) if name else devices.open_gpu()


@functools.cache
def _session(name: str | None) -> Session:
    """Opened once: peaks are measured, and the GPU is warm, for all that follows."""
    return open_session(open_device(name), registry.kernels(), lambda note: None)


@functools.cache
def _known(device: str | None) -> recorded.Recorded | None:
    """Read once."""
    return measured.known_times(_session(device))


__all__ = [
    "Answer", "MatrixError", "Operator", "OperatorError", "RecordError", "Unsupported", "best", "load", "operator",
]  # fmt: skip
