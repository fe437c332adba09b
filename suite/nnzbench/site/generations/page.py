"""`reports/generations/`: the page, figures and tables of all GPUs side by side, from the committed records alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from nnzbench.facts.results import ResultSet, each
from nnzbench.problems.names import stem_of
from nnzbench.report.data import context
from nnzbench.report.draw import style
from nnzbench.report.text import shorter
from nnzbench.report.text.marks import MARK, WORDS
from nnzbench.report.text.rendering import environment
from nnzbench.report.text.tables import number, write_csv
from nnzbench.site.generations import comparison as generations
from nnzbench.site.generations import headlines, page_tables, peaks, pruned_model, published
from nnzbench.site.generations.figures import GpuKey, gain_figure, share_figure, speedup_figure
from nnzbench.site.generations.summary import Comparison, compare

FOLDER = "generations"
_CAPTION = (
    "Sparse over cuBLAS or cuDNN in the same arithmetic, hot policy: a paper's method, where none was published the "
    "fastest kernel.\nHollow: printed in a paper."
)


def write(reports: Path) -> Path | None:
    """Draws `<reports>/generations/README.md`, its figures and CSV files; None where no GPU has been measured.

    Raises `RecordError` for a result set that breaks the schema.
    """
    sets = generations.load_sets(reports)
    if not sets:
        return None
    frame = generations.tabulate_sets(sets)
    found = compare(frame)
    names = _names(frame, sets)
    folder = reports / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    drawn = _draw(folder, found, names)
    _write_csv(folder, found)
    pruned = pruned_model.answer(sets)
    text = (
        environment()
        .get_template("generations.md.j2")
        .render(
            intro=_intro(names),
            answer=" ".join((pruned.words, *_headlines(found, names))),
            mark=_mark(found.points),
            pruned_model=pruned.section,
            findings=_findings(found, names),
            drawn=drawn,
            gain_table=page_tables.gain_table(found.gains, names),
            gpu_table=page_tables.gpu_table(sets, names),
            mean_table=page_tables.mean_table(found.means, names),
            arithmetic_table=page_tables.arithmetic_table(found.arithmetic, names),
            collection_table=page_tables.collection_table(frame, names),
            share_table=page_tables.share_table(found.shares, names),
            problem_tables=page_tables.problem_tables(found.points, names),
            gaps=_gaps(frame, found, names),
        )
    )
    path = folder / "README.md"
    shorter.write(path, text)
    return path


def _headlines(found: Comparison, names: Mapping[GpuKey, str]) -> Iterator[str]:
    """What the first two figures found, as sentences; of those that there is something to draw in."""
    points, gains = (table[table["policy"] == "hot"] for table in (found.points, found.gains))
    if (found.means["policy"] == "hot").any():
        yield f"{headlines.speedup(points, names)}."
    if gains["sparse_gain"].notna().any():
        yield f"{headlines.gain(gains)}."
    if {"measured", "published"} <= set(found.means["kind"]):
        yield (
            "Measured numbers beside a paper's are of its method, written anew, or of the library that it timed, where "
            "these were recorded."
        )


def _draw(folder: Path, found: Comparison, names: Mapping[GpuKey, str]) -> set[str]:
    """Draws the figures for which there is something to draw; their names. Older ones of the others are removed."""
    hot = {name: table[table["policy"] == "hot"] for name, table in vars(found).items() if name != "gaps"}
    figures: dict[str, Callable[[], Figure]] = {}
    if not hot["means"].empty:
        title = _title(headlines.speedup(hot["points"], names))
        figures["speedup"] = lambda: speedup_figure(hot["points"], names, title, _CAPTION)
    if hot["gains"]["sparse_gain"].notna().any():
        words = (
            _title(headlines.gain(hot["gains"])),
            "Geometric means over common problems, hot policy. D and S: what the dense and the sparse kernel would "
            "gain by data sheet,\nat the rate of the row's arithmetic or of device memory, whichever takes longer.",
        )
        figures["gain"] = lambda: gain_figure(hot["gains"], hot["points"], names, *words)
    if not hot["shares"].empty:
        caption = "Hot policy. Filled: measured, against peaks measured in the same run; hollow: printed, data sheet."
        reached = _title(headlines.shares(hot["shares"], names))
        figures["shares"] = lambda: share_figure(hot["shares"], names, reached, caption)
    with style.styled():
        for name in ("speedup", "gain", "shares"):
            if name in figures:
                style.save(figures[name](), folder / f"{name}.svg")
            else:
                (folder / f"{name}.svg").unlink(missing_ok=True)
    return set(figures)


def _title(words: str) -> str:
    """A headline where there is no room for words: the caption has what the mark means."""
    return words.replace(f", {WORDS}", MARK).replace(f" {WORDS}", MARK)


def _write_csv(folder: Path, found: Comparison) -> None:
    points = found.points[[*generations.COLUMNS, "group", "compared"]]
    tables = {"means": found.means, "arithmetic": found.arithmetic, "gains": found.gains, "shares": found.shares}
    for name, table in {"points": points, **tables}.items():
        write_csv(table, folder / f"{name}.csv")


def _names(frame: pd.DataFrame, sets: list[ResultSet]) -> dict[GpuKey, str]:
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


def _intro(names: Mapping[GpuKey, str]) -> str:
    measured = [name for (_, kind), name in names.items() if kind == "measured"]
    printed = [name for (_, kind), name in names.items() if kind == "published"]
    return (
        f"Measured: {', '.join(measured)}. Published: {'; '.join(printed)}. A speed-up divides by the dense product "
        "(cuBLAS or cuDNN, in the same arithmetic) of the same GPU: it tells what sparsity is worth there, not how "
        "fast the GPU is. GPUs are compared by one method: where a paper published a problem, by its own, written "
        "anew for the measured GPUs (or the library that it timed), and not by this project's designs, which the "
        "published GPUs did not run; elsewhere by the fastest sparse kernel. Published numbers come from other "
        "software and, where a paper does not name its matrices, from other patterns of the same sizes and levels."
    )


def _findings(found: Comparison, names: Mapping[GpuKey, str]) -> list[str]:
    out = []
    for row in each(found.gains[found.gains["policy"] == "hot"]):
        old, new = names[row.gpu_from, row.kind_from], names.get((row.gpu_to, "measured"), row.gpu_to)
        problems = f"{row.count} problem{'s' if row.count > 1 else ''}"
        cut = max(row.untuned_from, row.untuned_to)
        problems += f", {cut} of them {WORDS}" if cut else ""
        text = (
            f"**{row.group}**, {old} → {new} ({problems}): sparse over dense goes from "
            f"{number(row.speedup_from)}× to {number(row.speedup_to)}×. {_moved(row)}"
        )
        if not math.isnan(row.expected_dense):
            expected = f"{number(row.expected_dense, 1)}× and the sparse one {number(row.expected_sparse, 1)}×"
            text += f" By data sheet alone the dense product would gain {expected}."
        if row.floor_of_sparse >= 0.1 and row.floor_of_sparse > 2 * row.floor_of_dense:
            sparse, dense = (f"{100 * share:.0f} %" for share in (row.floor_of_sparse, row.floor_of_dense))
            text += (
                f" An empty kernel, which no rate shortens, is {sparse} of the sparse kernel's time on the newer GPU "
                f"and {dense} of the dense one's."
            )
        if row.in_l2_from < row.in_l2_to:
            text += (
                f" The operands of {row.in_l2_from} problems fit into the older L2, of {row.in_l2_to} into the newer."
            )
        text += _tensor_cores(found.arithmetic, row)
        out.append(text)
    return out


def _tensor_cores(arithmetic: pd.DataFrame, row: Any) -> str:
    """What the sparse kernel is worth on the newer GPU where the dense product may use other arithmetic."""
    here = arithmetic[(arithmetic["group"] == row.group) & (arithmetic["policy"] == row.policy)]
    found = {one.math: one for one in each(here[here["gpu"] == row.gpu_to])}
    said = [
        f"{number(one.geometric_mean)}× over {text}{f' {WORDS}' * (one.untuned > 0)}"
        for name, text in page_tables.TENSOR.items()
        if (one := found.get(name))
    ]
    return f" Against its tensor cores the sparse kernel is at {' and '.join(said)}." if said else ""


def _moved(row: Any) -> str:
    dense, sparse, quotient = (float(getattr(row, n)) for n in ("dense_gain", "sparse_gain", "dense_over_sparse"))
    if not math.isnan(dense):
        return f"The dense product gained {number(dense, 1)}×, the sparse one {number(sparse, 1)}×."
    side = ("dense product", "sparse one") if quotient >= 1 else ("sparse kernel", "dense product")
    return f"The {side[0]} gained {number(max(quotient, 1 / quotient))} times what the {side[1]} did."


def _mark(points: pd.DataFrame) -> str:
    """What the mark means, and on how many problems (each once for all its types) of which experiments it is so."""
    said: list[str] = []
    for experiment, rows in points[points["kind"] == "measured"].groupby("experiment", sort=True):
        problems = rows["problem"].map(stem_of)
        cut = problems[rows["untuned"] != ""].nunique()
        if cut:
            said.append(f"in `{experiment}` on {cut} of {problems.nunique()}{'' if said else ' problems'}")
    return (
        f"{MARK} {WORDS.capitalize()}: the run did not try all candidates of a kernel that competes {', '.join(said)} "
        "(the experiments' pages name the kernels). Tuned, these may be faster."
        if said
        else ""
    )


def _gaps(frame: pd.DataFrame, found: Comparison, names: Mapping[GpuKey, str]) -> list[str]:
    """What could not be set side by side, each with its name."""
    out = list(found.gaps)
    compared = set(found.points.loc[found.points["compared"], "experiment"])
    for experiment in dict.fromkeys(frame["experiment"]):
        where = frame[frame["experiment"] == experiment]
        have = [names[key] for key in names if ((where["gpu"] == key[0]) & (where["kind"] == key[1])).any()]
        if experiment in compared:
            continue
        if len(have) > 1:
            out.append(
                f"`{experiment}` ({'; '.join(have)}) has no problem with a speed-up over a dense product on two."
            )
        else:
            out.append(f"`{experiment}` is on one GPU only: {have[0]}.")
    if any(gpu == published.UNNAMED for gpu, _ in names):
        out.append("*Balanced Sparsity* does not name its GPU: no share of a peak and no gain can be stated for it.")
    out.append("SparseRT's tables print speed-ups and no times: the T4's shares are not known.")
    return out
