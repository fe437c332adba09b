"""What runs in a worker's process: one session with its device, and one problem after another, recorded nowhere."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from nnzbench.devices import Device, DeviceLost, open_device, open_gpu
from nnzbench.devices.gpu import GpuDevice
from nnzbench.host import visible_gpus
from nnzbench.kernels.registry import kernels
from nnzbench.measure.attempts import Counts
from nnzbench.measure.phases import Turn, Work
from nnzbench.measure.roofline import Peaks
from nnzbench.measure.session import Session, open_libraries, open_session
from nnzbench.measure.sweep import Choice, Run
from nnzbench.problems.experiment import Experiment
from nnzbench.problems.operands import Maker
from nnzbench.problems.problem import Problem
from nnzbench.progress import RunProgress
from nnzbench.records.beside import Memory, Scope, Tuning
from nnzbench.records.folder import Kept
from nnzbench.records.record import Key, Record

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
    """The GPU's identifier, for the screen; rows and snapshots name neither it nor the host."""
    process: int


@dataclass(frozen=True)
class Settled:
    """What is measured once on each GPU, by the first of its workers."""

    peaks: Peaks
    environment: Mapping[str, Any]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """One problem in one dtype, with the kernels to run on it."""

    experiment: Experiment
    problem: Problem
    kernels: tuple[str, ...]
    scope: Scope
    choice: Choice
    done: Mapping[Key, float | None]
    """Rows of the problem that are recorded already, with their medians."""
    seconds: float | None = None
    """When no further candidate is begun; None for no limit."""


@dataclass
class Part:
    """What a job brought."""

    snapshot: Mapping[str, Any]
    records: list[Record] = field(default_factory=list)
    tunings: list[Tuning] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    planned: set[str] = field(default_factory=set)
    planless: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """By phase."""
    short: tuple[str, ...] = ()
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


@functools.cache
def _maker() -> Maker:
    """Keeps the matrix of the last job: the next one is often another product with it."""
    return Maker()


@functools.cache
def _turn(name: str | None, together: bool = False) -> Turn:
    return turn(_device(name), together)


def turn(opened: Device, together: bool = False) -> Turn:
    """Of the processes that share this GPU, whoever started them; several may have it `together`."""
    path = os.path.join(tempfile.gettempdir(), f"nnzbench-{os.getuid()}-{digest(_introduction(opened))}.lock")
    return functools.partial(_locked, path, together)


@contextmanager
def _locked(path: str, together: bool = False) -> Iterator[None]:
    """Waits for the others that hold this file, in the order of asking; ends with the process at the latest.

    Those that hold it `together` don't wait for each other. The kernel wakes the next one at once: asking again and
    again left the GPU idle for milliseconds at each change.
    """
    import fcntl  # not on Windows, where a cluster can't be had but all else can

    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_SH if together else fcntl.LOCK_EX)
        try:
            yield
        finally:  # closing would leave it to a child that was started meanwhile
            fcntl.flock(file, fcntl.LOCK_UN)


def introduce(device: str | None) -> Introduction:
    """Opens the device. Raises `Unsupported` where there is none."""
    return _introduction(_device(device))


def _introduction(opened: Device) -> Introduction:
    units = [one.unit for one in visible_gpus()] if opened.timer is not None else []
    unit = units[0] if units else opened.gpu
    return Introduction(
        opened.gpu, opened.name, opened.arch, opened.timer is not None, platform.node(), unit, os.getpid()
    )


def arrive(libraries: tuple[str, ...], device: str | None) -> Introduction:
    """Opens the device, and of these kernels those that are libraries, beside other workers that do the same.

    Raises `Unsupported` where there is no device.
    """
    opened = _device(device)
    if isinstance(opened, GpuDevice) and device not in _sessions:  # else it has run something already
        with _turn(device, together=True)():
            open_libraries(opened, libraries)
    return introduce(device)


def settle(device: str | None) -> Settled:
    """Measures what is the same for all workers of this one's GPU."""
    session, notes = _measured(device)
    return Settled(session.peaks, {**session.environment, "worker": digest(introduce(device))}, notes)


def _measured(name: str | None) -> tuple[Session, tuple[str, ...]]:
    """A session that has measured the GPU's peaks, and what there was to say of it."""
    notes: list[str] = []
    with _work(name).on_gpu("warming"):
        session = open_session(_device(name), kernels(), notes.append)
    return session, tuple(notes)


_sessions: dict[str | None, Session] = {}


def _session(name: str | None, settled: Settled) -> Session:
    """Of this process, on the peaks that one of its GPU's workers has measured."""
    if name not in _sessions:
        _sessions[name] = Session(_device(name), kernels(), settled.peaks, settled.environment, work=_work(name))
    return _sessions[name]


def _work(device: str | None) -> Work:
    return Work(turn=_turn(device)) if _device(device).timer is not None else Work()


def digest(who: Introduction) -> str:
    """Tells one GPU from another and says nothing of either."""
    return hashlib.sha256(f"{who.host} {who.unit}".encode()).hexdigest()[:8]


def perform(job: Job, settled: Settled, device: str | None) -> Part:
    """Runs a job; what a lost device leaves is in the part, and the process should then end."""
    session = _session(device, settled)
    before = session.work.phases.seconds.copy()
    ends = None if job.seconds is None else time.monotonic() + job.seconds
    kept = Kept(job.done)
    part = Part(settled.environment, kept.records, kept.tunings, kept.memories)
    _at_work[device] = part, functools.partial(session.work.phases.since, before)
    run = Run(job.experiment, session, kept, job.choice, _maker())
    notes = _Notes(part.notes, session.device)
    try:
        over = (lambda: False) if ends is None else (lambda: time.monotonic() >= ends)
        run.problem(job.problem, job.kernels, notes, job.scope, over)
        notes.step("")
    except DeviceLost as error:
        part.notes.append(str(error))
        part.lost = True
    finally:
        del _at_work[device]
    part.counts, part.short = run.attempts.counts, tuple(+run.attempts.short)
    part.planned, part.planless = run.planned, run.planless
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
        memories, notes = list(part.memories), list(part.notes)
        return Part(part.snapshot, rows, tunings, memories, counts, notes=notes, seconds=seconds())
    return None
