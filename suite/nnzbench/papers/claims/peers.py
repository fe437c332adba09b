"""The authors' codes beside this suite's kernels on the same problems, from `datasets/peers` and the records.

The two were timed in different sessions, so a time of one over a time of the other says little: what is compared is how
many times as fast as the dense product of its own session each is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd

from nnzbench.core import paths
from nnzbench.kernels.registry import Role
from nnzbench.results import table
from nnzbench.results.data import Data
from nnzbench.results.result_set import each, size_of
from nnzbench.results.selector import Selector

AS_GOOD = 0.95
"""A reimplementation is as good as its original from this share of the original's speed-up on."""
LEVEL_TOLERANCE, ANY_TOLERANCE = 0.006, 0.015
"""Counted sparsities of generated patterns are this near the level they were asked for; where any pattern will do."""


@dataclass(frozen=True)
class Pair:
    """One choice of an original code and the kernel of this suite that answers to it."""

    choice: str
    """Of `times.csv.gz`; empty for the fastest of all."""
    theirs: str
    """That choice in words."""
    kernel: str
    variants: str
    """Pattern at the start of a variant's name; rows of the paper's role alone are asked."""
    words: str


@dataclass(frozen=True)
class Match:
    """One session of an original code and the recorded experiment with the same problems."""

    heading: str
    code: str
    session: str
    experiments: tuple[str, ...]
    """Folders of records below the GPU's; the first that has the kernel counts."""
    pairs: tuple[Pair, ...]
    dense: str = "cublas"
    any_pattern: bool = False
    """Whether the records' patterns may be others than the session's, where none are the same."""
    alike: tuple[str, ...] = ()
    """Experiments with matrices of the session's kind, none of which it has."""
    authors: bool = True
    """Whether the code is of the authors of the paper whose kernel answers to it."""
    caveat: str = ""


def _matches() -> tuple[Match, ...]:
    """Those of `matches.csv`, a line for each pair; lines of one heading follow each other."""
    lines = pd.read_csv(paths.datasets() / "peers" / "matches.csv", dtype=str, keep_default_na=False)
    found = []
    for _, some in lines.groupby("heading", sort=False):
        of_pairs = some[[field.name for field in fields(Pair)]].itertuples(index=False, name=None)
        one, pairs = next(each(some)), tuple(Pair(*pair) for pair in of_pairs)
        known, alike, any_pattern = tuple(one.experiments.split()), tuple(one.alike.split()), bool(one.any_pattern)
        told = one.heading, one.code, one.session, known, pairs, one.dense, any_pattern, alike
        found.append(Match(*told, authors=bool(one.authors), caveat=one.caveat))
    return tuple(found)


MATCHES = _matches()


def read() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Codes, sessions and times of `datasets/peers`."""
    kinds = defaultdict(lambda: str, m=int, k=int, n=int, sparsity=float, median_us=float)
    empty, folder = {"median_us": [""]}, paths.datasets() / "peers"
    codes, sessions, times = (
        pd.read_csv(folder / name, dtype=kinds, keep_default_na=False, na_values=empty)
        for name in ("codes.csv", "sessions.csv", "times.csv.gz")
    )
    return codes, sessions, times


@dataclass(frozen=True)
class Block:
    """One session's problems in one dtype under one policy."""

    match: Match
    experiment: str
    """Whose records stand beside the session."""
    dtype: str
    policy: str
    rows: pd.DataFrame
    """Per problem: label, size, sparsity, µs `dense_theirs`, `dense_here`, per pair `theirs<i>`, `here<i>`, and `own`;
    `<column>_tuned` of those of this suite."""
    session: pd.DataFrame
    """The session's times of all codes on these problems, `at` the place of each in `rows`."""

    @property
    def title(self) -> str:
        """Its heading with what differs from others below it."""
        words = {"f16": "fp16", "cold": "cold", "stream": "streamed"}
        return ", ".join(filter(None, (self.match.heading, words.get(self.dtype), words.get(self.policy))))

    def fastest(self, code: str, choice: str = "", math_class: str = "") -> pd.Series[float]:
        """The least time of a code of the session on each problem of `rows`; of one choice, or of all."""
        here = self.session[(self.session["code"] == code) & (self.session["math"] == (math_class or self.dtype))]
        here = here[here["choice"] == choice] if choice else here
        return here.groupby("at")["median_us"].min().reindex(self.rows.index)


