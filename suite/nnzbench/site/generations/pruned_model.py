"""What a pruned model gains on each generation: the first answer of the page, on the same matrices everywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from typing import NamedTuple

import pandas as pd

from nnzbench.papers.own import dlmc_n512
from nnzbench.report.data import context
from nnzbench.report.data.frames import ResultSet, each, percent
from nnzbench.report.text import marks
from nnzbench.report.text.tables import markdown, number


class Pruned(NamedTuple):
    """What the page says of a pruned model, in Markdown."""

    words: str
    """From which level on pruning pays, GPU by GPU."""
    section: str
    """Dense over fastest sparse time per GPU and level as a table, what it is of, and its caveats."""


def answer(sets: Sequence[ResultSet]) -> Pruned:
    """Of the GPUs whose times are published, and of these sets that have the same products."""
    recorded = [results for results in sets if results.experiment == dlmc_n512.EXPERIMENT]
    parts = [dlmc_n512.by_gpu(results) for results in recorded] or [dlmc_n512.by_gpu(None)]
    found = dlmc_n512.gains(pd.concat(parts, ignore_index=True).drop_duplicates())
    best = found.sort_values("gain", ascending=False).drop_duplicates(["gpu", "policy", "level"])
    order = list(dict.fromkeys(zip(found["gpu"], found["policy"], strict=True)))
    levels = sorted(set(found["level"]))
    counts = found[found["library"] == "sputnik"].groupby(["gpu", "policy"])["count"].sum()
    count = int(counts.max())
    cells = {(row.gpu, row.policy, row.level): row for row in each(best)}
    cut = {
        (context.gpu_name(one.gpu, one.environment), policy)
        for one in recorded
        for policy in marks.cuts(one.frame, *dlmc_n512.SERIES)
    }
    rows = []
    for gpu, policy in order:
        line = [cells.get((gpu, policy, level)) for level in levels]
        gains = [number(math.nan if one is None else one.gain) for one in line]
        kernels = list(dict.fromkeys(dlmc_n512.LABELS[one.library] for one in line if one is not None))
        some = int(counts.get((gpu, policy), 0))
        known = "" if some == count else f", {some} of {count}"
        mark = marks.MARK * ((gpu, policy) in cut)
        rows.append([gpu, (f"measured, {policy}{mark}" if policy else "published") + known, *gains, "; ".join(kernels)])
    header = ["GPU", "", *(percent(level) for level in levels), "by"]
    missing = "" if recorded else " No GPU of this suite's own records is among them yet (`nnzbench run dlmc_n512`)."
    section = "\n\n".join(
        (
            f"Dense time over the time of the fastest sparse kernel, fp16, geometric mean over {count} pruned weight "
            "matrices of a Transformer times 512 columns, by share of zeros. Over 1, pruning pays on that GPU; under 1 "
            f"the dense product of the unpruned model is faster.{missing}",
            markdown(header, rows, left=2),
            dlmc_n512.CAVEATS,
        )
    )
    return Pruned(_words(best, order, cut), section)


def _words(best: pd.DataFrame, order: Sequence[tuple[str, str]], cut: Set[tuple[str, str]]) -> str:
    """From which level on pruning pays, GPU by GPU; of measured ones the hot policy, `cut` those not fully tuned."""
    out = []
    for gpu, policy in order:
        if policy in ("", "hot"):
            mine = best[(best["gpu"] == gpu) & (best["policy"] == policy)].sort_values("level")
            pays = _from(mine)
            last = mine.iloc[-1]
            name = f"**{gpu}**, {marks.WORDS}" if (gpu, policy) in cut else f"**{gpu}**"
            if math.isnan(pays):
                out.append(f"{name}: nothing up to {percent(last['level'])} zeros ({number(last['gain'])}× there)")
            else:
                gain = float(mine[mine["level"] == pays]["gain"].iloc[0])
                out.append(f"{name}: {number(gain)}× at {percent(pays)} zeros, less than 1 below")
    return f"By pruning a Transformer each GPU gains, in fp16 with 512 columns: {'; '.join(out)}."


def _from(mine: pd.DataFrame) -> float:
    """The lowest level from which on every level gains, NaN where the highest does not."""
    found = math.nan
    for row in each(mine.sort_values("level", ascending=False)):
        if row.gain < 1:
            break
        found = float(row.level)
    return found
