"""Which rows stand for what is compared: one time per problem and policy for each selector."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from nnzbench.kernels.registry import OURS, Role, about, dense_libraries, known
from nnzbench.results.records import describe
from nnzbench.results.records.selection import least

MATHS = {"f32": "fp32", "tf32": "TF32", "f16": "fp16", "bf16": "bf16", "i8": "INT8", "f8": "FP8", "i4": "INT4"}
"""Arithmetic classes as readers know them."""


def word(*words: str) -> str:
    """Pattern of variants that have one of the words between underscores or hyphens."""
    return rf"(.*[_-])?({'|'.join(words)})([_-]|$)"


DEFAULT = describe.DEFAULT
"""What a kernel or library would run by its own choice."""
COLUMN_DEFAULT = "(csr_default_col|spmv_csr_default)$"
"""That choice of cuSPARSE on column-major operands, which papers call; a single column has no other layout."""


@dataclass(frozen=True)
class Selector:
    """The rows that compete to be one side of a comparison; the fastest of them on a problem is its time."""

    label: str
    """Names it in facts, tables and legends; the same words always mean the same rows."""
    kernels: tuple[str, ...] = ()
    """Empty for every kernel whose rows have one of `roles`."""
    math: str = "f32"
    variants: str = ""
    """Pattern at the start of a variant's name; empty for all."""
    roles: frozenset[Role] = frozenset()
    """Whose rows, where one kernel has a paper's mapping and ours; empty for all of the kernels'."""
    source: str = ""
    """First word of the problem's source; empty for all."""
    also: str = ""
    """A second arithmetic class whose rows compete."""
    pruned: bool = False
    """Whether it is a dense product with the pruned matrix, though its time with the unpruned one is known."""
    one_choice: bool = False
    """Whether one candidate of a problem stands for it under all policies, that of the least product of its times,
    rather than the fastest under each."""

    def __post_init__(self) -> None:
        if not self.kernels and not self.roles:
            raise ValueError(f"'{self.label}' names neither kernels nor roles: it would be anybody's rows")

    @property
    def kernel(self) -> str:
        """The kernel of a selector of one, else empty."""
        return self.kernels[0] if len(self.kernels) == 1 else ""

    @property
    def default(self) -> bool:
        """Whether it is its kernel's own first choice."""
        return self.variants == DEFAULT

    @property
    def untunable(self) -> bool:
        """Whether no tuning changes it: a first choice, in one layout or any, or one part that a study leaves out."""
        study = bool(self.kernels) and all(about(kernel).study for kernel in self.kernels)
        return bool(self.variants) and (study or re.search("default|heuristic", self.variants) is not None)

    @property
    def dense(self) -> bool:
        """Whether it multiplies by every weight."""
        return bool(self.kernels) and all(about(kernel).work == "dense" for kernel in self.kernels)


def kernel(name: str, math: str = "f32", variants: str = "", words: str = "") -> Selector:
    """One kernel's fastest variant (of those that begin as `variants`; `words` say which)."""
    words = words or ("its heuristic" if variants == DEFAULT else "")
    suffix = "" if math == "f32" else f" {MATHS[math]}"
    return Selector(f"{about(name).label}{suffix}{f', {words}' if words else ''}", (name,), math, variants)


def own(math: str = "f32", as_data: bool = False) -> Selector:
    """The fastest of this project's own designs on each problem; `as_data`: without code generated from weights."""
    found = tuple(
        name
        for name, one in known().items()
        if one.role == "own" and not one.study and not (as_data and one.weights_in_code)
    )
    label = "best of ours" + ("" if math == "f32" else f" {MATHS[math]}") + (", weights as data" if as_data else "")
    return Selector(label, found, math, roles=frozenset({"own"}))


def written_here(math: str = "f32") -> Selector:
    """The fastest of all kernels written here on each problem, papers' methods and own designs."""
    return Selector(f"best sparse kernel {MATHS[math]}", math=math, roles=OURS)


def best_dense(math: str) -> Selector:
    """The fastest of cuBLAS and cuBLASLt in one arithmetic: every algorithm that they offer."""
    return Selector(f"best dense {MATHS[math]}", ("cublas", "cublaslt"), math)


