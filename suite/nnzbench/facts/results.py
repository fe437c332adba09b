"""Records to a data frame with what reports derive from them. Refuses files it can't trust, naming the place."""

from __future__ import annotations

import csv
import functools
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from nnzbench.facts import host_time, sources, tuned
from nnzbench.kernels.registry import role_of
from nnzbench.records import memory
from nnzbench.records.folder import refuse_links
from nnzbench.records.record import COLUMNS, Record, RecordError, read_records
from nnzbench.records.selection import contest, math_class, select

GPU_DEVICES = ("cupy", "pycuda", "cuda-core")
"""Devices whose times count as performance, the preferred one first."""


@dataclass(frozen=True)
class ResultSet:
    """One experiment on one GPU: the rows that count, and what was left out."""

    folder: Path
    experiment: str
    gpu: str
    records: tuple[Record, ...]
    """The rows that count: of `device`, of kernels whose tuning was finished, the fastest of each selected."""
    recorded: tuple[Record, ...]
    """Every row of the file."""
    frame: pd.DataFrame
    """`records`, with `math`, `role` (`kernel.role_of`), `limit_share` and `gflops` added, and `memory_bytes`, the
    device memory that the row's candidate took at most where it was measured; `untuned` (`tuned.chosen_untuned`)
    and `cut_short` (`tuned.cut_short`); `host_time` (`host_time.may_hold`). Rows of a stand-in are those of the
    real pattern's problem (`sources.joined`)."""
    device: str
    left_out: tuple[str, ...]
    """Sentences on rows that are not drawn, or are of other patterns than those beside them."""
    environment: dict[str, Any]
    """That of the last row."""
    environments: tuple[tuple[str, int, dict[str, Any]], ...]
    """File name, rows recorded under it, and content, of every environment."""
    tuning_seconds: dict[str, float]
    """Wall-clock seconds spent on finding each kernel's best candidate, where the run recorded it."""


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
    """Reads `records.csv` and its environment in `folder`, which must hold one experiment on one GPU.

    Raises `RecordError` naming file, line and column for anything that breaks the schema, a line cut off, a row
    twice, a second variant selected for one kernel, or rows of another experiment or GPU, and for a link or an
    `environment` cell that leads out of the folder.

    Pages, claims and comparisons all start here, so files that did not change are read once: leave the result as it is.
    """
    files = [
        folder / "records.csv",
        folder / "tuning.csv",
        folder / memory.FILE,
        *sorted(folder.glob("environment*.json")),
    ]
    refuse_links(folder, *files)
    states = [(path.name, path.stat()) for path in files if path.is_file()]
    return _load(folder, tuple((name, state.st_ino, state.st_mtime_ns, state.st_size) for name, state in states))


@functools.cache
def _load(folder: Path, _state: tuple[tuple[str, int, int, int], ...]) -> ResultSet:
    path = folder / "records.csv"
    records = _read(path)
    if not records:
        raise RecordError(f"{path}: there is a header and no row")
    _check(path, records)
    devices = sorted({record.device for record in records}, key=_device_rank)
    kept = [record for record in records if record.device == devices[0]]
    kept, unfinished = tuned.split(kept, folder / "tuning.csv")
    kept = select(kept)  # a run that was cut off has none, and one of several devices chose among all of them
    measured = to_frame(kept).assign(
        memory_bytes=_memory(kept, folder / memory.FILE),
        untuned=tuned.chosen_untuned(kept, folder / "tuning.csv"),
        cut_short=tuned.cut_short(kept, folder / "tuning.csv"),
    )
    environments = {name: read_environment(folder, name) for name in dict.fromkeys(one.environment for one in kept)}
    measured = measured.assign(host_time=host_time.may_hold(kept, environments))
    frame, patterns = sources.joined(measured)
    return ResultSet(
        folder=folder,
        experiment=records[0].experiment,
        gpu=records[0].gpu,
        records=tuple(kept),
        recorded=tuple(records),
        frame=frame,
        device=devices[0],
        left_out=(
            *_left_out(records, devices, kept),
            *tuned.sentences(unfinished),
            *patterns,
        ),
        environment=environments[kept[-1].environment],
        environments=tuple(
            (name, sum(record.environment == name for record in kept), found) for name, found in environments.items()
        ),
        tuning_seconds=tuned.seconds(folder / "tuning.csv", devices[0]),
    )


