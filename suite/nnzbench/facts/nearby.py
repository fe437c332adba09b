"""What the records say of a layer: answers come from the same operation, arithmetic and kind of pattern alone.

index.html asks by the same rule (`report/static/nearby.js`); a test holds the two against each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import pandas as pd

from nnzbench.facts.data import Data
from nnzbench.facts.selector import MATHS, Selector, dense_of
from nnzbench.facts.table import pairs
from nnzbench.kernels.registry import known

CHECKS = "awkward_sizes"
"""The experiment that is for checking, not for speed: its times tell nothing of a layer's."""
PRODUCTS = "op in ['spmm', 'spmv', 'sddmm'] and shape == ''"
"""Condition on problems: a product by itself, and no step of a network."""
OCTAVE = 2
"""Factor within which rows, inner size and columns of a neighbour lie."""
POINTS = 5.0
"""Percentage points within which a neighbour's zeros lie."""
SAME_POINTS, SAME_NONZEROS = 1.0, 1.1
"""Zeros are the same where they differ by at most so many points, and nonzeros by at most this factor."""
INSTEAD = {"f32": ("f32", "tf32", "f16"), "tf32": ("tf32", "f16"), "f16": ("f16",), "bf16": ("bf16",)}
"""By arithmetic asked for, that of dense products which could run instead: its own, or with fewer digits."""
KINDS = {"balanced": "balanced", "codebook_balanced": "balanced", "nm:2:4": "2:4", "nm:1:2": "1:2"} | {
    name: name for name in ("block", "vector", "kernel", "pattern", "banded")
}
"""Patterns with a structure, by how their source begins; all others are unstructured."""
UNSTRUCTURED = "unstructured"
KIND = ["op", "math", "pattern", "policy", "baseline"]
COLUMNS = [
    *KIND, "rows", "inner", "columns", "zeros", "ratio", "tuned", "kernel", "us", "baseline_kernel", "baseline_us",
    "experiment", "problem",
]  # fmt: skip
"""Of `layers`. `inner` are the sparse matrix's columns, `columns` the dense operand's; `zeros` counted, in percent."""

Missing = Literal["kind", "size", "columns", "zeros"]
"""What is not recorded: any such product, a matrix of about the size, a width, a share of zeros; each on both sides."""


class Asked(NamedTuple):
    """A layer: a sparse `rows` x `inner` matrix with `zeros` percent, and `columns` of the dense operand."""

    rows: int
    inner: int
    columns: int
    zeros: float


class Point(NamedTuple):
    """A recorded ratio; the fields of `Asked`, and where it lies in its table."""

    rows: int
    inner: int
    columns: int
    zeros: float
    ratio: float
    tuned: bool
    at: int


class Found(NamedTuple):
    """An answer: recorded as asked (one point of that very size), or made of neighbours."""

    ratio: float
    tuned: bool
    points: tuple[int, ...]
    """Places in the table; two or four where zeros or widths are interpolated."""


def sparse(math_class: str, without: str = "") -> Selector:
    """The fastest of all kernels that leave zeros out, libraries' too."""
    found = tuple(name for name, one in known().items() if one.work == "sparse" and not one.study and name != without)
    also = "f32" if math_class == "tf32" else ""
    label = f"best sparse {MATHS[math_class]}{f' but {without}' if without else ''}"
    return Selector(label, found, math_class, also=also)


def cusparse(math_class: str) -> Selector:
    """Its best algorithm in an arithmetic."""
    return Selector(f"best cuSPARSE {MATHS[math_class]}", ("cusparse",), math_class)


def kind_of(source: str) -> str:
    """Kind of pattern of a problem's source, such as `dlmc:...`, `nm:2:4:0` or `block:...`."""
    words = source.split(":")
    return KINDS.get(":".join(words[:3]) if words[0] == "nm" else words[0], UNSTRUCTURED)


