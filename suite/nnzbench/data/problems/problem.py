"""What is computed: one `Problem` per row of a paper's table. Plain values, no data and no devices.

Names are `<label>_<sizes>_<level in percent>_<kind of source>[_<type>]`, with one writer and one parser. Records keep
names alone, so a name must tell what its problem is where the problem itself is not at hand.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal

Op = Literal[
    "spmm", "sddmm", "sparse_softmax", "spmv", "conv2d", "conv1d", "gemm", "attention", "pointwise", "depthwise",
    "transformer", "mobilenet", "decoder",
]  # fmt: skip
"""What is computed. Three are steps of a network that only their own kernels compute:

`attention`: softmax(Q K^T) V with scores at the sparse operand's positions alone; `pointwise`: a 1x1 convolution with
bias and ReLU, max(A B + bias, 0); `depthwise`: a convolution of each channel with its own filter, bias and ReLU.
`transformer` and `mobilenet` are whole networks (`problems.networks`), and so is `decoder` (`problems.decoder`).
"""
NETWORKS = frozenset({"transformer", "mobilenet", "decoder"})
DType = Literal["f32", "f16", "bf16", "i8", "f8"]
"""Of the operands. Results have the same type, but sums of `i8` stay 32-bit integers, and of `f8` (e4m3) are fp16."""
ITEM_BYTES: dict[DType, int] = {"f32": 4, "f16": 2, "bf16": 2, "i8": 1, "f8": 1}


@dataclass(frozen=True)
class ConvShape:
    """Sizes of a convolution: NCHW input, `filters x channels/groups x r x s` weights, no dilation.

    A 1-D convolution has `height == r == 1` and `pad_h == 0`.
    """

    batch: int
    channels: int
    height: int
    width: int
    filters: int
    r: int
    s: int
    pad_h: int = 0
    pad_w: int = 0
    stride: int = 1
    groups: int = 1
    """`channels` for a depthwise convolution (`filters` is then `channels` too), else 1."""

    @property
    def out_height(self) -> int:
        """Rows of the output plane."""
        return (self.height + 2 * self.pad_h - self.r) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Columns of the output plane."""
        return (self.width + 2 * self.pad_w - self.s) // self.stride + 1

    @property
    def output(self) -> tuple[int, int, int, int]:
        """Shape of the result, NCHW."""
        return (self.batch, self.filters, self.out_height, self.out_width)

    def __str__(self) -> str:
        text = f"n{self.batch}_c{self.channels}_h{self.height}_w{self.width}_d{self.filters}_r{self.r}_s{self.s}"
        text += f"_p{self.pad_h}" if self.pad_h == self.pad_w else f"_ph{self.pad_h}_pw{self.pad_w}"
        text += "" if self.stride == 1 else f"_u{self.stride}"
        return text if self.groups == 1 else f"{text}_g{self.groups}"


