"""A decoder of a language model as a problem (`decoder`): one new token for each of n sequences, some tokens cached.

Its label, `<model>_kv<cached tokens>`, says which. Its sparse operand has the weights of one block, (weights / hidden)
rows of `hidden`: the products' matrices one after another, each flat in its own order of rows. All blocks of a problem
have these weights, at addresses of their own: for a GPU's caches they are different ones. Then come the last norm and
the product with the vocabulary, which stays dense.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.data.matrices import generate
from nnzbench.data.matrices.formats import CSR, MatrixError
from nnzbench.data.problems.parts import float64

if TYPE_CHECKING:
    from nnzbench.data.problems.problem import Problem

FEATURES = 128
"""Of a head."""
LOGITS = 31
"""Every so many of the logits is checked: float64 results of all would take longer than everything else."""
POOL = (1 << 22) + 11
"""Random numbers that the vocabulary's matrix repeats, as it takes a gigabyte."""
HEAD = "head"
"""The product with the vocabulary."""


@dataclass(frozen=True)
class Decoder:
    """Sizes of a model, and how many of its blocks a problem has."""

    hidden: int
    inside: int
    heads: int
    key_heads: int
    vocabulary: int
    layers: int
    theta: float
    """Base of the angles of positions."""
    blocks: int
    """That a problem has: all layers, or where one GPU has no room for them, one GPU's share."""

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of the block's matrices: queries, keys and values; output; gate and up; down."""
        return {
            "qkv": ((self.heads + 2 * self.key_heads) * FEATURES, self.hidden),
            "o": (self.hidden, self.heads * FEATURES),
            "up": (2 * self.inside, self.hidden),
            "down": (self.hidden, self.inside),
        }

    @property
    def weights(self) -> int:
        """Of a block."""
        return sum(m * k for m, k in self.products.values())


MODELS = {
    "llama3_8b": Decoder(4096, 14336, 32, 8, 128256, 32, 5e5, 32),
    "llama2_7b": Decoder(4096, 11008, 32, 32, 32000, 32, 1e4, 32),
    "qwen2.5_7b": Decoder(3584, 18944, 28, 4, 152064, 28, 1e6, 28),
    "llama3_70b": Decoder(8192, 28672, 64, 8, 128256, 80, 5e5, 16),
    "tiny": Decoder(256, 384, 2, 1, 512, 2, 1e4, 2),
}
"""Sizes as the models' own configurations have them; Qwen's biases of queries, keys and values are left out."""


