"""The same pruned matrices on five generations of GPUs: what this suite measures beside what others published."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nnzbench.facts.results import ResultSet, each, geometric_mean, percent
from nnzbench.kernels.roles import OURS
from nnzbench.papers.nnzbench import leads
from nnzbench.problems.names import parse
from nnzbench.report.data import context, published
from nnzbench.report.data.series import DEFAULT, Series, pick
from nnzbench.report.draw import layout, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, View
from nnzbench.report.text.fastest import Lost
from nnzbench.report.text.tables import markdown, number

EXPERIMENT = "dlmc_n512"
ALL = 246
"""Matrices of the whole table."""
DENSE = "cublas"
SERIES = (
    Series("sputnik", "Sputnik, the paper's rule", ("sputnik",), "f16", DEFAULT),
    Series("sputnik_best", "Sputnik, best tile", ("sputnik",), "f16"),
    Series("cusparse", "cuSPARSE", ("cusparse",), "f16"),
    Series("ours", "best of this project's kernels", (), "f16", roles=OURS),
    Series(DENSE, "cuBLAS", ("cublas", "cublaslt"), "f16"),
)
"""What is measured here; the published times have the first, the third and the last."""
LABELS = {series.key: series.label for series in SERIES}
CAVEATS = (
    "The times of V100, RTX 2080 Ti, A100 and RTX 4090 were published by others (results committed with SSpMM, GitHub "
    "`xuezy-mmi/SSpMM`, CUDA 11.8): one pair of events around each launch, so that 5 to 24 µs of every time are the "
    "launch; the authors' Sputnik in fp16, one cuSPARSE algorithm, and a cuBLAS that sums in fp16, where the one "
    "measured here sums in fp32. Launches measured here follow each other, or find the L2 cache overwritten."
)
COLUMNS = ("kind", "gpu", "policy", "method", "level", "library", "count", "geomean_us", "faster_than_cublas")
_OLD = tuple(zip(style.GPU_COLOURS[1:5], "s^DP", strict=True))
"""Colours and markers of the GPUs whose times are published, in their order: no kernel has these colours."""


def printed(whole: bool) -> pd.DataFrame:
    """The published means by GPU, method, level and library, over all matrices or over those of the sample."""
    columns = ("gpu", "method", "target_sparsity", "matrices", "count", "library", "geomean_us", "faster_than_cublas")
    frame = published.read("dlmc_n512_four_gpus", columns).rename(columns={"target_sparsity": "level"})
    frame = frame[frame["matrices"] == ("all" if whole else "sample")]
    return frame.assign(kind="published", policy="")[list(COLUMNS)].reset_index(drop=True)


def measured(results: ResultSet) -> pd.DataFrame:
    """The same of recorded rows, per policy, over problems that have a time of every series but the kernel's own."""
    gpu = context.gpu_name(results.gpu, results.environment)
    times = []
    for series in SERIES:
        rows = pick(results.frame, series)[["problem", "policy", "median_us"]]
        times.append(rows.assign(library=series.key))
    frame = pd.concat(times, ignore_index=True)
    wide = frame.pivot_table(index=["problem", "policy"], columns="library", values="median_us")
    wide = wide.reindex(columns=list(LABELS)).dropna(subset=[DENSE, "sputnik"]).reset_index()
    wide = wide.sort_values(["policy", "problem"], ascending=[False, True])  # hot first
    wide["method"], wide["level"] = zip(*map(stratum, wide["problem"]), strict=True) if len(wide) else ((), ())
    out = []
    for (policy, method, level), group in wide.groupby(["policy", "method", "level"], sort=False):
        for library in LABELS:
            known = group[group[library].notna()]
            if not known.empty:
                faster = int((known[library] < known[DENSE]).sum()) if library != DENSE else math.nan
                mean = geometric_mean(known[library])
                out.append(("measured", gpu, policy, method, level, library, len(known), mean, faster))
    return pd.DataFrame(out, columns=list(COLUMNS))


def stratum(problem: str) -> tuple[str, float]:
    """Pruning method and level of a problem, which its label starts with: `magnitude_pruning.0.9.body_...`."""
    parts = parse(problem)
    words = (parts.label if parts else "").split(".")
    try:
        return words[0], float(".".join(words[1:3]))
    except (IndexError, ValueError):
        return "", math.nan


