"""Records to a data frame with what reports derive from them. Refuses files it can't trust, naming the place."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from nnzbench.core.gpus import Peaks, peaks_of
from nnzbench.data.problems.problem import INTERCHANGEABLE, DType, case_of, stem_of
from nnzbench.results.records import sanitise
from nnzbench.results.records.beside import ENVIRONMENTS, MEMORY, beside
from nnzbench.results.records.folder import records_file, refuse_links
from nnzbench.results.records.record import KEY, RecordError, frame_of, place
from nnzbench.results.records.selection import CONTEST, fastest, few, superseded
from nnzbench.results.roofline import recorded_us, sol_score

PRODUCTS = ("cublas", "cublaslt")
"""Dense libraries that multiply by the matrix before pruning, too."""
GPU_DEVICES = ("cupy", "pycuda", "cuda-core")
"""Devices whose times count as performance, the preferred one first."""
STANDIN = "standin"


_WORK = [
    "experiment", "problem", "op", "m", "k", "n", "shape", "dtype", "sparsity", "nnz", "source", "kernel", "variant",
    "policy", "math", "flops", "bytes", "limit_us", "environment",
]  # fmt: skip
"""What a row's roofline follows from."""


@dataclass(frozen=True)
class ResultSet:
    """One experiment on one GPU: the rows that count, and what was left out."""

    folder: Path
    experiment: str
    gpu: str
    recorded: pd.DataFrame
    """Every row of the file."""
    frame: pd.DataFrame
    """The rows that count: of `device`, of kernels whose tuning was finished, the fastest of each selected.

    `limit_us` is `roofline.recorded_us`. Added are `math`, `role` (`kernel.role_of`), `limit_share`, `gflops`, and
    `memory_bytes`, the device memory that the row's candidate took at most where it was measured; `untuned`
    (a rule, the paper or the library itself chose its variant) and `cut_short` (`first` or `some` of its kernel's
    candidates were tried, see `Record.search`; else empty); `superseded` (`selection.superseded`); `sol`
    (`roofline.sol_score` over the fastest dense library in the row's arithmetic; NaN without one). Rows of a stand-in
    are those of the real pattern's problem (`_joined`), and each has a `stem` and a `case` (`problem.stem_of`,
    `case_of`)."""
    device: str
    left_out: tuple[str, ...]
    """Sentences on rows that are not drawn, or are of other patterns than those beside them."""
    environment: dict[str, Any]
    """That of the last row."""
    environments: tuple[tuple[str, int, dict[str, Any]], ...]
    """File name, rows recorded under it, and content, of every environment."""


def geometric_mean(values: Iterable[float]) -> float:
    """exp of the mean logarithm; NaN for no values. Values must be above zero."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs)) if logs else math.nan


def percent(level: float) -> str:
    """A sparsity level as text: `90 %`, `87.5 %`."""
    return f"{100 * level:.4g} %"


def each(frame: pd.DataFrame) -> Iterator[Any]:
    """The rows of a frame with its columns as attributes."""
    yield from frame.itertuples(index=False)


def size_of(problem: Any) -> str:
    """A problem's size in words: `64×256×3136`, or for a convolution `56×56, 64→64` with its batch and filter."""
    found = re.match(r"n(\d+)_c(\d+)_h(\d+)_w(\d+)_d(\d+)_r(\d+)_s(\d+)", str(getattr(problem, "shape", "")))
    if found is None:
        return f"{problem.m}×{problem.k}×{problem.n}"
    batch, channels, height, width, filters, r, s = found.groups()
    images = "" if batch == "1" else f"{batch}×"
    return f"{images}{height}×{width}, {channels}→{filters}, {r}×{s}"


def load(folder: Path) -> ResultSet:
    """Reads the records and the environment in `folder`, which must hold one experiment on one GPU.

    Raises `RecordError` naming file, line (of Parquet: row) and column for anything that breaks the schema, a line cut
    off, a row twice, a second variant selected for one kernel, or rows of another experiment or GPU, and for a link or
    an `environment` cell that leads out of the folder.

    Pages, claims and comparisons all start here, so files that did not change are read once: leave the result as it is.
    """
    path = records_file(folder)
    files = [path, *beside(folder)]
    refuse_links(folder, *files)
    states = [(one.name, one.stat()) for one in files if one.is_file()]
    return _load(path, tuple((name, state.st_ino, state.st_mtime_ns, state.st_size) for name, state in states))


