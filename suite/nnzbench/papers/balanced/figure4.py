"""Balanced Sparsity's figure 4 redrawn: time of one large product against its sparsity, beside the ideal line."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from nnzbench.facts.results import ResultSet, each, geometric_mean, percent
from nnzbench.papers.balanced import leads
from nnzbench.papers.balanced.plot import LABELS, PAPER_LABELS, draw
from nnzbench.report.data import context, published
from nnzbench.report.data.series import Series, pick_under
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, TableOf, View
from nnzbench.report.text.fastest import SUMMARY_COLUMNS, Lost, by_reason, mean_cell
from nnzbench.report.text.tables import GAP, markdown, number

BATCHES = (1, 8)
SIZE = (16384, 8192)
OVERHEAD_US = 10.0
"""The launch overhead that the paper's formula takes."""
PUBLISHED_GPU = "GPU not named"
KEPT = "kept_per_256"
SOURCES = (
    Series("dense", LABELS["dense"], ("cublas",)),
    Series("dense_tf32", LABELS["dense_tf32"], ("cublas",), "tf32"),
    Series("random", LABELS["random"], ("cusparse",), source="uniform"),
    Series("random_sputnik", LABELS["random_sputnik"], ("sputnik",), source="uniform"),
    Series("block", LABELS["block"], ("cusparse",), source="block"),
    Series("balanced_paper", LABELS["balanced_paper"], ("balanced",), roles=frozenset({"paper"}), source="balanced"),
    Series("balanced", LABELS["balanced"], ("balanced",), roles=frozenset({"own"}), source="balanced"),
)
"""What is measured; of any pattern where no source is named, as a dense product's time does not depend on it."""
PUBLISHED = {"random": "cusparse", "block": "block8x8", "balanced": "balanced", "ideal": "ideal"}
COLUMNS = (*SUMMARY_COLUMNS, "batch", "sparsity", KEPT)


def levels() -> pd.DataFrame:
    """The paper's eleven levels with its times, read off its plot, and those of its dense product."""
    columns = tuple(f"{name}_b{batch}_us" for name in PUBLISHED.values() for batch in BATCHES)
    frame = published.read("balanced_figure4_digitised", ("sparsity", KEPT, *columns))
    dense = published.read("balanced_figure4_dense", ("batch", "dense_us")).set_index("batch")["dense_us"]
    return frame.assign(**{f"dense_b{batch}_us": float(dense[batch]) for batch in BATCHES})


def ideal_us(dense_us: float, sparsity: float, overhead_us: float) -> float:
    """The paper's equation 9: the overhead, and of the rest of the dense time the share of what is kept."""
    return (dense_us - overhead_us) * (1.0 - sparsity) + overhead_us


def problems_of(frame: pd.DataFrame) -> pd.DataFrame:
    """The recorded problems of the figure's size: problem, batch, pattern and entries kept of 256."""
    rows = frame.drop_duplicates("problem")
    rows = rows[(rows["m"] == SIZE[0]) & (rows["k"] == SIZE[1]) & rows["n"].isin(BATCHES)]
    return pd.DataFrame(
        {
            "problem": rows["problem"],
            "batch": rows["n"],
            "pattern": rows["source"].str.partition(":")[0],
            KEPT: [round(256 * (1.0 - float(sparsity))) for sparsity in rows["sparsity"]],
        }
    )


def points(results: ResultSet) -> pd.DataFrame:
    """Every point drawn: measured times, both ideal lines (per batch from the median dense time), the paper's."""
    frame = results.frame
    table, recorded = levels(), problems_of(frame)
    gpu = context.gpu_name(results.gpu, results.environment)
    lines = []
    for policy in context.policies(frame):
        floor = float(frame.loc[frame["policy"] == policy, "floor_us"].median())
        here = pd.concat([_measured(frame, recorded, policy, source) for source in SOURCES]).assign(gpu=gpu)
        lines.append(here)
        for batch in BATCHES:
            dense = float(here.loc[(here["batch"] == batch) & (here["series"] == "dense"), "time_us"].median())
            for series, overhead in (("ideal", OVERHEAD_US), ("ideal_floor", floor)):
                times = [ideal_us(dense, float(s), overhead) for s in table["sparsity"]]
                lines.append(_line(table, policy, batch, series, gpu, times))
    for batch in BATCHES:
        for series, name in (("dense", "dense"), *PUBLISHED.items()):
            times = [float(time) for time in table[f"{name}_b{batch}_us"]]
            lines.append(_line(table, "published", batch, series, PUBLISHED_GPU, times))
    whole = pd.concat([line.dropna(axis=1, how="all") for line in lines if not line.empty], ignore_index=True)
    whole["sparsity"] = whole[KEPT].map(table.set_index(KEPT)["sparsity"])
    whole = whole.dropna(subset=["time_us", "sparsity"])
    key = ["policy", "batch", KEPT]
    base = whole[whole["series"] == "dense"].set_index(key)["time_us"].rename("baseline_us")
    whole = whole.join(base, on=key)
    whole["speedup"] = whole["baseline_us"] / whole["time_us"]
    whole["table"] = "figure 4"
    whole["row"] = [f"batch {r.batch}, {percent(r.sparsity)}" for r in each(whole)]
    order = {series: place for place, series in enumerate(LABELS)}
    whole["place"] = whole["series"].map(order)
    whole = whole.sort_values(["policy", "batch", "place", "sparsity"], kind="stable", ignore_index=True)
    return whole.reindex(columns=list(COLUMNS))


