"""A layer as it is asked about: a matrix out of a file or of no file, the question, and the problems that it poses."""

from __future__ import annotations

import glob
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices import files, index
from nnzbench.data.matrices.formats import CSR, MatrixError, require_memory
from nnzbench.data.problems.experiment import unknown
from nnzbench.data.problems.operands import Operands, operands_of, round_to
from nnzbench.data.problems.problem import ConvShape, DType, Problem, name_of
from nnzbench.data.problems.sources import load_sparse
from nnzbench.kernels import registry
from nnzbench.results.records.describe import UNSTRUCTURED, pattern_of

EXPERIMENT = "mine"
"""The results folder of a user's own matrices."""
Op = Literal["spmm", "sddmm", "spmv", "conv2d", "conv1d"]
OPS: tuple[Op, ...] = get_args(Op)
Pattern = Literal["uniform", "magnitude", "balanced", "2:4", "64:2:8", "64:2:16"]
PATTERNS: tuple[Pattern, ...] = get_args(Pattern)
MOST_BYTES = 8 << 30
"""Of a dense operand or a result in float64, as the check makes it: more does not fit an ordinary computer."""
LANGUAGE_MODEL = 2048
"""Rows and columns from which on a size is taken for a layer of a language model, whose weights have 16 bits."""
HALVED = 0.6
"""Share of zeros up to which a matrix that sparse tensor cores take was pruned for them: others take it by chance."""
_SPEC = re.compile(r"(\d{1,9})[xX](\d{1,9})@(0?\.\d{1,9}|0|\d{1,2}(?:\.\d{1,6})?%)")
_ALMOST = re.compile(r"\d+[xX]\d+(@.*)?")
_MOST_WEIGHTS = 1 << 31
_MADE_BYTES = 60
"""Memory for each nonzero of a generated pattern while it is drawn."""
_BY_RANGE: tuple[DType, ...] = ("f16", "bf16", "f32")
DTYPES: dict[str, DType] = {
    "f32": "f32", "f16": "f16", "bf16": "bf16", "fp32": "f32", "fp16": "f16", "float32": "f32", "float16": "f16",
    "bfloat16": "bf16", "float": "f32", "half": "f16",
}  # fmt: skip
"""Types by what people, files and PyTorch call them."""
_AXES: dict[Op, int] = {"conv2d": 4, "conv1d": 3}
"""Of the weights that an op takes from a checkpoint; others take matrices."""
_EMBEDDING = re.compile(r"(^|\.)(embed(_tokens|_positions|_in|ding)?|wte|wpe|\w*embeddings)(\.weight)?$")
"""Names of what is looked up in, and multiplied by nothing."""
BUDGET_S = 60.0
"""Seconds for one matrix, all widths together."""
WIDTHS = (1, 32, 256)
"""Columns that are asked about where none are named."""
PACKED_WIDTHS = (1, 8, 16, 32, 64)
"""Most tokens that packed layers' choices are for, where none are named."""


@dataclass(frozen=True)
class Image:
    """What a convolution's weights do not tell."""

    height: int
    width: int
    pad: int = 0
    stride: int = 1


@dataclass(frozen=True)
class Question:
    """What is asked of every layer."""

    ns: tuple[int, ...]
    op: Op = "spmm"
    dtype: DType | None = None
    """None: each layer's own."""
    kernels: tuple[str, ...] | None = None
    budget_s: float = BUDGET_S
    """Of all layers together."""
    image: Image | None = None
    crossover: bool = True
    """Whether to look for the crossover at widths that were not asked for."""
    packs: bool = False
    """Whether layers are packed by their answers, which checks them: of a kind the first alone is timed."""


