"""Who gets which problem, what becomes of work that workers and devices fail at, and where rows go: without Dask."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import asdict, replace

import pytest
from fake_cluster import Client, Future, complete, rows, run
from fake_records import record
from fakes import FakeDevice, FakeKernel
from small_sweeps import PEAKS

from nnzbench.bench import trial
from nnzbench.bench.cluster import run as cluster_run
from nnzbench.bench.cluster import worker
from nnzbench.bench.costs import Costs
from nnzbench.bench.sweep import Choice
from nnzbench.core.plan import Unsupported
from nnzbench.devices.gpu import LaunchError
from nnzbench.results.records.beside import MEMORY, TUNING, Memory, Tuning, Use
from nnzbench.results.records.folder import Kept

pytestmark = pytest.mark.usefixtures("clock")


def snapshots(tmp_path):
    """Of model `h200` and experiment `one`: for each problem those that its rows name."""
    found = {}
    for row in rows(tmp_path):
        snapshot = json.loads((tmp_path / "h200" / "one" / row.environment).read_text())
        found.setdefault(row.problem, {})[snapshot["worker"]] = snapshot
    return found


def test_workers_share_the_problems_and_rows_come_to_one_folder(tmp_path, monkeypatch):
    client = Client({"w1": "h200", "w2": "h200"})
    summaries, _ = run(tmp_path, monkeypatch, client)
    for name in ("one", "two"):
        complete(rows(tmp_path, name=name))
    assert client.jobs["w1"] + client.jobs["w2"] == 10
    assert abs(client.jobs["w1"] - client.jobs["w2"]) <= 1
    assert [summary.counts.rows for summary in summaries] == [{"ok": 20}, {"ok": 20}]
    assert sum(row.selected for row in rows(tmp_path)) == 5 * 2 * 2


def test_rows_name_the_gpu_that_they_are_from_without_telling_which_it_is(tmp_path, monkeypatch):
    run(tmp_path, monkeypatch, Client({"w1": "h200", "w2": "h200"}), names=("one",))
    found = snapshots(tmp_path).values()
    assert all(len(some) == 1 for some in found)  # all kernels of a problem on one GPU
    assert len({worker for some in found for worker in some}) == 2
    assert "GPU-of" not in json.dumps(list(found))


@pytest.mark.parametrize(("at", "reborn"), [(1, True), (2, False), (5, True)])
def test_what_a_killed_worker_had_is_done_by_another_and_nothing_twice(tmp_path, monkeypatch, at, reborn):
    client = Client({"w1": "h200", "w2": "h200"}, {"w1": at}, reborn)
    _, notes = run(tmp_path, monkeypatch, client)
    for name in ("one", "two"):
        complete(rows(tmp_path, name=name))
    assert any("died at one" in note or "died at two" in note for note in notes)


def test_a_job_that_ends_every_worker_is_left_out_and_named(tmp_path, monkeypatch):
    client = Client({"w": "h200"}, {"w": 1, "w'": 1, "w''": 1})
    _, notes = run(tmp_path, monkeypatch, client, names=("one",))
    assert any("p0 f32 has ended 3 workers and is left out" in note for note in notes)
    assert {row.problem for row in rows(tmp_path)} == {"p1", "p2", "p3", "p4"}


def test_each_model_of_gpu_does_everything_in_its_own_folder(tmp_path, monkeypatch):
    run(tmp_path, monkeypatch, Client({"w1": "h200", "w2": "t4", "w3": "t4"}), names=("one",))
    for gpu in ("h200", "t4"):
        complete(rows(tmp_path, gpu))
        assert {row.gpu for row in rows(tmp_path, gpu)} == {gpu}


def test_a_run_that_was_cut_off_is_gone_on_with(tmp_path, monkeypatch):
    with pytest.raises(Unsupported, match="no worker"):
        run(tmp_path, monkeypatch, Client({"w": "h200"}, {"w": 3}, reborn=False), names=("one",))
    before = rows(tmp_path)
    assert len({row.problem for row in before}) == 2
    run(tmp_path, monkeypatch, Client({"w": "h200"}), choice=Choice(resume=True), names=("one",))
    complete(rows(tmp_path))
    assert {row.key for row in before} <= {row.key for row in rows(tmp_path)}


def test_a_lost_device_keeps_its_rows_and_its_worker_starts_anew(tmp_path, monkeypatch):
    kernels = [FakeKernel("a"), FakeKernel("b", {"v1": (10.0, "lost")})]
    client = Client({"w": "h200"})
    restart = client.restart_workers

    def anew(addresses, raise_for_error):
        restart(addresses, raise_for_error)
        kernels[1].variants["v1"] = (10.0, "")

    client.restart_workers = anew
    _, notes = run(tmp_path, monkeypatch, client, kernels, names=("one",))
    assert client.restarted == ["w"]
    assert any("stopped answering" in note for note in notes)
    found = rows(tmp_path)
    assert len(found) == len({row.key for row in found}) == 20
    assert [row.problem for row in found if row.status == "launch-error"] == ["p0", "p0"]  # said once, hot and cold


def test_a_budget_is_kept_and_what_is_left_out_is_named(tmp_path, monkeypatch):
    costs = Costs()
    for kernel in "ab":
        costs.add("one", Tuning("p0", "f32", kernel, "cupy", "hot+cold", 10_000, 10_000, 10_000.0))
    _, notes = run(tmp_path, monkeypatch, Client({"w": "h200"}), ends=12.0, names=("one",), costs=costs)
    text = "\n".join(notes)
    assert "one: untuned 4 of 5" in text or "one: untuned 5 of 5" in text
    assert "problems not tuned" in text
    assert ",first," in (tmp_path / "h200" / "one" / "tuning.csv").read_text()


def tuned_on_few_gpus(tmp_path):
    found = snapshots(tmp_path).values()
    assert sum(len(some) == 1 for some in found) >= 4  # the last is for who has nothing to do
    assert len({worker for some in found for worker in some}) == 2


def test_a_problem_is_tuned_on_the_gpu_that_it_was_begun_on(tmp_path, monkeypatch):
    kernels = [FakeKernel("a", {f"v{i}": (10.0 + i, "") for i in range(4)})]
    client = Client({"w1": "h200", "w2": "h200"})
    run(tmp_path, monkeypatch, client, kernels, ends=1000.0, names=("one",))
    assert len(rows(tmp_path)) == 5 * 4 * 2
    tuned_on_few_gpus(tmp_path)


def test_a_run_that_is_gone_on_with_tunes_problems_on_the_gpus_that_they_were_begun_on(tmp_path, monkeypatch, clock):
    kernels = [FakeKernel("a", {f"v{i}": (10.0 + i, "") for i in range(4)})]
    costs = Costs()
    costs.add("one", Tuning("p0", "f32", "a", "cupy", "hot+cold", 10_000, 10_000, 10_000.0))
    run(tmp_path, monkeypatch, Client({"w1": "h200", "w2": "h200"}), kernels, None, 12.0, ("one",), costs)
    assert len(rows(tmp_path)) == 5 * 1 * 2
    turned, resume = Client({"w2": "h200", "w1": "h200"}), Choice(resume=True)
    run(tmp_path, monkeypatch, turned, kernels, resume, clock.now + 1000.0, ("one",))
    found = rows(tmp_path)
    assert len(found) == len({row.key for row in found}) == 5 * 4 * 2
    tuned_on_few_gpus(tmp_path)


@pytest.mark.parametrize("answers", [True, False])
def test_of_work_that_does_not_end_what_is_done_is_kept_when_the_time_is_over(tmp_path, monkeypatch, clock, answers):
    parts = {}

    class Hangs(Client):
        def submit(self, what, *arguments, **where):
            future = super().submit(what, *arguments, **where)
            if what is not worker.perform or arguments[0].steps[0].problem.name != "p0":
                return future
            parts[self.at] = replace(future.result(), records=future.result().records[:3], tunings=[])
            return Future(pending=True)

        def run(self, what, *arguments, workers, on_error):
            if what is worker.so_far:
                return {at: parts.get(at) for at in workers} if answers else {}
            return super().run(what, *arguments, workers=workers, on_error=on_error)

    hangs = Hangs({"w": "h200", "v": "h200"})
    _, notes = run(tmp_path, monkeypatch, hangs, ends=60.0, names=("one",))
    assert 0.0 <= clock.now - (60.0 + cluster_run.GRACE_S) < 1.0
    assert "  one: 1 of 5 problems not reached" in notes
    before = rows(tmp_path)
    assert sum(row.problem == "p0" for row in before) == 3 * answers  # though both its steps bring them
    run(tmp_path, monkeypatch, Client({"w": "h200"}), choice=Choice(resume=True), names=("one",))
    complete(rows(tmp_path))
    assert {row.key for row in before} <= {row.key for row in rows(tmp_path)}


def test_a_worker_at_work_tells_what_it_has_done_so_far(tmp_path, monkeypatch):
    kernels = [FakeKernel("a"), FakeKernel("b")]
    told = []
    kernels[1].after_prepare = lambda: told.append(worker.so_far())
    run(tmp_path, monkeypatch, Client({"w": "h200"}), kernels, names=("one",))
    assert len(told) == 5
    for part in told:
        assert {row.kernel for row in part.records} == {tuning.kernel for tuning in part.tunings} == {"a"}
        assert part.counts.rows == {"ok": len(part.records)}
        assert part.seconds["preparing"] > 0.0  # which is under way
        assert len({row.problem for row in part.records}) == 1
    assert worker.so_far() is None


def test_a_problem_that_a_worker_can_not_do_is_left_out_and_named(tmp_path, monkeypatch):
    def fails(what, *arguments):
        if what is worker.perform and arguments[0].steps[0].problem.name == "p3":
            return Future(error=MemoryError("no 9 GB\nfor float64"))
        return None

    _, notes = run(tmp_path, monkeypatch, Client({"w": "h200"}, instead=fails), names=("one",))
    assert "one p3 f32 is left out, go on with --resume (MemoryError: no 9 GB for float64)" in notes
    assert {row.problem for row in rows(tmp_path)} == {"p0", "p1", "p2", "p4"}


def test_a_run_whose_workers_do_not_come_in_its_time_ends_with_it(tmp_path, monkeypatch, clock):
    late = Client({"w": "h200"}, instead=lambda what, *arguments: Future(pending=True))
    assert run(tmp_path, monkeypatch, late, ends=5.0) == ([], [])
    assert 0.0 <= clock.now - (5.0 + cluster_run.GRACE_S) < 1.0


def test_a_worker_without_a_gpu_says_so(tmp_path, monkeypatch):
    none = Future(error=Unsupported("no usable GPU (cupy: none)"))
    with pytest.raises(Unsupported, match="no usable GPU"):
        run(tmp_path, monkeypatch, Client({"w": "h200"}, instead=lambda what, *arguments: none))


def test_one_process_at_a_time_has_the_gpu_and_a_killed_one_gives_it_back(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / "gpu.lock"
    holds = (
        f"import fcntl\nfile = open({str(path)!r}, 'a')\nfcntl.flock(file, fcntl.LOCK_EX)\nprint('has it', flush=True)"
    )
    command = [sys.executable, "-c", f"{holds}\ninput()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "has it\n"
        got = threading.Event()

        def wait():
            with worker._locked(str(path)), path.open("a") as again:
                with pytest.raises(BlockingIOError):
                    fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
                got.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not got.wait(0.3)
        other.kill()
        assert got.wait(30.0)
        waiting.join()


def test_tuning_that_loses_every_device_is_left_out_after_three(tmp_path, monkeypatch):
    kernels = [FakeKernel("a"), FakeKernel("b", {f"v{at}": (10.0, "lost") for at in range(9)})]
    client = Client({"w": "h200"})
    _, notes = run(tmp_path, monkeypatch, client, kernels, ends=1e6, names=("one",))
    tried = {}
    for row in rows(tmp_path):
        tried.setdefault(row.problem, set()).update({row.variant} if row.kernel == "b" else ())
    assert sorted(tried) == [f"p{at}" for at in range(5)]
    assert set(map(len, tried.values())) == {1 + cluster_run.TRIES}
    assert "  one: 5 of 5 problems not tuned" in notes


class Short(FakeKernel):
    """Finds no memory for its variant v2 on p1, so many times."""

    def __init__(self, times, tried=lambda: None):
        super().__init__("b", {"v1": (10.0, ""), "v2": (10.0, "")})
        self.times, self.tried = times, tried

    def _prepare(self, problem, operands, device, variant, *more):
        if (problem.name, variant) == ("p1", "v2"):
            self.tried()
            self.times -= 1
            if self.times >= 0:
                raise LaunchError("Out of memory allocating 17,179,869,184 bytes")
        return super()._prepare(problem, operands, device, variant, *more)


def test_what_finds_no_memory_beside_other_workers_is_tried_again_without_them(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "PAUSES_S", ())
    order = []

    class Later(Future):
        looks = 9

        def done(self):
            self.looks -= 1
            return self.looks < 0

        def result(self):
            order.append("the last of the others")
            return super().result()

    class Slow(Client):
        def submit(self, what, *arguments, **where):
            future = super().submit(what, *arguments, **where)
            slow = what is worker.perform and arguments[0].steps[0].problem.name == "p4"
            return Later(future.result()) if slow else future

    kernels = [FakeKernel("a"), Short(1, lambda: order.append("p1"))]
    (summary,), notes = run(
        tmp_path, monkeypatch, Slow({"w": "h200", "v": "h200"}, unit="the same GPU"), kernels, names=("one",)
    )
    assert order == ["p1", "the last of the others", "p1"]
    complete(rows(tmp_path), kernels=3)
    assert summary.counts.rows == {"ok": 30}
    assert sum("p1 f32 is tried again when no other worker is at work" in note for note in notes) == 1


def test_what_finds_no_memory_at_all_is_left_to_a_later_run_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "PAUSES_S", ())
    short = Short(99)
    _, notes = run(tmp_path, monkeypatch, Client({"w": "h200"}), [FakeKernel("a"), short], names=("one",))
    assert short.times == 99 - cluster_run.TRIES
    assert "one p1 f32 is left out, go on with --resume: there was no memory for b" in notes
    assert "  one: 1 of 5 problems not tuned" in notes
    before = rows(tmp_path)
    assert (len(before), {row.status for row in before}) == (28, {"ok"})
    tuned = {(line.problem, line.kernel) for line in TUNING.read(tmp_path / "h200" / "one")}
    assert len(tuned) == 9
    assert ("p1", "b") not in tuned
    short.times = 0
    run(tmp_path, monkeypatch, Client({"w": "h200"}), [FakeKernel("a"), short], Choice(resume=True), names=("one",))
    complete(rows(tmp_path), kernels=3)


def test_memory_comes_back_with_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("nnzbench.bench.memory.OPS", {"spmm"})
    monkeypatch.setattr("nnzbench.bench.memory.measure", lambda *_: Use(1, 5, 1))
    run(tmp_path, monkeypatch, Client({"w": "h200"}), names=("one",))
    found = MEMORY.read(tmp_path / "h200" / "one")
    assert {row.candidate[:4] for row in found} == {
        (f"p{at}", "f32", kernel, "v1") for at in range(5) for kernel in "ab"
    }
    assert {(row.before_bytes, row.peak_bytes, row.after_bytes) for row in found} == {(1, 5, 1)}


def test_a_gpu_whose_worker_died_measuring_it_is_measured_by_the_next(tmp_path, monkeypatch):
    def dies_arriving(what, *arguments):
        return client.die("w") if what is worker.arrive and client.at == "w" else None

    client = Client({"w": "h200"}, instead=dies_arriving)
    run(tmp_path, monkeypatch, client, ends=100.0, names=("one",))
    complete(rows(tmp_path))


def test_a_gpu_is_measured_once_in_a_run_by_the_first_of_its_workers(tmp_path, monkeypatch):
    pytest.importorskip("fcntl")
    measured = []
    monkeypatch.setattr(worker, "_measured", lambda name, run, unit: measured.append(run) or settled(run))
    monkeypatch.setattr(worker, "_device", lambda name: FakeDevice())
    monkeypatch.setattr(worker, "_sessions", {})

    def settled(run):
        return {"run": run, "peaks": asdict(PEAKS), "environment": {"worker": "x"}, "notes": ["said once"]}

    for name in ("one run", "one run", "another", "another"):
        who = worker.arrive((), name, None)
        assert worker._sessions[None].peaks == PEAKS
        assert (who.environment, who.notes) == ({"worker": "x"}, ("said once",))
    assert measured == ["one run", "another"]
    (lock,) = tmp_path.glob("nnzbench-*.lock")
    lock.write_text('{"run": "another", "pea')  # of a worker that was killed as it wrote
    worker.arrive((), "another", None)
    assert measured == ["one run", "another", "another"]


def test_what_a_job_has_brought_is_known_within_it():
    kept = Kept({record(problem="p0").key: None})
    kept.add([record(problem="p1")])
    kept.add_memory(Memory("p1", "f32", "k", "v", "cupy", 1, 2, 1))
    assert kept.done.keys() == {record(problem=name).key for name in ("p0", "p1")}
    assert ([row.problem for row in kept.records], len(kept.memories)) == (["p1"], 1)