def _line(table: pd.DataFrame, policy: str, batch: int, series: str, gpu: str, times: list[float]) -> pd.DataFrame:
    """One time per level of the paper."""
    return table[[KEPT]].assign(policy=policy, batch=batch, series=series, gpu=gpu, time_us=times)


def _measured(frame: pd.DataFrame, recorded: pd.DataFrame, policy: str, source: Series) -> pd.DataFrame:
    """One time per batch and level; of a dense product that on the balanced pattern, if recorded."""
    rows = pick_under(frame, policy, source)
    rows = rows[["kernel", "variant", "math", "median_us", "q1_us", "q3_us", "limit_share"]]
    wanted = recorded[recorded["pattern"] == source.source] if source.source else recorded
    found = wanted.merge(rows, left_on="problem", right_index=True).sort_values("pattern", kind="stable")
    found = found.drop_duplicates(["batch", KEPT]).rename(columns={"median_us": "time_us"})
    return found.drop(columns="pattern").assign(policy=policy, series=source.key)


def _show(view: View[pd.DataFrame]) -> Shown:
    drawn, policy = view.data, view.policy
    findings = (_finding(drawn, policy, batch) for batch in BATCHES)
    rows = view.of(view.frame["problem"])
    return Shown(
        draw(drawn, policy, view.gpu),
        "\n\n".join(filter(None, findings)),
        [TableOf(_table(drawn, policy, batch, view.gpu), rows[rows["n"] == batch]) for batch in BATCHES],
        lost=_lost(view.frame, drawn, policy),
    )


def _times(drawn: pd.DataFrame, policy: str, batch: int) -> dict[tuple[str, int], float]:
    here = drawn[(drawn["policy"] == policy) & (drawn["batch"] == batch)]
    return {(str(r.series), int(r.kept_per_256)): float(r.time_us) for r in each(here)}


def _finding(drawn: pd.DataFrame, policy: str, batch: int) -> str:
    times = _times(drawn, policy, batch)
    kept = sorted({level for series, level in times if series == "balanced"}, reverse=True)
    gains = {k: times["dense", k] / times["balanced", k] for k in kept if ("dense", k) in times}
    if not gains:
        return ""
    text = (
        f"Batch {batch}: `balanced` is {min(gains.values()):.2f} to {max(gains.values()):.2f}× as fast as cuBLAS fp32 "
        f"(geometric mean {geometric_mean(gains.values()):.2f}×), faster at {sum(v > 1 for v in gains.values())} of "
        f"{len(gains)} sparsities."
    )
    over = [times["balanced", k] / times["ideal_floor", k] for k in kept if ("ideal_floor", k) in times]
    if over:
        text += f" It takes {min(over):.2f} to {max(over):.2f} times the ideal time with the measured overhead."
    table = levels()
    wins = [s for s, k in zip(table["sparsity"], table[KEPT], strict=True) if _wins(times, int(k))]
    recorded = any(series == "random" for series, _ in times)
    if wins:
        text += f" cuSPARSE on random positions is faster than cuBLAS fp32 from {percent(min(wins))} zeros."
    elif recorded:
        text += " cuSPARSE on random positions is slower than cuBLAS fp32 at every recorded sparsity."
    return text


def _wins(times: dict[tuple[str, int], float], kept: int) -> bool:
    return times.get(("random", kept), math.inf) < times.get(("dense", kept), -math.inf)