def question(
    op: Any, n: Any, dtype: Any, kernels: Any, budget: Any, image: Any, pad: Any, stride: Any, **of_device: Any
) -> Question:
    """The question that these are, as the command and Python ask it. Raises `MatrixError` for the first that can't be.

    `of_device`: `device` and `out`, which an estimate for a `gpu` has none of.
    """
    named = [("kernel", one, registry.kernels()) for one in tuple_of(kernels) or ()]
    for what, name, known in (("op", op, OPS), *named):
        if name not in known:
            raise MatrixError(unknown(what, str(name), known))
    if not isinstance(budget, Real) or not float(budget) > 0:
        raise MatrixError(f"the budget is a number of seconds above 0, not {budget!r}.")
    if of_device.pop("gpu", None) is not None and any(one is not None for one in of_device.values()):
        raise MatrixError("an estimate for a GPU is made from records: it runs on no device and writes nothing to out.")
    if image is not None and not (isinstance(image, tuple) and len(image) == 2 and all(map(is_width, image))):
        raise MatrixError(f"the image is (height, width), not {image!r}.")
    pad, stride = pad or 0, stride or 1
    if op not in _AXES and (image, pad, stride) != (None, 0, 1):
        raise MatrixError(f"image, pad and stride are of a convolution's input: {op} has none.")
    whole = None if image is None else Image(*image, pad, stride)
    return Question(widths_of(op, tuple_of(n)), op, dtype_of(dtype), tuple_of(kernels), float(budget), whole)


def tuple_of(given: Any) -> tuple[Any, ...] | None:
    """One or several, as a tuple; None for None."""
    if given is None:
        return None
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)


def is_width(n: Any) -> bool:
    """Whether it is a whole number from 1, NumPy's included."""
    return isinstance(n, int | np.integer) and n is not True and int(n) >= 1


def widths_of(op: Op, asked: Sequence[Any] | None) -> tuple[int, ...]:
    """The widths to ask about: those given, each once, or the usual ones. Raises `MatrixError` for impossible ones."""
    if asked is None:
        return (1,) if op == "spmv" else WIDTHS
    if not asked or not all(map(is_width, asked)):
        raise MatrixError(f"n must be whole numbers from 1, not {', '.join(map(repr, asked)) or 'none at all'}.")
    widths = tuple(dict.fromkeys(int(n) for n in asked))
    if op == "spmv" and widths != (1,):
        raise MatrixError("a matrix times a vector has one column: spmv goes with n = 1 alone.")
    return widths


def dtype_of(given: Any) -> DType | None:
    """The type of that name (`f16`, `fp16`, `half`, `torch.float16`); None for None. Raises `MatrixError`."""
    name = str(given).removeprefix("torch.").lower()
    if given is not None and name not in DTYPES:
        raise MatrixError(f"unknown dtype '{given}': choose from f32, f16, bf16 (or fp32, fp16, float16, half, ...)")
    return None if given is None else DTYPES[name]


