"""`reports/generations/`: the page, figures and tables of all GPUs side by side, from the committed records alone."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnzbench.core import paths
from nnzbench.core.gpus import Peaks, data_sheets, median_peaks, peaks_of
from nnzbench.data.problems.problem import stem_of
from nnzbench.report.draw import style
from nnzbench.report.draw.canvas import Look, grid, names_down, scale
from nnzbench.report.draw.style import GPU_COLOURS
from nnzbench.report.render import FOLDED, cut
from nnzbench.report.tables import MARK, ratio_text
from nnzbench.report.text import GAP, environment, gpu_name, markdown, number, share
from nnzbench.results import table as facts_table
from nnzbench.results.result_set import ResultSet, each
from nnzbench.site.generations import comparison as generations
from nnzbench.site.generations import models, products, published
from nnzbench.site.generations.summary import LATER, GpuKey, Names, Summary, collection, compare

FOLDER = "generations"


def write(reports: Path) -> Path | None:
    """Draws `<reports>/generations/README.md`, its figures, facts.csv and shares.csv; None where no GPU was measured.

    Raises `RecordError` for a result set that breaks the schema.
    """
    sets = generations.load_sets(reports)
    if not sets:
        return None
    frame = generations.tabulate(sets)
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
    pruned = models.pruned_model(sets)
    text = (
        environment()
        .get_template("generations.md.j2")
        .render(
            names=names,
            buyer=models.tokens(sets),
            mark=_mark(found),
            pruned_model=f"{pruned.words}\n\n{pruned.section}",
            whole_models=models.whole_models(sets),
            products=products.section(ten, gains, reports),
            untimed=products.untimed(ten),
            drawn=drawn,
            gain_table=cut(_gain_table(found.facts, names), FOLDED),
            gpu_table=_gpu_table(sets, names),
            mean_table=cut(_ratio_table(found.facts, names, "speed-up"), FOLDED),
            arithmetic_table=cut(_ratio_table(found.facts, names, "arithmetic"), FOLDED),
            collection_table=_collection_table(found.facts, names),
            share_table=cut(_share_table(found.shares, names), FOLDED),
            gaps=_gaps(frame, found, names),
        )
    )
    path = folder / "README.md"
    paths.write_text(path, text)
    return path


def names_of(frame: pd.DataFrame, sets: Sequence[ResultSet]) -> dict[GpuKey, str]:
    """What each GPU is called, from the oldest: its driver's name, or its data sheet's with the papers behind it."""
    driver = {results.gpu: gpu_name(results.gpu, results.environment) for results in sets}
    out: dict[GpuKey, str] = {}
    for gpu in generations.gpu_order(list(frame["gpu"])):
        papers = list(dict.fromkeys(frame.loc[(frame["gpu"] == gpu) & (frame["kind"] == "published"), "paper"]))
        if papers:
            listed = data_sheets()[gpu].name if gpu in data_sheets() else "GPU not named"
            out[gpu, "published"] = f"{listed} ({', '.join(papers)} paper)"
        if gpu in driver:
            out[gpu, "measured"] = driver[gpu]
    return out


def _draw(folder: Path, found: Summary, names: Names, gains: pd.DataFrame) -> set[str]:
    """Draws the figures for which there is something to draw; their names. Older ones are removed."""
    figures: dict[str, Callable[[], Figure | None]] = {
        "speedup": lambda: speedup_figure(found.facts[found.facts["policy"] == "hot"], names),
        "sparse_products": lambda: products.figure(gains, "2:4", "2:4 over dense products, by GPU"),
        "narrow_products": lambda: products.figure(gains, "type", "Dense FP8 and INT8 over fp16, by GPU"),
    }
    drawn = set()
    for old in folder.glob("*.svg"):
        old.unlink()
    with style.styled():
        for name, make in figures.items():
            if (figure := make()) is not None:
                style.save(figure, folder / f"{name}.svg")
                drawn.add(name)
    return drawn


def _gpu_table(sets: Sequence[ResultSet], names: Names) -> str:
    """One row per GPU measured and per data sheet: rates of memory and arithmetic, sizes, an empty kernel's time."""
    rows = []
    for gpu in dict.fromkeys(gpu for gpu, _ in names if gpu != published.UNNAMED):
        found = [content for results in sets if results.gpu == gpu for _, _, content in results.environments]
        if found:
            rows.append(_rates(names[gpu, "measured"], "measured", median_peaks(map(peaks_of, found))))
        if sheet := data_sheets().get(gpu):
            rows.append(_rates(sheet.name, "data sheet", sheet.peaks))
    header = ["GPU", "", "memory (GB/s)", "L2 (GB/s)", "L2 (MB)", "fp32 (TFLOP/s)", "TF32", "fp16", "empty kernel (µs)"]
    return markdown(header, rows, left=2)


def _rates(name: str, kind: str, found: Peaks) -> list[str]:
    def told(value: float | None, *digits: int) -> str:
        return number(math.nan if value is None else value, *digits)

    rates = [told(value, 1) for value in (found.fp32_tflops, found.tf32_tflops, found.f16_tflops)]
    memory = [told(found.copy_gbs, 0), told(found.l2_gbs, 0), told((found.l2_bytes or math.nan) / 2**20, 0)]
    return [name, kind, *memory, *rates, told(found.floor_hot_us)]


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
        printed = f"{data_sheets()[one.gpu].name} ({one.paper} paper: V100)"
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
            *(share(value, ".3g") for value in (row.of_bandwidth, row.of_flops, row.of_roofline)),
            *(str(row.fit_l2), share(row.launch_overhead, ".3g")),
        ]
        for row in each(shares)
    ]
    header = ["", "GPU", "kernel", "policy", "problems", "of bandwidth", "of FLOP/s", "of its roofline"]
    return markdown([*header, "fit L2", "launch overhead"], rows, left=4)


