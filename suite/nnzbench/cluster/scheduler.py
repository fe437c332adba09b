"""Hands problems to workers one at a time, records what they bring, and takes back what a dead one had.

A job is pure: a worker records nothing, and its rows are written here when it is done. So what is recorded is whole,
and what a worker had when it died is done again by another, never twice. GPUs of one model share its work; every
model does all of it, into its own folders. All kernels of a problem, in all its types, run on one GPU: their times can
be compared. Several workers may share a GPU: each has it for itself while it measures, and the others plan, compile and
check.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, cast

from nnzbench.cluster.work import TRIES, Model, Unit, abreast, homes
from nnzbench.cluster.worker import Introduction, Job, Part, Settled, arrive, digest, perform, settle, so_far
from nnzbench.devices import Device
from nnzbench.kernels.registry import AnyKernel, VendorKernel
from nnzbench.measure import phases
from nnzbench.measure.attempts import REASON_LENGTH
from nnzbench.measure.budget import Done, Resources, Schedule, Step, make_schedule, tuned
from nnzbench.measure.costs import Costs
from nnzbench.measure.session import Session
from nnzbench.measure.sweep import Choice, Summary, opened, plan_work, wanted_kernels
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.experiment import Experiment
from nnzbench.problems.operands import matrix_of
from nnzbench.progress import RunProgress

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


@dataclass
class Worker:
    """What one worker is doing; `step` is None while it introduces itself, measures its GPU, and between jobs."""

    future: Any
    who: Introduction | None = None
    step: Step | None = None
    since: float = 0.0
    """When it got the step."""
    matrix: tuple[object, ...] = ()
    """Of its last step."""

    @property
    def unit(self) -> Unit:
        """Its GPU."""
        return (self.who.host, self.who.unit) if self.who else ("", "")


@dataclass
class Scheduler:
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
    workers: dict[str, Worker] = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict)
    units: dict[Unit, Settled | None] = field(default_factory=dict)
    """GPUs; None while one is measured."""
    _arrived: float | None = None
    _met: float = -MEET_S
    _news: Event = field(default_factory=Event)

    def run(self) -> list[Summary]:
        """Everything, on every model of GPU among the workers. Raises `Unsupported` where no worker can work."""
        try:
            with ExitStack() as folders:
                self._work(folders)
        finally:  # also of an interrupted run
            for line in self._done():
                self.progress.note(line)
        return [run.summary() for model in self.models.values() for run in model.runs.values()]

    def _work(self, folders: ExitStack) -> None:
        idle_since = time.monotonic()
        while not self._finished() and not self._late():
            self._meet()
            self._listen()
            self._plan(folders)
            self._hand_out()
            if self.workers:
                idle_since = time.monotonic()
            elif not self.queued and time.monotonic() - idle_since > PATIENCE_S:
                raise Unsupported("the cluster has no worker: start some, or see their logs; all rows are kept")

    def _done(self) -> Iterator[str]:
        """What was not reached, and where the seconds went."""
        for gpu, model in self.models.items():
            done = Done(time.monotonic() - model.started, tuple(model.not_done())).lines(model.schedule)
            if self.ends is None:
                next(done)  # of the time that was planned
            yield from done
            yield from self._where(gpu, model)

    def _where(self, gpu: str, model: Model) -> Iterator[str]:
        """Where the seconds of a model's workers went."""
        workers, units = self._staff(gpu)
        yield from phases.lines(model.phases, max(1, workers))
        busy = sum(model.phases.get(phase, 0.0) for phase in phases.ON_GPU)
        lasted = time.monotonic() - model.started
        if busy and units:
            gpus = f"{units} GPUs were" if units > 1 else "the GPU was"
            yield f"In {lasted:.0f} s {gpus} in use for {busy / lasted / units:.0%} of the time."

    def _finished(self) -> bool:
        if not self.models or any(worker.future is not None for worker in self.workers.values()):
            return False
        return self._over() or not any(model.queue or model.short for model in self.models.values())

    def _over(self) -> bool:
        """Whether nothing more is to be begun."""
        left = self._left()
        return left is not None and left <= 0.0

    def _left(self) -> float | None:
        """Seconds; None for all that it takes."""
        return None if self.ends is None else self.ends - time.monotonic()

    def _late(self) -> bool:
        """Whether workers are at something that does not end; what they have done of it is recorded all the same."""
        if self.ends is None or time.monotonic() < self.ends + GRACE_S:
            return False
        busy = {at: worker for at, worker in self.workers.items() if worker.step is not None}
        parts: dict[str, Part | None] = {}

        def ask(address: str) -> None:
            with suppress(Exception):  # who does not answer is left out
                parts.update(self.client.run(so_far, workers=[address], on_error="ignore"))

        # a call that can't be interrupted may keep a worker from answering at all
        asking = [Thread(target=ask, args=(address,), daemon=True) for address in busy]
        for thread in asking:
            thread.start()
        until = time.monotonic() + RESCUE_S
        for thread in asking:
            thread.join(max(0.0, until - time.monotonic()))
        for address, worker in busy.items():
            if worker.step is None or worker.who is None:
                continue
            model, part = self.models[worker.who.gpu], parts.get(address)
            if part is None:
                model.left_out.append(worker.step)
            else:
                self._record(model, worker.step, part)
        return True

    def _meet(self) -> None:
        """Greets new workers and takes back what those had that are gone."""
        if time.monotonic() - self._met < MEET_S:
            return
        self._met = time.monotonic()
        present = set(self.client.nthreads())
        for address in present - set(self.workers):
            self.workers[address] = Worker(self._submit(address, arrive, self._libraries()))
        for address in set(self.workers) - present:
            self._gone(self.workers.pop(address))

    def _libraries(self) -> tuple[str, ...]:
        """Kernels of the experiments that are a library's."""
        wanted = dict.fromkeys(name for one in self.experiments for name in wanted_kernels(one, self.choice))
        return tuple(name for name in wanted if isinstance(self.known.get(name), VendorKernel))

    def _submit(self, address: str, what: Callable[..., Any], *arguments: Any) -> Any:
        future = self.client.submit(what, *arguments, self.device, workers=[address], pure=False)
        future.add_done_callback(lambda _: self._news.set())
        return future

    def _gone(self, worker: Worker) -> None:
        if worker.future is not None:
            worker.future.cancel()
            if worker.who is not None and worker.step is None:
                self.units.pop(worker.unit, None)  # it was measuring the GPU: another one does
        if worker.step is None or worker.who is None:
            return
        model = self.models[worker.who.gpu]
        model.forget(worker.step, worker.unit)
        what = f"{worker.step.experiment} {worker.step.problem.name}"
        if model.again(worker.step, worker.step.kernels):
            self.progress.note(f"a worker on {worker.who.host} died at {what}, which another one gets")
        else:
            self.progress.note(f"{what} has ended {TRIES} workers and is left out; go on with --resume")

    def _listen(self) -> None:
        """Takes in what workers have done since the last time, waiting a little for the first."""
        self._news.wait(POLL_S)
        self._news.clear()
        for address, worker in list(self.workers.items()):
            if worker.future is None or not worker.future.done():
                continue
            if worker.future.status != "finished":
                error = worker.future.exception() if worker.future.status == "error" else None
                if error is not None and worker.step is not None and type(error).__name__ != "KilledWorker":
                    self._failed(worker, worker.step, error)
                    continue
                del self.workers[address]
                if error is not None and type(error).__name__ != "KilledWorker":
                    raise error
                self._gone(worker)
                continue
            found, worker.future = worker.future.result(), None
            if isinstance(found, Introduction):
                worker.who = found
                self._arrived = self._arrived or time.monotonic()
                self.progress.note(f"worker: {found.gpu}, process {found.process}")
            elif isinstance(found, Settled):
                self.units[worker.unit] = found
                for note in found.notes:
                    self.progress.note(note)
            elif worker.step is not None and worker.who is not None:
                step, worker.step = worker.step, None
                model = self.models[worker.who.gpu]
                model.predicted += step.seconds
                model.taken += time.monotonic() - worker.since
                self._record(model, step, found)
                if found.lost:
                    del self.workers[address]
                    self.client.restart_workers([address], raise_for_error=False)

    def _failed(self, worker: Worker, step: Step, error: BaseException) -> None:
        """Leaves out what a worker could not do, such as a problem whose reference needs more memory than there is."""
        if worker.who is not None:
            self.models[worker.who.gpu].left_out.append(step)
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:REASON_LENGTH]
        self.progress.note(f"{step.experiment} {step.problem.name} is left out, go on with --resume ({reason})")
        worker.step = worker.future = None

    def _plan(self, folders: ExitStack) -> None:
        """Plans for the models of GPU that are new, once all workers that are there have said what they are."""
        if self._arrived is None:
            return
        every = [worker.who for worker in self.workers.values()]
        if None in every and time.monotonic() - self._arrived < ARRIVAL_S:
            return
        for who in every:
            if who is not None and who.gpu not in self.models:
                self._model(who, folders)

    def _staff(self, gpu: str) -> tuple[int, int]:
        """How many workers a model has, and how many GPUs they time on."""
        here = [worker for worker in self.workers.values() if worker.who and worker.who.gpu == gpu]
        return len(here), len({worker.unit for worker in here if worker.who and worker.who.timed})

    def _model(self, who: Introduction, folders: ExitStack) -> None:
        """Opens the results folders of a model of GPU that is new, and plans its work."""
        device = SimpleNamespace(  # as this process sees it: enough to know what is recorded of it
            name=who.device, gpu=who.gpu, arch=who.arch, timer=object() if who.timed else None, link="",
            compiles_from_cache=False,
        )  # fmt: skip
        session = Session(cast(Device, device), self.known)
        there = []
        for one in self.experiments:
            if some := plan_work(one, self.known, self.choice):
                place, again = self.place(who.gpu, one.name), () if self.ends is not None else some
                run = folders.enter_context(opened(one, session, place, self.choice, again, self.progress))
                there.append((one, run, some))
        runs = {one.name: run for one, run, _ in there}
        now = time.monotonic()
        workers, units = self._staff(who.gpu)
        here = Resources(workers, units or workers)  # where nothing is timed each has a processor
        if self.ends is None:
            every = [step for one, run, some in there for step in tuned(one, run, some, self.costs)]
            steps = abreast(every, here.wall_of(every))
            schedule = Schedule(steps, frozenset(range(len(steps))), 0.0)
        else:
            gone = now - self.started
            schedule = make_schedule(there, self.costs, self.ends - self.started, gone, here, self.typical)
            self.progress.tell(schedule.line())
            for line in schedule.lines():
                self.progress.note(line)
        model = self.models[who.gpu] = Model(schedule, runs, deque(schedule.steps), now)
        known = {digest(worker.who): worker.unit for worker in self.workers.values() if worker.who}
        for step, unit in homes(schedule, runs, known):
            model.begin(step, unit)
        for name, run in runs.items():
            model.done[name] = defaultdict(dict)
            for key, median_us in run.results.done.items():
                model.done[name][key[1]][key] = median_us
        ends = None if self.ends is None else schedule.until(now, self.ends)
        self.progress.start("run", sum(len(one.schedule.fitting) for one in self.models.values()), ends)

    def _hand_out(self) -> None:
        for address, worker in self.workers.items():
            if worker.who is None or worker.future is not None:
                continue
            settled = self.units.get(worker.unit)
            if settled is None:
                if worker.unit not in self.units:
                    self.units[worker.unit] = None
                    worker.future = self._submit(address, settle)
                continue
            model = self.models.get(worker.who.gpu)
            sole = not any(other.step and other.unit == worker.unit for other in self.workers.values())
            others = {other.matrix for other in self.workers.values()}
            step = model.next_step(worker.unit, worker.matrix, self._left(), others, sole) if model else None
            if model is None or step is None:
                continue
            done = dict(model.done[step.experiment][step.problem.name])
            experiment = next(one for one in self.experiments if one.name == step.experiment)
            job = Job(experiment, step.problem, step.kernels, step.scope, self.choice, done, self._left())
            self.progress.step(f"{step.experiment} {step.problem.name} {step.problem.dtype}")
            model.begin(step, worker.unit)
            worker.step, worker.since, worker.matrix = step, time.monotonic(), matrix_of(step.problem)
            worker.future = self._submit(address, perform, job, settled)

    def _record(self, model: Model, step: Step, part: Part) -> None:
        run = model.runs[step.experiment]
        results = run.results
        fresh = [record for record in part.records if record.key not in results.done]
        if fresh:
            environment = results.add_environment(part.snapshot)
            results.add(replace(record, environment=environment) for record in fresh)
            model.done[step.experiment][step.problem.name].update((one.key, one.median_us) for one in fresh)
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
        rest = run.waiting(step.problem, step.kernels, step.scope)
        back = part.lost
        if part.lost and rest:
            model.again(step, rest)
        elif part.short and not self._over():
            back = model.again(step, part.short, short=True)
            what = "is tried again when no other worker is at work" if back else "is left out, go on with --resume"
            kernels = ", ".join(part.short)
            self.progress.note(f"{step.experiment} {step.problem.name} {what}: there was no memory for {kernels}")
        elif rest:  # the time is over
            model.left_out.append(step)
        if not back:
            self.progress.advance()