@dataclass(frozen=True)
class Layer:
    """One matrix with its name, and the shape of its weights."""

    label: str
    matrix: CSR
    shape: tuple[int, ...]
    source: str
    """As rows name it: `file:<name>`, or what generated it."""
    dtype: DType
    """Type of values that it is asked about in where the user names none: the file's own 16 bits, and fp16 for a
    size as large as a language model's layer; else f32."""
    note: str = ""
    """How its weights became a matrix, where that is not plain."""
    name: str = ""
    """Of its tensor in the file, empty where that holds one matrix."""

    @property
    def title(self) -> str:
        """What it is called in an answer: as its file has it."""
        return self.name or self.label

    def problem(self, op: Op, n: int, dtype: DType, image: Image | None = None) -> Problem:
        """The problem of `n` columns (sddmm: products of length n; convolutions: n images).

        Raises `MatrixError` where there is no such problem, or a value is too large for the type.
        """
        self._require_range(dtype)
        rows, columns = self.matrix.m, self.matrix.k
        conv = self._convolution(op, n, image)
        m, k = (rows, n) if op == "sddmm" else (rows, columns)
        width = columns if op == "sddmm" else conv.batch * conv.out_height * conv.out_width if conv else n
        if max(m, k) * max(width, 1) * 8 > MOST_BYTES:
            raise MatrixError(f"{self.label}: {m} x {k} by {width} columns needs over {MOST_BYTES >> 30} GB to check.")
        label = f"{re.sub(r'[^A-Za-z0-9.]+', '.', self.label)[:80].strip('.')}.{self.matrix.pattern_hash()[:8]}"
        sparsity = round(max(0.0, self.matrix.sparsity), 4)
        problem = Problem(EXPERIMENT, "", op, m, k, width, sparsity, self.source, dtype, 0, conv, label)
        return replace(problem, name=name_of(problem))

    def operands(self, problem: Problem) -> Operands:
        """The matrix with seeded dense operands beside it, rounded to the problem's type."""
        if problem.dtype not in self._rounded:  # one for all widths: what is packed of a matrix is kept with it
            self._rounded[problem.dtype] = self.matrix.with_values(round_to(self.matrix.values, problem.dtype))
        return operands_of(problem, self._rounded[problem.dtype], self._rounded[problem.dtype].pattern_hash())

    @cached_property
    def _rounded(self) -> dict[DType, CSR]:
        return {}

    @cached_property
    def kind(self) -> str:
        """Of its pattern, as `describe.pattern_of` names it: by what generated it, and of a file whether it is 2:4."""
        known = pattern_of(self.source)
        halved = known == UNSTRUCTURED and self.matrix.sparsity <= HALVED and not unfit(self.matrix, "f16")
        return "2:4" if halved else known

    @cached_property
    def _largest(self) -> float:
        """Of its weights' sizes: each width and type asks for it."""
        return float(np.abs(self.matrix.values).max(initial=0.0))

    def _require_range(self, dtype: DType) -> None:
        """Raises `MatrixError` where a value becomes infinite in `dtype`: every kernel would be wrong."""
        largest = self._largest
        with np.errstate(over="ignore"):
            wider = [name for name in _BY_RANGE if np.isfinite(round_to(np.array([largest]), name).astype(float)).all()]
        if dtype not in wider:
            instead = f": use dtype {' or '.join(wider)}" if wider else ""
            raise MatrixError(f"{self.label}: values up to {largest:.3g} do not fit {dtype}{instead}.")

    def _convolution(self, op: Op, n: int, image: Image | None) -> ConvShape | None:
        if op not in ("conv2d", "conv1d"):
            return None
        if len(self.shape) != _AXES[op]:
            raise MatrixError(f"{self.label}: {op} needs weights of {_AXES[op]} axes, not of the shape {self.shape}.")
        if image is None:
            raise MatrixError(f"{self.label}: {op} needs the size of its input: add --image HEIGHTxWIDTH.")
        filters, channels, r, s = self.shape if op == "conv2d" else (*self.shape[:2], 1, self.shape[2])
        vertical = image.pad if op == "conv2d" else 0
        shape = ConvShape(n, channels, image.height, image.width, filters, r, s, vertical, image.pad, image.stride)
        if shape.out_height < 1 or shape.out_width < 1:
            raise MatrixError(f"{self.label}: filters of {r} x {s} are larger than the padded image.")
        if op == "conv1d" and image.height != 1:
            raise MatrixError(f"{self.label}: conv1d has an input of one row: give --image 1xWIDTH.")
        return shape


def is_size(text: str) -> bool:
    """Whether the argument is a size with its share of zeros and names no file."""
    return _SPEC.fullmatch(text) is not None


def load(
    texts: Sequence[str],
    match: Sequence[str] = (),
    pattern: Pattern = "uniform",
    op: Op = "spmm",
    apart: list[str] | None = None,
) -> list[Layer]:
    """The layers that the arguments name: files (`FILE`, `FILE::tensor`) and sizes (`4096x11008@0.9`).

    With `apart`, a checkpoint of several without a name or a `match` stands for all of its layers that `op` takes, and
    the names of its other matrices are added there. Raises `MatrixError`, one sentence, for what names none.
    """
    if pattern not in PATTERNS:
        raise MatrixError(unknown("pattern", str(pattern), PATTERNS))
    layers: list[Layer] = []
    for text in texts:
        spec = _SPEC.fullmatch(text)
        if not spec and _ALMOST.fullmatch(text) and not os.path.lexists(text):
            raise MatrixError(f"{text}: a size has its share of zeros, from 0 to below 1, after @: 4096x11008@0.9.")
        if spec:
            layers.append(_generated(text, spec, pattern))
        elif apart is not None and not match and len(names := files.names(text)) > 1:
            looked_up = list(filter(_EMBEDDING.search, names)) if op not in _AXES else []
            products = [glob.escape(one) for one in names if one not in looked_up]
            found = [_layer(one, op) for one in files.read(text, products)] if products else []
            taken = [one for one in found if len(one.shape) == _AXES.get(op, 2)]
            if not taken:
                raise MatrixError(f"{text}: none of its {len(names)} matrices is a layer of {op}: see --op, --match.")
            layers += taken
            apart += [*looked_up, *(one.title for one in found if one not in taken)]
        else:
            layers += [_layer(one, op) for one in files.read(text, match)]
    return layers


