"""A cluster of workers on this host's processor, one of them killed at its work; and schedulers that do not answer."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
from fakes import Silent

from nnzbench.bench.cluster import engine
from nnzbench.bench.cluster.run import ClusterRun
from nnzbench.bench.cluster.worker import arrive
from nnzbench.bench.costs import Costs
from nnzbench.bench.sweep import Choice, plan_work
from nnzbench.core import host
from nnzbench.core.host import VisibleGpu
from nnzbench.core.plan import Unsupported
from nnzbench.kernels.registry import kernels
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.results.records.record import read_records

WORKERS = 2
PATIENCE_S = 300.0
"""For what takes a second where nothing else runs."""


@pytest.fixture(autouse=True)
def _environment():
    """Dask sets the number of threads, and more, for the workers that it starts, and leaves it set."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


class Killer(Silent):
    """Kills the process of a worker that has a job, once there are as many jobs as workers."""

    def __init__(self, client):
        self.client, self.processes, self.notes, self.killed, self.jobs = client, [], [], 0, 0

    def note(self, text):
        self.notes.append(text)
        if found := re.search(r"process (\d+)$", text):
            self.processes.append(int(found[1]))

    def step(self, text):
        self.jobs += 1
        ends = time.monotonic() + 2  # a job that was given is not at a worker yet; one may be done
        while self.jobs >= WORKERS and not self.killed and time.monotonic() < ends:
            at_work = [address for address, keys in self.client.processing().items() if keys]
            there = (
                set(self.client.run(os.getpid, workers=at_work).values()) & set(self.processes) if at_work else set()
            )
            if there:
                self.killed = there.pop()
                os.kill(self.killed, signal.SIGKILL)


def running(process):
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def end(*processes):
    """Processes that were told to end do so, in the time that a busy host takes."""
    ends = time.monotonic() + PATIENCE_S
    while any(map(running, processes)):
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.fixture
def another_cluster():
    """Has the port that Dask would serve its pages on, as any other cluster of this host."""
    with socket.socket() as taken:
        with contextlib.suppress(OSError):
            taken.bind(("", 8787))
            taken.listen()
        yield


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.usefixtures("another_cluster")
def test_a_worker_that_is_killed_loses_and_repeats_nothing(tmp_path, monkeypatch, programs, recwarn):
    pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    (tmp_path / "cache").mkdir()
    programs.mkdir(parents=True, exist_ok=True)
    (tmp_path / "cache" / "cpu").symlink_to(programs)
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "cache"))
    chosen, choice = EXPERIMENTS["sparsert_table1"], Choice(quick=True, kernels=("row_stream", "cublas"), candidates=2)
    with engine.connected("local", WORKERS, timed=False) as client:
        killer = Killer(client)
        share = [
            int(client.submit(os.getenv, name, pure=False).result())
            for name in ("OMP_NUM_THREADS", "NNZBENCH_COMPILERS")
        ]
        assert share == [max(1, host.processors() // WORKERS), max(1, 2 * host.processors() // WORKERS)]
        every = ClusterRun(
            client, [chosen], choice, kernels(), lambda gpu, name: tmp_path / gpu / name, "cpu", Costs(), killer
        )
        (summary,) = every.run()
    assert not [one for one in recwarn if "already in use" in str(one.message)]
    assert any("died at sparsert_table1" in note for note in killer.notes)
    found = read_records(tmp_path / "cpu" / "sparsert_table1" / "records.csv")
    assert len(found) == len({row.key for row in found}) == sum(summary.counts.rows.values())
    cells = {
        (problem.name, problem.dtype, name) for problem, some in plan_work(chosen, kernels(), choice) for name in some
    }
    assert {(row.problem, row.dtype, row.kernel) for row in found} == cells
    assert {(row.status, row.reason) for row in found if row.kernel == "row_stream"} == {("ok", "")}
    assert len(killer.processes) >= WORKERS
    end(*killer.processes)


def test_a_worker_outlives_ctrl_c_and_a_long_silence():
    """A terminal interrupts workers too, which would end with a traceback each before the run has told them to. And one
    call of a library may hold Python's lock for minutes; Dask's scheduler ends a worker silent for five."""
    dask = pytest.importorskip("dask", reason="the extra `cluster` is not installed")
    with (
        dask.config.set({"distributed.scheduler.worker-ttl": "1s"}),
        engine.connected("local", 1, timed=False) as client,
    ):
        before = client.submit(os.getpid, pure=False).result()
        os.kill(before, signal.SIGINT)
        holds_the_lock = "__import__('ctypes').PyDLL(None).usleep(6_000_000)"
        assert client.submit(eval, holds_the_lock, pure=False).result(PATIENCE_S) == 0
        assert client.submit(os.getpid, pure=False).result() == before


def refused(kind, workers, timed, why):
    with pytest.raises(Unsupported, match=why) as caught, engine.connected(kind, workers, timed):
        pass
    return str(caught.value)


def test_a_scheduler_that_does_not_answer_is_one_sentence(monkeypatch):
    pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    monkeypatch.setattr(engine, "ANSWER_S", 0.5)
    assert "\n" not in refused("tcp://127.0.0.1:1", None, True, r"no Dask scheduler answers at tcp://127\.0\.0\.1:1 \(")


SBATCH = """\
#!/bin/sh
cp "$1" "$(dirname "$0")/job"
setsid sh "$(dirname "$0")/job" > "$(dirname "$0")/log" 2>&1 &
echo "Submitted batch job $!"
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Slurm's commands are stood in for by shell scripts")
def test_slurm_gets_a_job_whose_worker_works(tmp_path, monkeypatch):
    """`sbatch` and `scancel` start and end the job on this host, as Slurm would on another."""
    pytest.importorskip("dask_jobqueue", reason="the extra `cluster` is not installed")
    for name, text in (("sbatch", SBATCH), ("scancel", '#!/bin/sh\nkill -- -"$1"\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with engine.connected("slurm", 1, timed=True) as client:
        client.wait_for_workers(1, timeout=PATIENCE_S)
        who = client.submit(arrive, (), "a run", "cpu", pure=False).result(timeout=PATIENCE_S)
        assert (who.gpu, who.timed) == ("cpu", False)
        assert running(who.process)
    job = (tmp_path / "job").read_text()
    assert "#SBATCH --gpus=1" in job
    assert job.index("export OMP_NUM_THREADS=8") < job.index("--nthreads 1")
    end(who.process)


def test_without_dask_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(Unsupported, match="nnzbench\\[cluster\\]"), engine.connected("local", None, timed=False):
        pass


def test_a_host_without_gpus_starts_no_workers_that_measure(monkeypatch):
    pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    monkeypatch.setattr(engine, "visible_gpus", list)
    refused("local", None, True, "the CUDA driver shows none")
    monkeypatch.setattr(engine, "visible_gpus", lambda: [VisibleGpu("GPU-1", (7, 5), 16 << 30, 12000)])
    refused("local", 17, True, "--workers 17 for 1 GPUs: one to 16 can share each")


@pytest.mark.parametrize(("gpus", "workers", "said"), [(1, 13, True), (1, 6, False), (2, 13, True), (2, 12, False)])
def test_more_workers_than_the_memory_is_enough_for_are_told_of(monkeypatch, gpus, workers, said):
    monkeypatch.setattr(engine, "visible_gpus", lambda: [VisibleGpu("GPU", (9, 0), 80 << 30, 13000)] * gpus)
    assert (f"enough for {6 * gpus}" in engine.crowding(workers)) == said == bool(engine.crowding(workers))