@dataclass(frozen=True)
class Problem:
    """One multiplication to be run by every kernel that supports it.

    The equivalent matrix product is always (m x k, sparse) times (k x n, dense); for `sddmm` the sparse operand
    is the m x n output's pattern and k the length of the dot products; `gemm` has a dense left operand. `attention` has
    the m x k mask of m queries and k keys, and heads of n features.
    """

    experiment: str
    """Fixed experiment name, such as `sparsert_table1`."""
    name: str
    """Unique within the experiment; names sizes, sparsity level and source."""
    op: Op
    m: int
    k: int
    n: int
    sparsity: float
    """Level asked for (a label); what counts is nnz/(m*k) as counted in the operands."""
    source: str
    """`dlmc:<path>`, `weights:<name>` (real), `standin:<dlmc path>`, `uniform:<seed>`, ... (generated)."""
    dtype: DType = "f32"
    seed: int = 0
    """Seeds the values and the dense operands (and the pattern, where it is generated)."""
    conv: ConvShape | None = None
    label: str = ""
    """The paper's own row label (its problem number), for tables and plots."""
    count: int = 1
    """Times the layer occurs in its model."""
    model: str = ""
    """The network that it is a layer of, where its table says so."""
    place: int | None = None
    """Line of its experiment's table, from 0, the same for each type of one problem; None without a table."""

    @property
    def level(self) -> float:
        """Percent of zeros asked for, as the name has it."""
        return float(f"{100 * self.sparsity:g}")

    @property
    def kind(self) -> str:
        """Where the pattern is from: the first word of the source."""
        return self.source.partition(":")[0]

    @property
    def batch(self) -> int:
        """What the label says of the batch (`..._b256`), 0 where it says nothing."""
        return batch_of(self.label)

    @property
    def step(self) -> Op:
        """What is really computed, where `recorded_op` is the product that a network's step is recorded as."""
        return self.op

    @property
    def shape(self) -> str:
        """What the matrix sizes do not tell: the convolution's sizes, `attention`, `bias_relu`; empty for products."""
        words = [] if self.conv is None else [str(self.conv)]
        words += ["attention"] if self.op == "attention" else []
        words += [self.op] if self.op in NETWORKS else []
        words += ["bias_relu"] if self.op in ("pointwise", "depthwise") else []
        return "_".join(words)

    @property
    def recorded_op(self) -> str:
        """The op of records: of a step, the product that it is named by (`shape` then tells them apart)."""
        if self.op == "pointwise":
            return "spmm" if self.sparsity else "gemm"
        named = {"attention": "spmm", "depthwise": "conv2d", "transformer": "spmm", "mobilenet": "conv2d"}
        named["decoder"] = "spmm"
        return named.get(self.op, self.op)


INTERCHANGEABLE = frozenset({"dlmc", "weights", "standin"})
"""Kinds of source that stand for one another: a real matrix, and what is generated where it is not on disk."""

_NAME = re.compile(
    r"(?P<base>(?P<label>.+?)_(?P<sizes>\d+x\d+x\d+|n\d+_c\d+_h\d+_w\d+_d\d+_r\d+_s\d+(?:_[a-z]+\d+)*)"
    r"_(?P<level>[0-9.]+))"
    rf"_(?P<kind>[a-z_]+?)(?P<typed>_(?P<dtype>{'|'.join(one for one in ITEM_BYTES if one != 'f32')}))?"
)


def batch_of(label: str) -> int:
    """As `Problem.batch`."""
    found = re.search(r"_b(\d+)$", label)
    return int(found[1]) if found else 0


def name_of(problem: Problem) -> str:
    """The name of a problem that has a label, sizes, a level, a source and a type."""
    sizes = str(problem.conv or f"{problem.m}x{problem.k}x{problem.n}")
    name = f"{problem.label}_{sizes}_{100 * problem.sparsity:g}_{problem.kind}"
    return name if problem.dtype == "f32" else f"{name}_{problem.dtype}"


@functools.cache
def parse(name: str) -> re.Match[str] | None:
    """The parts of a name as it has them: label, sizes, level, kind, dtype; None for one `name_of` does not write."""
    return _NAME.fullmatch(name)


@functools.cache
def case_of(name: str) -> str:
    """A name without its source: what the problem is called on real data and on synthetic patterns alike.

    This tells whether a problem of a table was recorded, in each type. A name of another form is its own case.
    """
    parts = parse(name)
    return f"{parts['base']}{parts['typed'] or ''}" if parts else name


@functools.cache
def stem_of(name: str) -> str:
    """A name without its type, and without its source only where that is one of `INTERCHANGEABLE`.

    This puts the types of one problem side by side, but keeps a uniformly random pattern apart from the network's own,
    as tables have both. A name of another form is its own stem.
    """
    parts = parse(name)
    if parts is None:
        return name
    return parts["base"] if parts["kind"] in INTERCHANGEABLE else f"{parts['base']}_{parts['kind']}"