_PROBLEM = ["source", "m", "k", "n", "shape", "sparsity"]
"""What names one problem of a session."""
_SOUGHT = ["problem", "dtype", "op", "m", "k", "n", "shape", "sparsity", "source"]
"""What a recorded problem is known by."""


def blocks_of(recorded: Callable[[str], Data | None], match: Match, times: pd.DataFrame) -> list[Block]:
    """The problems of a match's session beside the experiments `recorded`, a block per dtype and policy."""
    here = times[times["session"] == match.session]
    mine = here[here["code"] == match.code]
    experiment, data = _recorded(recorded, match)
    known = [] if data is None else list(each(data.frame.drop_duplicates(_SOUGHT)[_SOUGHT]))
    found = []
    for (dtype, policy), group in mine.groupby(["dtype", "policy"], sort=False):
        asked = group.drop_duplicates(["label", *_PROBLEM])
        problems = list(each(asked))
        names = _names(match, problems, [one for one in known if one.dtype == dtype])
        session = here[here["policy"] == policy].merge(asked[_PROBLEM].assign(at=range(len(asked))), on=_PROBLEM)
        rows = asked.reset_index(drop=True).assign(problem=names, size=[size_of(one) for one in problems])
        told = ["problem", "label", "size", "sparsity", "source", "dtype", "policy"]
        block = Block(match, experiment, str(dtype), str(policy), rows[told].copy(), session)
        block.rows["dense_theirs"] = block.fastest(match.dense)
        ours = {"dense_here": _selector(str(dtype), "library", match.dense), "own": _selector(str(dtype), "own")}
        for at, pair in enumerate(match.pairs):
            block.rows[f"theirs{at}"] = block.fastest(match.code, pair.choice)
            ours[f"here{at}"] = _selector(str(dtype), "paper", pair.kernel, pair.variants)
        for column, one in ours.items():
            block.rows[column], block.rows[f"{column}_tuned"] = _ours(data, names, str(policy), one)
        found.append(block)
    return found


def _recorded(recorded: Callable[[str], Data | None], match: Match) -> tuple[str, Data | None]:
    """The records that have the kernels asked for, else the first that there are."""
    there = {name: data for name in match.experiments if (data := recorded(name)) is not None}
    kernels = {pair.kernel for pair in match.pairs}
    having = [name for name, data in there.items() if kernels & set(data.frame["kernel"])]
    chosen = (having or list(there) or match.experiments)[0]
    return chosen, there.get(chosen)


def _selector(dtype: str, role: Role, kernel: str = "", variants: str = "") -> Selector:
    """The rows of that role; of any kernel for none."""
    return Selector(kernel or role, (kernel,) if kernel else (), dtype, variants, frozenset({role}))


def _ours(data: Data | None, names: Sequence[str], policy: str, one: Selector) -> tuple[Any, Any]:
    """The time of the fastest row on each recorded problem, and whether all that competes for it was tuned."""
    rows = data.times(one) if data else pd.DataFrame(columns=["problem", "policy", "median_us", "tuned"])
    here = rows[rows["policy"] == policy].set_index("problem").reindex([*names])
    return here["median_us"].to_numpy(float), here["tuned"].ne(False).to_numpy()


