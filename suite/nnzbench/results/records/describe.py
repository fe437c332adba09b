"""What a row says of its problem and of its candidate beside their names, for whoever writes it: readers ask the
columns. The names are read here and nowhere else, and so are those of rows of the first schema (`schema1`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import pandas as pd

from nnzbench.data.problems.check import TOLERANCE
from nnzbench.data.problems.problem import NETWORKS, Problem
from nnzbench.kernels.registry import Role, about, kernels, known
from nnzbench.kernels.vendor.cublas import UNPRUNED
from nnzbench.results.records.beside import Tuning, outgrown

LAYOUTS = ("rowmajor", "colmajor", "bcol", "ccol", "row", "col", "transposed", "nchw", "nhwc")
"""Words of a library's variants that say how its operands lie in memory."""
DEFAULT = r"(.*[_-])?(default|heuristic)([_-]|$)"
"""Pattern of the variants that a kernel or library would run by its own choice."""
_PRODUCT = re.compile(r"f\d+_\w+?_(qkv|o|up|down|head)_.+_b\d+")
_ABLATED = re.compile(r"(complete|no_[a-z_]+?|paper_residue|paper_order)(?=_[a-z]\d|$)")
STRUCTURED = {"balanced": "balanced", "codebook_balanced": "balanced"} | {
    name: name for name in ("block", "vector", "kernel", "pattern", "banded")
}
"""Patterns with a structure, by how their source begins, beside N:M and V:N:M; all others are unstructured."""
UNSTRUCTURED = "unstructured"
_SEARCH = ["problem", "dtype", "kernel", "device"]


@functools.cache
def pattern_of(source: str) -> str:
    """Kind of pattern of a problem's source, such as `dlmc:...`, `nm:2:4:0`, `vnm:64:2:8:0` or `block:...`."""
    words = source.split(":")
    return ":".join(words[1:-1]) if words[0] in ("nm", "vnm") else STRUCTURED.get(words[0], UNSTRUCTURED)


def of_problem(problem: Problem) -> dict[str, Any]:
    """The columns of a problem that say what its name does."""
    return {
        "label": problem.label or problem.name,
        "level": problem.level if problem.label else None,
        **{name: getattr(problem, name) for name in ("kind", "batch", "count", "model", "place", "step")},
        "pattern": pattern_of(problem.source),
    }


def step_of(op: str, shape: str) -> str:
    """The operation really computed, of a recorded one (`Problem.recorded_op`) and the shape beside it."""
    words = shape.split("_")
    if words[-2:] == ["bias", "relu"]:
        return "depthwise" if op.startswith("conv") else "pointwise"
    return words[-1] if words[-1] in (*NETWORKS, "attention") else op


class CandidateColumns(NamedTuple):
    """What a kernel's variant is."""

    role: Role
    math: str
    layout: str
    """Of a library's operands, in its own words; empty for a kernel that has one."""
    choice: str
    weights: str
    work: str
    part: str
    """Of a network, or what a study of a kernel has or leaves out; empty for what stands alone."""


@functools.lru_cache(maxsize=1 << 16)
def of_candidate(kernel: str, variant: str, dtype: str) -> CandidateColumns:
    """The columns of a candidate; `choice` is `first` only by the run that tried it (`searched`)."""
    said = about(kernel)
    layout = [word for word in variant.split("_") if word in LAYOUTS] if said.role == "library" else []
    part = ""
    if said.part:
        found = _PRODUCT.fullmatch(variant)
        part = found[1] if found else variant.partition("_")[2]
    elif said.study and (found := _ABLATED.match(variant)):
        part = found[1]
    return CandidateColumns(
        said.role_of(variant),
        class_of(kernel, variant, dtype),
        "_".join(layout),
        "default" if is_default(variant) else "fixed" if said.nothing_to_tune else "search",
        "unpruned" if variant.endswith(UNPRUNED) else "pruned",
        said.work,
        part,
    )


def is_default(variant: str) -> bool:
    """Whether the kernel or library would run it by its own choice."""
    return re.match(DEFAULT, variant) is not None


def class_of(kernel: str, variant: str, dtype: str) -> str:
    """Arithmetic class: the first word of the variant where that is one (`tf32_...`), else the dtype.

    Vendor variants start with their math mode; kernels of this suite compute in their dtype, but for those that say of
    themselves that they have one class alone, which is another.
    """
    first = variant.partition("_")[0]
    return first if first in TOLERANCE else _only_class(kernel) or dtype


@functools.cache
def _only_class(kernel: str) -> str:
    """The one arithmetic class of a kernel whose inputs have another type, such as TF32 of fp32; else empty."""
    one = kernels().get(kernel)
    maths = about(kernel).maths
    return next(iter(maths)) if one is not None and len(maths) == 1 and not maths & one.dtypes else ""


def searched(rows: pd.DataFrame, tunings: Iterable[Tuning] | None) -> pd.DataFrame:
    """The columns `search` and `choice` of rows, by what was written of the searches of their kernels.

    `search` is how much of a kernel's candidates was tried on the problem: `first` its first choices, as the run's
    time was over; `some` as few as it was asked to try; `all`, or nothing to tune. Empty where the run did not come to
    its end there. A run to the end that did not know a first choice of a later, shorter one counts as `some`: the
    kernel has more candidates since. One over the pruned matrix says nothing where a library multiplies by the unpruned
    one since. Without tunings, as of before they were written, all is tried.
    """
    if tunings is None:
        return rows[["choice"]].assign(search="all")
    table = pd.DataFrame([vars(one) for one in tunings], columns=list(Tuning.__dataclass_fields__))
    if table.empty:
        return rows[["choice"]].assign(search="")
    ours = {name for name in set(table["kernel"]) & {*known()} if about(name).role != "library"}
    more = outgrown(table[table["kernel"].isin(ours)].itertuples(index=False))
    keys = table[_SEARCH].itertuples(index=False, name=None)
    scopes = table["scope"].mask(pd.Series([key in more for key in keys], table.index, bool), "some")
    ranked = pd.Categorical(scopes, ["all", "some", "first"], ordered=True)
    lines = table.assign(scope=ranked, policy=table["policies"].str.split("+")).explode("policy", ignore_index=True)
    named = lines["untuned"].str.contains(UNPRUNED, regex=False)
    lines = lines[named | ~named.groupby([lines[one] for one in [*_SEARCH, "policy"]]).transform("any")]
    widest = lines.sort_values("scope", kind="stable").drop_duplicates([*_SEARCH, "policy"])
    keyed = rows[[*_SEARCH, "policy"]].merge(widest[[*_SEARCH, "policy", "scope"]], how="left")["scope"]
    search = keyed.astype(object).fillna("").set_axis(rows.index)
    done = rows["kernel"].isin([name for name in rows["kernel"].unique() if about(name).nothing_to_tune])
    first = table[[*_SEARCH, "untuned"]].assign(variant=table["untuned"].str.split()).explode("variant")
    named_first = pd.MultiIndex.from_frame(first.dropna(subset=["variant"])[[*_SEARCH, "variant"]].astype(object))
    chosen = pd.MultiIndex.from_frame(rows[[*_SEARCH, "variant"]].astype(object)).isin(named_first)
    choice = rows["choice"].mask(chosen & rows["choice"].eq("search").to_numpy(), "first")
    return pd.DataFrame({"choice": choice, "search": search.mask(done & (search != ""), "all")})