@functools.cache
def _load(path: Path, _state: tuple[tuple[str, int, int, int], ...]) -> ResultSet:
    folder = path.parent
    recorded = sanitise.read(path)
    if recorded.empty:
        raise RecordError(f"{path}: there is a header and no row")
    _check(path, recorded)
    ranks = {name: at for at, name in enumerate(GPU_DEVICES)}
    devices = sorted(recorded["device"].unique(), key=lambda one: (ranks.get(one, len(ranks)), one))
    kept = recorded if len(devices) == 1 else recorded[recorded["device"] == devices[0]]
    unfinished = (kept["status"] == "ok") & (kept["search"] == "")
    left = kept[unfinished]
    kept = (kept[~unfinished] if len(left) else kept).reset_index(drop=True)
    environments = read_environments(folder, kept["environment"].unique())
    peaks = {name: peaks_of(found) for name, found in environments.items()}
    kept["limit_us"] = _rooflines(kept, peaks)
    kept["selected"] = fastest(kept)  # a run cut off marks none, and one of several devices chose among all of them
    measured = derived(kept).assign(
        superseded=superseded(kept),
        memory_bytes=_memory(kept, folder),
        untuned=kept["choice"] != "search",
        cut_short=kept["search"].replace("all", ""),
    )
    frame, patterns = _joined(measured)
    frame = frame.assign(sol=_sol(frame))
    return ResultSet(
        folder=folder,
        experiment=str(recorded["experiment"].iloc[0]),
        gpu=str(recorded["gpu"].iloc[0]),
        recorded=recorded,
        frame=frame,
        device=devices[0],
        left_out=(*_left_out(recorded, devices), *_unfinished(left), *patterns, *_pruned(frame)),
        environment=environments[kept["environment"].iloc[-1]],
        environments=tuple(
            (name, int((kept["environment"] == name).sum()), found) for name, found in environments.items()
        ),
    )


def division(frame: pd.DataFrame) -> str:
    """How a set's times were chosen, for who compares sets: by rules alone, or as the fastest that tuning finds."""
    every, cut = set(frame["problem"].unique()), set(frame.loc[frame["search"] != "all", "problem"].unique())
    if not cut:
        return "tuned: every candidate of every kernel was tried"
    if cut == every:
        return "by rule: on no problem was every candidate tried, first choices were"
    return f"tuned on {len(every - cut)} of {len(every)} problems, by rule on the others"


def _rooflines(frame: pd.DataFrame, peaks: Mapping[str, Peaks]) -> list[float]:
    """`recorded_us` of each row, computed once for what has the same work: the variants of a kernel, mostly."""
    alike = frame["variant"].where(frame["op"].str.startswith("conv"), "")
    rows = frame[_WORK].assign(variant=alike)
    group = rows.groupby(_WORK, sort=False, dropna=False).ngroup()
    once = [recorded_us(row, peaks[row.environment]) for row in each(rows[~group.duplicated()].astype(object))]
    return [once[at] for at in group]


def _sol(frame: pd.DataFrame) -> Any:
    of = ["stem", "policy", "math"]
    whole = (frame["part"] == "") & (frame["status"] == "ok")
    dense = frame[whole & (frame["work"] == "dense") & (frame["role"] == "library") & ~frame["superseded"]]
    least = frame[of].merge(dense.groupby(of)["median_us"].min().reset_index(), how="left")["median_us"]
    return sol_score(frame["median_us"].where(whole), frame["limit_us"], least.set_axis(frame.index))


def _memory(frame: pd.DataFrame, folder: Path) -> list[float]:
    """Bytes that each row's candidate took at most; NaN where not measured, where other memory moved meanwhile, or
    where the driver saw nothing taken, so that it came from elsewhere."""
    found = {row.candidate: row for row in MEMORY.read(folder)}
    keys = frame[["problem", "dtype", "kernel", "variant", "device"]].itertuples(index=False, name=None)
    uses = map(found.get, keys) if found else [None] * len(frame)
    return [use.taken_bytes if use and use.steady and use.taken_bytes > 0 else math.nan for use in uses]


def nothing(folder: Path) -> ResultSet:
    """What an experiment recorded that runs nothing, its page being drawn from the data sets; `folder` has its name."""
    empty = frame_of(())
    frame = derived(empty).assign(memory_bytes=math.nan, cut_short="")
    frame = frame.assign(untuned=False, superseded=False, sol=math.nan)
    return ResultSet(folder, folder.name, "", empty, frame, "", (), {}, ())


