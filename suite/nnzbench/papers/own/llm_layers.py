"""The page of `llm_layers`: from how many zeros on a sparse product of a language model's layer beats dense fp16."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from nnzbench import paths
from nnzbench.papers.own import LLM_LAYERS, leads, llm_figures, llm_limits
from nnzbench.papers.own.llm_data import (
    BEST,
    DENSE,
    HALF,
    Layers,
    collect,
    layers,
    of_series,
    series_of,
    summary,
    table,
)
from nnzbench.problems import tables as problem_tables
from nnzbench.report.data import published
from nnzbench.facts.results import each, percent
from nnzbench.report.data.series import MATH_LABELS, Series, kernel_label
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, TableOf, View
from nnzbench.report.text.tables import GAP, markdown, number

PEERS = {"llm_flash_llm": "Flash-LLM, the authors' code", "llm_spinfer": "SpInfer, the authors' code"}
"""Sessions of `datasets/peers/times.csv` with the same layers on uniform patterns."""
PEER_LEVELS = (0.7, 0.8, 0.9)
OWN_BEST = "this project's best"


def _intro(view: View[Layers]) -> str:
    data, policies = view.data, view.data.policies
    large = [layer.name for layer in data.layers if layer.large]
    lead = (
        "Weights of public language models (named in `datasets/problems/llm_layers.csv`) with their zeros anywhere, "
        "times 1 to 256 columns, in fp16 with sums in fp32. The rival is the fastest dense fp16 product: cuBLAS and "
        "every algorithm that cuBLASLt proposes, weights, B and result in both layouts. N is the number of columns, "
        "that is of tokens or requests multiplied at once."
    )
    if data.means.empty:
        return lead
    finest = data.finest
    one = [finest] if finest is not None else []
    rows = [
        [
            f"{n}",
            *(_from(data, policy, n) for policy in policies),
            *(data.crossing(policy, layer.label, n) for layer in one for policy in policies),
        ]
        for n in data.columns
    ]
    answer = (
        f"**From how many zeros on is sparse faster than dense fp16?** On layers of at least 64 MB of dense weights "
        f"(recorded: {', '.join(large)}; geometric mean over those with every level of zeros, uniform patterns, the "
        "fastest kernel of this project)"
    )
    answer += "".join(f", and on {layer.name} alone, which has the most levels" for layer in one)
    header = ["N", *(f"zeros, {policy}" for policy in policies)]
    header += [f"{layer.name}, {policy}" for layer in one for policy in policies]
    return f"{lead}\n\n{answer}:\n\n{markdown(header, rows)}"


def _from(data: Layers, policy: str, n: int) -> str:
    """The crossover of the mean over large layers, with how many they are where some lack."""
    found = data.crossing(policy, "", n)
    if found == GAP:
        return GAP
    means = data.means[(data.means["policy"] == policy) & (data.means["n"] == n)]
    count, of = int(means["layers"].max()), sum(layer.large for layer in layers())
    return found if count == of else f"{found} ({count} of {of} layers)"


def _overview(view: View[Layers]) -> Shown | None:
    data = view.data
    if data.means.empty:
        return Shown(None, tables=_other_tables(view))
    caption = (
        "Speed-up of the fastest sparse kernel over the fastest dense fp16 product, geometric mean over layers of at "
        "least 64 MB;\nuniform patterns (the title: all layers and patterns). Hot: operands as the last launch left "
        "them; cold: L2 overwritten before."
    )
    title = f"Sparse over dense fp16 on {view.gpu}"
    figure = llm_figures.overview(data, view.data.policies, title, caption, _flash_llm())
    means = (_means_table(view, data.means, "large layers"), _means_table(view, data.small_means, "layers of 32 MB"))
    drawn = [_drawn(data.points[data.points["layer"].isin([layer.label for layer in layers() if layer.large])])]
    return Shown(figure, tables=(*means, _crossing_table(view), *_other_tables(view)), drawn=drawn)


def _drawn(points: pd.DataFrame) -> pd.DataFrame:
    """What the figures divide: the best sparse and dense times on uniform patterns."""
    return points[points["series"].isin((BEST, DENSE)) & (points["pattern"] == "uniform")]


def _both(view: View[Layers], cell: dict[str, str]) -> str:
    """One policy after the other, in the page's order."""
    words = [cell.get(policy, GAP) for policy in view.data.policies]
    return GAP if set(words) == {GAP} else " / ".join(words)


