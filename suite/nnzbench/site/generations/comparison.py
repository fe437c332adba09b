"""Result sets side by side: measured ones of any number of GPUs, and the papers' numbers on theirs.

Every time is that of the row that stands for its kernel (`selected`). Published rows carry the paper's own sparsity
level and no pattern; they are joined to measured ones by experiment and problem name, never by pattern.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nnzbench.core.gpus import Peaks, generation, peaks_of, sheet_peaks
from nnzbench.data.problems.experiment import CHECKS
from nnzbench.data.problems.problem import NETWORKS, case_of
from nnzbench.kernels.registry import OURS, about, known, role_of
from nnzbench.kernels.vendor.cublas import UNPRUNED
from nnzbench.results.records.folder import folders
from nnzbench.results.records.selection import fastest
from nnzbench.results.result_set import GPU_DEVICES, ResultSet, each, load
from nnzbench.results.selector import selected
from nnzbench.results.table import divide
from nnzbench.site.generations import published

USUAL_LEVELS = (0.0, 0.5, 0.6, 0.625, 0.7, 0.75, 0.8, 0.875, 0.9, 0.95, 0.98, 0.99)
CASE = ["gpu", "kind", "experiment", "case", "policy"]
"""What one problem on one GPU is, whoever measured it."""


def tabulate(sets: Sequence[ResultSet]) -> pd.DataFrame:
    """One row per GPU, problem, kernel, arithmetic and policy with a time or a published speed-up; of a kernel with a
    paper's variants and this project's, one of each.

    Columns beside those of records: `kind` (`measured` or `published`) and `gpu_key` (gpu, kind); `time_us` the median,
    NaN where a paper prints speed-ups only; `speedup` over `baseline` (`<kernel>-<math>` of the same GPU, problem and
    policy), NaN without one; `share_of_bandwidth` and `share_of_flops` of that GPU's peaks, measured in the same run
    or, of a published row, by data sheet: bytes moved once over the time against L2 (hot operands that fit) or device
    memory, and operations executed (a dense library's zeros included) against the rate of its arithmetic.
    `share_of_limit` is limit over time, of measured rows alone. `kernel_role` is the records' role; `role` is `dense`
    for the baseline's row, `best` for the fastest sparse kernel in the baseline's arithmetic (this project's, or
    cuSPARSE where none has a time), else empty. `alike` is true of what GPUs are compared by: the fastest sparse
    kernel, and where a paper published the problem's time on another GPU the fastest of that paper's method, written
    anew, or of the library that it timed. `untuned` names the kernels that compete for the row and that the run did not
    tune there; `speedup_untuned` says whether there is one, or the baseline's was not tuned. Of candidates those count
    that `tried_alike` leaves.
    """
    frame = pd.concat([*map(_measured, tried_alike(sets)), _published()], ignore_index=True)
    frame["gpu_key"] = list(zip(frame["gpu"], frame["kind"], strict=True))
    age = {gpu: at for at, gpu in enumerate(gpu_order(list(frame["gpu"])))}
    keys = ["experiment", "case", "policy", "age", "kind", "kernel", "math"]
    return _with_roles(frame).assign(age=frame["gpu"].map(age)).sort_values(keys, kind="stable", ignore_index=True)


def load_sets(reports: Path) -> list[ResultSet]:
    """Every result set in `<reports>/<gpu>/<experiment>/` that a GPU made, but what is for checking alone.

    Raises `RecordError`.
    """
    sets = [load(folder) for folder in folders(reports, "*/*") if folder.name != CHECKS]
    return [results for results in sets if results.device in GPU_DEVICES]


def tried_alike(sets: Sequence[ResultSet]) -> list[ResultSet]:
    """The sets without candidates that another GPU of the same architecture, with the same problem, did not try.

    A kernel that was added or made faster between two recordings, or tuned in one of them, is no gain from one GPU to
    the other. Of this suite's kernels all that a GPU tried on a problem stand against the other's; of libraries each
    one's algorithms, over the pruned matrix or the unpruned one. What is left of a kernel that the other run did not
    tune is marked as not tuned (`cut_short`). GPUs of different architectures have tilings of their own.
    """
    problem = ["arch", "experiment", "problem", "math", "policy"]
    candidate = [*problem, "side", "kernel", "choice"]

    def timed(frame: pd.DataFrame) -> pd.DataFrame:
        rows = frame[frame["median_us"].notna()][[*problem, "kernel", "variant", "role", "gpu", "cut_short"]]
        ours = rows["role"].isin(OURS)
        return rows.assign(
            side=rows["kernel"].mask(ours, ""),
            choice=rows["variant"].mask(~ours, rows["variant"].str.removesuffix(UNPRUNED)),
        )

    every = pd.concat([timed(one.frame) for one in sets], keys=range(len(sets))) if sets else pd.DataFrame()
    if every.empty:
        return list(sets)
    gpus, tried = (every.groupby(keys)["gpu"].transform("nunique") for keys in ([*problem, "side"], candidate))
    alone: dict[Any, pd.DataFrame] = dict(iter(every[tried < gpus].groupby(level=0)))
    cut = pd.MultiIndex.from_frame(every.loc[every["cut_short"] != "", [*problem, "kernel"]])
    kept = []
    for at, results in enumerate(sets):
        if at not in alone:
            kept.append(results)
            continue
        gone = alone[at].droplevel(0)
        left = results.frame.drop(index=gone.index)
        kernels = pd.MultiIndex.from_frame(left[[*problem, "kernel"]])
        lost = kernels.isin(pd.MultiIndex.from_frame(gone[[*problem, "kernel"]])) & kernels.isin(cut)
        short = left["cut_short"].mask(lost & (left["cut_short"] == ""), "some")
        kept.append(replace(results, frame=left.assign(selected=fastest(left), cut_short=short)))
    return kept


def gpu_order(gpus: Sequence[str]) -> list[str]:
    """Slugs from the oldest generation to the newest: by architecture, then by bandwidth; unlisted ones last."""

    def age(gpu: str) -> tuple[float, float, str]:
        if gpu == published.UNNAMED:
            return (-1.0, 0.0, gpu)
        return (generation(gpu), sheet_peaks(gpu).copy_gbs or 0.0, gpu)

    return sorted(dict.fromkeys(gpus), key=age)


def level_of_case(case: str, sparsity: float) -> float:
    """Level in a problem's name where it has one (equal on all GPUs), else that of the counted sparsity."""
    word = next((w for w in reversed(case.split("_")) if w not in ("f16", "bf16")), "")
    level = float(word) / 100 if re.fullmatch(r"[0-9]+(\.[0-9]+)?", word) else sparsity
    nearest = min(USUAL_LEVELS, key=lambda one: abs(one - level))
    return nearest if abs(nearest - level) <= 0.0125 else round(level, 2)


_RECORDED = [
    "gpu", "experiment", "problem", "kernel", "policy", "math", "op", "dtype", "pattern_hash", "bytes", "floor_us",
]  # fmt: skip


_SIZES = ["kernel", "shape", "op", "m", "k", "n", "nnz"]


def _measured(results: ResultSet) -> pd.DataFrame:
    parts = {name: about(name).part for name in results.frame["kernel"].unique()}  # they compute another thing each
    frame = results.frame[~results.frame["kernel"].map(parts).astype(bool)]
    methods = frame[(frame["status"] == "ok") & frame["median_us"].notna() & (frame["role"] == "paper")]
    both = pd.concat([selected(frame), methods.sort_values("median_us", kind="stable")])
    rows = both.drop_duplicates(["problem", "policy", "kernel", "math", "role"])
    peaks = {name: peaks_of(found) for name, _, found in results.environments}
    cases = rows["case"]
    found = rows[_RECORDED].assign(
        kind="measured",
        time_us=rows["median_us"],
        speedup=math.nan,
        baseline="",
        paper="",
        case=cases,
        level=[level_of_case(*one) for one in zip(cases, rows["sparsity"], strict=True)],
        flops=rows["flops"] * [_executed_over_useful(row) for row in each(rows[_SIZES])],
        share_of_limit=rows["limit_share"],
        kernel_role=rows["role"],
        untuned=rows["kernel"].where(rows["cut_short"] != "", ""),
    )
    return _with_shares(found, [peaks[name] for name in rows["environment"]])


def _executed_over_useful(row: Any) -> float:
    """Of a dense kernel all elements of the sparse operand over the nonzero ones; NaN for a whole network, whose sizes
    are of no one matrix. 1 for a sparse kernel."""
    if about(row.kernel).work != "dense":
        return 1.0
    if row.shape in NETWORKS:
        return math.nan
    elements = row.m * (row.n if row.op == "sddmm" else row.k)
    return float(elements / row.nnz) if row.nnz else math.nan


def _published() -> pd.DataFrame:
    rows = [
        {
            **{name: getattr(row, name) for name in ("gpu", "kernel", "math", "time_us", "speedup", "paper")},
            **{"experiment": row.problem.experiment, "problem": row.problem.name, "op": row.problem.recorded_op},
            **vars(row.work),
            "dtype": row.problem.dtype,
            "baseline": f"{row.baseline}-{row.math}" if row.baseline else "",
            "case": (case := case_of(row.problem.name)),
            "level": level_of_case(case, row.problem.sparsity),
            "kernel_role": role_of(row.kernel, ""),
        }
        for row in published.rows()
    ]
    frame = pd.DataFrame(rows).assign(kind="published", policy="hot", pattern_hash="", untuned="")
    return _with_shares(frame, [sheet_peaks(gpu) for gpu in frame["gpu"]])


def _with_shares(rows: pd.DataFrame, peaks: Sequence[Peaks]) -> pd.DataFrame:
    """`rows` with their shares of bandwidth and arithmetic; `peaks` are each row's."""
    moved = zip(peaks, rows["bytes"], rows["policy"], strict=True)
    bandwidth = [one.bandwidth(bytes_, policy) for one, bytes_, policy in moved]
    rates = [one.tflops(name) for one, name in zip(peaks, rows["math"], strict=True)]
    return rows.assign(
        share_of_bandwidth=rows["bytes"] / rows["time_us"] * 1e-3 / bandwidth,
        share_of_flops=rows["flops"] / rows["time_us"] * 1e-6 / rates,
    )


def _with_roles(frame: pd.DataFrame) -> pd.DataFrame:
    """Adds baseline, speed-up and role. Times of different baselines are never mixed: each row names its own."""
    series = frame["kernel"] + "-" + frame["math"]
    place = series.map({name: at for at, name in enumerate(_baselines())})
    base = frame[place.notna() & frame["time_us"].notna()].assign(
        place=place, baseline_series=series, over_us=frame["time_us"], baseline_untuned=frame["untuned"]
    )
    sparse = frame[frame["kernel"].map(lambda name: about(name).work == "sparse")]
    of = [*CASE, "math"]
    base["alone"] = ~pd.MultiIndex.from_frame(base[of]).isin(pd.MultiIndex.from_frame(sparse[of]))
    first = base.sort_values([*CASE, "alone", "place"], kind="stable").drop_duplicates(CASE)
    frame = frame.merge(first[[*CASE, "baseline_series", "over_us", "baseline_untuned"]], on=CASE, how="left")
    frame["baseline"] = frame["baseline_series"].fillna(frame["baseline"])
    # a published speed-up without times has no row of its baseline
    frame["speedup"] = divide(frame.assign(us=frame["time_us"], printed=frame["speedup"]))["ratio"]
    best, like = _best(frame), _best(frame[_as_published(frame)])
    frame["role"] = np.where(series == frame["baseline_series"], "dense", "")
    frame.loc[best.index, "role"] = "best"
    frame.loc[best.index, "untuned"] = best
    frame.loc[like.index, "untuned"] = like
    frame["alike"] = frame.index.isin(like.index)
    frame["speedup_untuned"] = (frame["untuned"] != "") | (frame["baseline_untuned"].fillna("") != "")
    return frame.drop(columns=["baseline_series", "over_us", "baseline_untuned"])


def _baselines() -> list[str]:
    """What speed-ups divide by: dense libraries in fp32, then in fp16, the first that has a time beside a sparse
    kernel's in its arithmetic."""
    dense = [(name, one) for name, one in known().items() if one.role == "library" and one.reference]
    dense = [(name, one) for name, one in dense if one.work == "dense"]
    return [f"{name}-{math_class}" for math_class in ("f32", "f16") for name, one in dense if math_class in one.maths]


def _as_published(frame: pd.DataFrame) -> pd.Series[bool]:
    """Not this project's designs where a paper's own kernel was published, nor another paper's kernel.

    All are, where no measured GPU has a time of that kernel.
    """
    printed = frame["kind"] == "published"
    methods = frame[printed & frame["kernel"].map(lambda name: about(name).work != "dense")]
    of = ["experiment", "case", "kernel"]
    named = pd.MultiIndex.from_frame(frame.assign(kernel=frame["kernel"].str.removesuffix("_paper"))[of])
    like = (
        ~printed & named.isin(pd.MultiIndex.from_frame(methods[of])) & frame["kernel_role"].isin(("paper", "library"))
    )
    known = pd.MultiIndex.from_frame(frame[of[:2]]).isin(pd.MultiIndex.from_frame(frame.loc[like, of[:2]]))
    return like | printed | ~pd.Series(known, frame.index)


def _best(frame: pd.DataFrame) -> pd.Series[str]:
    """Rows of the fastest sparse kernel per problem, in its baseline's arithmetic (its own type where it has none).

    Values are the kernels that were not tuned among those that compete there.
    """
    wanted = frame["baseline"].str.rpartition("-")[2].where(frame["baseline"] != "", frame["dtype"])
    stands = frame["kernel"].map(lambda name: about(name).work == "sparse" and about(name).reference)
    library = frame["kernel_role"] == "library"
    sparse = frame[(frame["kernel_role"].isin(OURS) | (library & stands)) & (frame["math"] == wanted)]
    ranked = sparse.assign(library=library, slowness=sparse["time_us"].fillna(1 / sparse["speedup"]))
    ranked = ranked.sort_values([*CASE, "library", "slowness", "kernel"], kind="stable")
    first = ranked.drop_duplicates(CASE)
    rows = ranked[ranked["untuned"] != ""].groupby([*CASE, "library"])["untuned"]
    cut = {key: " ".join(sorted(set(names))) for key, names in rows}
    keys = zip(*(first[name] for name in (*CASE, "library")), strict=True)
    return pd.Series([cut.get(key, "") for key in keys], index=first.index, dtype=object)