def by_gpu(results: ResultSet | None) -> pd.DataFrame:
    """Published and measured means together, over the same matrices where all, or all of the sample, are recorded."""
    found = measured(results) if results is not None else pd.DataFrame(columns=list(COLUMNS))
    counts = found[found["library"] == DENSE].groupby("policy")["count"].sum()
    whole = results is None or (len(counts) > 0 and int(counts.max()) >= ALL)
    parts = [part for part in (printed(whole), found) if not part.empty]
    return pd.concat(parts, ignore_index=True)


def over_methods(means: pd.DataFrame) -> pd.DataFrame:
    """Means over all methods of a level: every matrix counts once."""
    out = []
    for key, group in means.groupby(["kind", "gpu", "policy", "level", "library"], sort=False, dropna=False):
        count = int(group["count"].sum())
        logs = sum(row.count * math.log(row.geomean_us) for row in each(group))
        out.append((*key, count, math.exp(logs / count), group["faster_than_cublas"].sum()))
    columns = ["kind", "gpu", "policy", "level", "library", "count", "geomean_us", "faster_than_cublas"]
    return pd.DataFrame(out, columns=columns)


def gains(means: pd.DataFrame) -> pd.DataFrame:
    """Dense time over sparse time per GPU, policy, level and sparse series: over 1 where pruning pays."""
    frame = over_methods(means)
    keys = ["kind", "gpu", "policy", "level"]
    dense = frame[frame["library"] == DENSE].set_index(keys)["geomean_us"].rename("dense_us")
    sparse = frame[frame["library"] != DENSE].join(dense, on=keys)
    return sparse.assign(gain=sparse["dense_us"] / sparse["geomean_us"])


@dataclass(frozen=True)
class Data:
    """What the page shows: the means by method, and gains over all of them."""

    means: pd.DataFrame
    gains: pd.DataFrame


def collect(results: ResultSet) -> Data:
    """Computes what the page shows."""
    means = by_gpu(results)
    return Data(means, gains(means))


def gain_table(found: pd.DataFrame) -> str:
    """A line per GPU, series and policy: dense over sparse time by level, and how many matrices are faster sparse."""
    levels = sorted(set(found["level"]))
    rows = []
    for key, group in found.groupby(["gpu", "policy", "library"], sort=False):
        cells = {row.level: row.gain for row in each(group)}
        gpu, policy, library = map(str, key)
        wins = f"{int(group['faster_than_cublas'].sum())} of {int(group['count'].sum())}"
        how = f"measured, {policy}" if policy else "published"
        rows.append([gpu, LABELS[library], how, *(number(cells.get(level, math.nan)) for level in levels), wins])
    header = ["GPU", "sparse kernel", "", *(percent(level) for level in levels), "faster than dense"]
    return markdown(header, rows, left=3)


def _time_table(means: pd.DataFrame, policy: str) -> str:
    """Microseconds by method and level: published ones first, then those of the policy."""
    here = means[(means["policy"] == policy) | (means["policy"] == "")]
    keys = list(dict.fromkeys(zip(here["gpu"], here["library"], strict=True)))
    cells = {(row.method, row.level, row.gpu, row.library): row.geomean_us for row in each(here)}
    strata = sorted(set(zip(here["method"], here["level"], strict=True)))
    rows = [
        [
            method.replace("_", " "),
            percent(level),
            *(number(cells.get((method, level, *key), math.nan), 1) for key in keys),
        ]
        for method, level in strata
    ]
    return markdown(["method", "zeros", *(f"{gpu}: {LABELS[library]}" for gpu, library in keys)], rows, left=2)


def _show(view: View[Data]) -> Shown | None:
    found = view.data.gains
    here = found[found["policy"].isin(["", view.policy])]
    if not (here["policy"] == view.policy).any():
        return None
    tables = (gain_table(here), _time_table(view.data.means, view.policy))
    return Shown(_figure(here, view), _finding(here), tables, lost=_lost(view))


