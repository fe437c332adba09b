"""What `import nnzbench` offers: the answer for a matrix, and an operator to take along."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from nnzbench import devices
from nnzbench.advise import estimate, layer, measured, packing, recorded
from nnzbench.advise.answer import Answer
from nnzbench.advise.layer import EXPERIMENT, OPS, PATTERNS, Image, Layer, Op, Pattern
from nnzbench.advise.measured import BUDGET_S, Question, is_width, widths_of
from nnzbench.advise.operators.archive import Packing, Saved, load_operator
from nnzbench.advise.operators.arrays import ITEM_BYTES, OperatorError, is_torch
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
    asked = _tuple(kernels)
    _require(op, pattern, dtype, asked, budget, image)
    widths = widths_of(op, _tuple(n))
    one = as_layer(matrix, pattern)
    if gpu is not None and (device is not None or out is not None):
        raise MatrixError(f"gpu={gpu!r} estimates from records: it runs on no device and writes nothing to out.")
    if image is None and (pad, stride) != (0, 1):
        raise MatrixError("pad and stride are of a convolution's input: give its size as image=(height, width).")
    whole = None if image is None else Image(*image, pad, stride)
    question = Question(widths, op, dtype, asked, float(budget), whole)
    if gpu is not None:
        return estimate.answer(one, question, recorded.load(gpu, recorded.usual_folders()))
    session = _session(device)
    if out is None:
        return measured.answer(one, question, session, Kept(), RunProgress(), _known(device))
    folder = Path(out) / session.device.gpu / EXPERIMENT
    with Results(folder, True, False, session.environment, lambda note: None) as results:
        return measured.answer(one, question, session, results, RunProgress(), _known(device))


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
    if not is_width(n):
        raise OperatorError(f"n must be a whole number from 1, not {n!r}")
    if dtype is not None and dtype not in ITEM_BYTES:
        raise OperatorError(unknown("dtype", str(dtype), ITEM_BYTES))
    able = kernels_for("columns", registry.kernels())
    if kernel is not None and kernel not in able:
        raise OperatorError(unknown("kernel that packs weights", kernel, able))
    _require_budget(budget)
    one = as_layer(matrix)
    session = _session(device)
    problem = one.problem("spmm", int(n), dtype or one.dtype)
    names = None if kernel is None else [kernel]
    return make(problem, one.operands(problem), session, RunProgress(), names, float(budget))


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
    question = Question(widths_of("spmm", _tuple(tokens)), budget_s=float(budget), crossover=False)
    packer = packing.packer(session, True)
    if not packer.recall(one, question):
        answered = measured.answer(one, question, session, Kept(), RunProgress(), _known(device))
        if session.device.timer and not any(width.sparse(answered.dtype) for width in answered.widths):
            raise OperatorError(f"no sparse kernel was timed within {budget:g} s: give more by budget")
        packer.add(one, question, answered)
    (name,) = packer.layers
    return packer.layers[name], packer.archive().saved(name)


def as_layer(matrix: Any, pattern: Pattern = "uniform") -> Layer:
    """A layer of whatever names or holds one matrix. Raises `MatrixError`."""
    if isinstance(matrix, str | Path):
        found = layer.load([str(matrix)], (), pattern)
        return found[0]
    if isinstance(matrix, CSR):
        return layer.from_matrix(matrix)
    if scipy.sparse.issparse(matrix):
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


def _tuple(given: Any) -> tuple[Any, ...] | None:
    if given is None:
        return None
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)


def _require(op: Any, pattern: Any, dtype: Any, kernels: Iterable[Any] | None, budget: Any, image: Any) -> None:
    """Raises `MatrixError` for the first argument of `best` that can't be."""
    given = [("op", op, OPS), ("pattern", pattern, PATTERNS), ("dtype", dtype or "f32", ITEM_BYTES)]
    for what, name, known in (*given, *(("kernel", name, registry.kernels()) for name in kernels or ())):
        if name not in known:
            raise MatrixError(unknown(what, str(name), known))
    _require_budget(budget)
    if image is not None and not (isinstance(image, tuple) and len(image) == 2 and all(map(is_width, image))):
        raise MatrixError(f"the image is (height, width), not {image!r}.")


def _require_budget(budget: Any) -> None:
    if not isinstance(budget, Real) or not float(budget) > 0:
        raise MatrixError(f"the budget is a number of seconds above 0, not {budget!r}.")


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
    "Answer",
    "MatrixError",
    "Operator",
    "OperatorError",
    "RecordError",
    "Unsupported",
    "best",
    "load",
    "operator",
]
