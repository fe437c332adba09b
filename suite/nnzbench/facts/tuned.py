"""Which kernels a run finished tuning: the best of some candidates is not yet the kernel's best."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from nnzbench.kernels.registry import about
from nnzbench.records.record import Record, RecordError

_KEY = ("problem", "dtype", "kernel", "device")


def split(records: Sequence[Record], path: Path) -> tuple[list[Record], list[Record]]:
    """The rows that count, and the timed ones of kernels whose candidates a run did not come to the end of.

    `path` is the run's tuning.csv, one line per kernel, problem and policies that were finished; without it all count.
    """
    if not path.is_file():
        return list(records), []
    table = _read(path)
    finished = {
        (*key, policy)
        for *key, policies in table[[*_KEY, "policies"]].itertuples(index=False)
        for policy in str(policies).split("+")
    }
    kept: list[Record] = []
    unfinished: list[Record] = []
    for record in records:
        key = (*_key(record), record.policy)
        (unfinished if record.status == "ok" and key not in finished else kept).append(record)
    return kept, unfinished


def sentences(unfinished: Sequence[Record]) -> list[str]:
    """What `split` set aside, by kernel."""
    problems: dict[str, dict[str, None]] = {}
    for record in unfinished:
        problems.setdefault(record.kernel, {})[f"`{record.problem}` ({record.dtype}, {record.policy})"] = None
    return [
        f"`{kernel}` is not drawn on {', '.join(found)}: the run ended before its last candidate."
        for kernel, found in problems.items()
    ]


def cut_short(records: Sequence[Record], path: Path) -> list[str]:
    """Of each record, where the run stopped short of its kernel's candidates: `first`, `some` or empty.

    `first` after the first choices, as its time was over; `some` after as few as it was asked to try. Empty where all
    were tried or there is nothing to tune, and where no file says: such runs are of before runs could stop short.
    """
    if not path.is_file() or "scope" not in (table := _read(path)):
        return [""] * len(records)
    scopes: dict[tuple[str, ...], set[str]] = {}
    for *key, policies, scope in table[[*_KEY, "policies", "scope"]].fillna("all").itertuples(index=False):
        for policy in str(policies).split("+"):
            scopes.setdefault((*key, policy), set()).add(scope)
    return [
        "" if about(record.kernel).nothing_to_tune else _short_of_all(scopes.get((*_key(record), record.policy), set()))
        for record in records
    ]


def _short_of_all(scopes: set[str]) -> str:
    return "" if "all" in scopes else "some" if "some" in scopes else "first" if "first" in scopes else ""


def _key(record: Record) -> tuple[str, str, str, str]:
    return (record.problem, record.dtype, record.kernel, record.device)


def chosen_untuned(records: Sequence[Record], path: Path) -> list[bool]:
    """Of each record, whether a rule, the paper or the library itself chose its variant; False where no file says."""
    table = _read(path) if path.is_file() else pd.DataFrame()
    if "untuned" not in table:
        return [False] * len(records)
    named = {
        (*key, variant)
        for *key, variants in table[[*_KEY, "untuned"]].dropna().itertuples(index=False)
        for variant in str(variants).split()
    }
    return [(*_key(record), record.variant) in named for record in records]


def seconds(path: Path, device: str) -> dict[str, float]:
    """Wall-clock seconds spent on each kernel's candidates."""
    if not path.is_file():
        return {}
    table = _read(path)
    found = table[table["device"] == device].groupby("kernel")["seconds"].sum()
    return {str(kernel): float(value) for kernel, value in found.items()}


def _read(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_csv(path, dtype=dict.fromkeys((*_KEY, "policies", "scope"), str))
        missing = [name for name in (*_KEY, "policies", "seconds") if name not in table]
    except ValueError as error:
        raise RecordError(f"{path}: not a tuning table ({error})") from None
    if missing:
        raise RecordError(f"{path}: not a tuning table (column '{missing[0]}' is missing)")
    return table
