"""The page that sets original codes beside this suite's kernels: `reports/<gpu>/peers/`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from nnzbench.facts.results import each, percent
from nnzbench.report.data import context
from nnzbench.report.text import marks, shorter, tables
from nnzbench.report.text.rendering import environment
from nnzbench.report.text.tables import GAP, markdown, number
from nnzbench.site.peers import AS_GOOD, MATCHES, Block, Pair, answer, blocks_of, read

FOLDER = "peers"
BY_LEVEL = ("flash_llm", "spinfer")
"""Codes with sessions of many sizes and levels, which have a table of their own."""
_MARK = (
    f"{marks.MARK} {marks.WORDS.capitalize()}: on some of the problems the run did not try all candidates of this "
    "suite's kernel, or of the dense product beside it. Tuned, these may be faster."
)


def write(reports: Path, gpu: str) -> Path | None:
    """Writes `README.md` and `peers.csv` below `reports/gpu/peers`; None where no original was timed on that GPU."""
    codes, sessions, times = read()
    here = sessions[sessions["gpu"] == gpu]
    times = times[times["session"].isin(here["session"])]
    if times.empty:
        return None
    blocks = [block for match in MATCHES for block in blocks_of(reports / gpu, match, times)]
    folder = reports / gpu / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    drawn = pd.concat([block.rows.assign(heading=block.match.heading) for block in blocks], ignore_index=True)
    tables.write_csv(drawn, folder / "peers.csv")
    template = environment().get_template("peers.md.j2")
    text = template.render(
        gpu=context.gpu_name(gpu, {}),
        as_good=round(100 * (1 - AS_GOOD)),
        counts=_counts(blocks),
        answers=_answers(blocks),
        mark=_MARK if any(block.cut for block in blocks) else "",
        blocks=[(_title(block), _about(block, codes), block.match.caveat, _per_problem(block)) for block in blocks],
        by_level=[(_name(codes, code), _by_level(times, code), _by_level_text(times, code)) for code in BY_LEVEL],
        codes=list(each(codes)),
        sessions=list(each(here)),
        apart=_apart(blocks),
        gaps=_gaps(blocks),
    )
    path = folder / "README.md"
    shorter.write(path, text)
    return path


def _counts(blocks: Iterable[Block]) -> str:
    """In words, how many comparisons have each verdict, the commonest first."""
    every = [answer(block.rows, at) for block in blocks for at in range(len(block.match.pairs))]
    found = Counter(one.verdict for one in every if one.have)
    said = ", ".join(f"{verdict} in {count}" for verdict, count in found.most_common())
    lost = len(every) - found.total()
    words = f"Of {found.total()} comparisons this suite's kernel is {said}" if found else "Nothing can be compared yet"
    return f"{words}{f'; {lost} more lack times' if lost else ''}."


def _answers(blocks: Iterable[Block]) -> str:
    rows = []
    for block in blocks:
        for at, pair in enumerate(block.match.pairs):
            found = answer(block.rows, at)
            cut = bool({(column, name) for column in (f"here{at}", "dense_here") for name in found.on} & block.cut)
            rows.append(
                [
                    f"{_title(block)}: {pair.theirs}",
                    f"`{pair.kernel}`, {pair.words}",
                    number(found.theirs),
                    number(found.here) + marks.MARK * cut,
                    f"**{found.verdict}**" if found.have else found.verdict,
                    f"{found.have} of {found.of}",
                    number(found.dense),
                    f"{found.faster} of {found.have}" if found.have else GAP,
                ]
            )
    sides = ["original", "this suite", "original over dense", "ours over dense"]
    return markdown([*sides, "ours is", "problems", "dense", "faster on"], rows, left=2)


def _title(block: Block, both: bool = False) -> str:
    """Its heading with what differs from others below it; `both` of what is true under either policy."""
    policy = "hot and cold" if both else {"cold": "cold"}.get(block.policy, "")
    extra = ", ".join(filter(None, ({"f16": "fp16"}.get(block.dtype, ""), policy)))
    return f"{block.match.heading}, {extra}" if extra else block.match.heading


def _name(codes: pd.DataFrame, code: str) -> str:
    return str(codes.set_index("code")["name"][code])


def _about(block: Block, codes: pd.DataFrame) -> str:
    dense = _name(codes, block.match.dense)
    return (
        f"Session `{block.match.session}` beside `{block.experiment}`; microseconds; {dense} in "
        f"{'fp16' if block.dtype == 'f16' else 'fp32'} is the dense product of each."
    )


def _per_problem(block: Block) -> str:
    pairs = block.match.pairs
    columns = ("dense_here", *(f"{side}{at}" for at in range(len(pairs)) for side in ("theirs", "here")), "own")
    header = ["problem", "zeros", "dense, their session", "dense, ours"]
    for pair in pairs:
        header += [f"original, {pair.theirs}", f"`{pair.kernel}`, {pair.words}"]
    rows = [
        [
            " ".join(filter(None, [str(row.label), str(row.size)])),
            percent(row.sparsity),
            _us(row.dense_theirs),
            *(_us(getattr(row, name)) + marks.MARK * ((name, row.problem) in block.cut) for name in columns),
        ]
        for row in each(block.rows)
    ]
    return markdown([*header, "this project's own best"], rows)


def _us(value: float) -> str:
    """Three digits that count, at most two decimals."""
    if math.isnan(value):
        return GAP
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def _level_rows(times: pd.DataFrame, code: str) -> pd.DataFrame:
    here = times[times["session"] == f"llm_{code}"]
    keys = ["m", "k", "n", "sparsity", "policy"]
    mine = here[here["code"] == code][[*keys, "status", "median_us"]]
    dense = here[here["code"] == "cublas"][[*keys, "median_us"]].rename(columns={"median_us": "dense_us"})
    return mine.merge(dense, on=keys, how="left").assign(speedup=lambda rows: rows["dense_us"] / rows["median_us"])


def _by_level(times: pd.DataFrame, code: str) -> str:
    """Speed-up over the dense product of the same session, hot / cold, by size, columns and sparsity."""
    rows = _level_rows(times, code)
    levels = sorted(set(rows["sparsity"]))
    cells = {(r.m, r.k, r.n, r.sparsity, r.policy): r for r in each(rows)}
    out = []
    for m, k, n in dict.fromkeys(zip(rows["m"], rows["k"], rows["n"], strict=True)):
        line = [f"{m}×{k}", str(n)]
        for level in levels:
            found = [cells.get((m, k, n, level, policy)) for policy in ("hot", "cold")]
            if None in found:
                line.append(GAP)
            elif any(one.status == "wrong" for one in found if one is not None):
                line.append("wrong")
            else:
                line.append(" / ".join(number(one.speedup) for one in found if one is not None))
        out.append(line)
    return markdown(["matrix", "columns", *(f"{percent(level)} zeros" for level in levels)], out)


def _by_level_text(times: pd.DataFrame, code: str) -> str:
    rows = _level_rows(times, code)
    right = rows[rows["status"] == "ok"]
    parts = []
    for policy in ("hot", "cold"):
        here = right[right["policy"] == policy]
        parts.append(f"{int((here['speedup'] > 1).sum())} of {len(here)} {policy}")
    wrong = int((rows[rows["policy"] == "hot"]["status"] == "wrong").sum())
    text = f"Faster than the dense product of its own session on {' and '.join(parts)} products."
    return f"{text} On {wrong} its result was wrong." if wrong else text


def _gaps(blocks: Iterable[Block]) -> list[str]:
    """Why problems of a session are not in its comparison, each reason with those that it is true of."""
    found: dict[tuple[str, str, str], list[Block]] = {}
    for block in blocks:
        for said in _gaps_of(block):
            found.setdefault((block.match.heading, block.dtype, said), []).append(block)
    return [f"{_title(those[0], both=len(those) > 1)}: {said}" for (_, _, said), those in found.items()]


def _gaps_of(block: Block) -> Iterator[str]:
    known = block.rows[block.rows["problem"] != ""]
    if lost := len(block.rows) - len(known):
        yield f"{lost} of {len(block.rows)} problems are not recorded here."
    for at, pair in enumerate(block.match.pairs):
        if without := int(known[f"theirs{at}"].isna().sum()):
            yield f"no right result of the original ({pair.theirs}) on {without} recorded problems."
        if without := int(known[f"here{at}"].isna().sum()):
            yield f"no checked time of {_kernel(pair)} on {without} recorded problems."
    for where, rows in _undivided(block):
        yield f"no time of the dense product in {where} for {_named(rows, len(block.rows))}."


def _undivided(block: Block) -> Iterator[tuple[str, pd.DataFrame]]:
    """The recorded problems that lack one side's dense time, and in words where it should be."""
    known = block.rows[block.rows["problem"] != ""]
    for column, where in (("dense_theirs", "the original's session"), ("dense_here", f"`{block.experiment}`")):
        rows = known[known[column].isna()]
        if len(rows):
            yield where, rows


