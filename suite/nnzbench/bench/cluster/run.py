"""A run on the workers of a Dask cluster: which GPU gets which steps, and their rows into the folders of this process.

A GPU is a resource of its workers, which share it: each has it for itself while it measures, and the others plan,
compile and check. Dask picks the worker. A job is pure: a worker records nothing, and its rows are written here when it
is done. So what is recorded is whole, and what a worker had when it died is done again by another, never twice. GPUs of
one model share its work; every model does all of it, into its own folders. All that is compared of a problem, in all
its types, is for one GPU.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, cast

from nnzbench.bench import phases
from nnzbench.bench.attempts import REASON_LENGTH
from nnzbench.bench.budget import Resources, Schedule, abreast, make_schedule, tuned
from nnzbench.bench.cluster.worker import Introduction, Job, Part, arrive, claim, perform, so_far
from nnzbench.bench.costs import Costs
from nnzbench.bench.session import Session
from nnzbench.bench.steps import Queue, Step
from nnzbench.bench.sweep import Choice, Run, Summary, opened, wanted_kernels
from nnzbench.core.plan import Unsupported
from nnzbench.core.progress import RunProgress
from nnzbench.data.problems.experiment import Experiment
from nnzbench.data.problems.problem import stem_of
from nnzbench.devices import Device
from nnzbench.kernels.registry import AnyKernel, VendorKernel

POLL_S = 0.2
MEET_S = 1.0
"""Between two looks at who is there: each asks the scheduler and waits for its answer."""
ARRIVAL_S = 15.0
"""How long planning waits for the other workers once the first has introduced itself."""
GRACE_S = 6.0
"""After its end a run waits so long for what workers are at: a reference or a long program can't be left half done."""
RESCUE_S = 3.0
"""Then, how long for an account of what they have done of it."""
PATIENCE_S = 90.0
"""How long there may be no worker at all where none is waited for in a queue."""
ALIKE_S = 60.0
"""Of steps with one matrix, that one worker gets together: many would make the same one."""
TRIES = 3
"""Workers that a step may cost, or times that it finds no memory, before it is left out."""


@dataclass
class Unit:
    """A GPU: its workers that are there, and the jobs that Dask has for it, each with when it got them."""

    who: Introduction
    workers: set[str] = field(default_factory=set)
    jobs: dict[Any, tuple[Job, float]] = field(default_factory=dict)


@dataclass
class Model:
    """The work of all GPUs of one model."""

    schedule: Schedule
    queue: Queue
    runs: dict[str, Run]
    started: float
    short: list[Step] = field(default_factory=list)
    """Steps that found no memory beside other workers: they are for the end, one at a time on a GPU."""
    lost: Counter[Step] = field(default_factory=Counter)
    """Workers that each step has cost, and times that it found no memory."""
    homes: dict[tuple[str, ...], str] = field(default_factory=dict)
    """GPUs that problems were begun on, in one type and in any: what is compared should come from one."""
    phases: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def take(self, unit: str, idle: bool) -> list[Step]:
        """The next steps for a GPU. First choices before tuning, and what was begun on another GPU last.

        At the end, for one that is `idle`, a step that found no memory.
        """
        head = self.queue.waiting[0].scope if self.queue.waiting else ""

        def rank(step: Step) -> tuple[bool, bool]:
            return step.scope != head, self._away(step, unit)

        found = self.queue.take(rank, ALIKE_S)
        if not found and idle and self.short and not self.queue.over():
            at = min(range(len(self.short)), key=lambda at: self._away(self.short[at], unit))
            found = [self.short.pop(at)]
        for step in found:
            self.begin(step, unit)
        return found

    def _away(self, step: Step, unit: str) -> bool:
        known = [self.homes[one] for one in _begun(step) if one in self.homes]
        return known[:1] not in ([], [unit])

    def begin(self, step: Step, unit: str) -> None:
        """Remembers where what is compared with this step should come from."""
        for one in _begun(step):
            self.homes.setdefault(one, unit)

    def again(self, step: Step, rest: Sequence[str], unit: str, short: bool = False) -> bool:
        """Puts back what is left of a step that has cost a worker, or was `short` of memory.

        False where that was once too often, and it is left out.
        """
        left = replace(step, kernels=tuple(rest))
        self.lost[left] = self.lost[step] + 1
        if self.lost[left] == TRIES:
            self.queue.leave_out(step)
            self.queue.done(step)
            return False
        if short:
            self.short.append(left)
            return True
        for one in _begun(step):
            if self.homes.get(one) == unit:  # any GPU may have it
                del self.homes[one]
        self.queue.give_back(left)
        return True

    def not_done(self) -> list[Step]:
        return [*self.queue.not_done(), *self.short]


