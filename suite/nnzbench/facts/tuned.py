"""Which kernels a run finished tuning: the best of some candidates is not yet the kernel's best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from nnzbench.kernels.registry import about
from nnzbench.records.record import RecordError

_KEY = ("problem", "dtype", "kernel", "device")


def unfinished(frame: pd.DataFrame, path: Path) -> pd.Series[bool]:
    """Of each row, whether it is a timed one of a kernel whose candidates a run did not come to the end of.

    `path` is the run's tuning.csv, one line per kernel, problem and policies that were finished; without it none is.
    """
    if not path.is_file():
        return pd.Series(False, frame.index)
    return (frame["status"] == "ok") & ~_among(frame, _by_policy(_read(path)), "policy")


def sentences(rows: pd.DataFrame) -> list[str]:
    """What is `unfinished`, by kernel."""
    problems: dict[str, dict[str, None]] = {}
    for row in rows.itertuples(index=False):
        problems.setdefault(str(row.kernel), {})[f"`{row.problem}` ({row.dtype}, {row.policy})"] = None
    return [
        f"`{kernel}` is not drawn on {', '.join(found)}: the run ended before its last candidate."
        for kernel, found in problems.items()
    ]


def cut_short(frame: pd.DataFrame, path: Path) -> pd.Series[str]:
    """Of each row, where the run stopped short of its kernel's candidates: `first`, `some` or empty.

    `first` after the first choices, as its time was over; `some` after as few as it was asked to try. Empty where all
    were tried or there is nothing to tune, and where no file says: such runs are of before runs could stop short.
    """
    short = pd.Series("", frame.index, dtype=str)
    if not path.is_file() or "scope" not in (table := _read(path)):
        return short
    scopes = pd.Categorical(table["scope"].fillna("all"), ["all", "some", "first"], ordered=True)
    widest = _by_policy(table.assign(scope=scopes)).sort_values("scope").drop_duplicates([*_KEY, "policy"])
    found = _joined(frame, widest[[*_KEY, "policy", "scope"]])
    done = frame["kernel"].isin([name for name in frame["kernel"].unique() if about(name).nothing_to_tune])
    return short.mask(found.isin(["some", "first"]) & ~done, found)


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


def seconds(path: Path, device: str) -> dict[str, float]:
    """Wall-clock seconds spent on each kernel's candidates."""
    if not path.is_file():
        return {}
    table = _read(path)
    found = table[table["device"] == device].groupby("kernel")["seconds"].sum()
    return {str(kernel): float(value) for kernel, value in found.items()}


def _read(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_csv(path, dtype=dict.fromkeys((*_KEY, "policies", "scope", "untuned"), str))
        missing = [name for name in (*_KEY, "policies", "seconds") if name not in table]
    except ValueError as error:
        raise RecordError(f"{path}: not a tuning table ({error})") from None
    if missing:
        raise RecordError(f"{path}: not a tuning table (column '{missing[0]}' is missing)")
    return table