def _memory(records: Sequence[Record], path: Path) -> list[float]:
    """Bytes that each row's candidate took at most; NaN where not measured, where other memory moved meanwhile, or
    where the driver saw nothing taken, so that it came from elsewhere."""
    found = memory.read(path)
    uses = [found.get((r.problem, r.dtype, r.kernel, r.variant, r.device)) for r in records]
    return [use.taken_bytes if use and use.steady and use.taken_bytes > 0 else math.nan for use in uses]


def nothing(folder: Path) -> ResultSet:
    """What an experiment recorded that runs nothing, its page being drawn from the data sets; `folder` has its name."""
    frame = to_frame(()).assign(memory_bytes=math.nan, untuned="", cut_short="", host_time=False)
    return ResultSet(folder, folder.name, "", (), (), frame, "", (), {}, (), {})


def to_frame(records: Sequence[Record]) -> pd.DataFrame:
    """One row per record, columns as in the file plus the derived ones. Empty cells of times are NaN."""
    frame = pd.DataFrame([vars(record) for record in records], columns=list(COLUMNS))
    for name in ("median_us", "q1_us", "q3_us", "limit_us", "floor_us", "prepare_ms", "compile_ms", "sm_clock_mhz"):
        frame[name] = frame[name].astype(float)
    frame["math"] = [math_class(record) for record in records]
    frame["role"] = [role_of(record.kernel, record.variant) for record in records]
    frame["limit_share"] = frame["limit_us"] / frame["median_us"]
    frame["gflops"] = frame["flops"] / frame["median_us"] / 1e3
    return frame


def _read(path: Path) -> list[Record]:
    try:
        text = path.read_bytes()
        if not text.endswith(b"\n"):
            last = text.count(b"\n") + 1
            raise RecordError(f"{path}, line {last}, column '{COLUMNS[-1]}': the line is cut off")
        return read_records(path)
    except (csv.Error, UnicodeDecodeError) as error:
        raise RecordError(f"{path}: not a readable CSV file ({error})") from None


def _check(path: Path, records: Sequence[Record]) -> None:
    """Line numbers are exact because a cell never holds a newline."""
    seen: dict[tuple[Any, ...], int] = {}
    first = records[0]
    for line, record in enumerate(records, start=2):
        for name in ("experiment", "gpu"):
            if getattr(record, name) != getattr(first, name):
                raise RecordError(
                    f"{path}, line {line}, column '{name}': '{getattr(record, name)}' in a file "
                    f"of '{getattr(first, name)}'; comparisons need one {name}"
                )
        if record.status == "ok" and record.median_us is None and record.device in GPU_DEVICES:
            raise RecordError(f"{path}, line {line}, column 'median_us': a row with status 'ok' has no time")
        keys: list[tuple[str, tuple[Any, ...]]] = [("variant", ("row", *record.key))]
        if record.selected:
            keys.append(("selected", ("contest", *contest(record))))
        for column, key in keys:
            if key in seen:
                what = "repeats" if column == "variant" else "selects a second variant beside"
                raise RecordError(f"{path}, line {line}, column '{column}': {what} line {seen[key]}")
            seen[key] = line


def _left_out(records: Sequence[Record], devices: Sequence[str], kept: Sequence[Record]) -> list[str]:
    out = [
        f"{sum(r.device == other for r in records)} rows of device `{other}` are not drawn." for other in devices[1:]
    ]
    if devices[0] not in GPU_DEVICES:
        out.append(f"The device is `{devices[0]}`: its times say nothing of a GPU.")
    return out


def _device_rank(device: str) -> tuple[int, str]:
    return (GPU_DEVICES.index(device) if device in GPU_DEVICES else len(GPU_DEVICES), device)


def read_environment(folder: Path, name: str) -> dict[str, Any]:
    """The snapshot that a row of `folder` names, empty where it is not there. Raises `RecordError`."""
    path = folder / (name or "environment.json")
    if path.parent != folder or name == "..":
        raise RecordError(
            f"{folder / 'records.csv'}, column 'environment': '{name}' is not the name of a file beside it"
        )
    refuse_links(path)
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecordError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(found, dict):
        raise RecordError(f"{path}: not a JSON object")
    return found