CUBLAS = Selector("cuBLAS fp32", ("cublas",))
DENSE, TF32, FP16, INT8 = (best_dense(math) for math in ("f32", "tf32", "f16", "i8"))
FP16_PRUNED = replace(FP16, label=f"{FP16.label}, pruned matrix", pruned=True)
"""On the pruned matrix, where the unpruned one is timed too."""
CUSPARSE = Selector("best cuSPARSE fp32", ("cusparse",))
CUSPARSE_F16 = Selector("best cuSPARSE fp16", ("cusparse",), "f16")
CUSPARSE_DEFAULT = Selector("cuSPARSE's default fp32 in its best layout", ("cusparse",), variants=DEFAULT)
CUSPARSE_COLUMN = Selector("cuSPARSE's column-major default fp32", ("cusparse",), variants=COLUMN_DEFAULT)
CUDNN, CUDNN_TF32, CUDNN_F16 = (
    Selector(f"best cuDNN {MATHS[math]}", ("cudnn",), math) for math in ("f32", "tf32", "f16")
)
CUDNN_DEFAULT = Selector("cuDNN's default fp32 in NCHW", ("cudnn",), variants=r"[a-z0-9]+_nchw_.*_default$")
PRODUCTS = (DENSE, TF32, FP16, CUBLAS, CUSPARSE)
"""What a sparse product is compared with everywhere."""
CONVOLUTIONS = (CUDNN, CUDNN_TF32, CUDNN_F16)
UNTUNED = kernel("untuned")


def dense_of(math: str) -> Selector:
    """The fastest of all dense libraries in one arithmetic, convolutions' too."""
    return Selector(f"best dense library {MATHS[math]}", dense_libraries(math), math)


def rows_of(frame: pd.DataFrame, selector: Selector, status: str = "ok") -> pd.DataFrame:
    """The rows with a checked time that compete in a selector, or those of another status; in the order of `frame`."""
    kept = (frame["status"] == status) & frame["math"].isin([selector.math, selector.also])
    kept &= frame["median_us"].notna() | (status != "ok")
    if selector.kernels:
        kept &= frame["kernel"].isin(selector.kernels)
    if selector.roles:
        kept &= frame["role"].isin(selector.roles)
    found = frame[kept]
    over = found.get("superseded", pd.Series(False, found.index))
    if selector.pruned:
        found = found[over]
    elif over.any():  # such a row gives way to a time of the selector's own kernels alone
        cases = [pd.MultiIndex.from_frame(some[["problem", "policy"]]) for some in (found, found[~over])]
        found = found[~(over & cases[0].isin(cases[1]))]
    if selector.source:
        found = found[found["source"].str.match(rf"{re.escape(selector.source)}(:|$)")]
    if selector.variants:
        found = found[found["variant"].str.match(selector.variants)]
    return _one_choice(found) if selector.one_choice else found


def _one_choice(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each problem the rows of one candidate that has a time under all of its policies."""
    of = ["problem", "kernel", "variant"]
    times = rows.assign(log=np.log(rows["median_us"])).groupby(of)["log"].agg(["size", "sum"]).reset_index()
    whole = times[times["size"] == times.groupby("problem")["size"].transform("max")]
    best = least(whole.rename(columns={"sum": "median_us"}), ["problem"])[of]
    return rows[pd.MultiIndex.from_frame(rows[of]).isin(pd.MultiIndex.from_frame(best))]


def pick(frame: pd.DataFrame, selector: Selector, by: Sequence[str] = ("problem", "policy")) -> pd.DataFrame:
    """The fastest of a selector's rows, at most one per problem and policy (or what `by` names), in the same order."""
    return least(ranked(rows_of(frame, selector)), by)


def ranked(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows in the order that tells of equal times: what stands for its kernel first, then by kernel, variant."""
    return rows.sort_values(["selected", "kernel", "variant"], ascending=[False, True, True], kind="stable")


def selected(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that stand for their kernel: the fastest checked one of each problem, arithmetic and policy."""
    return frame[frame["selected"] & frame["median_us"].notna()]


def present(frame: pd.DataFrame) -> set[tuple[str, str]]:
    """Kernels and arithmetic classes that have a time."""
    timed = frame[(frame["status"] == "ok") & frame["median_us"].notna()]
    return {
        (str(name), str(math)) for name, math in timed[["kernel", "math"]].drop_duplicates().itertuples(index=False)
    }


def kernels_in(frame: pd.DataFrame) -> list[Selector]:
    """Every kernel and arithmetic with a time as a selector of its own, in the order of legends."""
    return [kernel(*one) for one in sorted(present(frame), key=lambda one: (about(one[0]).rank, *one))]