@dataclass(frozen=True)
class Case:
    """One problem."""

    net: Decoder
    cached: int
    """Tokens before the new one, of each sequence."""
    n: int

    @property
    def tokens(self) -> int:
        """That a query sees: the cached ones and its own."""
        return self.cached + 1

    @staticmethod
    def of(problem: Problem) -> Case:
        """Raises `MatrixError` for another label, or sizes that are not the model's."""
        model, _, cached = problem.label.rpartition("_kv")
        if model not in MODELS or not cached.isdecimal():
            raise MatrixError(f"'{problem.label}' is not <model>_kv<tokens>, with one of {', '.join(MODELS)}.")
        net = MODELS[model]
        if (problem.m, problem.k) != (net.weights // net.hidden, net.hidden):
            raise MatrixError(f"a block of {model} has {net.weights // net.hidden} x {net.hidden} weights.")
        return Case(net, int(cached), problem.n)

    def work(self, weights: float, weight_bytes: float) -> tuple[float, float]:
        """Operations, and bytes read, where so many weights of a block are multiplied and take so many bytes."""
        net = self.net
        head, cache = net.vocabulary * net.hidden, 2 * net.key_heads * FEATURES * self.tokens * self.n
        attention = 4.0 * net.heads * FEATURES * self.tokens * self.n
        flops = net.blocks * (2.0 * weights * self.n + attention) + 2.0 * head * self.n
        return flops, float(net.blocks * (weight_bytes + 2 * cache) + 2 * head)


def matrices(net: Decoder, weights: CSR) -> dict[str, CSR]:
    """The products' matrices out of a block's."""
    found, row = {}, 0
    for name, (m, k) in net.products.items():
        rows = m * k // net.hidden
        one = weights.band(row, row + rows)
        if k != net.hidden:
            one = generate.from_positions(m, k, one.rows * net.hidden + one.indices).with_values(one.values)
        found[name] = one
        row += rows
    return found


def by_layer(problem: Problem, levels: Sequence[float], seed: int) -> CSR:
    """A block's pattern with a share of zeros of its own in each product's matrix, anywhere in it.

    Raises `MatrixError` for another number of levels, or where together they are not the problem's.
    """
    net, op = Case.of(problem).net, problem.op
    if op != "decoder" or len(levels) != len(net.products):
        raise MatrixError(f"{problem.source}: a level is wanted for each of {', '.join(net.products)} of a decoder.")
    sizes = [m * k // net.hidden for m, k in net.products.values()]
    bands = [generate.uniform(m, net.hidden, s, seed + at) for at, (m, s) in enumerate(zip(sizes, levels, strict=True))]
    whole = CSR.stacked(bands)
    if abs(whole.sparsity - problem.sparsity) > 0.005:
        raise MatrixError(f"{problem.source}: that is {whole.sparsity:.3f} of all weights, not {problem.sparsity:g}.")
    return whole


def scales(weights: Mapping[str, CSR]) -> dict[str, float]:
    """What brings each product's results to the size of its operand: 1 over the root of the nonzeros of a row."""
    return {name: float(np.sqrt(one.m / max(1, one.nnz))) for name, one in weights.items()}


def angles(net: Decoder, position: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cosine and sine of a position for each pair of features (64)."""
    angle = position * net.theta ** (-np.arange(FEATURES // 2) / (FEATURES // 2))
    return np.cos(angle), np.sin(angle)


def dense_operands(problem: Problem, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """`x` (n, hidden); `cache` (keys and values, key heads, cached tokens, 128), of which each sequence and block has a
    copy; `gains` (3, hidden) of the norms before attention, before the gate, and last; `head` (vocabulary, hidden).
    """
    case = Case.of(problem)
    net = case.net

    def normal(*shape: int) -> NDArray[np.float32]:
        return rng.standard_normal(shape, dtype=np.float32)

    return {
        "x": normal(case.n, net.hidden),
        "cache": normal(2, net.key_heads, case.cached, FEATURES),
        "gains": 1 + normal(3, net.hidden) / np.float32(10),
        "head": _head(net.vocabulary, net.hidden, problem.seed),
    }


@functools.lru_cache(maxsize=1)
def _head(rows: int, columns: int, seed: int) -> NDArray[Any]:
    """fp16: one for all problems of a model, as it takes seconds to make."""
    pool = np.random.default_rng([seed, 0xD]).standard_normal(min(POOL, rows * columns), dtype=np.float32)
    return np.resize(pool.astype(np.float16), (rows, columns))


def forward(problem: Problem, weights: CSR, dense: Mapping[str, Any]) -> tuple[Any, Any]:
    """In float64: the vocabulary's rows that are checked, and what they are multiplied by, (hidden, n)."""
    case = Case.of(problem)
    net, parts = case.net, matrices(case.net, weights)
    scale, n = scales(parts), case.n
    x, gains = dense["x"].astype(np.float64).T.copy(), dense["gains"].astype(np.float64)
    cache = dense["cache"].astype(np.float64)
    cosine, sine = (one[:, None] for one in angles(net, case.cached))
    left = {name: float64(one.to_dense()) for name, one in parts.items()}  # dense: BLAS runs on all cores

    def norm(gain: Any) -> Any:
        return x / np.sqrt(np.mean(x * x, axis=0) + 1e-5) * gain[:, None]

    def turned(heads: Any) -> Any:
        low, high = heads[:, : FEATURES // 2], heads[:, FEATURES // 2 :]
        return np.concatenate([low * cosine - high * sine, high * cosine + low * sine], axis=1)

    for _ in range(net.blocks):
        heads = ((left["qkv"] @ norm(gains[0])) * scale["qkv"]).reshape(-1, FEATURES, n)
        keys, values = turned(heads[net.heads : net.heads + net.key_heads]), heads[net.heads + net.key_heads :]
        queries = turned(heads[: net.heads]).reshape(net.key_heads, -1, FEATURES, n) / np.sqrt(FEATURES)
        own = (queries * keys[:, None]).sum(axis=2)[:, None]
        flat = queries.transpose(0, 2, 1, 3).reshape(net.key_heads, FEATURES, -1)
        scores = (cache[0] @ flat).reshape(net.key_heads, case.cached, queries.shape[1], n)
        shares = np.concatenate([scores, own], axis=1)
        shares = np.exp(shares - shares.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        before = shares[:, :-1].reshape(net.key_heads, case.cached, flat.shape[2])
        seen = (cache[1].transpose(0, 2, 1) @ before).reshape(net.key_heads, FEATURES, -1, n).transpose(0, 2, 1, 3)
        seen = seen + shares[:, -1][:, :, None] * values[:, None]
        x += (left["o"] @ seen.reshape(-1, n)) * scale["o"]
        gate, up = np.split((left["up"] @ norm(gains[1])) * scale["up"], 2)
        x += (left["down"] @ (gate / (1 + np.exp(-gate)) * up)) * scale["down"]
    return float64(dense["head"][::LOGITS]), norm(gains[2])
