"""`nnzbench energy` on a simulated board: what it measures, when it stops, what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
from commands import invoke
from fake_board import BoardDevice
from fakes import FakeKernel

from nnzbench import devices
from nnzbench.bench.cluster import worker
from nnzbench.bench.energy import Bench
from nnzbench.cli import INTERRUPTED
from nnzbench.cli import energy as cli_energy
from nnzbench.kernels import registry
from nnzbench.report.page import Page
from nnzbench.results import energy as facts
from nnzbench.results.records.beside import ENERGY
from nnzbench.results.result_set import load
from nnzbench.results.selector import Selector
from nnzbench.results.table import Comparison, compare

SPARSE, DENSE = Selector("sparse", ("fake",)), Selector("dense", ("plain",))


@pytest.fixture
def board(world, monkeypatch):
    """`small` is recorded; its two kernels differ in time, and the device is a board that is closed and opened anew."""
    world["plain"] = FakeKernel("plain", {"default": (4000.0, "")}, weights=np.zeros(200, np.float32))
    world["fake"].weights = np.zeros(200, np.float32)
    world["fake"].variants = {"a": (2500.0, ""), "b": (2000.0, "")}
    small = cli_energy.EXPERIMENTS["small"]
    monkeypatch.setitem(cli_energy.EXPERIMENTS, "small", replace(small, kernels={"fake": (), "plain": ()}))
    device = BoardDevice()
    monkeypatch.setattr(devices, "open_device", lambda name: device)
    monkeypatch.setattr(devices, "open_gpu", lambda: device)
    page = Page(energy=Comparison((SPARSE,), (DENSE,)))
    monkeypatch.setattr(cli_energy, "page_of", lambda name: page if name == "small" else None)
    monkeypatch.setattr(cli_energy, "kernels", lambda: world)
    monkeypatch.setattr(cli_energy, "typical", lambda *of: ["p1_None"])
    opened = cli_energy.open_bench
    monkeypatch.setattr(
        cli_energy,
        "open_bench",
        lambda found: Bench(opened(found).timer, found.clocks, found.timer.clock, found.clocks.sleep),
    )
    assert invoke("run", "small").exit_code == 0
    return device


def measured(*options, seconds="1"):
    return invoke("energy", "small", "--seconds", seconds, *options)


def windows(tmp_path):
    return ENERGY.read(tmp_path / "results" / "fake-gpu" / "small")


def test_winner_and_baseline_of_each_problem_there_and_back(board, tmp_path):
    result = measured("--trials", "2")
    assert result.exit_code == 0, result.output
    rows = windows(tmp_path)
    assert [row.kernel for row in rows[:4]] in (["fake", "plain", "plain", "fake"], ["plain", "fake", "fake", "plain"])
    assert {(row.kernel, row.variant) for row in rows} == {("fake", "b"), ("plain", "default")}
    assert rows[0].problem == "p1_None", "what stands for the experiment comes first"
    assert [(row.trial, row.place) for row in rows] == [(t, p) for t in (1, 2) for p in (1, 2, 3, 4)] * 2
    assert all(row.status == "ok" for row in rows)
    assert "400 W in 4 windows" in result.stdout
    facts_of = compare(
        facts.data_of(load(tmp_path / "results" / "fake-gpu" / "small")), Comparison((SPARSE,), (DENSE,))
    )
    ratios = facts_of.set_index("policy")["ratio"]
    assert ratios["energy"] == pytest.approx(2.0, rel=0.01)
    assert ratios["energy-time"] == pytest.approx(2.0, rel=0.01)
    assert ratios["watts"] == pytest.approx(1.0, rel=0.01)
    assert facts_of["one_run"].all()


def test_what_is_recorded_is_not_measured_again_and_an_ended_run_goes_on(board, tmp_path, monkeypatch):
    assert measured("--trials", "1", "--problem", "p1*").exit_code == 0
    first = windows(tmp_path)
    real, calls = board.timer.enqueue, []

    def breaks(body):
        calls.append(1)
        if len(calls) > 1500:
            raise KeyboardInterrupt
        return real(body)

    board.timer.enqueue = breaks
    assert measured("--trials", "2").exit_code == INTERRUPTED
    partly = windows(tmp_path)
    assert partly[: len(first)] == first
    board.timer.enqueue = real
    assert measured("--trials", "2").exit_code == 0
    rows = windows(tmp_path)
    assert rows[: len(partly)] == partly
    assert len(rows) == 2 * 2 * 4
    assert len({(row.problem, row.trial, row.place) for row in rows}) == len(rows)
    assert "Nothing to do" in measured("--trials", "2").stderr


def test_a_time_limit_begins_nothing_that_would_outlast_it(board, tmp_path):
    result = measured("--budget", "1s")
    assert result.exit_code == 0
    assert "2 of 2 problems did not fit" in result.stderr
    assert windows(tmp_path) == []


def test_no_run_on_a_cluster_has_the_gpu_meanwhile(board, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    (path, _) = worker.turn(board).args
    real = board.timer.enqueue

    def enqueue(body):
        with open(path, "a") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return real(body)

    board.timer.enqueue = enqueue
    assert measured("--trials", "1").exit_code == 0
    assert windows(tmp_path)


def test_a_check_compares_windows_of_the_same_candidate(board, tmp_path):
    result = measured("--check", "--trials", "1", "--problem", "p0*")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("agrees: A/A within 0.") == 2
    drifting = iter(range(10**9))
    board.timer.watts = lambda at: 400.0 * (1 + next(drifting) / 5e3)
    worse = measured("--check", "--trials", "1", "--problem", "p0*")
    assert worse.exit_code == 1
    assert "DISAGREES" in worse.stdout


def test_a_kernel_that_is_named_is_checked_alone_and_meets_none_in_a_contest(board, tmp_path):
    alone = measured("--check", "--trials", "1", "--problem", "p0*", "--kernel", "plain")
    assert alone.exit_code == 0
    assert "plain default: agrees" in alone.stdout
    assert "fake" not in alone.stdout
    assert windows(tmp_path) == []
    result = measured("--kernel", "plain")
    assert result.exit_code == 2
    assert "no two candidates that were fastest are of plain" in result.stderr


def test_a_power_sensor_that_disagrees_refuses_all_and_status_1_says_so(board, tmp_path):
    board.clocks.gain = 1.2
    result = measured("--trials", "1", "--problem", "p0*")
    assert result.exit_code == 1
    assert all(row.status == "refused" for row in windows(tmp_path))
    assert "refused, the counter says" in result.stdout
    assert facts.data_of(load(tmp_path / "results" / "fake-gpu" / "small")) is None


def test_what_can_not_be_measured_is_one_sentence_and_status_2(board, world, tmp_path):
    def refused(*arguments):
        result = invoke("energy", *arguments)
        assert result.exit_code == 2
        assert result.stderr.count("\n") <= 4
        return result.stderr

    assert "no candidates on a problem like 'x*'" in refused("small", "--problem", "x*")
    assert "has no records: `nnzbench run small`" in refused("small", "--out", str(tmp_path / "empty"))
    assert "says nothing of energy: choose from" in refused("sputnik_figure7")
    board.clocks.tells = False
    assert "NVML tells no energy of this GPU" in refused("small")
    board.clocks = None
    assert "energy needs NVML: pip install nvidia-ml-py" in refused("small")
    board.timer = None
    assert "energy needs a GPU" in refused("small")


def test_a_candidate_that_computes_wrong_now_is_named_and_others_are_measured(board, world, tmp_path):
    world["fake"].variants = {"a": (2500.0, ""), "b": (2000.0, "wrong")}
    result = measured("--trials", "1")
    assert "fake b on p1_None" in result.stderr
    assert result.exit_code == 2
    assert "nothing was measured: 2 of 2 problems" in result.stderr
    world["fake"].variants = {"a": (2500.0, ""), "b": (2000.0, "")}
    world["fake"].weights = np.ones(200, np.float32)
    assert "over a copy of the weights" in measured("--trials", "1").stderr
    assert windows(tmp_path) == []
    assert registry.kernels() is not world