def _means_table(view: View[Layers], means: pd.DataFrame, over: str) -> str:
    if means.empty:
        return ""
    cells = {(row.n, row.zeros, row.policy): number(row.speedup) for row in each(means)}
    levels = sorted(set(means["zeros"]))
    rows = [
        [str(n), *(_both(view, {p: cells.get((n, zeros, p), GAP) for p in view.data.policies}) for zeros in levels)]
        for n in sorted(set(means["n"]))
    ]
    lead = f"Geometric mean over {over}, {' / '.join(view.data.policies)}:"
    return f"{lead}\n\n{markdown(['N', *map(percent, levels)], rows)}"


def _crossing_table(view: View[Layers]) -> str:
    data, patterns = view.data, {"uniform": "", "magnitude": ", magnitude pruning"}
    rows = []
    for layer in data.layers:
        for pattern, words in patterns.items():
            cells = [
                _both(view, {p: data.crossing(p, layer.label, n, pattern) for p in view.data.policies})
                for n in data.columns
            ]
            if set(cells) != {GAP}:
                rows.append([layer.name + words, *cells])
    lead = (
        f"Zeros from which sparse is faster, {' / '.join(view.data.policies)}, interpolated between the levels "
        "measured. Magnitude pruning: rows and columns vary as in pruned Transformers of the collection."
    )
    return f"{lead}\n\n{markdown(['layer', *(f'N = {n}' for n in data.columns)], rows)}" if rows else ""


def _other_tables(view: View[Layers]) -> Iterator[str | TableOf]:
    points = view.data.points
    yield TableOf(_two_of_four(view), points[points["pattern"] == "nm"])
    yield _other_arithmetic(view)
    yield _peers_table(view)
    yield TableOf(_published_table(view), points.iloc[:0])


def _two_of_four(view: View[Layers]) -> str:
    """The structured rival: half the weights, at fixed places."""
    rows = []
    for series in ("cusparselt", BEST):
        mine = of_series(view.data.points, series, "nm")
        cells = {(row.layer, row.n, row.policy): number(row.speedup) for row in each(mine)}
        for layer in view.data.layers:
            line = [
                _both(view, {p: cells.get((layer.label, n, p), GAP) for p in view.data.policies})
                for n in view.data.columns
            ]
            if set(line) != {GAP}:
                label = kernel_label(series) if series != BEST else OWN_BEST
                rows.append([layer.name, label, *line])
    lead = f"2:4 patterns (50 % zeros, two of every four): speed-up over dense fp16, {' / '.join(view.data.policies)}:"
    header = ["layer", "", *(f"N = {n}" for n in view.data.columns)]
    return f"{lead}\n\n{markdown(header, rows, left=2)}" if rows else ""


def _other_arithmetic(view: View[Layers]) -> str:
    others = view.data.others
    sparse = others[(others["series"] == BEST) & others["median_us"].notna()]
    rows = []
    for (math_class, layer, n, _), some in sparse.groupby(["math", "layer", "n", "zeros"], sort=True):
        cells = {row.policy: f"{number(row.median_us, 1)} ({number(row.speedup)})" for row in each(some)}
        name = next(one.name for one in view.data.layers if one.label == layer)
        kernel = ", ".join(dict.fromkeys(kernel_label(str(one)) for one in some["kernel"]))
        rows.append(
            [
                MATH_LABELS[str(math_class)],
                name,
                str(n),
                percent(float(some["zeros"].iloc[0])),
                kernel,
                _both(view, cells),
            ]
        )
    under = " / ".join(view.data.policies)
    lead = f"Other arithmetic, µs (and speed-up over the best dense product in the same), {under}:"
    header = ["arithmetic", "layer", "N", "zeros", "kernel", "µs (speed-up)"]
    return f"{lead}\n\n{markdown(header, rows, left=5)}" if rows else ""


