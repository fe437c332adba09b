"""`reports/generations/`: the page, figures and tables of all GPUs side by side, from the committed records alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from nnzbench import paths
from nnzbench.facts import table as facts_table
from nnzbench.facts.results import ResultSet, each
from nnzbench.problems.problem import stem_of
from nnzbench.report.data import context
from nnzbench.report.draw import style
from nnzbench.report.pages.elements import MARK, ratio_text
from nnzbench.report.text.rendering import environment
from nnzbench.report.text.tables import GAP, markdown, number
from nnzbench.site.generations import comparison as generations
from nnzbench.site.generations import peaks, products, pruned_model, published
from nnzbench.site.generations.figures import gain_figure, share_figure, speedup_figure
from nnzbench.site.generations.peaks import Ceilings
from nnzbench.site.generations.summary import LATER, Comparison, GpuKey, Names, collection, compare

FOLDER = "generations"


def write(reports: Path) -> Path | None:
    """Draws `<reports>/generations/README.md`, its figures, facts.csv and shares.csv; None where no GPU was measured.

    Raises `RecordError` for a result set that breaks the schema.
    """
    sets = generations.load_sets(reports)
    if not sets:
        return None
    frame = generations.tabulate_sets(sets)
    names = names_of(frame, sets)
    found = compare(frame, names)
    folder = reports / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    ten = products.times(sets)
    gains = products.facts(ten)
    drawn = _draw(folder, found, names, gains)
    facts_table.write(pd.concat([found.facts, gains], ignore_index=True)[facts_table.COLUMNS], folder)
    shares = found.shares.assign(gpu=found.shares["gpu_key"].map(names)).drop(columns="gpu_key")
    paths.write_csv(shares, folder / "shares.csv")
    pruned = pruned_model.answer(sets)
    text = (
        environment()
        .get_template("generations.md.j2")
        .render(
            names=names,
            answer=" ".join((pruned.words, *_answers(found.facts, names))),
            mark=_mark(found),
            pruned_model=pruned.section,
            products=products.section(ten, gains),
            drawn=drawn,
            gain_table=_gain_table(found.facts, names),
            gpu_table=_gpu_table(sets, names),
            mean_table=_ratio_table(found.facts, names, "speed-up"),
            arithmetic_table=_ratio_table(found.facts, names, "arithmetic"),
            collection_table=_collection_table(found.facts, names),
            share_table=_share_table(found.shares, names),
            gaps=_gaps(frame, found, names),
        )
    )
    path = folder / "README.md"
    paths.write_text(path, text)
    return path


def names_of(frame: pd.DataFrame, sets: Sequence[ResultSet]) -> dict[GpuKey, str]:
    """What each GPU is called, from the oldest: its driver's name, or its data sheet's with the papers behind it."""
    driver = {results.gpu: context.gpu_name(results.gpu, results.environment) for results in sets}
    out: dict[GpuKey, str] = {}
    for gpu in generations.gpu_order(list(frame["gpu"])):
        papers = list(dict.fromkeys(frame.loc[(frame["gpu"] == gpu) & (frame["kind"] == "published"), "paper"]))
        if papers:
            listed = peaks.listed().get(gpu, {"name": "GPU not named"})["name"]
            out[gpu, "published"] = f"{listed} ({', '.join(papers)} paper)"
        if gpu in driver:
            out[gpu, "measured"] = driver[gpu]
    return out


def _draw(folder: Path, found: Comparison, names: Names, gains: pd.DataFrame) -> set[str]:
    """Draws the figures for which there is something to draw; their names. Older ones of the others are removed."""
    facts, shares = (table[table["policy"] == "hot"] for table in (found.facts, found.shares))
    figures: dict[str, Callable[[], Figure | None]] = {
        "sparse_products": lambda: products.figure(gains, "2:4", "2:4 over dense products, by GPU"),
        "narrow_products": lambda: products.figure(gains, "type", "Dense FP8 and INT8 over fp16, by GPU"),
        "speedup": lambda: speedup_figure(facts, names),
        "gain": lambda: gain_figure(facts, names),
        "shares": lambda: share_figure(shares, names),
    }
    drawn = set()
    with style.styled():
        for name, make in figures.items():
            (folder / f"{name}.svg").unlink(missing_ok=True)
            if (figure := make()) is not None:
                style.save(figure, folder / f"{name}.svg")
                drawn.add(name)
    return drawn


def _answers(facts: pd.DataFrame, names: Names) -> Iterator[str]:
    """How often the newest measured GPU's speed-up is above an older one's, and which kernel gained more from GPU to
    GPU, both hot and counted by group."""
    hot = facts[facts["policy"] == "hot"]
    speedups = hot[hot["fact"] == "speed-up"]
    newest = next((key for key in reversed(list(names)) if key[1] == "measured"), None)
    mine = speedups[speedups["gpu"] == newest].set_index("of")
    others = speedups[(speedups["gpu"] != newest) & speedups["of"].isin(mine.index)]
    if newest and len(others):
        pairs = others.join(mine[["ratio", "tuned"]].add_prefix("new_"), on="of")
        won = int((pairs["new_ratio"] > pairs["ratio"]).sum())
        cut = "" if (pairs["tuned"] & pairs["new_tuned"]).all() else MARK
        yield f"Sparsity is worth more on {names[newest]} than on an older GPU in {won} of {len(pairs)} groups{cut}."
    gains = hot[hot["fact"].isin(("dense", "sparse"))].pivot(
        index=["of", "gpu", "older"], columns="fact", values="ratio"
    )
    if {"dense", "sparse"} <= set(gains) and len(both := gains.dropna()):
        won = int((both["sparse"] > both["dense"]).sum())
        yield f"From an older GPU to a newer, sparse kernels gained more than dense in {won} of {len(both)} groups."


def _gpu_table(sets: Sequence[ResultSet], names: Names) -> str:
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


def _ratio_table(facts: pd.DataFrame, names: Names, kind: str) -> str:
    """A line per group, baseline and policy, a column per GPU: the ratio, and on how many problems it is above 1."""
    rows = facts[facts["fact"] == kind]
    keys = [key for key in names if key in set(rows["gpu"])]
    lines: dict[tuple[str, str, str], dict[GpuKey, str]] = {}
    for row in each(rows):
        baseline = row.baseline.partition(" on ")[0]
        lines.setdefault((row.of, baseline, row.policy), {})[row.gpu] = f"{ratio_text(row)} ({row.wins} of {row.n})"
    table = [[*line, *(cells.get(key, GAP) for key in keys)] for line, cells in lines.items()]
    return markdown(["", "over", "policy", *(names[key] for key in keys)], table, left=3)


def _gain_table(facts: pd.DataFrame, names: Names) -> str:
    """A line per group and pair of GPUs: what the dense and the sparse product gained, and by data sheet."""
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in each(facts[facts["fact"].isin(LATER)]):
        lines.setdefault((row.of, row.older, row.gpu, row.policy), {})[row.fact] = row
    table = [
        [
            *(of, f"{names[old]} → {names[new]}", policy, str(cells["quotient"].n)),
            *(ratio_text(cells[one]) if one in cells else GAP for one in LATER),
        ]
        for (of, old, new, policy), cells in lines.items()
        if "quotient" in cells
    ]
    return markdown(["", "from → to", "policy", "problems", *LATER.values()], table, left=3)


def _collection_table(facts: pd.DataFrame, names: Names) -> str:
    """The published means over Sputnik's collection, and below each what was measured of the same."""
    rows = []
    here = facts[facts["fact"] == "collection"]
    for one in each(published.collection_means()):
        where, known = collection(one), "" if pd.isna(one.problems) else f"{one.problems:g}"
        printed = f"{peaks.listed()[one.gpu]['name']} ({one.paper} paper: V100)"
        rows.append([where, printed, one.baseline, number(one.geometric_mean), number(one.peak_speedup), known])
        for row in each(here[here["of"] == where]):
            cells = [ratio_text(row), number(row.best), str(row.n)]
            rows.append([where, names[row.gpu], "cuSPARSE, best", *cells])
    return markdown(["", "GPU", "over", "geometric mean", "largest", "problems"], rows, left=3)


