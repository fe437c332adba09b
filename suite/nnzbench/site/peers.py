"""Original codes beside this suite's kernels on the same problems, from `datasets/peers` and the records.

The two were timed in different sessions, so a time of one over a time of the other says little: what is compared is how
many times as fast as the dense product of its own session each is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from nnzbench import paths
from nnzbench.facts.results import each, geometric_mean, load, size_of
from nnzbench.kernels.roles import Role
from nnzbench.problems.names import stem_of
from nnzbench.records.files import has_records
from nnzbench.records.record import RecordError
from nnzbench.report.data.series import Series, pick_under
from nnzbench.report.text import marks

AS_GOOD = 0.95
"""A reimplementation is as good as its original from this share of the original's speed-up on."""
LEVEL_TOLERANCE = 0.006
"""Counted sparsities of generated patterns are this near the level they were asked for."""

CODES = ("code", "name", "of", "repository", "commit", "repairs", "note")
SESSIONS = ("session", "gpu", "driver", "cuda", "date", "timing", "patterns")
TIMES = (
    "session", "label", "op", "m", "k", "n", "shape", "dtype", "sparsity", "source", "code", "choice", "math", "policy",
    "status", "median_us",
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """One choice of an original code and the kernel of this suite that answers to it."""

    choice: str
    """Of `times.csv`; empty for the fastest of all."""
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
    """Whether the records' patterns may be others than the session's."""
    caveat: str = ""


_SPUTNIK = (
    Pair("heuristic", "the library's own choice", "sputnik", "heuristic", "the paper's rule for the tile"),
    Pair("oracle", "its fastest tile", "sputnik", "", "the fastest tile"),
)
_SPARSERT = (Pair("tuned", "the fastest found", "sparsert_paper", "", "the paper's tilings, searched"),)
_DIRECT = (
    Pair("kernel only", "its kernel alone", "direct_conv", r"paper_sbs[248]$", "the paper's algorithm, best sub-batch"),
)

_ONE_LAYOUT = (
    "The original's session has cuBLAS at its default, with B laid out as the sparse code wants it; this suite's is "
    "the fastest of all layouts."
)

MATCHES = (
    Match("Sputnik on real pruned layers", "sputnik", "table1_real", ("sparsert_table1",), _SPUTNIK),
    Match("Sputnik on uniform patterns", "sputnik", "table1", ("sparsert_table1/uniform",), _SPUTNIK),
    Match("Sputnik on recurrent layers", "sputnik", "rnn", ("sputnik_rnn",), _SPUTNIK),
    Match(
        "SparseRT's products",
        "sparsert",
        "table1",
        ("sparsert_table1", "sparsert_ablation"),
        _SPARSERT,
        any_pattern=True,
        caveat="The original ran on uniform patterns and this suite on real ones, which at the levels called 90 and "
        "95 % have 90 to 91 and 95 to 96 % zeros; the original tried 1 to 12 tilings per problem, this suite the "
        "paper's grid.",
    ),
    Match(
        "SparseRT's 3x3 convolutions",
        "sparsert",
        "table3",
        ("sparsert_table3",),
        (Pair("tuned", "the fastest found", "sparsert_conv_paper", "", "the paper's convolution, searched"),),
        dense="cudnn",
        caveat="The original's session has cuDNN in torch's benchmark mode, this suite every engine of cuDNN.",
    ),
    Match(
        "Escoin's direct convolution",
        "escoin",
        "table6",
        ("direct_conv_table6",),
        _DIRECT,
        dense="cudnn",
        caveat="Escoin is the method that the paper extends, not the paper's own code, which is not public. Its "
        "session has cuDNN through torch, this suite every engine of cuDNN.",
    ),
    Match(
        "Flash-LLM's products",
        "flash_llm",
        "llm_flash_llm",
        ("llm_layers",),
        (Pair("", "its fastest split of K", "flash_llm", "", "the fastest split of K"),),
        caveat=_ONE_LAYOUT,
    ),
    Match(
        "SpInfer's products",
        "spinfer",
        "llm_spinfer",
        ("llm_layers",),
        (Pair("", "its fastest split of K", "spinfer", "", "the fastest split of K"),),
        caveat=_ONE_LAYOUT,
    ),
    Match(
        "nmSPARSE's balanced products",
        "nmsparse",
        "balanced",
        ("balanced_figure4",),
        (Pair("best launch options", "best launch options", "balanced", "paper", "the paper's kernel"),),
        caveat="nmSPARSE came after the paper, whose authors published no code: it is a descendant to beat, not the "
        "original.",
    ),
)


def read() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Codes, sessions and times of `datasets/peers`.

    Raises `RecordError` where a file or column is missing, a time names a code or session that is not listed, or a
    row has a time without being right.
    """
    codes, sessions, times = (
        _table(name, columns) for name, columns in (("codes", CODES), ("sessions", SESSIONS), ("times", TIMES))
    )
    times["median_us"] = pd.to_numeric(times["median_us"].replace("", math.nan))
    for column in ("m", "k", "n", "sparsity"):
        times[column] = pd.to_numeric(times[column])
    for column, known in (("code", codes["code"]), ("session", sessions["session"])):
        unknown = sorted(set(times[column]) - set(known))
        if unknown:
            raise RecordError(f"datasets/peers/times.csv, column '{column}': '{unknown[0]}' is not listed")
    if ((times["status"] == "ok") != times["median_us"].notna()).any():
        raise RecordError("datasets/peers/times.csv: a row has a time exactly where its status is 'ok'")
    return codes, sessions, times


def _table(name: str, columns: Sequence[str]) -> pd.DataFrame:
    path = paths.datasets() / "peers" / f"{name}.csv"
    if not path.is_file():
        raise RecordError(f"{path}: the times of the original codes are missing")
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    if tuple(frame.columns) != tuple(columns):
        raise RecordError(f"{path}: the columns must be {', '.join(columns)}")
    return frame


@dataclass(frozen=True)
class Block:
    """One session's problems in one dtype under one policy."""

    match: Match
    experiment: str
    """Whose records stand beside the session."""
    dtype: str
    policy: str
    rows: pd.DataFrame
    """Per problem: label, size, sparsity, `dense_theirs`, `dense_here`, per pair `theirs<i>`, `here<i>`, and `own`."""
    cut: frozenset[tuple[str, str]]
    """Columns and problems of those times of this suite that are of kernels which were not tuned there."""


_PROBLEM = ("source", "m", "k", "n", "shape", "sparsity")
"""What names one problem of a session."""
_SOUGHT = ("problem", "dtype", "op", "m", "k", "n", "shape", "sparsity", "source")
"""What a recorded problem is known by."""


def blocks_of(folder: Path, match: Match, times: pd.DataFrame) -> list[Block]:
    """The problems of a match's session beside the records below `folder`, a block per dtype and policy."""
    here = times[times["session"] == match.session]
    mine = here[here["code"] == match.code]
    experiment, recorded = _recorded(folder, match)
    known = [] if recorded is None else list(each(recorded.drop_duplicates(list(_SOUGHT))[list(_SOUGHT)]))
    found = []
    for (dtype, policy), group in mine.groupby(["dtype", "policy"], sort=False):
        problems = list(each(group.drop_duplicates(["label", *_PROBLEM])))
        dense = here[(here["code"] == match.dense) & (here["math"] == dtype) & (here["policy"] == policy)]
        names = [_same(match, problem, [one for one in known if one.dtype == dtype]) for problem in problems]
        rows = {
            "problem": [name or "" for name in names],
            "label": [problem.label for problem in problems],
            "size": [size_of(problem) for problem in problems],
            "sparsity": [problem.sparsity for problem in problems],
            "source": [problem.source for problem in problems],
            "dtype": dtype,
            "policy": policy,
            "dense_theirs": _fastest(dense, problems),
        }
        ours = {"dense_here": _series(str(dtype), "library", match.dense)}
        for at, pair in enumerate(match.pairs):
            ours[f"here{at}"] = _series(str(dtype), "paper", pair.kernel, pair.variants)
        ours["own"] = _series(str(dtype), "own")
        rows["dense_here"] = _ours(recorded, names, str(policy), ours["dense_here"])
        for at, pair in enumerate(match.pairs):
            chosen = group[group["choice"] == pair.choice] if pair.choice else group
            rows[f"theirs{at}"] = _fastest(chosen, problems)
            rows[f"here{at}"] = _ours(recorded, names, str(policy), ours[f"here{at}"])
        rows["own"] = _ours(recorded, names, str(policy), ours["own"])
        cut = frozenset(
            (column, name) for column, one in ours.items() for name in _cut(recorded, names, str(policy), one)
        )
        found.append(Block(match, experiment, str(dtype), str(policy), pd.DataFrame(rows), cut))
    return found


def _recorded(folder: Path, match: Match) -> tuple[str, pd.DataFrame | None]:
    """The records that have the kernels asked for, else the first that there are."""
    there = [name for name in match.experiments if has_records(folder / name)]
    frames = {name: load(folder / name).frame for name in there}
    kernels = {pair.kernel for pair in match.pairs}
    chosen = next((name for name in there if kernels & set(frames[name]["kernel"])), (there or match.experiments)[0])
    return chosen, frames.get(chosen)


def _series(dtype: str, role: Role, kernel: str = "", variants: str = "") -> Series:
    """The rows of that role; of any kernel for none."""
    return Series("", "", (kernel,) if kernel else (), dtype, variants, frozenset({role}))


def _ours(recorded: pd.DataFrame | None, names: Sequence[str | None], policy: str, series: Series) -> list[float]:
    """The time of the fastest row on each recorded problem."""
    if recorded is None:
        return [math.nan] * len(names)
    found = pick_under(recorded, policy, series)["median_us"].to_dict()
    return [float(found.get(name, math.nan)) for name in names]


def _cut(recorded: pd.DataFrame | None, names: Sequence[str | None], policy: str, series: Series) -> set[str]:
    """Of the recorded problems, those on which a kernel that competes was not tuned."""
    if recorded is None:
        return set()
    stems = {one.problem for one in marks.cuts(recorded, series).get(policy, ())}
    return {name for name in names if name and stem_of(name) in stems}


def _fastest(rows: pd.DataFrame, problems: Sequence[Any]) -> list[float]:
    """The fastest of several layouts on each of those very problems."""
    found = rows.groupby(list(_PROBLEM), sort=False)["median_us"].min().to_dict()
    return [float(found.get(tuple(getattr(problem, name) for name in _PROBLEM), math.nan)) for problem in problems]


def _same(match: Match, problem: Any, recorded: Sequence[Any]) -> str | None:
    """The recorded problem of the same sizes and pattern (or, where any will do, of the same level)."""

    def is_it(one: Any) -> bool:
        if (one.op, one.m, one.k, one.n) != (problem.op, problem.m, problem.k, problem.n):
            return False
        if problem.shape and one.shape != problem.shape:
            return False
        away = abs(one.sparsity - problem.sparsity)
        if match.any_pattern:
            return bool(away <= 0.015)
        if problem.source.startswith(("dlmc:", "weights:")):
            return bool(one.source == problem.source)
        return bool(one.source.startswith(problem.source.partition(":")[0]) and away <= LEVEL_TOLERANCE)

    return next((str(one.problem) for one in recorded if is_it(one)), None)


@dataclass(frozen=True)
class Answer:
    """What one pair of a block says, over the problems that have all four times."""

    theirs: float
    """Geometric mean of the dense time over the original's, both of the original's session."""
    here: float
    """The same of this suite's kernel in its own run."""
    dense: float
    """Geometric mean of this run's dense time over the session's: how far the two can be compared at all."""
    have: int
    of: int

    faster: int
    """Problems on which this suite's time is the smaller one, sessions apart."""
    on: frozenset[str] = frozenset()
    """The recorded problems."""

    @property
    def verdict(self) -> str:
        """One word, which must hold through the dense products as from the times as they stand."""
        if not self.have:
            return "not known"
        gain = self.here / self.theirs
        words = {_compared(gain), _compared(gain / self.dense)}
        return words.pop() if len(words) == 1 else "not settled"


def _compared(gain: float) -> str:
    return "better" if gain > 1 / AS_GOOD else "as good" if gain >= AS_GOOD else "worse"


def answer(rows: pd.DataFrame, pair: int) -> Answer:
    """Compares one pair on the problems of a block."""
    full = rows.dropna(subset=["dense_theirs", "dense_here", f"theirs{pair}", f"here{pair}"])
    if full.empty:
        return Answer(math.nan, math.nan, math.nan, 0, len(rows), 0)
    return Answer(
        geometric_mean(full["dense_theirs"] / full[f"theirs{pair}"]),
        geometric_mean(full["dense_here"] / full[f"here{pair}"]),
        geometric_mean(full["dense_here"] / full["dense_theirs"]),
        len(full),
        len(rows),
        int((full[f"here{pair}"] < full[f"theirs{pair}"]).sum()),
        frozenset(full["problem"]),
    )
