"""The page that sets original codes beside this suite's kernels: `reports/<gpu>/peers/`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from nnzbench.core import paths
from nnzbench.papers.claims.peers import AS_GOOD, MATCHES, Block, blocks_of, facts_of, read, verdict
from nnzbench.papers.claims.quantities import Records
from nnzbench.report.tables import MARK, ratio_text
from nnzbench.report.text import GAP, environment, gpu_name, markdown, number
from nnzbench.results import table
from nnzbench.results.result_set import each, percent
from nnzbench.results.selector import MATHS

FOLDER = "peers"
BY_LEVEL = {
    "flash_llm": "llm_flash_llm",
    "spinfer": "llm_spinfer",
    "marlin": "llm_int4",
    "sparse_marlin": "llm_int4",
    "venom": "llm_venom",
    "nmspmm": "llm_nmspmm",
    "nmsparse": "llm_nmspmm",
}
"""Codes for layers of language models, which have a table of their own, of that session's sizes and levels."""


def write(records: Records) -> Path | None:
    """Writes `README.md`, `facts.csv` and `peers.csv` (every time) below `<reports>/<gpu>/peers`.

    None where no original was timed on that GPU.
    """
    gpu = records.gpu
    codes, sessions, times = read()
    here = sessions[sessions["gpu"] == gpu]
    times = times[times["session"].isin(here["session"])]
    if times.empty:
        return None
    blocks = [block for match in MATCHES for block in blocks_of(records.data, match, times)]
    pairs = [(block, at, facts_of(block, at)) for block in blocks for at in range(len(block.match.pairs))]
    levels = {code: _level_facts(times, code) for code in BY_LEVEL}
    some = [found for found in (*(facts for _, _, facts in pairs), *levels.values()) if len(found)]
    facts = pd.concat(some, ignore_index=True)  # an empty one would make texts of the others' numbers
    folder = records.reports / gpu / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    table.write(facts[table.COLUMNS], folder)
    drawn = pd.concat([block.rows.assign(heading=block.match.heading) for block in blocks], ignore_index=True)
    paths.write_csv(drawn, folder / "peers.csv")
    names = codes.set_index("code")["name"]
    text = (
        environment()
        .get_template("peers.md.j2")
        .render(
            gpu=gpu_name(gpu, {}),
            as_good=round(100 * (1 - AS_GOOD)),
            counts=Counter(verdict(found) for _, _, found in pairs).most_common(),
            answers=markdown(_HEADS, [_answer(*one) for one in pairs], left=2),
            mark=MARK if not facts["tuned"].all() else "",
            blocks=blocks,
            by_level=[(names[code], *_by_level(code, found, times)) for code, found in levels.items() if len(found)],
            codes=list(each(codes)),
            sessions=list(each(here)),
            gaps=list(_gaps(blocks)),
        )
    )
    path = folder / "README.md"
    paths.write_text(path, text)
    return path


_HEADS = ["original", "this suite", "original over dense", "ours over dense", "ours is", "problems", "dense", "plain"]


def _answer(block: Block, at: int, facts: pd.DataFrame) -> list[str]:
    pair, known = block.match.pairs[at], {row.kind: row for row in each(facts)}
    theirs, here, dense, plain = (known.get(kind) for kind in ("theirs", "here", "dense", "plain"))
    word = verdict(facts)
    return [
        f"{block.title}: {pair.theirs}",
        f"`{pair.kernel}`, {pair.words}",
        *(GAP if one is None else ratio_text(one) for one in (theirs, here)),
        word if here is None else f"**{word}**",
        f"{0 if here is None else here.n} of {len(block.rows)}",
        GAP if dense is None else number(dense.ratio),
        GAP if plain is None else f"{ratio_text(plain)} ({plain.wins} of {plain.n})",
    ]


def _level_facts(times: pd.DataFrame, code: str) -> pd.DataFrame:
    """An original over the dense product of the same session: a fact for each product and policy."""
    session = BY_LEVEL[code]
    here = times[(times["session"] == session) & times["median_us"].notna()]
    dense = here[here["code"] == "cublas"].rename(columns={"median_us": "over_us"})
    keys = ["m", "k", "n", "policy", *(["sparsity"] if dense["sparsity"].nunique() > 1 else [])]
    rows = here[here["code"] == code].merge(dense[[*keys, "over_us"]], on=keys).rename(columns={"median_us": "us"})
    group = [
        f"{row.m}×{row.k}, {row.n} column{'s' * (row.n != 1)}, {percent(row.sparsity)} zeros"
        + (f" ({row.source.removeprefix('vnm:')})" if row.source.startswith("vnm:") else "")
        for row in each(rows)
    ]
    pairs = rows.assign(experiment=session, group=group, subject=code, baseline="cuBLAS of the same session")
    return table.facts_of_pairs(pairs.assign(printed=math.nan, tuned=True, one_run=True))


def _by_level(code: str, facts: pd.DataFrame, times: pd.DataFrame) -> tuple[str, int, str]:
    """How often it is faster than dense, on how many products its result is wrong, and ratios by size and zeros."""
    cells = {(row.group, row.policy): number(row.ratio) for row in each(facts)}
    policies, groups = facts["policy"].unique(), dict.fromkeys(facts["group"])
    parts = [group.rsplit(", ", 1) for group in groups]
    levels = sorted({level for _, level in parts})
    rows = [
        [size, *(" / ".join(cells.get((f"{size}, {level}", one), GAP) for one in policies) for level in levels)]
        for size in dict.fromkeys(size for size, _ in parts)
    ]
    counts = facts.groupby("policy", sort=False)["wins"].agg(won="sum", of="size")
    mine = times[(times["session"] == BY_LEVEL[code]) & (times["code"] == code) & (times["policy"] == "hot")]
    arithmetic = MATHS[mine["dtype"].iloc[0]]
    wins = " and ".join(f"{row.won} of {row.of} {policy}" for policy, row in counts.iterrows())
    words = f"over cuBLAS in {arithmetic} of the same session, {' / '.join(policies)}: faster on {wins} products"
    return words, int((mine["status"] == "wrong").sum()), markdown(["matrix", *levels], rows)


def _gaps(blocks: Sequence[Block]) -> Iterator[str]:
    """Why problems of a session are not in its comparison, each reason with how many."""
    for block in blocks:
        known = block.rows[block.rows["problem"] != ""]
        lost = {"not recorded here": len(block.rows) - len(known)}
        for at, pair in enumerate(block.match.pairs):
            lost[f"no right result of the original ({pair.theirs})"] = int(known[f"theirs{at}"].isna().sum())
            lost[f"no checked time of `{pair.kernel}` ({pair.words})"] = int(known[f"here{at}"].isna().sum())
        lost["no dense time in the original's session"] = int(known["dense_theirs"].isna().sum())
        lost[f"no dense time in `{block.experiment}`"] = int(known["dense_here"].isna().sum())
        said = "; ".join(f"{why}: {count}" for why, count in lost.items() if count)
        if said:
            yield f"{block.title}, of {len(block.rows)} problems: {said}."
