"""What runs in a worker's process: one session with its device, and one problem after another, recorded nowhere."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

from nnzbench.bench.attempts import Counts
from nnzbench.bench.phases import Turn, Work
from nnzbench.bench.session import Session, open_libraries, open_session
from nnzbench.bench.steps import Step
from nnzbench.bench.sweep import Choice, Run
from nnzbench.core.gpus import Peaks
from nnzbench.core.host import visible_gpus
from nnzbench.core.progress import RunProgress
from nnzbench.data.problems.experiment import Experiment
from nnzbench.devices import Device, DeviceLost, open_device, open_gpu
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.registry import kernels
from nnzbench.results.records.beside import Memory, Tuning
from nnzbench.results.records.folder import Kept
from nnzbench.results.records.record import Key, Record

SHARE = "NNZBENCH_SHARE"
"""Environment variable: `2/4` gives a worker the third of four equal parts of this host's processors."""


@dataclass(frozen=True)
class Introduction:
    """What a worker says of itself before it gets work."""

    gpu: str
    """Slug of the model, which names the results folder; `cpu` for the processor."""
    device: str
    arch: str
    timed: bool
    host: str
    unit: str
    """Tells its GPU from others and says nothing of it: the resource that steps for this GPU ask Dask for."""
    process: int
    environment: Mapping[str, Any]
    """Snapshot that its rows name."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """Steps of one experiment, of problems with one matrix."""

    experiment: Experiment
    steps: tuple[Step, ...]
    choice: Choice
    done: Mapping[Key, float | None]
    """Rows of the problems that are recorded already, with their medians."""
    seconds: float | None = None
    """When no further candidate is begun; None for no limit."""


@dataclass
class Part:
    """What a job brought."""

    job: Job
    records: list[Record] = field(default_factory=list)
    tunings: list[Tuning] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    planned: set[str] = field(default_factory=set)
    planless: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """By phase."""
    short: dict[Step, tuple[str, ...]] = field(default_factory=dict)
    """Kernels with candidates that other processes left no memory for."""
    lost: bool = False
    """The device does not answer any more: the rest of the job is for another process."""


class _Notes(RunProgress):
    """Progress of which only the notes are told; between kernels the GPU's memory is there for other processes."""

    def __init__(self, notes: list[str], device: Device) -> None:
        self._notes, self._device = notes, device

    def note(self, text: str) -> None:
        self._notes.append(text)

    tell = note

    def step(self, text: str) -> None:
        if isinstance(self._device, GpuDevice):
            self._device.release()


