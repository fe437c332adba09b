"""Pretended workers of a cluster, for tests of who gets which work. Not a test file."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

from fakes import FakeDevice, FakeKernel
from small_sweeps import PEAKS, Notes, Small

from nnzbench.bench.cluster import worker
from nnzbench.bench.cluster.run import ClusterRun
from nnzbench.bench.costs import Costs
from nnzbench.bench.phases import Work
from nnzbench.bench.session import Session
from nnzbench.bench.sweep import Choice
from nnzbench.results.records.record import read_records


class Some(Small):
    count = 5


class Future:
    def __init__(self, result=None, error=None, pending=False):
        self._result, self._error, self._pending = result, error, pending
        self.status = "pending" if pending else "error" if error else "finished"

    def done(self):
        return not self._pending

    def result(self):
        return self._result

    def exception(self):
        return self._error

    def add_done_callback(self, told):
        if not self._pending:
            told(self)

    def cancel(self):
        self.status, self._pending = "cancelled", False


class Client:
    """Runs what is submitted at once, as one of the workers that it is for; `dies` says at which of its jobs one is
    killed.

    What `instead` gives for a function and its arguments, if anything, is the answer in place of that.
    """

    def __init__(self, gpus, dies=None, reborn=True, instead=lambda what, *arguments: None, unit="GPU-of-{}"):
        self.gpus = dict(gpus)
        self.dies, self.reborn, self.instead = dict(dies or {}), reborn, instead
        self.jobs = dict.fromkeys(self.gpus, 0)
        self.restarted, self.claimed, self.done_by = [], {}, {}
        self.at, self.unit = "", unit

    def nthreads(self):
        return dict.fromkeys(self.gpus, 1)

    def submit(self, what, *arguments, pure, workers=None, resources=None):
        assert not pure  # Dask would give the result of an equal job again
        if workers is None:
            ((unit, _),) = resources.items()
            workers = sorted((at for at in self.gpus if self.claimed.get(at) == unit), key=self.jobs.get)[:1]
        if not workers:
            return Future(pending=True)
        (self.at,) = workers
        if (answer := self.instead(what, *arguments)) is not None:
            return answer
        if what is worker.perform:
            self.jobs[self.at] += 1
            if self.dies.get(self.at) == self.jobs[self.at]:
                return self.die(self.at)
        try:
            future = Future(what(*arguments))
        except Exception as error:
            return Future(error=error)
        self.done_by[future] = self.at
        return future

    def die(self, at):
        """Dask says so of a job whose worker is gone."""
        gpu = self.gpus.pop(at)
        if self.reborn:
            self.gpus[f"{at}'"], self.jobs[f"{at}'"] = gpu, 0
        return Future(error=type("KilledWorker", (Exception,), {})())

    def run(self, what, *arguments, workers, on_error):
        assert on_error == "ignore"
        if what is worker.claim:
            (unit,), (at,) = arguments, workers
            self.claimed[at] = unit
        return {}

    def who_has(self, futures):
        return {id(one): (self.done_by[one],) for one in futures}

    def restart_workers(self, addresses, raise_for_error):
        """Those whose device was lost: each comes back under another address."""
        self.restarted += addresses
        for address in addresses:
            self.die(address)


class Ticking:
    """A clock that goes on a little each time it is read: what waits for it ends, and no host is too slow."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 0.01
        return self.now


class Sessions(dict):
    """Of the process that is at work."""

    def __init__(self, session):
        self._session = session

    def __getitem__(self, device):
        return self._session(device)


def run(tmp_path, monkeypatch, client, kernels=None, choice=None, ends=None, names=("one", "two"), costs=None):
    kernels = {kernel.name: kernel for kernel in kernels or [FakeKernel("a"), FakeKernel("b")]}
    sessions = {}

    def session(device):
        if client.at not in sessions:
            opened = FakeDevice(gpu=client.gpus[client.at])
            work = Work(turn=lambda: nullcontext())
            sessions[client.at] = Session(opened, kernels, PEAKS, {"driver": "1"}, opened.timer.clock, work=work)
        return sessions[client.at]

    monkeypatch.setattr(worker, "_device", lambda name: session(name).device)
    monkeypatch.setattr(worker, "Session", lambda *_, **__: session(None))
    monkeypatch.setattr(worker, "open_session", lambda *_: session(None))
    monkeypatch.setattr(worker, "_sessions", Sessions(session))
    monkeypatch.setattr(worker, "visible_gpus", lambda: [SimpleNamespace(unit=client.unit.format(client.at))])
    experiments = [Some(name, "", "paper", "", dict.fromkeys(kernels, ("f32",))) for name in names]
    progress = Notes()

    def place(gpu, name):
        return tmp_path / gpu / name

    choice = choice or Choice()
    every = ClusterRun(client, experiments, choice, kernels, place, None, costs or Costs(), progress, ends, started=0.0)
    return every.run(), progress.notes


def rows(tmp_path, gpu="h200", name="one"):
    return read_records(tmp_path / gpu / name / "records.csv")


def complete(found, kernels=2):
    assert len(found) == len({row.key for row in found}) == 5 * kernels * 2
    assert all(row.status == "ok" for row in found)
