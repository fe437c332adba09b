"""What rows carry beside their times: whether a run finished tuning, and the source of their pattern.

The best of some candidates is not yet the kernel's best. A problem recorded on two sources of its pattern, some kernels
on the real one and others on its calibrated stand-in, is one problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from nnzbench.kernels.registry import about, known
from nnzbench.kernels.vendor.cublas import UNPRUNED
from nnzbench.problems.problem import INTERCHANGEABLE, case_of, parse
from nnzbench.records.beside import outgrown
from nnzbench.records.record import RecordError
from nnzbench.records.selection import few

_KEY = ("problem", "dtype", "kernel", "device")


def unfinished(frame: pd.DataFrame, path: Path) -> pd.Series[bool]:
    """Of each row, whether it is a timed one of a kernel whose candidates a run did not come to the end of.

    `path` is the run's tuning.csv, one line per kernel, problem and policies that were finished; without it none is.
    """
    if not path.is_file():
        return pd.Series(False, frame.index)
    return (frame["status"] == "ok") & ~_among(frame, _by_policy(_read(path)), "policy")


def sentences(rows: pd.DataFrame) -> list[str]:
    """What is `unfinished`, by kernel: the first problem of each, and how many more."""
    problems: dict[str, dict[str, None]] = {}
    for row in rows.itertuples(index=False):
        problems.setdefault(str(row.kernel), {})[f"`{row.problem}` ({row.dtype}, {row.policy})"] = None
    return [
        f"`{kernel}` is not drawn on {few(list(found), 1)}: the run ended before its last candidate."
        for kernel, found in problems.items()
    ]


def cut_short(frame: pd.DataFrame, path: Path) -> pd.Series[str]:
    """Of each row, where the run stopped short of its kernel's candidates: `first`, `some` or empty.

    `first` after the first choices, as its time was over; `some` after as few as it was asked to try. Empty where all
    were tried or there is nothing to tune, and where no file says: such runs are of before runs could stop short. A run
    to the end that did not know a first choice of a later, shorter one counts as `some`: the kernel has more candidates
    since. One over the pruned matrix says nothing where a library multiplies by the unpruned one since.
    """
    short = pd.Series("", frame.index, dtype=str)
    if not path.is_file() or "scope" not in (table := _read(path)):
        return short
    table = table[table["kernel"].isin(frame["kernel"].unique())]
    scope = table["scope"].fillna("all")
    scopes = pd.Categorical(scope.mask(_outgrown(table, scope), "some"), ["all", "some", "first"], ordered=True)
    each_one = _by_policy(table.assign(scope=scopes)).reset_index()
    widest = each_one[~_of_superseded(each_one)].sort_values("scope").drop_duplicates([*_KEY, "policy"])
    found = _joined(frame, widest[[*_KEY, "policy", "scope"]])
    done = frame["kernel"].isin([name for name in frame["kernel"].unique() if about(name).nothing_to_tune])
    return short.mask(found.isin(["some", "first"]) & ~done, found)


def _of_superseded(table: pd.DataFrame) -> pd.Series[bool]:
    """Of each line and policy, whether the rows of its search are `selection.superseded`, by those of another."""
    if "untuned" not in table:
        return pd.Series(False, table.index)
    named = table["untuned"].fillna("").str.contains(UNPRUNED)
    here = table.assign(named=named).groupby([*_KEY, "policy"])["named"].transform("any")
    return here & ~named


def _outgrown(table: pd.DataFrame, scope: pd.Series[str]) -> pd.Series[bool]:
    """Of each line, whether its kernel, one of this suite, is `outgrown` there."""
    if "untuned" not in table:
        return pd.Series(False, table.index)
    ours = [name for name in table["kernel"].unique() if name in known() and about(name).role != "library"]
    named = table.assign(scope=scope, untuned=table["untuned"].fillna(""))
    found = outgrown(named[named["kernel"].isin(ours)].itertuples(index=False))
    return pd.Series([key in found for key in table[[*_KEY]].itertuples(index=False, name=None)], table.index, bool)


def chosen_untuned(frame: pd.DataFrame, path: Path) -> pd.Series[bool]:
    """Of each row, whether a rule, the paper or the library itself chose its variant; False where no file says."""
    table = _read(path) if path.is_file() else pd.DataFrame()
    if "untuned" not in table:
        return pd.Series(False, frame.index)
    named = table.dropna(subset=["untuned"])
    return _among(frame, named.assign(variant=named["untuned"].str.split()).explode("variant"), "variant")


def _by_policy(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(policy=table["policies"].str.split("+")).explode("policy")


def _among(frame: pd.DataFrame, table: pd.DataFrame, column: str) -> pd.Series[bool]:
    """Of each row, whether the table has its problem, dtype, kernel and device with its value of the column."""
    return _joined(frame, table[[*_KEY, column]].drop_duplicates().assign(known=True)).notna()


def _joined(frame: pd.DataFrame, table: pd.DataFrame) -> pd.Series[Any]:
    """The table's last column at the row that agrees in the others; NaN where none does."""
    *key, value = table.columns
    return frame[key].merge(table, how="left")[value].set_axis(frame.index)


def _read(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_csv(path, dtype=dict.fromkeys((*_KEY, "policies", "scope", "untuned"), str))
        missing = [name for name in (*_KEY, "policies", "seconds") if name not in table]
    except ValueError as error:
        raise RecordError(f"{path}: not a tuning table ({error})") from None
    if missing:
        raise RecordError(f"{path}: not a tuning table (column '{missing[0]}' is missing)")
    return table


STANDIN = "standin"


def joined(frame: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """`frame` with a stand-in's rows under the name of the real pattern recorded beside it, and sentences on them.

    Each row keeps its own `source`. Where a kernel was recorded on both, as by a run that was resumed once the real
    patterns were at hand, its rows on the stand-in are left out: a product's time is of one pattern.
    """
    named = frame[["problem", "kernel"]].drop_duplicates().sort_values("problem")
    kernels: dict[str, set[str]] = {}
    for problem, kernel in zip(named["problem"], named["kernel"], strict=True):
        kernels.setdefault(str(problem), set()).add(str(kernel))
    real = {case_of(name): name for name in kernels if _kind(name) in INTERCHANGEABLE - {STANDIN}}
    names = {name: real[case_of(name)] for name in kernels if _kind(name) == STANDIN and case_of(name) in real}
    if not names:
        return frame, ()
    twice = [
        problem in names and kernel in kernels[names[problem]]
        for problem, kernel in zip(frame["problem"], frame["kernel"], strict=True)
    ]
    kept = frame[[not one for one in twice]]
    return kept.assign(problem=kept["problem"].replace(names)), (*_beside(kept, names), *_left_out(frame[twice]))


def _beside(rows: pd.DataFrame, names: Mapping[str, str]) -> Iterator[str]:
    rows = rows[rows["problem"].isin(names)]
    if len(rows):
        who = ", ".join(f"`{kernel}`" for kernel in sorted(set(rows["kernel"])))
        yield (
            f"On {_counted(rows)} the times of {who} are of a calibrated stand-in for the pattern; the other kernels' "
            "are of the real one."
        )


def _left_out(rows: pd.DataFrame) -> Iterator[str]:
    if len(rows):
        yield (
            f"On {_counted(rows)} rows on a calibrated stand-in are left out ({len(rows)}): the same kernels are "
            "recorded on the real pattern."
        )


def _counted(rows: pd.DataFrame) -> str:
    count = rows["problem"].nunique()
    return "one problem" if count == 1 else f"{count} problems"


def _kind(name: str) -> str:
    parts = parse(name)
    return parts.kind if parts else ""