def from_matrix(matrix: CSR, dtype: DType = "f32") -> Layer:
    """A layer of a matrix that is at hand."""
    return Layer("matrix", matrix, (matrix.m, matrix.k), "file:matrix", dtype)


def _layer(found: files.Matrix, op: Op) -> Layer:
    matrix, notes = found.csr, ["unpacked from compressed-tensors' sparse-bitmask"] * found.bitmask
    if not found.valued:
        rng = np.random.default_rng([0, 0xA])
        matrix = matrix.with_values(rng.standard_normal(matrix.nnz, dtype=np.float32))
    if len(found.shape) > 2:
        rest = " x ".join(map(str, found.shape[1:]))
        notes.append(f"weights of {found.shape[0]} filters by {rest} taken as a {matrix.m} x {matrix.k} matrix")
        if op not in _AXES and math.prod(found.shape[2:]) > 1:
            notes[-1] += ", what im2col takes not counted: --op conv2d --image HxW asks about the convolution"
    name = "".join(one if one.isprintable() and one != " " else "_" for one in found.label)  # surrogates are not
    dtype = DTYPES.get(found.dtype, "f32")
    return Layer(name, matrix, found.shape, f"file:{name}", dtype, "; ".join(notes), found.name)


def _generated(text: str, spec: re.Match[str], pattern: Pattern) -> Layer:
    m, k = int(spec[1]), int(spec[2])
    sparsity = float(spec[3].rstrip("%")) / (100 if spec[3].endswith("%") else 1)
    if m < 1 or k < 1 or m * k > _MOST_WEIGHTS:
        raise MatrixError(f"{text}: {m} x {k} is no size of a layer that can be made here.")
    if ":" in pattern:
        *_, kept, group = map(int, pattern.split(":"))
        if sparsity != (zeros := 1 - kept / group):
            raise MatrixError(f"{text}: {kept} of {group} are not zero in a {pattern} pattern: ask for @{zeros:g}.")
    require_memory(text, _MADE_BYTES * math.ceil(m * k * (1 - sparsity)))
    source = f"{('', 'nm:', 'vnm:')[pattern.count(':')]}{pattern}:0"
    if pattern == "magnitude":
        source = f"cov:{typical_unevenness(sparsity):g}:0"
    problem = Problem(EXPERIMENT, text, "spmm", m, k, 1, sparsity, source)
    label = f"{m}x{k}.{pattern.replace(':', 'of')}"
    return Layer(label, load_sparse(problem), (m, k), source, "f16" if min(m, k) >= LANGUAGE_MODEL else "f32")


def unfit(matrix: CSR, dtype: DType) -> str:
    """Why sparse tensor cores can't take the pattern; empty where they can."""
    from nnzbench.kernels.vendor.cusparselt import require_pattern

    try:
        require_pattern(matrix, dtype)
    except Unsupported as error:
        return str(error)
    return ""


def typical_unevenness(sparsity: float) -> float:
    """Coefficient of variation of row lengths: the median of DLMC's magnitude-pruned matrices of the nearest level.

    Capped where rows of that sparsity can't be as uneven; 0 where nothing is pruned.
    """
    known = [one for one in index.dlmc().values() if one.method == "magnitude_pruning"]
    pruned = [one for one in known if one.row_cov is not None and one.nnz]
    if not pruned or not sparsity:
        return 0.0
    nearest = min({float(one.target_sparsity) for one in pruned}, key=lambda level: abs(level - sparsity))
    found = [one.row_cov for one in pruned if float(one.target_sparsity) == nearest and one.row_cov is not None]
    return round(min(float(np.median(found)), 0.9 * math.sqrt(sparsity / (1 - sparsity))), 3)
