"""The tables of the page of GPUs side by side, in Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

from nnzbench.facts.results import ResultSet, each, geometric_mean
from nnzbench.report.text.marks import MARK
from nnzbench.report.text.tables import GAP, markdown, number
from nnzbench.site.generations import peaks, published
from nnzbench.site.generations.figures import GpuKey
from nnzbench.site.generations.peaks import Ceilings

TENSOR = {"tf32": "TF32", "f16": "fp16"}
"""Arithmetic of tensor cores, in words."""


def gpu_table(sets: list[ResultSet], names: Mapping[GpuKey, str]) -> str:
    """One row per GPU measured and per data sheet: rates of memory and arithmetic, sizes, an empty kernel's time."""
    rows = []
    for gpu in dict.fromkeys(gpu for gpu, _ in names if gpu != published.UNNAMED):
        found = [content for results in sets if results.gpu == gpu for _, _, content in results.environments]
        if found:
            rows.append(_ceilings(names[gpu, "measured"], "measured", peaks.median_of(map(peaks.measured, found))))
        if gpu in peaks.listed():
            rows.append(_ceilings(peaks.listed()[gpu]["name"], "data sheet", peaks.data_sheet(gpu)))
    header = ["GPU", "", "memory (GB/s)", "L2 (GB/s)", "L2 (MB)", "fp32 (TFLOP/s)", "TF32", "fp16", "empty kernel (µs)"]
    return markdown(header, rows, left=2)


def _ceilings(name: str, kind: str, found: Ceilings) -> list[str]:
    rates = [number(value, 1) for value in (found.fp32_tflops, found.tf32_tflops, found.f16_tflops)]
    memory = [number(found.bandwidth_gbs, 0), number(found.l2_gbs, 0), number(found.l2_bytes / 2**20, 0)]
    return [name, kind, *memory, *rates, number(found.floor_hot_us)]


def mean_table(means: pd.DataFrame, names: Mapping[GpuKey, str]) -> str:
    """Geometric means of the speed-ups, one column per GPU; how many problems where not all have both times."""
    keys = [key for key in names if ((means["gpu"] == key[0]) & (means["kind"] == key[1])).any()]
    rows = []
    for group, policy, baseline in dict.fromkeys(zip(means["group"], means["policy"], means["baseline"], strict=True)):
        here = means[(means["group"] == group) & (means["policy"] == policy) & (means["baseline"] == baseline)]
        cells = {(r.gpu, r.kind): r for r in each(here)}
        line = [group, baseline, policy]
        for key in keys:
            cell = cells.get(key)
            partial = "" if cell is None or cell.count == cell.of else f" ({cell.count} of {cell.of})"
            line.append(GAP if cell is None else f"**{number(cell.geometric_mean)}**{_cut(cell.untuned)}{partial}")
        rows.append(line)
    return markdown(["", "1× is", "policy", *(names[key] for key in keys)], rows, left=3)


def gain_table(gains: pd.DataFrame, names: Mapping[GpuKey, str]) -> str:
    """One row per group and pair of GPUs: what the dense and the sparse product gained from the older to the newer."""
    rows = []
    for row in each(gains):
        rows.append(
            [
                row.group,
                f"{names[row.gpu_from, row.kind_from]} → {names.get((row.gpu_to, 'measured'), row.gpu_to)}",
                row.policy,
                str(row.count),
                f"{number(row.speedup_from)}{_cut(row.untuned_from)} → {number(row.speedup_to)}{_cut(row.untuned_to)}",
                _number(row.dense_gain, row.untuned_dense),
                _number(row.sparse_gain, row.untuned_sparse),
                _number(row.dense_over_sparse, row.untuned_from + row.untuned_to),
                f"{number(row.expected_dense, 1)}, {number(row.expected_sparse, 1)}",
                f"{row.in_l2_from} → {row.in_l2_to}",
                f"{_percent(row.floor_of_dense)}, {_percent(row.floor_of_sparse)}",
            ]
        )
    header = ["", "from → to", "policy", "problems", "speed-up", "dense gained", "sparse gained", "dense over sparse"]
    return markdown([*header, "data sheet (dense, sparse)", "in L2", "floor (dense, sparse)"], rows, left=3)


def arithmetic_table(arithmetic: pd.DataFrame, names: Mapping[GpuKey, str]) -> str:
    """One row per group and GPU: the best fp32 sparse kernel over the fastest dense product in each arithmetic."""
    rows = []
    for key in dict.fromkeys(zip(arithmetic["group"], arithmetic["policy"], arithmetic["gpu"], strict=True)):
        here = arithmetic[(arithmetic["group"] == key[0]) & (arithmetic["policy"] == key[1])]
        cells = {row.math: row for row in each(here[here["gpu"] == key[2]])}
        line = [key[0], names[key[2], "measured"], key[1]]
        for name in ("f32", *TENSOR):
            cell = cells.get(name)
            line += (
                [GAP, GAP]
                if cell is None
                else [f"**{number(cell.geometric_mean)}**{_cut(cell.untuned)}", f"{cell.faster} of {cell.count}"]
            )
        rows.append(line)
    return markdown(["", "GPU", "policy", "over fp32", "wins", "over TF32", "wins", "over fp16", "wins"], rows, left=3)


