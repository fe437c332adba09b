"""Work that devices and workers fail at again and again, and what comes back beside rows: without Dask."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest
from fake_cluster import Client, Future, complete, rows, run
from fake_records import record
from fakes import FakeKernel

from nnzbench.cluster import scheduler, worker
from nnzbench.cluster.work import Model
from nnzbench.measure.budget import DAMPING_S, Schedule, Step
from nnzbench.problems.problem import Problem
from nnzbench.records.beside import MEMORY, Memory, Use

pytestmark = pytest.mark.usefixtures("clock")


class Restarts(Client):
    """Each worker whose device is lost comes back under another address."""

    def restart_workers(self, addresses, raise_for_error):
        super().restart_workers(addresses, raise_for_error)
        for address in addresses:
            self.gpus[f"{address}'"], self.jobs[f"{address}'"] = self.gpus.pop(address), 0


def test_tuning_that_loses_every_device_is_left_out_after_three(tmp_path, monkeypatch):
    kernels = [FakeKernel("a"), FakeKernel("b", {f"v{at}": (10.0, "lost") for at in range(9)})]
    client = Restarts({"w": "h200"})
    _, notes = run(tmp_path, monkeypatch, client, kernels, ends=1e6, names=("one",))
    tried = {}
    for row in rows(tmp_path):
        tried.setdefault(row.problem, set()).update({row.variant} if row.kernel == "b" else ())
    assert sorted(tried) == [f"p{at}" for at in range(5)]
    assert set(map(len, tried.values())) == {1 + scheduler.TRIES}
    assert "  one: 5 of 5 problems not tuned" in notes


def test_memory_comes_back_with_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("nnzbench.measure.memory.OPS", {"spmm"})
    monkeypatch.setattr("nnzbench.measure.memory.measure", lambda *_: Use(1, 5, 1))
    run(tmp_path, monkeypatch, Client({"w": "h200"}), names=("one",))
    found = MEMORY.read(tmp_path / "h200" / "one")
    assert {row.candidate[:4] for row in found} == {
        (f"p{at}", "f32", kernel, "v1") for at in range(5) for kernel in "ab"
    }
    assert {row.use for row in found} == {Use(1, 5, 1)}


def test_a_gpu_whose_worker_died_measuring_it_is_measured_by_the_next(tmp_path, monkeypatch):
    class DiesSettling(Client):
        def submit(self, what, *arguments, workers, pure):
            monkeypatch.setattr(worker, "visible_gpus", lambda: [SimpleNamespace(unit="the same GPU")])
            if what is worker.settle and workers == ["w"] and "w" in self.gpus:
                self.gpus["w'"], self.jobs["w'"] = self.gpus.pop("w"), 0
                return Future(pending=True)
            return super().submit(what, *arguments, workers=workers, pure=pure)

    run(tmp_path, monkeypatch, DiesSettling({"w": "h200"}), ends=100.0, names=("one",))
    complete(rows(tmp_path))


def step(name, scope, source="uniform:0"):
    return Step("one", "paper", Problem("one", name, "spmm", 8, 8, 8, 0.5, source), ("k",), scope, 1.0)


def test_tuning_waits_for_the_first_choices_though_it_has_the_matrix_and_the_gpu():
    first, tuned = step("p0", "first"), step("p1", "all", "uniform:1")
    model = Model(Schedule((first, tuned), frozenset(), 100.0), {}, deque([first, tuned]), 0.0)
    unit = ("host", "GPU")
    model.begin(tuned, unit)
    model.begin(first, ("host", "another"))
    assert model.next_step(unit, (), None) is first
    assert model.next_step(unit, (), None) is tuned


def test_the_pace_is_that_of_the_steps_and_not_of_the_whole_run(tmp_path, monkeypatch, clock):
    clock.now, made = 1e6, []
    monkeypatch.setattr(scheduler, "Model", lambda *of: made.append(Model(*of)) or made[-1])
    run(tmp_path, monkeypatch, Client({"w": "h200"}), names=("one",))
    (model,) = made
    assert DAMPING_S < model.taken < DAMPING_S + 10.0


def test_what_a_job_has_brought_is_known_within_it():
    part = worker.Part({})
    collected = worker.Collected(part, [record(problem="p0").key])
    collected.add([record(problem="p1")])
    collected.add_memory(Memory("p1", "f32", "k", "v", "cupy", 1, 2, 1))
    assert collected.done == {record(problem=name).key for name in ("p0", "p1")}
    assert ([row.problem for row in part.records], len(part.memories)) == (["p1"], 1)
