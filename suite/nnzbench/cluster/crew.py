"""Hands problems to workers one at a time, records what they bring, and takes back what a dead one had.

A job is pure: a worker records nothing, and its rows are written here when it is done. So what is recorded is whole,
and what a worker had when it died is done again by another, never twice. GPUs of one model share its work; every
model does all of it, into its own folders. All kernels of a problem run on one GPU: their times can be compared.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from nnzbench.cluster.worker import Introduction, Job, Part, introduce, perform
from nnzbench.devices import Device
from nnzbench.kernels.registry import AnyKernel
from nnzbench.measure.budget import Done, Plan, Step, make_plan
from nnzbench.measure.costs import Costs
from nnzbench.measure.progress import RunProgress
from nnzbench.measure.session import Session
from nnzbench.measure.sweep import Choice, Run, Summary, opened, plan_work
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.experiment import Experiment

TRIES = 3
"""Workers that a job may cost before it is left out."""
POLL_S = 0.2
PATIENCE_S = 90.0
"""How long there may be no worker at all where none is waited for in a queue."""


@dataclass(frozen=True)
class Elsewhere:
    """A worker's device as this process sees it: enough to know what is recorded of it."""

    name: str
    gpu: str
    arch: str
    timer: object | None
    link: str = ""
    compiles_from_cache: bool = False


@dataclass
class Worker:
    """What one worker is doing; `step` is None while it introduces itself and between jobs."""

    future: Any
    who: Introduction | None = None
    step: Step | None = None


@dataclass
class Model:
    """The work of all GPUs of one model."""

    plan: Plan
    runs: dict[str, Run]
    queue: deque[Step]
    started: float
    left_out: list[Step] = field(default_factory=list)
    lost: Counter[Step] = field(default_factory=Counter)
    """Workers that each step has cost."""
    predicted: float = 0.0


