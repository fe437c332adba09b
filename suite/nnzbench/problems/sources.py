"""Where a problem's sparse operand comes from: `problem.source` resolved to a CSR matrix."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nnzbench import paths
from nnzbench.matrices import encodings, generate, index, prune, standin
from nnzbench.matrices.checkpoints import load_weights
from nnzbench.matrices.formats import CSR, MatrixError
from nnzbench.matrices.sparse_files import read_smtx
from nnzbench.problems import decoder
from nnzbench.problems.networks import pointwise_weights
from nnzbench.problems.problem import ConvShape, Problem

WEIGHTS_FILE = "real_weights.npz"
BALANCED_BLOCKS = 32
"""Balance ranges per row where `balanced:<seed>` names none (Balanced Sparsity, section 5)."""


CODEBOOK = "codebook_"
"""Before a source: its nonzeros share the 15 values of their clusters."""


def range_count(problem: Problem) -> int:
    """Balance ranges per row that the problem's source names (`balanced:<ranges>:<seed>`), else the paper's 32."""
    words = problem.source.removeprefix(CODEBOOK).split(":")
    named = words[0] == "balanced" and len(words) == 3
    return min(int(words[1]) if named else BALANCED_BLOCKS, problem.k)


def input_density(problem: Problem) -> float:
    """Share of a product's inputs that are not zero, as the problem's source names it."""
    kind, _, rest = problem.source.partition(":")
    return float(rest.partition(":")[0]) / 100 if kind == "sparse_inputs" else 1.0


def load_sparse(problem: Problem) -> CSR:
    """The sparse operand of `problem`: m x k (m x n for sddmm), float32 values.

    | source | matrix |
    | --- | --- |
    | `dlmc:<path>` | real pattern `<root>/dlmc/<path>` |
    | `weights:<name>` | real values, array `<name>` of `<root>/real_weights.npz` |
    | `standin:<dlmc path>`, `standin:<weights name>` | generated pattern with the measured statistics of that layer |
    | `uniform:<seed>` | exactly round(sparsity*m*k) zeros anywhere |
    | `equal_rows:<seed>` | the same count in every row |
    | `cov:<cov>:<seed>` | row lengths with that coefficient of variation |
    | `banded:<band>:<seed>` | causal mask: dense band, random left of it |
    | `balanced:<seed>`, `balanced:<ranges>:<seed>` | the same count in each of 32 (or so many) ranges of every row |
    | `nm:<n>:<m>:<seed>` | n nonzeros in every m consecutive columns |
    | `block:<r>x<c>:<seed>` | whole r x c blocks |
    | `magnitude:<kind>:<seed>` | magnitude pruning of weights that vary by row and column as on such layers |
    | `vector:<length>:<seed>` | whole runs of so many columns: of 3 in 3x3 filters, rows of kernels |
    | `kernel:<taps>:<seed>` | whole kernels of so many taps |
    | `channel:<taps>:<seed>` | whole input and output channels: a smaller dense layer |
    | `pattern:<set>:<mode>:<seed>` | PatDNN's 4 of 9 weights in the kernels that stay (`matrices.prune`) |
    | `codebook_<source>` | that source, its values replaced by 15 shared ones (`matrices.encodings`) |
    | `mobilenet:<width>:<height>:<seed>` | MobileNetV1's 1x1 convolutions along the diagonal (`problems.networks`) |
    | `layers:<percent>-<percent>-...:<seed>` | so many zeros in each matrix of a decoder's block (`problems.decoder`) |
    | `sparse_inputs:<percent>:<source>` | that source; so many percent of the inputs are not zero (`operands`) |
    | `elements:<count>:<seed>` | ESE's pruning: so many interleaved sets of rows keep equal counts |
    | `transposed:<source>` | the transpose of that source's k x m matrix, values and all |

    `balanced` prunes random normal weights by Balanced Sparsity's algorithm 1, with nothing trained between its steps.
    Values are standard normal, drawn from `problem.seed`, but for `weights:`. For convolutions the columns are
    `c_in*(r*s) + tap`; DLMC's own order `tap*C_in + c_in` is changed. Raises `MatrixError`.
    """
    matrix = _resolve(problem)
    rows, columns = shape_of(problem)
    if (matrix.m, matrix.k) != (rows, columns):
        raise MatrixError(
            f"{problem.source}: matrix is {matrix.m} x {matrix.k}, problem {problem.name} needs {rows} x {columns}."
        )
    return matrix


def shape_of(problem: Problem) -> tuple[int, int]:
    """Rows and columns of the sparse operand."""
    return (problem.m, problem.n) if problem.op == "sddmm" else (problem.m, problem.k)


def find_real(source: str) -> Path | None:
    """The file of a real source (`dlmc:` or `weights:`) under the first data root that has it, else None."""
    return next(_all_real(source), None)


def _all_real(source: str) -> Iterator[Path]:
    """The files of a real source under all data roots, in their order."""
    kind, _, name = source.partition(":")
    if kind in ("dlmc", "weights"):
        relative = Path("dlmc", _inside(name)) if kind == "dlmc" else Path(WEIGHTS_FILE)
        yield from (root / relative for root in paths.data_roots() if (root / relative).is_file())


def _inside(path: str) -> str:
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise MatrixError(f"dlmc:{path}: path must lie inside the collection.")
    return path


def _resolve(problem: Problem) -> CSR:
    if problem.source.startswith(CODEBOOK):
        return encodings.shared(_resolve(replace(problem, source=problem.source.removeprefix(CODEBOOK))))
    kind, _, rest = problem.source.partition(":")
    if kind == "mobilenet":
        return pointwise_weights(problem)
    if kind == "sparse_inputs":
        return _resolve(replace(problem, source=rest.partition(":")[2]))
    if kind == "transposed":
        rows, columns = shape_of(problem)
        return _transposed(_resolve(replace(problem, op="spmm", m=columns, k=rows, source=rest)))
    if kind == "weights":
        return CSR.from_dense(load_weights(_required(problem.source), rest))
    if kind == "dlmc":
        pattern = _conv_order(_first_whole(rest, problem.source), problem.conv)
    elif kind == "standin" and rest.endswith(".smtx"):
        pattern = _conv_order(standin.for_dlmc(rest), problem.conv)
    elif kind == "standin":
        pattern = _conv_order(standin.for_weights(rest, *shape_of(problem), problem.sparsity), problem.conv)
    else:
        pattern = _generated(problem, kind, rest.split(":"))
    rng = np.random.default_rng([problem.seed, 0xA])
    return pattern.with_values(rng.standard_normal(pattern.nnz, dtype=np.float32))


def _transposed(matrix: CSR) -> CSR:
    order = np.argsort(matrix.indices, kind="stable")
    rows = np.repeat(np.arange(matrix.m, dtype=np.int32), matrix.row_lengths)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(matrix.indices, minlength=matrix.k))])
    return CSR(matrix.k, matrix.m, offsets.astype(np.int32), rows[order], matrix.values[order])


def _first_whole(name: str, source: str) -> CSR:
    """The matrix from the first data root whose file is whole. Raises the first file's `MatrixError` where none is."""
    refused: MatrixError | None = None
    for path in (_required(source), *list(_all_real(source))[1:]):
        try:
            return _of_collection(name, path)
        except MatrixError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _of_collection(name: str, path: Path) -> CSR:
    """The matrix of that name, compared with the index: any other file in its place would be measured under it."""
    matrix = read_smtx(path)
    entry = index.dlmc().get(name)
    if entry is not None and (matrix.m, matrix.k, matrix.nnz) != (entry.rows, entry.cols, entry.nnz):
        raise MatrixError(
            f"{path}: has {matrix.m} x {matrix.k} with {matrix.nnz} nonzeros, and dlmc:{name} has "
            f"{entry.rows} x {entry.cols} with {entry.nnz}: it is another file than the collection's."
        )
    if entry is not None and entry.sha256 and _sha256(path) != entry.sha256:
        raise MatrixError(f"{path}: is not the file that the collection has as dlmc:{name} (its SHA-256 differs).")
    return matrix


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _required(source: str) -> Path:
    found = find_real(source)
    if found is None:
        how = "run 'nnzbench fetch dlmc'" if source.startswith("dlmc:") else f"put {WEIGHTS_FILE} into a data folder"
        raise MatrixError(f"{source}: not on disk; {how}, or set NNZBENCH_DATA to the folder that holds it.")
    return found