def _table(drawn: pd.DataFrame, policy: str, batch: int, gpu: str) -> str:
    ours, theirs = _times(drawn, policy, batch), _times(drawn, "published", batch)
    here = drawn[(drawn["policy"] == policy) & (drawn["batch"] == batch) & (drawn["series"] == "balanced")]
    shares = dict(zip(here[KEPT], here["limit_share"], strict=True))
    names = [name for name in LABELS if any(series == name for series, _ in ours)]
    paper_names = ["dense", *PUBLISHED]
    rows = []
    gains: dict[str, list[float]] = {"ours": [], "paper": []}
    for row in each(levels()):
        kept = int(row.kept_per_256)
        gain = ours.get(("dense", kept), math.nan) / ours.get(("balanced", kept), math.nan)
        paper = theirs["dense", kept] / theirs["balanced", kept]
        gains["ours"].append(gain)
        gains["paper"].append(paper)
        share = shares.get(kept, math.nan)
        rows.append(
            [
                percent(row.sparsity),
                str(kept),
                *(number(ours.get((name, kept), math.nan), 1) for name in names),
                GAP if math.isnan(share) else f"{100 * share:.0f} %",
                number(gain),
                *(number(theirs[name, kept], 0) for name in paper_names),
                number(paper),
            ]
        )
    rows.append(
        ["**geometric mean**", "", *("" for _ in names), "", mean_cell(gains["ours"])]
        + ["" for _ in paper_names]
        + [mean_cell(gains["paper"])]
    )
    header = ["zeros", "kept of 256", *(LABELS[name] for name in names), "balanced: share of its limit"]
    header += [
        "balanced over cuBLAS fp32",
        *(f"paper: {PAPER_LABELS[name]}" for name in paper_names),
    ]
    header += ["paper: balanced over dense"]
    lead = (
        f"Batch {batch}. Times in µs on {gpu}, {policy} policy, fp32 (TF32 where a column says so); columns `paper` "
        f"are published ({PUBLISHED_GPU})."
    )
    if any(share > 1 for share in shares.values()):
        lead += " A share above 100 % says that the format is smaller than the CSR that the recorded limit counts."
    return f"{lead}\n\n{markdown(header, rows, left=1)}"


def _lost(frame: pd.DataFrame, drawn: pd.DataFrame, policy: str) -> Iterator[Lost]:
    table, recorded = levels(), problems_of(frame)
    for batch in BATCHES:
        have = set(_times(drawn, policy, batch))
        for source in SOURCES:
            mine = recorded[(recorded["batch"] == batch) & recorded["pattern"].str.startswith(source.source)]
            names = dict(zip(mine[KEPT], mine["problem"], strict=True))
            without = {
                names.get(int(r.kept_per_256), f"not recorded: {r.kept_per_256}"): percent(r.sparsity)
                for r in each(table)
                if (source.key, int(r.kept_per_256)) not in have
            }
            yield from by_reason(frame, policy, source, f"{LABELS[source.key]} at batch {batch}", without, len(table))


def _outside(frame: pd.DataFrame) -> list[str]:
    """Recorded problems that are no points of the figure."""
    known = problems_of(frame)
    inside = set(known.loc[known[KEPT].isin(levels()[KEPT]), "problem"])
    return sorted(set(frame["problem"]) - inside)


PAGE = PageSpec(
    lead=leads.FIGURE4,
    title="Balanced Sparsity, figure 4,",
    intro=(
        "A 16384×8192 matrix times one and eight columns at the eleven sparsities of figure 4 of *Balanced "
        "Sparsity for Efficient DNN Inference on GPU* (AAAI 2019); the paper prints 8196 columns, which its 32 "
        "ranges per row do not divide. Each kernel multiplies by the pattern it is made for: balanced rows, random "
        "positions, or 8×8 blocks. The ideal time is the paper's equation 9, (d − o)(1 − s) + o, with d the median "
        "time of cuBLAS fp32 and o either the paper's 10 µs or the time of an empty kernel in the same run. The "
        "paper's times are read off its plot (±10 µs at batch 1, ±30 µs at batch 8); it does not name its GPU."
    ),
    data=points,
    sections=(
        SectionSpec(
            "figure4",
            lambda view: (
                f"Time against sparsity at batch 1 and 8 on {view.gpu}, {view.policy} policy, and the paper's times"
            ),
            _show,
        ),
    ),
    gaps=lambda view: [f"`{name}` is recorded but not a point of the figure." for name in _outside(view.frame)],
    series=lambda view: SOURCES,
)
