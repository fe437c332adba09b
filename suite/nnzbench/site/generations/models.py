"""What a pruned model gains on each GPU: its products on the same matrices everywhere, and whole language models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pandas as pd

from nnzbench.papers.catalogue import introductions
from nnzbench.papers.nnzbench import decoder_block, dlmc_n512
from nnzbench.report.text import GAP, gpu_name, markdown, number
from nnzbench.results.result_set import ResultSet, each, percent

RULE, OURS = "sputnik", "ours"
"""Of `dlmc_n512.SIDES`: the kernel that ran on every GPU, and what only measured ones have, which is an oracle."""


class Pruned(NamedTuple):
    """What the page says of a pruned model, in Markdown."""

    words: str
    """From which level on pruning pays, GPU by GPU."""
    section: str
    """Dense over sparse time per GPU and level as a table, what it is of, and its caveats."""


def pruned_model(sets: Sequence[ResultSet]) -> Pruned:
    """Of the GPUs whose times are published, and of these sets that have the same products.

    GPUs are set side by side with one kernel, Sputnik's, and its rule; what this project's kernels gain stands beside.
    """
    recorded = [one for one in sets if one.experiment == dlmc_n512.NAME and dlmc_n512.complete(one)]
    found = dlmc_n512.gains(recorded)
    levels = sorted(set(found["level"]))
    count = int(found[found["library"] == RULE].groupby(["gpu", "policy"])["count"].sum().max())
    missing = "" if recorded else " No GPU of this suite's own records is among them yet (`nnzbench run dlmc_n512`)."
    section = "\n\n".join(
        (
            "Dense over sparse time: Sputnik's kernel with the paper's rule, which all of these GPUs ran, fp16, "
            f"geometric mean over {count} pruned weight matrices times 512 columns. The best of ours, the fastest "
            f"of all candidates, was run on measured GPUs alone: no comparison of GPUs.{missing}",
            markdown(
                ["GPU", "", *(percent(level) for level in levels)],
                [line for library in (RULE, OURS) for line in _pruned_lines(found, library, levels, count)],
                left=2,
            ),
            introductions()["dlmc_n512_published"],
        )
    )
    return Pruned(_words(found), section)


def tokens(sets: Sequence[ResultSet]) -> str:
    """Tokens a second of a whole model for one user: a sentence for each model that several of these sets have."""
    lines = _common(sets)
    if "90 % zeros" not in lines:
        return ""
    said = []
    for model, mine in lines[lines[ONE] == 1].drop_duplicates(["GPU", "model"]).groupby("model", sort=False):
        cells = zip(mine["GPU"], mine["90 % zeros"], mine["dense fp16"], strict=True)
        each_gpu = ", ".join(f"**{pruned}** on {gpu} (dense fp16 {dense})" for gpu, pruned, dense in cells)
        said.append(f"{model} with 90 % zeros (synthetic weights), one token at a time, tokens a second: {each_gpu}.")
    return " ".join(said)


ONE = decoder_block.HEADS[3]


def whole_models(sets: Sequence[ResultSet]) -> str:
    """Tokens a second of whole language models, a line per GPU: of those models that several of these sets have."""
    lines = _common(sets)
    return markdown(list(lines.columns), lines.astype(str).to_numpy().tolist(), left=4) if len(lines) else ""


def _common(sets: Sequence[ResultSet]) -> pd.DataFrame:
    """Lines of `decoder_block.by_model` that several of these sets have, with their `GPU`."""
    tables = [
        found.assign(GPU=gpu_name(results.gpu, results.environment))
        for results in sets
        if len(found := decoder_block.by_model(results))
    ]
    if not tables:
        return pd.DataFrame()
    of = [name for name in decoder_block.HEADS if name in tables[0]]
    lines = pd.concat(tables, ignore_index=True).fillna(GAP)
    lines = lines[lines.groupby(of)["GPU"].transform("nunique") > 1].set_index([*of, "GPU"]).sort_index()
    several = (lines != GAP).groupby(level=of).sum().max() > 1
    return lines.loc[:, several].reset_index()


def _pruned_lines(found: pd.DataFrame, library: str, levels: Sequence[float], count: int) -> Iterator[list[str]]:
    """A line of the table per GPU and policy that has the kernel."""
    here = found[found["library"] == library]
    for key, rows in here.groupby(["gpu", "policy"], sort=False):
        gpu, policy = map(str, key)
        gains = dict(zip(rows["level"], rows["gain"], strict=True))
        some = int(rows["count"].sum())
        known = "" if some == count else f", {some} of {count}"
        how = (f"measured, {policy}" if policy else "published") + known
        name = gpu if library == RULE else f"{gpu}: {dlmc_n512.SIDES[library].label}"
        yield [name, how, *(number(gains.get(level, math.nan)) for level in levels)]


def _words(found: pd.DataFrame) -> str:
    """From which level on pruning pays: GPU by GPU with the kernel that all have, then with this project's."""
    rule, ours = (", ".join(_pays(found, library)) for library in (RULE, OURS))
    words = (
        "Products of a pruned Transformer (fp16, 512 columns) are faster than dense, with Sputnik's kernel and the "
        f"paper's rule, on {rule}."
    )
    return words + f" With the best of ours, which the others did not run, on {ours}." * bool(ours)


def _pays(found: pd.DataFrame, library: str) -> Iterator[str]:
    """Of each GPU that has the kernel, of measured ones under the hot policy."""
    here = found[(found["library"] == library) & found["policy"].isin(["", "hot"])]
    for gpu in dict.fromkeys(map(str, here["gpu"])):
        mine = here[here["gpu"] == gpu].sort_values("level")
        pays, last = _from(mine), mine.iloc[-1]
        name = f"**{gpu}**, before tuning," if not mine["tuned"].all() else f"**{gpu}**"
        if math.isnan(pays):
            yield f"{name} never ({number(last['gain'])}× at {percent(last['level'])} zeros)"
        else:
            gain = float(mine[mine["level"] == pays]["gain"].iloc[0])
            yield f"{name} from {percent(pays)} zeros ({number(gain)}×)"


def _from(mine: pd.DataFrame) -> float:
    """The lowest level from which on every level gains, NaN where the highest does not."""
    found = math.nan
    for row in each(mine.sort_values("level", ascending=False)):
        if row.gain < 1:
            break
        found = float(row.level)
    return found