def _apart(blocks: Iterable[Block]) -> str:
    """How the two codes' times compare on problems that no dense product joins; empty where there is none.

    A verdict leaves these problems out, and they may be the ones that speak against it.
    """
    said = []
    for block in blocks:
        for _, rows in _undivided(block):
            ratios = [
                f"{_kernel(pair)} {found}" for at, pair in enumerate(block.match.pairs) if (found := _ratios(rows, at))
            ]
            if ratios:
                said.append(f"{_title(block)}, {_named(rows, len(block.rows))}: {', '.join(ratios)}")
    words = "*Left out* for want of a dense time; our time over the original's as they stand, sessions apart"
    return f"{words}: {'. '.join(said)}." if said else ""


def _ratios(rows: pd.DataFrame, at: int) -> str:
    both = rows.dropna(subset=[f"theirs{at}", f"here{at}"])
    found = both[f"here{at}"] / both[f"theirs{at}"]
    if found.empty:
        return ""
    low, high = number(found.min()), number(found.max())
    return f"{low if low == high else f'{low} to {high}'} (shorter on {int((found < 1).sum())} of {len(found)})"


def _kernel(pair: Pair) -> str:
    return f"`{pair.kernel}` ({pair.words})"


def _named(rows: pd.DataFrame, of: int) -> str:
    """How many of the problems, and which, by size and level."""
    if len(rows) == of:
        return f"all {of} problems"
    levels: dict[str, list[str]] = {}
    for row in each(rows):
        levels.setdefault(str(row.size), []).append(percent(row.sparsity).removesuffix(" %"))
    named = "; ".join(f"{size} at {', '.join(known)} % zeros" for size, known in levels.items())
    return f"{len(rows)} of {of} problems ({named})"