def _generated(problem: Problem, kind: str, words: list[str]) -> CSR:
    m, k = shape_of(problem)
    s = problem.sparsity
    try:
        seed = int(words[-1])
        match kind, words[:-1]:
            case "uniform", []:
                return generate.uniform(m, k, s, seed)
            case "layers", [levels]:
                return decoder.by_layer(problem, [float(one) / 100 for one in levels.split("-")], seed)
            case "equal_rows", []:
                return generate.equal_rows(m, k, s, seed)
            case "cov", [cov]:
                return generate.uneven_rows(m, k, s, float(cov), seed)
            case "banded", [band]:
                return generate.banded(m, k, s, int(band), seed)
            case "balanced", [*ranges] if len(ranges) < 2:
                count = int(ranges[0]) if ranges else BALANCED_BLOCKS
                return generate.pruned_normal(m, k, seed, lambda w: prune.balanced(w, s, count))
            case "nm", [some, of]:
                n, group = int(some), int(of)
                return generate.pruned_normal(m, k, seed, lambda w: prune.n_of_m(w, n, group))
            case "magnitude", [layer_kind]:
                return standin.for_kind(layer_kind, m, k, s, seed)
            case "block", [size]:
                r, c = map(int, size.split("x"))
                return generate.blocks(m, k, s, r, c, seed)
            case "vector" | "kernel", [length]:
                return prune.vectors(m, k, s, int(length), seed)
            case "channel", [taps]:
                return prune.channels(m, k, s, int(taps), seed)
            case "elements", [count]:
                return prune.elements(m, k, s, int(count), seed)
            case "pattern", [chosen, "norm" | "balanced" | "uneven" as mode]:
                return prune.patterns(m, k, s, chosen, mode, seed)
    except ValueError as error:
        if isinstance(error, MatrixError):
            raise
    raise MatrixError(f"source '{problem.source}' of problem {problem.name} is not understood.")


def _conv_order(matrix: CSR, conv: ConvShape | None) -> CSR:
    """Columns `tap*C_in + c_in` changed to `c_in*(r*s) + tap`; matrices and 1x1 filters are left alone."""
    if conv is None or conv.r * conv.s == 1:
        return matrix
    taps = conv.r * conv.s
    tap, channel = np.divmod(matrix.indices.astype(np.int64), conv.channels)
    rows = np.repeat(np.arange(matrix.m, dtype=np.int64), matrix.row_lengths)
    positions: Any = rows * matrix.k + channel * taps + tap
    return generate.from_positions(matrix.m, matrix.k, np.sort(positions))