@functools.cache
def _device(name: str | None) -> Device:
    """Of this process, on its share of the processors."""
    at, _, of = os.environ.get(SHARE, "").partition("/")
    if of and hasattr(os, "sched_setaffinity"):
        every = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, every[int(at) * len(every) // int(of) : (int(at) + 1) * len(every) // int(of)] or every)
    return open_device(name) if name else open_gpu()


def turn(opened: Device, together: bool = False) -> Turn:
    """Of the processes that share this GPU, whoever started them; several may have it `together`."""
    return functools.partial(_locked, _lock_of(opened), together)


def _lock_of(opened: Device) -> str:
    return os.path.join(tempfile.gettempdir(), f"nnzbench-{os.getuid()}-{unit_of(opened)}.lock")


@contextmanager
def _locked(path: str, together: bool = False) -> Iterator[TextIO]:
    """Waits for the others that hold this file, in the order of asking; ends with the process at the latest.

    Those that hold it `together` don't wait for each other. The kernel wakes the next one at once: asking again and
    again left the GPU idle for milliseconds at each change.
    """
    import fcntl  # not on Windows, where a cluster can't be had but all else can

    with open(path, "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_SH if together else fcntl.LOCK_EX)
        try:
            yield file
        finally:  # closing would leave it to a child that was started meanwhile
            file.flush()
            fcntl.flock(file, fcntl.LOCK_UN)


def unit_of(opened: Device) -> str:
    """Tells one GPU from another and says nothing of either."""
    units = [one.unit for one in visible_gpus()] if opened.timer is not None else []
    return hashlib.sha256(f"{platform.node()} {units[0] if units else opened.gpu}".encode()).hexdigest()[:8]


def arrive(libraries: tuple[str, ...], run: str, device: str | None) -> Introduction:
    """Opens the device, and of these kernels those that are libraries, beside other workers that do the same.

    The first of a GPU's workers in a run measures its peaks. Raises `Unsupported` where there is no device.
    """
    opened = _device(device)
    if isinstance(opened, GpuDevice) and device not in _sessions:  # else it has run something already
        with turn(opened, together=True)():
            open_libraries(opened, libraries)
    unit = unit_of(opened)
    with _locked(_lock_of(opened)) as file:
        known = _settled(file, run)
        if known is None:
            known = _measured(device, run, unit)
            file.truncate(0)
            json.dump(known, file, default=str)
    work = Work(turn=turn(opened)) if opened.timer is not None else Work()
    _sessions[device] = Session(opened, kernels(), Peaks(**known["peaks"]), known["environment"], work=work)
    return Introduction(
        opened.gpu, opened.name, opened.arch, opened.timer is not None, platform.node(), unit, os.getpid(),
        known["environment"], tuple(known["notes"]),
    )  # fmt: skip


def _settled(file: TextIO, run: str) -> dict[str, Any] | None:
    """What the first worker of this run on this GPU has measured and left beside its lock."""
    file.seek(0)
    try:
        known = json.load(file)
    except ValueError:
        return None
    return known if isinstance(known, dict) and known.get("run") == run else None


def _measured(name: str | None, run: str, unit: str) -> dict[str, Any]:
    notes: list[str] = []
    session = open_session(_device(name), kernels(), notes.append)
    environment = {**session.environment, "worker": unit}
    return {"run": run, "peaks": asdict(session.peaks), "environment": environment, "notes": notes}


_sessions: dict[str | None, Session] = {}
"""Of this process, on the peaks that one of its GPU's workers has measured."""


async def claim(unit: str, dask_worker: Any) -> None:
    """Tells Dask that steps for this GPU can be done here."""
    await dask_worker.set_resources(**{unit: 1})


def perform(job: Job, device: str | None) -> Part:
    """Does a job; what a lost device leaves is in the part, and the process should then end."""
    session = _sessions[device]
    before = session.work.phases.seconds.copy()
    ends = None if job.seconds is None else time.monotonic() + job.seconds
    kept = Kept(job.done)
    part = Part(job, kept.records, kept.tunings, kept.memories)
    _at_work[device] = part, functools.partial(session.work.phases.since, before)
    notes = _Notes(part.notes, session.device)

    def over() -> bool:
        return ends is not None and time.monotonic() >= ends

    try:
        for step in job.steps:
            run = Run(job.experiment, session, kept, job.choice)
            try:
                run.perform(step, notes, over)
            finally:
                part.counts.update(run.attempts.counts)
                part.planned |= run.planned
                part.planless |= run.planless
                if run.attempts.short:
                    part.short[step] = tuple(run.attempts.short)
            if over():
                break
        notes.step("")
    except DeviceLost as error:
        part.notes.append(str(error))
        part.lost = True
    finally:
        del _at_work[device]
    part.seconds = session.work.phases.since(before)
    return part


_at_work: dict[str | None, tuple[Part, Callable[[], dict[str, float]]]] = {}
"""The part that is being made, and its seconds by phase so far."""


def so_far() -> Part | None:
    """What the job under way has brought, whose rows are whole: asked of a worker while another thread is at it."""
    for part, seconds in list(_at_work.values()):
        tunings = list(part.tunings)  # before the rows: a line says that its kernel's rows are there
        rows = list(part.records)
        counts = Counts()
        counts.add(rows)
        return Part(part.job, rows, tunings, list(part.memories), counts, notes=list(part.notes), seconds=seconds())
    return None