def layers(data: Data) -> pd.DataFrame:
    """Every recorded product over each baseline, with `COLUMNS`; none of networks' steps and of `CHECKS`."""
    names = ["problem", "op", "m", "k", "n", "sparsity", "source"]
    products = data.problems.query(PRODUCTS)[names]
    if products.empty or data.results.experiment == CHECKS:
        return pd.DataFrame(columns=COLUMNS)
    parts = []
    for math_class, denses in INSTEAD.items():
        parts.append(pairs(data, [sparse(math_class)], list(map(dense_of, denses))).assign(math=math_class))
        parts.append(pairs(data, [sparse(math_class, "cusparse")], [cusparse(math_class)]).assign(math=math_class))
    found = products.merge(pd.concat(parts), on="problem")  # in the order of the experiment's table
    sampled = found["op"] == "sddmm"  # its pattern is m x n
    found = found.rename(
        columns={"median_us": "us", "over_us": "baseline_us", "over_kernel": "baseline_kernel"}
    ).assign(
        experiment=data.results.experiment,
        pattern=found["source"].map(kind_of),
        rows=found["m"],
        inner=found["k"].where(~sampled, found["n"]),
        columns=found["n"].where(~sampled, found["k"]),
        zeros=(100 * found["sparsity"]).round(3),
    )
    tuned_first = found[COLUMNS].sort_values("tuned", ascending=False, kind="stable")
    once = tuned_first.drop_duplicates([*KIND, "rows", "inner", "columns", "zeros"])
    return once.sort_index(ignore_index=True)


def points_of(table: pd.DataFrame, **kind: Any) -> list[Point]:
    """The points of one op, arithmetic, pattern, policy and baseline, in the table's order."""
    for name, value in kind.items():
        table = table[table[name] == value]
    names = ["rows", "inner", "columns", "zeros", "ratio", "tuned"]
    columns = (table[name] for name in names)
    return [Point(*row) for row in zip(*columns, table.index, strict=True)]


def answer(points: Sequence[Point], asked: Asked) -> Found | Missing:
    """The ratio of a layer, from the nearest recorded matrix that has it, or that has neighbours on both sides.

    Neighbours lie within `OCTAVE` in each size and within `POINTS` of zeros. Widths and zeros are interpolated, the
    latter as if times were powers of the share of nonzeros; rows and inner size are the recorded matrix's.
    """
    sized = [one for one in points if _near(one.rows, asked.rows) and _near(one.inner, asked.inner)]
    if not sized:
        return "size" if points else "kind"
    sizes = {(one.rows, one.inner): _away(one.rows, asked.rows) * _away(one.inner, asked.inner) for one in sized}
    missing: Missing = "columns"
    for size in sorted(sizes, key=lambda one: sizes[one]):
        widths: dict[int, list[Point]] = {}
        for one in sized:
            if (one.rows, one.inner) == size and _near(one.columns, asked.columns):
                widths.setdefault(one.columns, []).append(one)
        known = {width: found for width, some in widths.items() if (found := _at(some, asked.zeros))}
        if asked.columns in known:
            return known[asked.columns]
        low = max((width for width in known if width < asked.columns), default=0)
        high = min((width for width in known if width > asked.columns), default=0)
        if low and high:
            share = math.log(asked.columns / low) / math.log(high / low)
            return _mixed(known[low], known[high], share)
        if widths and not known:
            missing = "zeros"
    return missing


def _away(one: float, other: float) -> float:
    return max(one, other) / min(one, other)


def _near(one: int, other: int) -> bool:
    return _away(one, other) <= OCTAVE


def _nonzeros(zeros: float) -> float:
    return max(100 - zeros, 1e-4)


def _at(points: Iterable[Point], zeros: float) -> Found | None:
    """The ratio at a share of zeros, of points of one size and width."""

    def rank(one: Point) -> tuple[float, bool, float]:
        """Nearest first; of points about as near, tuned ones."""
        off = abs(one.zeros - zeros)
        return off // SAME_POINTS, not one.tuned, off

    def same(one: Point) -> bool:
        off, factor = abs(one.zeros - zeros), _away(_nonzeros(one.zeros), here)
        return off <= SAME_POINTS and factor <= SAME_NONZEROS

    by_zeros, here = sorted(points, key=rank), _nonzeros(zeros)
    if found := next(filter(same, by_zeros), None):
        return Found(found.ratio, found.tuned, (found.at,))
    near = [one for one in by_zeros if abs(one.zeros - zeros) <= POINTS]
    low = next((one for one in near if one.zeros < zeros), None)
    high = next((one for one in near if one.zeros > zeros), None)
    if low is None or high is None:
        return None
    share = math.log(_nonzeros(low.zeros) / here) / math.log(_nonzeros(low.zeros) / _nonzeros(high.zeros))
    below, above = (Found(one.ratio, one.tuned, (one.at,)) for one in (low, high))
    return _mixed(below, above, share)


def _mixed(low: Found, high: Found, share: float) -> Found:
    ratio = math.pow(low.ratio, 1 - share) * math.pow(high.ratio, share)
    return Found(ratio, low.tuned and high.tuned, (*low.points, *high.points))