def derived(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of `read_frame` with `limit_share`, `gflops`, `stem` and `case`."""
    return named(frame).assign(
        limit_share=frame["limit_us"] / frame["median_us"],
        gflops=frame["flops"] / frame["median_us"] / 1e3,
    )


def _check(path: Path, frame: pd.DataFrame) -> None:
    """Raises `RecordError` for the first row that contradicts another one, or has no time where it should."""
    first = frame.iloc[0]
    selected = frame.loc[frame["selected"], CONTEST]
    found = {
        "experiment": frame["experiment"] != first["experiment"],
        "gpu": frame["gpu"] != first["gpu"],
        "dtype": ~frame["dtype"].isin(get_args(DType)),
        "median_us": (frame["status"] == "ok") & frame["median_us"].isna() & frame["device"].isin(GPU_DEVICES),
        "variant": frame.duplicated(list(KEY)),
        "selected": selected.duplicated(CONTEST).reindex(frame.index, fill_value=False),
    }
    places = {column: int(rows.to_numpy().argmax()) for column, rows in found.items() if rows.any()}
    if not places:
        return
    column = min(places, key=lambda name: places[name])
    at = places[column]
    if column == "median_us":
        said = "a row with status 'ok' has no time"
    elif column == "dtype":
        said = f"'{frame[column].iloc[at]}' is none of {', '.join(get_args(DType))}"
    elif column in ("variant", "selected"):
        keys, rows = (list(KEY), frame) if column == "variant" else (CONTEST, selected)
        before = rows.index[(rows[keys] == frame.loc[at, keys]).all(axis=1)][0]
        what = "repeats" if column == "variant" else "selects a second variant beside"
        said = f"{what} {place(path, before).rpartition(', ')[2]}"
    else:
        said = f"'{frame[column].iloc[at]}' in a file of '{first[column]}'; comparisons need one {column}"
    raise RecordError(f"{place(path, at)}, column '{column}': {said}")


def _left_out(recorded: pd.DataFrame, devices: Sequence[str]) -> list[str]:
    counts = recorded["device"].value_counts()
    out = [f"{counts[other]} rows of device `{other}` are not drawn." for other in devices[1:]]
    if devices[0] not in GPU_DEVICES:
        out.append(f"The device is `{devices[0]}`: its times say nothing of a GPU.")
    return out


def _pruned(frame: pd.DataFrame) -> Iterator[str]:
    """Says on how many problems a dense product is timed on the pruned matrix alone."""
    dense = frame["kernel"].isin(PRODUCTS) & frame["work"].eq("dense")
    timed = frame[dense & frame["op"].isin(("spmm", "spmv")) & frame["median_us"].notna()]
    alone = set(timed["problem"].unique()) - set(timed.loc[timed["weights"] == "unpruned", "problem"].unique())
    if alone:
        yield (
            f"On {len(alone)} of {timed['problem'].nunique()} problems dense products are timed with the pruned matrix "
            "alone. Its zeros take less power, which changes fp16 times of large layers by up to 17 %."
        )


def named(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with what their problems are called in every type (`stem`), and on every source (`case`)."""
    names = rows["problem"]
    return rows.assign(stem=names.map(stem_of), case=names.map(case_of))


def _unfinished(rows: pd.DataFrame) -> list[str]:
    """What was not tuned to the end, by kernel: the first problem of each, and how many more."""
    problems: dict[str, dict[str, None]] = {}
    for row in each(rows):
        problems.setdefault(str(row.kernel), {})[f"`{row.problem}` ({row.dtype}, {row.policy})"] = None
    return [
        f"`{kernel}` is not drawn on {few(list(found), 1)}: the run ended before its last candidate."
        for kernel, found in problems.items()
    ]


def _joined(frame: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """`frame` with a stand-in's rows under the name of the real pattern recorded beside it, and sentences on them.

    A problem recorded on two sources of its pattern, some kernels on the real one and others on its calibrated
    stand-in, is one problem; each row keeps its own `source`. Where a kernel was recorded on both, as by a run that was
    resumed once the real patterns were at hand, its rows on the stand-in are left out: a product's time is of one
    pattern.
    """
    real = frame["kind"].isin(INTERCHANGEABLE - {STANDIN})
    names = frame[real].drop_duplicates("case").set_index("case")[["problem", "kind"]]
    made = frame["kind"].eq(STANDIN) & frame["case"].isin(names.index)
    if not made.any():
        return frame, ()
    products = pd.MultiIndex.from_frame(frame[["case", "kernel"]])
    twice = made & products.isin(products[real])
    as_real = {name: frame[name].mask(made, frame["case"].map(names[name])) for name in ("problem", "kind")}
    moved, left = frame[made & ~twice], frame[twice]
    said = []
    if len(moved):
        who = ", ".join(f"`{kernel}`" for kernel in sorted(set(moved["kernel"])))
        said.append(
            f"On {_counted(moved)} the times of {who} are of a calibrated stand-in for the pattern; the other kernels' "
            "are of the real one."
        )
    if len(left):
        said.append(
            f"On {_counted(left)} rows on a calibrated stand-in are left out ({len(left)}): the same kernels are "
            "recorded on the real pattern."
        )
    return frame.assign(**as_real)[~twice], tuple(said)


def _counted(rows: pd.DataFrame) -> str:
    count = rows["problem"].nunique()
    return "one problem" if count == 1 else f"{count} problems"


def read_environment(folder: Path, name: str) -> dict[str, Any]:
    """The snapshot that a row of `folder` names, empty where it is not there. Raises `RecordError`."""
    return read_environments(folder, [name])[name]


def read_environments(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Those snapshots by the names that rows have for them; their table is read once. Raises `RecordError`."""
    files = {name: folder / (name or "environment.json") for name in names}
    for name, path in files.items():
        if path.parent != folder or name == "..":
            raise RecordError(
                f"{records_file(folder)}, column 'environment': '{name}' is not the name of a file beside it"
            )
    texts = ENVIRONMENTS.texts(folder, [path.name for path in files.values()])
    return {name: _snapshot(path, texts[path.name]) if path.name in texts else {} for name, path in files.items()}


def _snapshot(path: Path, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(found, dict):
        raise RecordError(f"{path}: not a JSON object")
    return sanitise.snapshot(found)