def share_table(shares: pd.DataFrame, names: Mapping[GpuKey, str]) -> str:
    """Shares of peak bandwidth and arithmetic that the best sparse and the dense kernel reach on each GPU."""
    words = {"best": "best sparse", "dense": "dense"}
    rows = [
        [
            row.group,
            names[row.gpu, row.kind],
            words[row.role] + _cut(row.untuned),
            row.policy,
            str(row.count),
            *(_percent(value) for value in (row.share_of_bandwidth, row.share_of_flops, row.share_of_limit)),
            str(row.in_l2) if row.kind == "measured" else GAP,
        ]
        for row in each(shares)
    ]
    header = ["", "GPU", "kernel", "policy", "problems", "of bandwidth", "of FLOP/s", "of its limit", "in L2"]
    return markdown(header, rows, left=4)


def collection_table(frame: pd.DataFrame, names: Mapping[GpuKey, str]) -> str:
    """The published means over Sputnik's collection, and below each what was measured of the same."""
    rows = []
    for row in each(published.collection_means()):
        where = f"{row.experiment}, {row.op} {'' if row.math == 'f32' else row.math}".strip()
        share = row.peak_tflops / peaks.data_sheet(row.gpu).fp32_tflops
        cells = [number(row.geometric_mean), number(row.peak_speedup), number(row.peak_tflops)]
        cells += [
            _percent(share) if row.math == "f32" else GAP,
            GAP if math.isnan(row.problems) else f"{row.problems:g}",
        ]
        name = f"{peaks.listed()[row.gpu]['name']} ({row.paper} paper: V100)"
        rows.append([where, name, row.baseline, *cells])
        rows += [[where, *line] for line in _measured_collection(frame, row.experiment, row.op, row.math, names)]
    header = ["", "GPU", "1× is", "geometric mean", "largest", "highest TFLOP/s", "of fp32 peak", "problems"]
    return markdown(header, rows, left=3)


def _measured_collection(
    frame: pd.DataFrame, experiment: str, op: str, math_class: str, names: Mapping[GpuKey, str]
) -> list[list[str]]:
    """Sputnik over the best cuSPARSE algorithm on each measured GPU, hot, over the problems that have both."""
    rows = frame[(frame["kind"] == "measured") & (frame["experiment"] == experiment) & (frame["policy"] == "hot")]
    rows = rows[(rows["op"] == op) & (rows["math"] == math_class)]
    out = []
    for gpu in dict.fromkeys(rows["gpu"]):
        mine = rows[rows["gpu"] == gpu]
        ours = mine[mine["kernel"] == ("sputnik" if op == "spmm" else "sputnik_sddmm")].set_index("case")
        library = mine[mine["kernel"] == "cusparse"].set_index("case")[["time_us", "untuned"]]
        both = ours.join(library.add_prefix("library_"), how="inner")
        if both.empty:
            continue
        ratios = both["library_time_us"] / both["time_us"]
        own = _cut((both["untuned"] != "").sum())
        either = _cut((both["untuned"] + both["library_untuned"] != "").sum())
        rates = both["flops"] / both["time_us"]
        best = rates.idxmax()
        share = _percent(float(both.loc[best, "share_of_flops"])) if math_class == "f32" else GAP
        cells = [number(value) + either for value in (geometric_mean(ratios), float(ratios.max()))]
        cells += [number(float(rates[best]) * 1e-6) + own, share, str(len(both))]
        out.append([names[gpu, "measured"], "cuSPARSE, best", *cells])
    return out


def problem_tables(points: pd.DataFrame, names: Mapping[GpuKey, str]) -> list[tuple[str, str]]:
    """Per group and policy its name, and each problem's speed-up and kernel on every GPU that has one."""
    best = points[points["compared"] & points["alike"]]
    out = []
    for group, policy in dict.fromkeys(zip(best["group"], best["policy"], strict=True)):
        here = best[(best["group"] == group) & (best["policy"] == policy)]
        keys = [key for key in names if ((here["gpu"] == key[0]) & (here["kind"] == key[1])).any()]
        cells = {(row.case, row.gpu, row.kind): row for row in each(here)}
        rows = []
        for case in dict.fromkeys(here["case"]):
            line = [f"`{case}`"]
            for key in keys:
                row = cells.get((case, *key))
                named = "" if row is None or row.kind == "published" else f" {row.kernel}"
                line.append(GAP if row is None else f"{number(row.speedup)}{MARK * row.speedup_untuned}{named}")
            rows.append(line)
        out.append((f"{group} zeros, {policy} policy", markdown(["problem", *(names[key] for key in keys)], rows)))
    return out


def _cut(untuned: int) -> str:
    """The mark of a number with so many problems on which a run did not tune what competes."""
    return MARK if untuned else ""


def _number(value: float, untuned: int) -> str:
    return GAP if math.isnan(value) else number(value) + _cut(untuned)


def _percent(share: float) -> str:
    return GAP if math.isnan(share) else f"{100 * share:.3g} %"