def _names(match: Match, problems: Sequence[Any], recorded: Sequence[Any]) -> list[str]:
    """For each the recorded problem of that very pattern, else (where any will do) of its sizes and level, or none."""
    found = [_same(problem, recorded, any_pattern=False) for problem in problems]
    if match.any_pattern:
        left = [one for one in recorded if one.problem not in found]
        found = [name or _same(one, left, any_pattern=True) for name, one in zip(found, problems, strict=True)]
    return found


def _same(problem: Any, recorded: Sequence[Any], any_pattern: bool) -> str:
    kind = problem.source.partition(":")[0]

    def is_it(one: Any) -> bool:
        away = abs(one.sparsity - problem.sparsity)
        if any_pattern:
            alike = away <= ANY_TOLERANCE
        elif kind in ("dlmc", "weights", "standin"):
            alike = one.source == problem.source
        else:  # of generated ones every seed is the same pattern
            alike = one.source.startswith(problem.source if kind == "vnm" else kind) and away <= LEVEL_TOLERANCE
        sizes = (one.op, one.m, one.k, one.n) == (problem.op, problem.m, problem.k, problem.n)
        return bool(alike and sizes and problem.shape in ("", one.shape))

    return next((str(one.problem) for one in recorded if is_it(one)), "")


def facts_of(block: Block, at: int) -> pd.DataFrame:
    """The facts of one pair of a block, with their `kind`; all but `plain` are over the problems that have all times.

    `theirs`: the original over the dense product of its session; `here`: ours over that of its run; `dense`: the dense
    product here over there; `gain`: ours over the original through the dense products; `plain` and `paired`: as the
    times stand, sessions apart, on all problems and on those that are compared.
    """
    rows, pair = block.rows, block.match.pairs[at]
    full = rows.dropna(subset=["dense_theirs", "dense_here", f"theirs{at}", f"here{at}"])
    theirs, ours = f"original, {pair.theirs}", f"{pair.kernel}, {pair.words}"
    sides = {
        "theirs": (full, theirs, "dense product of its session", f"theirs{at}", "dense_theirs"),
        "here": (full, ours, "dense product of its run", f"here{at}", "dense_here"),
        "dense": (full, "dense product of the session", "dense product of the run", "dense_theirs", "dense_here"),
        "plain": (rows, ours, f"{theirs}, sessions apart", f"here{at}", f"theirs{at}"),
        "paired": (full, ours, f"{theirs}, sessions apart, where dense times are known", f"here{at}", f"theirs{at}"),
    }
    pairs = {
        kind: some.assign(
            kind=kind, subject=subject, baseline=baseline, us=some[us], over_us=some[over], printed=math.nan,
            tuned=some[[name for name in (f"{us}_tuned", f"{over}_tuned") if name in some]].all(axis=1),
        )
        for kind, (some, subject, baseline, us, over) in sides.items()
    }  # fmt: skip
    speed = {kind: table.divide(pairs[kind])["ratio"] for kind in ("theirs", "here")}
    baseline = f"{theirs}, each over the dense product beside it"
    gain = pairs["here"].assign(kind="gain", baseline=baseline, us=speed["theirs"], over_us=speed["here"])
    every = pd.concat([*pairs.values(), gain]).assign(
        experiment=block.experiment, group=block.title, one_run=lambda rows: rows["kind"].isin(["theirs", "here"])
    )
    kinds = every.drop_duplicates(table.KEY)[[*table.KEY, "kind"]]
    return table.facts_of_pairs(every).merge(kinds, on=table.KEY)


def verdict(facts: pd.DataFrame) -> str:
    """One word on a pair, which must hold through the dense products as from the times as they stand."""
    ratio = facts.set_index("kind")["ratio"].to_dict()
    if "gain" not in ratio:
        return "not known"
    gains = ratio["gain"], ratio["paired"]
    words = {"better" if gain > 1 / AS_GOOD else "as good" if gain >= AS_GOOD else "worse" for gain in gains}
    return words.pop() if len(words) == 1 else "not settled"