def _share_table(shares: pd.DataFrame, names: Names) -> str:
    """Shares of peak bandwidth and arithmetic that the best sparse and the dense kernel reach on each GPU."""
    rows = [
        [
            *(row.group, names[row.gpu_key], "best sparse" if row.role == "best" else "dense", row.policy),
            str(row.count),
            *(_percent(value) for value in (row.of_bandwidth, row.of_flops, row.of_roofline)),
            *(str(row.fit_l2), _percent(row.launch_overhead)),
        ]
        for row in each(shares)
    ]
    header = ["", "GPU", "kernel", "policy", "problems", "of bandwidth", "of FLOP/s", "of its roofline"]
    return markdown([*header, "fit L2", "launch overhead"], rows, left=4)


def _percent(share: float) -> str:
    return GAP if pd.isna(share) else f"{100 * share:.3g} %"


def _mark(found: Comparison) -> str:
    """What the mark means, and on how many problems (each once for all its types) of which experiments it is so."""
    said: list[str] = []
    points = found.points
    for experiment, rows in points[points["kind"] == "measured"].groupby("experiment", sort=True):
        problems = rows["problem"].map(stem_of)
        if cut := problems[rows["cut"]].nunique():
            said.append(f"`{experiment}` on {cut} of {problems.nunique()}{'' if said else ' problems'}")
    return f"{MARK} marks a ratio with a partially tuned kernel: in {', '.join(said)}." if said else ""


def _gaps(frame: pd.DataFrame, found: Comparison, names: Names) -> Iterator[str]:
    """What could not be set side by side, each with its name."""
    yield from found.gaps
    compared = set(found.points.loc[found.points["compared"], "experiment"])
    alone: dict[str, list[str]] = {}
    for experiment, rows in frame[~frame["experiment"].isin(compared)].groupby("experiment", sort=False):
        have = [names[key] for key in names if ((rows["gpu"] == key[0]) & (rows["kind"] == key[1])).any()]
        if len(have) > 1:
            yield f"`{experiment}` ({'; '.join(have)}) has no problem with a speed-up over a dense product on two."
        else:
            alone.setdefault(have[0], []).append(f"`{experiment}`")
    yield from (f"On {gpu} only: {', '.join(those)}." for gpu, those in alone.items())
    if any(gpu == published.UNNAMED for gpu, _ in names):
        yield "*Balanced Sparsity* does not name its GPU: no share of a peak and no gain can be stated for it."
    yield "SparseRT's tables print speed-ups and no times: the T4's shares are not known."