@dataclass
class Crew:
    """A run on the workers of one cluster."""

    client: Any
    """Of `distributed`."""
    experiments: Sequence[Experiment]
    choice: Choice
    known: Mapping[str, AnyKernel]
    place: Callable[[str, str], Path]
    """Results folder of a GPU model and an experiment."""
    device: str | None
    costs: Costs
    progress: RunProgress
    ends: float | None = None
    """Of the monotonic clock; None for a run that ends when all is done."""
    queued: bool = False
    """Workers come when a queue lets them: there is no hurry."""
    workers: dict[str, Worker] = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict)

    def run(self) -> list[Summary]:
        """Everything, on every model of GPU among the workers. Raises `Unsupported` where no worker can work."""
        idle_since = time.monotonic()
        with ExitStack() as folders:
            while not self._finished():
                self._meet()
                self._listen(folders)
                self._hand_out()
                if self.workers:
                    idle_since = time.monotonic()
                elif not self.queued and time.monotonic() - idle_since > PATIENCE_S:
                    raise Unsupported("the cluster has no worker: start some, or see their logs; all rows are kept")
        for model in self.models.values():
            if self.ends is not None:
                for line in Done(time.monotonic() - model.started, tuple(model.left_out)).lines(model.plan):
                    self.progress.note(line)
        return [run.summary() for model in self.models.values() for run in model.runs.values()]

    def _finished(self) -> bool:
        busy = any(worker.step or worker.who is None for worker in self.workers.values())
        return bool(self.models) and not busy and not any(model.queue for model in self.models.values())

    def _meet(self) -> None:
        """Greets new workers and takes back what those had that are gone."""
        present = set(self.client.nthreads())
        for address in present - set(self.workers):
            future = self.client.submit(introduce, self.device, workers=[address], pure=False)
            self.workers[address] = Worker(future)
        for address in set(self.workers) - present:
            self._gone(self.workers.pop(address))

    def _gone(self, worker: Worker) -> None:
        worker.future.cancel()
        if worker.step is None or worker.who is None:
            return
        model = self.models[worker.who.gpu]
        model.lost[worker.step] += 1
        what = f"{worker.step.experiment} {worker.step.problem.name}"
        if model.lost[worker.step] < TRIES:
            model.queue.appendleft(worker.step)
            self.progress.note(f"a worker on {worker.who.host} died at {what}, which another one gets")
        else:
            model.left_out.append(worker.step)
            self.progress.note(f"{what} has ended {TRIES} workers and is left out; go on with --resume")

    def _listen(self, folders: ExitStack) -> None:
        """Takes in what workers have done since the last time, waiting a little for the first."""
        time.sleep(POLL_S)
        for address, worker in list(self.workers.items()):
            if worker.future is None or not worker.future.done():
                continue
            if worker.future.status != "finished":
                error = worker.future.exception() if worker.future.status == "error" else None
                del self.workers[address]
                if isinstance(error, Unsupported):
                    raise error
                if error is not None and worker.step is not None and type(error).__name__ != "KilledWorker":
                    raise error
                self._gone(worker)
                continue
            found, worker.future = worker.future.result(), None
            if isinstance(found, Introduction):
                worker.who = found
                self._model(found, folders)
            elif worker.step is not None and worker.who is not None:
                step, worker.step = worker.step, None
                self._record(self.models[worker.who.gpu], step, found)
                if found.lost:
                    del self.workers[address]
                    self.client.restart_workers([address], raise_for_error=False)

    def _model(self, who: Introduction, folders: ExitStack) -> None:
        """Opens the results folders of a model of GPU that is new, and plans its work."""
        self.progress.note(f"worker on {who.host}: {who.gpu} ({who.unit}), process {who.process}")
        if who.gpu in self.models:
            return
        device = Elsewhere(who.device, who.gpu, who.arch, object() if who.timed else None)
        session = Session(cast(Device, device), self.known)
        work = {one.name: plan_work(one, self.known, self.choice) for one in self.experiments}
        runs = {
            one.name: folders.enter_context(
                opened(
                    one,
                    session,
                    self.place(who.gpu, one.name),
                    self.choice,
                    () if self.ends is not None else work[one.name],
                    self.progress,
                )
            )
            for one in self.experiments
            if work[one.name]
        }
        there = [(one, runs[one.name], work[one.name]) for one in self.experiments if one.name in runs]
        now = time.monotonic()
        if self.ends is None:
            steps = tuple(
                Step(one.name, one.paper, problem, tuple(waiting), "all", 0.0)
                for one, run, some in there
                for problem, names in some
                if (waiting := run.waiting(problem, names))
            )
            plan = Plan(steps, frozenset(range(len(steps))), 0.0)
        else:
            plan = make_plan(there, self.costs, (self.ends - now) * max(1, len(self.workers)))
            for line in plan.lines():
                self.progress.note(line)
        self.models[who.gpu] = Model(plan, runs, deque(plan.steps), now)
        self.progress.start(f"cluster, {who.gpu}", sum(len(step.kernels) for step in plan.steps))

    def _hand_out(self) -> None:
        for address, worker in self.workers.items():
            if worker.who is None or worker.step is not None:
                continue
            model = self.models[worker.who.gpu]
            step = self._next(model)
            if step is None:
                continue
            run = model.runs[step.experiment]
            name = step.problem.name
            done = frozenset(key for key in run.results.done if key[1] == name)
            experiment = next(one for one in self.experiments if one.name == step.experiment)
            job = Job(experiment, step.problem, step.kernels, step.scope, self.choice, done)
            self.progress.step(f"{step.experiment} {name} {step.problem.dtype} on {worker.who.host} {worker.who.unit}")
            worker.step = step
            worker.future = self.client.submit(perform, job, self.device, workers=[address], pure=False)

    def _next(self, model: Model) -> Step | None:
        """The next step that fits into the time that is left."""
        while model.queue:
            step = model.queue.popleft()
            if self.ends is None or step.seconds <= self.ends - time.monotonic():
                return step
            model.left_out.append(step)
        return None

    def _record(self, model: Model, step: Step, part: Part) -> None:
        run = model.runs[step.experiment]
        results = run.results
        fresh = [record for record in part.records if record.key not in results.done]
        if fresh:
            environment = results.add_environment(part.snapshot)
            results.add(replace(record, environment=environment) for record in fresh)
        for memory in part.memories:
            results.add_memory(memory)
        for tuning in part.tunings:
            results.add_tuning(tuning)
        run.attempts.counts.update(part.counts)
        run.attempts.reasons.update(part.reasons)
        run.planned |= part.planned
        run.planless |= part.planless
        for note in part.notes:
            self.progress.note(note)
        for _ in step.kernels:
            self.progress.advance()
        if part.lost:
            rest = run.waiting(step.problem, step.kernels, step.scope)
            model.lost[step] += 1
            if rest and model.lost[step] < TRIES:
                again = replace(step, kernels=tuple(rest))
                model.lost[again] = model.lost[step]
                model.queue.appendleft(again)
            elif rest:
                model.left_out.append(step)