def _begun(step: Step) -> tuple[tuple[str, ...], ...]:
    """What a problem is remembered by: in its type, and in any. Pages compare fp32 kernels with dense fp16, too."""
    name = step.problem.name
    return (step.experiment, name, step.problem.dtype), (step.experiment, stem_of(name))


@dataclass
class ClusterRun:
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
    started: float = field(default_factory=time.monotonic)
    """When the time began of which `ends` is the end."""
    queued: bool = False
    """Workers come when a queue lets them: there is no hurry."""
    typical: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Stems of the problems that stand for an experiment where there is time for a few."""
    arriving: dict[str, Any] = field(default_factory=dict)
    """By address, workers that open their device and introduce themselves."""
    units: dict[str, Unit] = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict)
    _present: set[str] = field(default_factory=set)
    _arrived: float | None = None
    _met: float = -MEET_S
    _news: Event = field(default_factory=Event)
    _name: str = field(default_factory=lambda: secrets.token_hex(8))

    def run(self) -> list[Summary]:
        """Everything, on every model of GPU among the workers. Raises `Unsupported` where no worker can work."""
        try:
            with ExitStack() as folders:
                seen = time.monotonic()
                while not self._finished():
                    self._meet()
                    self._news.wait(POLL_S)
                    self._news.clear()
                    self._listen()
                    self._plan(folders)
                    self._hand_out()
                    if self._present:
                        seen = time.monotonic()
                    elif not self.queued and time.monotonic() - seen > PATIENCE_S:
                        raise Unsupported("the cluster has no worker: start some, or see their logs; all rows are kept")
        finally:  # also of an interrupted run
            for gpu, model in self.models.items():
                for line in self._outcome(gpu, model):
                    self.progress.note(line)
        return [run.summary() for model in self.models.values() for run in model.runs.values()]

    def _outcome(self, gpu: str, model: Model) -> Iterator[str]:
        """What was not reached, and where the seconds of a model's workers went."""
        lasted = time.monotonic() - model.started
        if self.ends is not None:
            yield model.schedule.took(lasted)
        yield from model.schedule.unreached(model.not_done())
        staff = self._staff(gpu)
        yield from phases.lines(model.phases, staff.processes)
        busy = sum(model.phases.get(phase, 0.0) for phase in phases.ON_GPU)
        if busy and any(unit.who.timed for unit in self.units.values()):
            gpus = f"{staff.gpus} GPUs were" if staff.gpus > 1 else "the GPU was"
            yield f"In {lasted:.0f} s {gpus} in use for {busy / lasted / staff.gpus:.0%} of the time."

    def _staff(self, gpu: str) -> Resources:
        """The workers of a model, and its GPUs; where nothing is timed each worker has a processor."""
        here = [unit for unit in self.units.values() if unit.who.gpu == gpu and unit.workers]
        workers = max(1, sum(len(unit.workers) for unit in here))
        return Resources(workers, max(1, len(here)) if any(unit.who.timed for unit in here) else workers)

    def _finished(self) -> bool:
        if not self.models or self.arriving or any(unit.jobs for unit in self.units.values()):
            return self._late()
        offered = {unit.who.gpu for unit in self.units.values() if unit.workers}  # and there was nothing that fits
        return all(
            gpu in offered or model.queue.over() or not (model.queue.waiting or model.short)
            for gpu, model in self.models.items()
        )

    def _late(self) -> bool:
        """Whether workers are at something that does not end; what they have done of it is recorded all the same."""
        if self.ends is None or time.monotonic() < self.ends + GRACE_S:
            return False
        parts: list[Part] = []

        def ask(address: str) -> None:
            with suppress(Exception):  # who does not answer is left out
                found = self.client.run(so_far, workers=[address], on_error="ignore")
                parts.extend(part for part in found.values() if part is not None)

        # a call that can't be interrupted may keep a worker from answering at all
        asking = [Thread(target=ask, args=(address,), daemon=True) for address in self._present]
        for thread in asking:
            thread.start()
        until = time.monotonic() + RESCUE_S
        for thread in asking:
            thread.join(max(0.0, until - time.monotonic()))
        told = {part.job.steps: part for part in list(parts)}
        for unit in self.units.values():
            for job, _ in unit.jobs.values():
                self._record(unit, told.get(job.steps) or Part(job))
            unit.jobs.clear()
        return True

    def _meet(self) -> None:
        """Greets new workers; what Dask has for a GPU without a worker is for another one."""
        if time.monotonic() - self._met < MEET_S:
            return
        self._met = time.monotonic()
        present = set(self.client.nthreads())
        for address in present - self._present:
            wanted = dict.fromkeys(name for one in self.experiments for name in wanted_kernels(one, self.choice))
            libraries = tuple(name for name in wanted if isinstance(self.known.get(name), VendorKernel))
            self.arriving[address] = self._submit(arrive, libraries, self._name, workers=[address])
        for address in self._present - present:
            self.arriving.pop(address, None)
        self._present = present
        for unit in self.units.values():
            unit.workers &= present
            if not unit.workers:
                for future in list(unit.jobs):
                    future.cancel()
                    self._died(unit, unit.jobs.pop(future)[0])

    def _submit(self, what: Callable[..., Any], *arguments: Any, **where: Any) -> Any:
        future = self.client.submit(what, *arguments, self.device, pure=False, **where)
        future.add_done_callback(lambda _: self._news.set())
        return future

    def _listen(self) -> None:
        """Takes in what workers have done since the last time."""
        for address, future in list(self.arriving.items()):
            if future.done():
                del self.arriving[address]
                if (error := _error_of(future)) is not None:
                    raise error
                if future.status == "finished":
                    self._greet(address, future.result())
                else:
                    self._present.discard(address)  # greeted again if it comes back
        for unit in self.units.values():
            for future in [one for one in unit.jobs if one.done()]:
                job, since = unit.jobs.pop(future)
                if future.status == "finished":
                    part: Part = future.result()
                    self.models[unit.who.gpu].queue.timed(job.steps, time.monotonic() - since)
                    self._record(unit, part)
                    if part.lost:
                        where = {address for some in self.client.who_has([future]).values() for address in some}
                        unit.workers -= where
                        self._present -= where  # each introduces itself anew
                        self.client.restart_workers(list(where), raise_for_error=False)
                elif (error := _error_of(future)) is not None:
                    self._failed(unit, job, error)
                else:
                    self._died(unit, job)

    def _greet(self, address: str, who: Introduction) -> None:
        self._arrived = self._arrived or time.monotonic()
        if who.unit not in self.units:
            for note in who.notes:
                self.progress.note(note)
        self.progress.note(f"worker: {who.gpu}, process {who.process}")
        self.client.run(claim, who.unit, workers=[address], on_error="ignore")
        self.units.setdefault(who.unit, Unit(who)).workers.add(address)

    def _died(self, unit: Unit, job: Job) -> None:
        model = self.models[unit.who.gpu]
        for step in job.steps:
            if model.again(step, step.kernels, unit.who.unit):
                self.progress.note(f"a worker on {unit.who.host} died at {step}, which another one gets")
            else:
                self.progress.note(f"{step} has ended {TRIES} workers and is left out; go on with --resume")

    def _failed(self, unit: Unit, job: Job, error: BaseException) -> None:
        """Leaves out what a worker could not do, such as a problem whose reference needs more memory than there is."""
        model = self.models[unit.who.gpu]
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:REASON_LENGTH]
        for step in job.steps:
            if len(job.steps) > 1:  # one of them: each is for itself now
                model.again(step, step.kernels, unit.who.unit)
                continue
            model.queue.leave_out(step)
            model.queue.done(step)
            self.progress.note(f"{step} is left out, go on with --resume ({reason})")

    def _plan(self, folders: ExitStack) -> None:
        """Plans for the models of GPU that are new, once all workers that are there have said what they are."""
        if self._arrived is None or (self.arriving and time.monotonic() - self._arrived < ARRIVAL_S):
            return
        for unit in self.units.values():
            if unit.who.gpu not in self.models:
                self._model(unit.who, folders)

    def _model(self, who: Introduction, folders: ExitStack) -> None:
        """Opens the results folders of a model of GPU that is new, and plans its work."""
        device = SimpleNamespace(  # as this process sees it: enough to know what is recorded of it
            name=who.device, gpu=who.gpu, arch=who.arch, timer=object() if who.timed else None, link="",
            compiles_from_cache=False,
        )  # fmt: skip
        session = Session(cast(Device, device), self.known)
        opens = opened(
            self.experiments, session, lambda name: self.place(who.gpu, name), self.choice, self.progress,
            whole=self.ends is None,
        )  # fmt: skip
        planned = folders.enter_context(opens)
        now, here = time.monotonic(), self._staff(who.gpu)
        if self.ends is None:
            every = [step for one, run, work in planned for step in tuned(one, run, work, self.costs)]
            steps = abreast(every, here.wall_of(every))
            schedule = Schedule(steps, frozenset(range(len(steps))), 0.0)
        else:
            gone = now - self.started
            schedule = make_schedule(planned, self.costs, self.ends - self.started, gone, here, self.typical)
            self.progress.tell(schedule.line())
            for line in schedule.lines():
                self.progress.note(line)
        runs = {one.name: run for one, run, _ in planned}
        queue = Queue(schedule.steps, self.ends, time.monotonic)
        model = self.models[who.gpu] = Model(schedule, queue, runs, now)
        for step, unit in homes(schedule, runs):
            if unit in self.units:
                model.begin(step, unit)
        ends = None if self.ends is None else schedule.until(now, self.ends)
        self.progress.start("run", sum(len(one.schedule.fitting) for one in self.models.values()), ends)

    def _hand_out(self) -> None:
        """As many jobs for each GPU as it has workers: more would be behind their time when they are begun."""
        for unit in self.units.values():
            model = self.models.get(unit.who.gpu)
            while model is not None and len(unit.jobs) < len(unit.workers):
                steps = model.take(unit.who.unit, not unit.jobs)
                if not steps:
                    break
                run = model.runs[steps[0].experiment]
                experiment = next(one for one in self.experiments if one.name == steps[0].experiment)
                name, results = run.attempts.experiment, run.results
                kernels = {(one.problem.name, one.problem.dtype, kernel) for one in steps for kernel in one.kernels}
                done = {key: results.done[key] for one in kernels for key in results.of_kernel.get((name, *one), ())}
                by_type = sorted(steps, key=lambda step: step.problem.dtype)  # the matrix is rounded once for each
                job = Job(experiment, tuple(by_type), self.choice, done, model.queue.left_s)
                unit.jobs[self._submit(perform, job, resources={unit.who.unit: 1})] = job, time.monotonic()
                self.progress.step(str(steps[0]))

    def _record(self, unit: Unit, part: Part) -> None:
        """Writes what a job brought, and gives back what it did not."""
        model = self.models[unit.who.gpu]
        run = model.runs[part.job.experiment.name]
        results = run.results
        fresh = [record for record in part.records if record.key not in results.done]
        if fresh:
            environment = results.add_environment(unit.who.environment)
            results.add(replace(record, environment=environment) for record in fresh)
        for memory in part.memories:
            results.add_memory(memory)
        for tuning in part.tunings:
            results.add_tuning(tuning)
        run.attempts.counts.update(part.counts)
        run.planned |= part.planned
        run.planless |= part.planless
        for note in part.notes:
            self.progress.note(note)
        for phase, seconds in part.seconds.items():
            model.phases[phase] += seconds
        for step in part.job.steps:
            rest = run.waiting(step.problem, step.kernels, step.scope)
            short = part.short.get(step, ())
            back = part.lost and bool(rest) and model.again(step, rest, unit.who.unit)
            if not part.lost and short and not model.queue.over():
                back = model.again(step, short, unit.who.unit, short=True)
                what = "is tried again when no other worker is at work" if back else "is left out, go on with --resume"
                kernels = ", ".join(short)
                self.progress.note(f"{step} {what}: there was no memory for {kernels}")
            elif rest and not part.lost:  # the time is over
                model.queue.leave_out(step)
            if not back:
                model.queue.done(step)
                self.progress.advance()


def _error_of(future: Any) -> BaseException | None:
    """What a job raised; None where its worker died."""
    error = future.exception() if future.status == "error" else None
    return None if error is None or type(error).__name__ == "KilledWorker" else error


def homes(schedule: Schedule, runs: Mapping[str, Run]) -> Iterator[tuple[Step, str]]:
    """The steps whose problem an earlier run began, and the GPU that its snapshot says it began it on."""
    units: dict[tuple[str, str], str] = {}
    for step in schedule.steps:
        results = runs[step.experiment].results
        file = results.measured_in.get((step.problem.name, step.problem.dtype))
        if file is not None:
            if (step.experiment, file) not in units:
                units[step.experiment, file] = str(results.snapshot(file).get("worker", ""))
            yield step, units[step.experiment, file]
