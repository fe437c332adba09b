"""What runs in a worker's process: one session with its device, and one problem after another, recorded nowhere."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nnzbench.cluster.gpus import visible_gpus
from nnzbench.devices import DeviceLost, open_device, open_gpu
from nnzbench.kernels.registry import kernels
from nnzbench.measure.session import Session, open_session
from nnzbench.measure.sweep import Choice, Run
from nnzbench.problems.experiment import Experiment
from nnzbench.problems.problem import Problem
from nnzbench.records.folder import Results, Scope, Tuning
from nnzbench.records.memory import Memory
from nnzbench.records.record import Key, Record


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
class Job:
    """One problem in one dtype, with the kernels to run on it."""

    experiment: Experiment
    problem: Problem
    kernels: tuple[str, ...]
    scope: Scope
    choice: Choice
    done: frozenset[Key]
    """Rows of the problem that are recorded already."""


@dataclass
class Part:
    """What a job brought."""

    worker: str
    """A digest that tells one GPU from another and says nothing of either."""
    snapshot: Mapping[str, Any]
    records: list[Record] = field(default_factory=list)
    tunings: list[Tuning] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    planned: set[str] = field(default_factory=set)
    planless: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    lost: bool = False
    """The device does not answer any more: the rest of the job is for another process."""


class Collected(Results):
    """Stands where a results folder is asked for, and keeps rows for who asked for the job."""

    def __init__(self, part: Part, done: Iterable[Key]) -> None:
        self.part = part
        self.done: set[Key] = set(done)
        self.tuned: dict[tuple[str, ...], Scope] = {}

    @property
    def environment(self) -> str:
        return ""

    def add(self, records: Iterable[Record]) -> None:
        rows = list(records)
        self.part.records += rows
        self.done.update(record.key for record in rows)

    def add_tuning(self, tuning: Tuning) -> None:
        self.part.tunings.append(tuning)

    def add_memory(self, row: Memory) -> None:
        self.part.memories.append(row)


class _Notes:
    """Progress of which only the notes are told."""

    def __init__(self, notes: list[str]) -> None:
        self.note = notes.append

    def start(self, title: str, steps: int) -> None:
        pass

    def step(self, text: str) -> None:
        pass

    def advance(self) -> None:
        pass


@functools.cache
def _session(device: str | None) -> tuple[Session, tuple[str, ...]]:
    """Of this process, which measures for itself alone; with what there was to say at its start."""
    notes: list[str] = []
    return open_session(open_device(device) if device else open_gpu(), kernels(), notes.append), tuple(notes)


def introduce(device: str | None) -> Introduction:
    """Opens the device. Raises `Unsupported` where there is none."""
    opened = _session(device)[0].device
    units = [unit for _, unit in visible_gpus()] if opened.timer is not None else []
    unit = units[0] if units else opened.gpu
    return Introduction(
        opened.gpu, opened.name, opened.arch, opened.timer is not None, platform.node(), unit, os.getpid()
    )


def perform(job: Job, device: str | None) -> Part:
    """Runs a job; what a lost device leaves is in the part, and the process should then end."""
    session, notes = _session(device)
    who = introduce(device)
    digest = hashlib.sha256(f"{who.host} {who.unit}".encode()).hexdigest()[:8]
    part = Part(digest, {**session.environment, "worker": digest}, notes=list(notes))
    run = Run(job.experiment, session, Collected(part, job.done), job.choice)
    try:
        run.problem(job.problem, job.kernels, _Notes(part.notes), job.scope)
    except DeviceLost as error:
        part.notes.append(str(error))
        part.lost = True
    part.counts, part.reasons = run.attempts.counts, run.attempts.reasons
    part.planned, part.planless = run.planned, run.planless
    return part