def _finding(here: pd.DataFrame) -> str:
    """At the levels that the literature prunes to: what each GPU gains with the one kernel that all of them ran."""
    lines = []
    rule, ours = (
        here[here["library"] == library].set_index(["level", "gpu"])["gain"] for library in ("sputnik", "ours")
    )
    for level in (0.9, 0.95, 0.98):
        said = []
        for gpu in dict.fromkeys(here["gpu"]):
            if (level, gpu) in rule.index:
                beside = f" ({LABELS['ours']} {number(ours[level, gpu])}×)" if (level, gpu) in ours.index else ""
                said.append(f"{gpu} {number(rule[level, gpu])}×{beside}")
        if said:
            lines.append(f"- {percent(level)} zeros: {', '.join(said)}")
    words = (
        "Dense time over the time of Sputnik's kernel with the paper's rule for its tile, which all of these GPUs ran, "
        "in geometric mean; in brackets with kernels that were measured here alone:"
    )
    return "\n".join([words, "", *lines])


def _lost(view: View[Data]) -> list[Lost]:
    problems = list(dict.fromkeys(view.frame["problem"]))
    lost = []
    for series in SERIES:
        have = set(pick(view.frame[view.frame["policy"] == view.policy], series)["problem"])
        lost.append(Lost(series.label, view.policy, tuple(p for p in problems if p not in have), len(problems)))
    return lost


def _figure(here: pd.DataFrame, view: View[Data]) -> Figure:
    """Dense over sparse time against the level of pruning: a line per GPU and series."""
    caption = f"Above the line the sparse product is faster. Dashed: published by others.\n{view.policy_sentence}"
    figure = layout.headed(5.0, view.title, caption)
    axis = figure.add_axes((0.072, 0.25, 0.913, 0.57))
    levels = sorted(set(here["level"]))
    axis.axhline(1, color=style.MUTED, lw=1)
    axis.set(yscale="log", xlabel="zeros", ylabel="dense over sparse time (log)", xticks=range(len(levels)))
    axis.set_xticklabels([percent(level) for level in levels])
    axis.set_yticks([0.1, 0.2, 0.5, 1, 2, 5], labels=["0.1", "0.2", "0.5", "1", "2", "5"])
    axis.minorticks_off()
    axis.grid(axis="y")
    old = [gpu for gpu in dict.fromkeys(here["gpu"]) if (here.loc[here["gpu"] == gpu, "policy"] == "").all()]
    handles = []
    for key, group in here.groupby(["gpu", "library"], sort=False):
        gpu, library = map(str, key)
        if gpu in old and library != "sputnik":
            continue
        group = group.sort_values("level")
        places = [levels.index(level) for level in group["level"]]
        line = Line2D(places, group["gain"].tolist(), lw=1.4, label=f"{gpu}: {LABELS[library]}")
        if gpu in old:
            colour, marker = _OLD[old.index(gpu) % len(_OLD)]
            line.set(color=colour, marker=marker, mec=colour, ls="--")
        elif library == "ours":
            line.set(color=style.INK, marker="*", mec="white", ms=9)  # no single kernel's
        else:
            colour, marker = style.look(library.removesuffix("_best"))
            first = library == "sputnik"  # hollow as in all figures: a kernel's first choice beside its best
            line.set(color=colour, marker=marker, mec=colour if first else "white", mfc="white" if first else colour)
        handles.append(axis.add_line(line))
    axis.set_xlim(-0.3, len(levels) - 0.7)
    axis.set_ylim(here["gain"].min() / 1.3, max(1.1, here["gain"].max()) * 1.3)
    layout.legend_below(figure, handles, [str(line.get_label()) for line in handles], columns=3)
    return figure


def _intro(view: View[Data]) -> str:
    dense = view.data.means[(view.data.means["library"] == DENSE) & (view.data.means["kind"] == "measured")]
    count = int(dense.groupby("policy")["count"].sum().max()) if len(dense) else 0
    return (
        f"What does a generation of GPUs change? {count} pruned matrices of Transformers (of {ALL}), times 512 columns "
        f"in fp16, beside times that others published of the very same matrices on four older GPUs. {CAVEATS}"
    )


PAGE = PageSpec(
    lead=leads.DLMC_N512,
    title="The pruned matrices that others timed on four GPUs,",
    intro=_intro,
    data=collect,
    sections=(SectionSpec("gain", "Dense over sparse time, fp16, 512 columns", _show),),
    summary=lambda view: view.data.means,
    math_text="Inputs are fp16. Measured kernels sum in fp32; the published cuBLAS sums in fp16.",
    series=lambda view: SERIES,
)
