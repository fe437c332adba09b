"""Where a problem's sparse operand comes from: `problem.source` resolved to a CSR matrix."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from nnzbench.core import paths
from nnzbench.data.matrices import encodings, generate, index, prune, standin
from nnzbench.data.matrices.checkpoints import load_array
from nnzbench.data.matrices.files import from_array, read_smtx
from nnzbench.data.matrices.formats import CSR, MatrixError
from nnzbench.data.problems import decoder
from nnzbench.data.problems.networks import pointwise_weights
from nnzbench.data.problems.problem import ConvShape, Problem

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

    `docs/data.md` has a table of all sources, those that are real and those that are generated.

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
    if kind == "dlmc" and (Path(name).is_absolute() or ".." in Path(name).parts):
        raise MatrixError(f"{source}: path must lie inside the collection.")
    if kind in ("dlmc", "weights"):
        relative = Path("dlmc", name) if kind == "dlmc" else Path(WEIGHTS_FILE)
        yield from (root / relative for root in paths.data_roots() if (root / relative).is_file())


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
        return _resolve(replace(problem, op="spmm", m=columns, k=rows, source=rest)).transposed()
    if kind == "weights":
        path = _required(problem.source)
        return from_array(f"{path}: array '{rest}'", load_array(path, rest))
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
    if entry is not None and entry.sha256 and hashlib.sha256(path.read_bytes()).hexdigest() != entry.sha256:
        raise MatrixError(f"{path}: is not the file that the collection has as dlmc:{name} (its SHA-256 differs).")
    return matrix


def _required(source: str) -> Path:
    found = find_real(source)
    if found is None:
        how = "run 'nnzbench fetch dlmc'" if source.startswith("dlmc:") else f"put {WEIGHTS_FILE} into a data folder"
        raise MatrixError(f"{source}: not on disk; {how}, or set NNZBENCH_DATA to the folder that holds it.")
    return found


_GENERATED: dict[str, Callable[..., CSR]] = {
    "uniform": generate.uniform,
    "equal_rows": generate.equal_rows,
    "cov": lambda m, k, s, seed, cov: generate.uneven_rows(m, k, s, float(cov), seed),
    "banded": lambda m, k, s, seed, band: generate.banded(m, k, s, int(band), seed),
    "balanced": lambda m, k, s, seed, ranges=BALANCED_BLOCKS: generate.pruned_normal(
        m, k, seed, lambda weights: prune.balanced(weights, s, int(ranges))
    ),
    "nm": lambda m, k, s, seed, n, group: generate.pruned_normal(
        m, k, seed, lambda weights: prune.n_of_m(weights, int(n), int(group))
    ),
    "vnm": lambda m, k, s, seed, v, n, group: generate.pruned_normal(
        m, k, seed, lambda weights: prune.v_n_m(weights, int(v), int(n), int(group)), max(1, int(v))
    ),
    "magnitude": lambda m, k, s, seed, kind: standin.for_kind(kind, m, k, s, seed),
    "block": lambda m, k, s, seed, size: generate.blocks(
        m, k, s, seed=seed, **dict(zip("rc", map(int, size.split("x")), strict=True))
    ),
    "vector": lambda m, k, s, seed, length: prune.vectors(m, k, s, int(length), seed),
    "kernel": lambda m, k, s, seed, taps: prune.vectors(m, k, s, int(taps), seed),
    "channel": lambda m, k, s, seed, taps: prune.channels(m, k, s, int(taps), seed),
    "elements": lambda m, k, s, seed, count: prune.elements(m, k, s, int(count), seed),
    "pattern": lambda m, k, s, seed, chosen, mode: prune.patterns(m, k, s, chosen, mode, seed),
}
"""By kind of source: makes a pattern of rows, columns, sparsity, seed and the words between kind and seed."""
KINDS = frozenset({
    *_GENERATED, *(f"{CODEBOOK}{kind}" for kind in ("uniform", "balanced", "equal_rows")),
    "dlmc", "weights", "standin", "transposed", "mobilenet", "layers", "sparse_inputs",
})  # fmt: skip
"""First words of all sources that tables may have."""


def _generated(problem: Problem, kind: str, words: list[str]) -> CSR:
    try:
        *words, seed = words
        if kind == "layers":
            (levels,) = words
            return decoder.by_layer(problem, [float(one) / 100 for one in levels.split("-")], int(seed))
        return _GENERATED[kind](*shape_of(problem), problem.sparsity, int(seed), *words)
    except MatrixError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise MatrixError(f"source '{problem.source}' of problem {problem.name} is not understood.") from error


def _conv_order(matrix: CSR, conv: ConvShape | None) -> CSR:
    """Columns `tap*C_in + c_in` changed to `c_in*(r*s) + tap`; matrices and 1x1 filters are left alone."""
    if conv is None or conv.r * conv.s == 1:
        return matrix
    taps = conv.r * conv.s
    tap, channel = np.divmod(matrix.indices.astype(np.int64), conv.channels)
    positions = matrix.rows * matrix.k + channel * taps + tap
    return generate.from_positions(matrix.m, matrix.k, np.sort(positions))