def _mark(found: Summary) -> str:
    """What the mark means, and on how many of the compared problems (each once for all its types) of which experiments
    it is so.
    """
    said: list[str] = []
    measured = found.points[found.points["compared"] & (found.points["kind"] == "measured")]
    for experiment, rows in measured.groupby("experiment", sort=True):
        problems = rows["problem"].map(stem_of)
        if cut := problems[rows["cut"]].nunique():
            said.append(f"`{experiment}` {cut} of {problems.nunique()}")
    return (
        f"{MARK} marks a ratio that tuning could turn round. Problems with a partially tuned kernel: {', '.join(said)}."
        if said
        else ""
    )


def _gaps(frame: pd.DataFrame, found: Summary, names: Names) -> Iterator[str]:
    """What could not be set side by side, each with its name."""
    yield from found.gaps
    compared = set(found.points.loc[found.points["compared"], "experiment"])
    alone: dict[str, list[str]] = {}
    for experiment, rows in frame[~frame["experiment"].isin(compared)].groupby("experiment", sort=False):
        have = [names[key] for key in names if ((rows["gpu"] == key[0]) & (rows["kind"] == key[1])).any()]
        if len(have) > 1:
            yield f"`{experiment}` ({'; '.join(have)}): no problem has a speed-up over a dense product on two of them."
        else:
            alone.setdefault(have[0], []).append(f"`{experiment}`")
    yield from (f"On {gpu} only: {', '.join(those)}." for gpu, those in alone.items())
    if any(gpu == published.UNNAMED for gpu, _ in names):
        yield "*Balanced Sparsity* does not name its GPU: no share of a peak and no gain can be stated for it."
    yield "SparseRT's tables print speed-ups and no times: the T4's shares are not known."


_MARKERS = "oDs^vP<X>hd"


def gpu_colour(gpu: str) -> tuple[str, str]:
    """Colour and marker of a GPU: by its line in `datasets/gpus.csv`, from its name where it is not listed."""
    known = list(data_sheets())
    at = known.index(gpu) if gpu in known else zlib.crc32(gpu.encode())
    return GPU_COLOURS[at % len(GPU_COLOURS)], _MARKERS[(at + at // len(GPU_COLOURS)) % len(_MARKERS)]


def _looks(keys: Iterable[GpuKey], names: Names) -> dict[GpuKey, Look]:
    """Of those that `names` has, from the oldest."""
    wanted = set(keys)
    return {key: Look(*gpu_colour(key[0]), hollow=key[1] != "measured") for key in names if key in wanted}


BOUGHT = {
    "llm_layers f16": "layers of language models (fp16)",
    "opt_layers f16 80 %": "layers of OPT, 80 % zeros (fp16)",
    "sputnik_rnn spmm": "recurrent layers",
    "sparsert_table1 90 %": "small layers, 90 % zeros",
    "sparsert_table3 90 %": "3x3 convolutions, 90 % zeros",
    "direct_conv_table6 9": "VGG-16's convolutions",
}
"""Beginnings of groups that a buyer knows, and what these call them; in fp32 where nothing is said."""


def speedup_figure(facts: pd.DataFrame, names: Names) -> Figure | None:
    """Sparse over dense on each GPU: a marker per group of `BOUGHT` and GPU with its 95 % interval, hot."""
    told = [next((words for key, words in BOUGHT.items() if one.startswith(key)), "") for one in facts["of"]]
    rows = facts.assign(of=told)
    rows = rows[(rows["fact"] == "speed-up") & (rows["of"] != "")]
    if rows.empty:
        return None
    looks = _looks(rows["gpu"], names)

    def draw(axis: Axes, _: Any, __: Any) -> None:
        lanes = _lanes(axis, list(zip(rows["of"], rows["gpu"], strict=True)), list(looks))
        for row in each(rows):
            look, y = looks[row.gpu], lanes[row.of, row.gpu]
            axis.plot([row.low, row.high], [y, y], color=look.colour, lw=1.4, alpha=0.6)
            axis.add_line(look.line([row.ratio], [y], markersize=4.6))
        scale(axis, "ratio", "x", [*rows["low"], *rows["high"]])
        axis.set_xlabel("times as fast as the dense product of the same GPU (log)", fontsize=8.5)

    caption = (
        "Geometric means over common problems with 95 % intervals, hot L2: a paper's method, where none was published "
        "the fastest sparse kernel, over cuBLAS or cuDNN in the same arithmetic. Hollow: printed in a paper."
    )
    left = 0.25 + 0.073 * max(map(len, rows["of"]))
    heights = [0.5 * rows["of"].nunique() + 0.1]
    title = "Speed-up of sparse over dense, by GPU"
    return grid([None], ("hot",), heights, title, caption, _legend(looks, names), draw, left, share="y")


def _legend(looks: Mapping[GpuKey, Look], names: Names) -> dict[str, Any]:
    return {names[key].replace(" paper)", ")"): look.line() for key, look in looks.items()}


def _lanes(axis: Axes, marks: Sequence[tuple[str, Any]], order: Sequence[Any]) -> dict[tuple[str, Any], float]:
    """Names groups from top to bottom; gives each mark (group, whose it is) a height beside its group's others."""
    groups = list(dict.fromkeys(group for group, _ in marks))
    names_down(axis, groups)
    found: dict[tuple[str, Any], float] = {}
    for y, group in enumerate(groups):
        mine = sorted({whose for one, whose in marks if one == group}, key=order.index)
        found |= {(group, whose): y + 0.8 * ((at + 0.5) / len(mine) - 0.5) for at, whose in enumerate(mine)}
    return found