_Ratios = dict[tuple[str, int, int, int, float, str], float]
"""Speed-up over dense by session or series, m, k, n, level and policy."""


def _peers(gpu: str) -> _Ratios:
    """The authors' codes on this GPU: how many times as fast as the dense product of its own session each is."""
    times = pd.read_csv(paths.datasets() / "peers" / "times.csv")
    sessions = pd.read_csv(paths.datasets() / "peers" / "sessions.csv").set_index("session")["gpu"]
    times = times[times["session"].isin(PEERS) & (times["session"].map(sessions) == gpu)]
    keys = ["session", "m", "k", "n", "sparsity", "policy"]
    dense = times[times["code"] == "cublas"].set_index(keys)["median_us"].rename("dense_us")
    codes = times[(times["code"] != "cublas") & (times["status"] == "ok")].join(dense, on=keys, how="inner")
    return {
        (row.session, row.m, row.k, row.n, row.sparsity, row.policy): row.dense_us / row.median_us
        for row in each(codes)
    }


def _peers_table(view: View[Layers]) -> str:
    points = view.data.points
    ratios = _peers(view.results.gpu)
    sizes = {key[1:4] for key in ratios}
    words = dict(PEERS)
    for key in ("flash_llm", "spinfer", BEST):
        words[key] = OWN_BEST if key == BEST else f"`{key}` of this suite"
        for row in each(of_series(points, key)):
            ratios[key, row.m, row.k, row.n, row.zeros, row.policy] = row.speedup
    rows = []
    for m, k, n in sorted(sizes, key=lambda size: (-size[0] * size[1], size)):
        for key, label in words.items() if n in view.data.columns else ():
            found = [
                {p: number(ratios.get((key, m, k, n, level, p), math.nan)) for p in view.data.policies}
                for level in PEER_LEVELS
            ]
            cells = [_both(view, cell) for cell in found]
            if set(cells) != {GAP}:
                rows.append([f"{m}×{k}", str(n), label, *cells])
    lead = (
        "The authors' own codes on this GPU, each over cuBLAS fp16 of its own session ([peers](../peers/README.md)), "
        "and this suite's kernels over the best dense product of these records, "
        f"{' / '.join(view.data.policies)}. The sessions' cuBLAS is its default in one layout of B:"
    )
    return f"{lead}\n\n{markdown(['layer', 'N', '', *map(percent, PEER_LEVELS)], rows, left=3)}" if rows else ""


def _flash_llm() -> pd.DataFrame:
    """Means over layers that the authors of Flash-LLM print, over the same kind of rival."""
    found = published.read("tensor_core_kernels", ("kernel", "gpu", "n", "zeros", "speedup"))
    found = found[found["kernel"] == "Flash-LLM"]
    return found.assign(words=f"Flash-LLM's authors, {found['gpu'].iloc[0]}, N = {found['n'].iloc[0]}")


def _published_table(view: View[Layers]) -> str:
    found = published.read("tensor_core_kernels", ("kernel", "gpu", "n", "zeros", "speedup", "note"))
    levels = sorted(set(found["zeros"]))
    rows = []
    for (kernel, gpu, n, note), some in found.groupby(["kernel", "gpu", "n", "note"], sort=False):
        cells = dict(zip(some["zeros"], some["speedup"], strict=True))
        rows.append(
            [str(kernel), str(gpu), str(n), *(number(cells.get(level, math.nan)) for level in levels), str(note)]
        )
    lead = "From the authors or their users, over cuBLAS fp16 on other GPUs (compared with no time of these records):"
    header = ["", "GPU", "N", *map(percent, levels), "what"]
    return f"{lead}\n\n{markdown(header, rows, left=3)}"


def _by_layer(view: View[Layers]) -> Shown | None:
    data = view.data
    here = data.points[data.points["policy"] == view.policy]
    if of_series(here).empty:
        return None
    caption = (
        "Speed-up of the fastest sparse kernel of this project over the fastest dense fp16 product; uniform patterns.\n"
        f"{view.policy_sentence}"
    )
    figure = llm_figures.by_layer(data, view.policy, view.title, caption)
    return Shown(figure, _fastest(here), (_times(here, data), llm_limits.table(here, data)), drawn=[_drawn(here)])


def _fastest(here: pd.DataFrame) -> str:
    best = of_series(here)
    counts = sorted(Counter(best["kernel"]).items(), key=lambda one: (-one[1], one[0]))
    words = ", ".join(f"{kernel_label(kernel)} on {count}" for kernel, count in counts)
    faster = int((best["speedup"] > 1).sum())
    return (
        f"Faster than the best dense fp16 product on {faster} of {len(best)} uniform problems. The fastest kernel of "
        f"this project is {words}."
    )


def _times(here: pd.DataFrame, data: Layers) -> str:
    """One row per layer and level, dense first."""
    rows = []
    columns = data.columns
    dense = of_series(here, DENSE)
    best = of_series(here)
    for layer in data.layers:
        base = dense[dense["layer"] == layer.label].groupby("n")["median_us"].median()
        if base.empty:
            continue
        rows.append([layer.name, "dense", *(number(float(base.get(n, math.nan)), 1) for n in columns)])
        mine = best[best["layer"] == layer.label]
        for _, some in mine.groupby("zeros"):
            cells = {int(row.n): f"{number(row.median_us, 1)} ({number(row.speedup)})" for row in each(some)}
            rows.append(["", percent(float(some["zeros"].iloc[0])), *(cells.get(n, GAP) for n in columns)])
    lead = "µs of the fastest sparse kernel of this project (and speed-up over dense), uniform patterns:"
    return f"{lead}\n\n{markdown(['layer', 'zeros', *(f'N = {n}' for n in columns)], rows, left=2)}"


def _gaps(view: View[Layers]) -> Iterator[str]:
    present = {str(kernel) for kernel in view.frame["kernel"]}
    lacking = [kernel_label(name) for name in LLM_LAYERS.kernels if name not in present]
    if lacking:
        yield f"No row of {', '.join(lacking)} is recorded."
    for policy in view.data.policies:
        here = view.data.points[view.data.points["policy"] == policy]
        for key in (DENSE, BEST):
            count = len(set(here.loc[here["series"] == key, "problem"]))
            words = next(one.label for one in series_of(view.frame, HALF) if one.key == key)
            yield f"{words} has a time on {count} of the table's {_half_problems()} fp16 problems ({policy})."


def _half_problems() -> int:
    return sum(row.problem.dtype == HALF for row in problem_tables.rows(LLM_LAYERS.name, full=True))


def _names(view: View[Layers]) -> dict[str, str]:
    kinds = {"uniform": "", "magnitude": ", magnitude", "nm": ", 2:4"}
    names = {}
    for row in problem_tables.rows(LLM_LAYERS.name, full=True):
        problem = row.problem
        kind = kinds[problem.source.partition(":")[0]]
        dtype = "" if problem.dtype == HALF else f", {MATH_LABELS[problem.dtype]}"
        names[problem.name] = f"{problem.m}×{problem.k}×{problem.n}, {percent(problem.sparsity)}{kind}{dtype}"
    return names


def _named(frame: pd.DataFrame) -> Iterator[Series]:
    """The series, and what the table of authors' codes calls them."""
    for one in series_of(frame, HALF):
        yield one
        yield replace(one, label=OWN_BEST if one.key == BEST else f"`{one.key}` of this suite")


PAGE = PageSpec(
    lead=leads.LLM_LAYERS,
    title="Layers of language models on tensor cores",
    intro=_intro,
    data=collect,
    sections=(
        SectionSpec("speedup", "Sparse over dense fp16", _overview, "Sparse over dense", once=True, first=True),
        SectionSpec("layers", "Sparse over dense fp16 by layer", _by_layer, "By layer", group=1),
    ),
    gaps=_gaps,
    summary=lambda view: summary(view.data),
    problem_names=_names,
    table=table,
    math_text="fp16 with sums in fp32 unless a row names another arithmetic",
    series=lambda view: list(_named(view.frame)),
)
