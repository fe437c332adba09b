"""`make bench`: what it runs in which order, and how it ends."""

import sys
from pathlib import Path
from types import ModuleType

import fake_records
import pytest
import sputnik_records

from nnzbench.core.host import VisibleGpu, extra_for

RUNNER = "bench"
GPU = VisibleGpu("", (9, 0), 0, 13010)


class Command:
    """Stands for `nnzbench`: its calls, and the statuses that they end with in turn, then 0; reports end with 0."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.statuses: list[int] = []

    def __call__(self, *arguments: str) -> int:
        self.calls.append(arguments)
        return self.statuses.pop(0) if self.statuses and arguments[0] != "report" else 0

    @property
    def runs(self) -> list[tuple[str, ...]]:
        return [call for call in self.calls if call[0] == "run"]


@pytest.fixture
def bench(runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    for name, folder in (("UNFINISHED", "unfinished"), ("CPU_RESULTS", "bench"), ("REDRAWN", "reports")):
        monkeypatch.setattr(runner, name, tmp_path / "build" / folder)
    monkeypatch.setattr(runner, "visible_gpus", list)
    return runner


@pytest.fixture
def command(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Command:
    made = Command()
    monkeypatch.setattr(bench, "nnzbench", made)
    return made


@pytest.mark.parametrize(
    ("driver", "capabilities", "extra"),
    [
        (13010, [(9, 0)], "cuda13"),
        (13000, [(7, 5), (8, 0)], "cuda13"),
        (13000, [(7, 0)], "cuda12"),
        (13000, [(8, 0), (7, 0)], "cuda12"),
        (12090, [(9, 0)], "cuda12"),
        (0, [], "compile"),
    ],
)
def test_extra_follows_driver_and_oldest_gpu(driver, capabilities, extra):
    assert extra_for([VisibleGpu("", one, 0, driver) for one in capabilities]) == extra


def test_an_interrupted_gpu_run_is_gone_on_with_and_a_finished_or_refused_one_redone(bench, command):
    done = {"run": 0, "report": 0}
    command.statuses = [130, 0, 0, 0, 2]
    assert bench.on_gpu([], False) == {"run": 130}  # who stops a run waits for no page
    assert bench.on_gpu([], True) == done
    assert bench.on_gpu([], False) == done
    assert bench.on_gpu(["sparsert_table1"], False) == done
    assert [bench.on_gpu([], False)["run"] for _ in range(2)] == [2, 0]
    assert command.runs == [
        ("run", "all", "--overwrite"),
        ("run", "all", "--quick", "--out", str(bench.QUICK_RESULTS), "--overwrite", "--yes"),
        ("run", "all", "--resume"),
        ("run", "sparsert_table1", "--overwrite"),
        *[("run", "all", "--overwrite")] * 2,
    ]


def test_a_failed_step_fails_the_whole_and_the_others_still_run(bench, command, monkeypatch, capsys):
    command.statuses = [0, 1]
    for name in ("sparsert_table1", "sputnik_rnn"):  # only what was run is drawn
        (bench.ROOT / "reports" / "nvidia-h200" / name).mkdir(parents=True)
        (bench.ROOT / "reports" / "nvidia-h200" / name / "records.csv").write_text("published")
    monkeypatch.setattr(sys, "argv", ["bench.py", "--no-install"])
    assert bench.main() == 1
    assert [call[0] for call in command.calls] == ["run", "compile", "report"]
    assert command.calls[-1][1:] == (
        "sparsert_table1",
        "--reports",
        str(bench.REDRAWN),
    )  # a copy, not what is published
    (copy,) = bench.REDRAWN.glob("*/*/*")
    assert copy.parent.name == "sparsert_table1"
    out = capsys.readouterr().out
    assert "Failed: nnzbench compile" in out
    assert out.rstrip().split("\n")[-1].startswith("Figures and tables:")


@pytest.mark.parametrize("gpus", [[], [GPU]], ids=["processor", "GPU"])
@pytest.mark.parametrize(
    ("name", "says"), [("sparsert_tabel1", "did you mean sparsert_table1"), ("sputnik_figure2", "runs nothing")]
)
def test_experiments_are_checked_before_any_work(bench, command, monkeypatch, capsys, gpus, name, says):
    monkeypatch.setattr(bench, "visible_gpus", lambda: gpus)
    monkeypatch.setattr(sys, "argv", ["bench.py", "--no-install", "sparsert_table1", name])
    assert bench.main() == 2
    said = capsys.readouterr()
    assert (said.out, command.calls) == ("", [])
    assert says in said.err


def test_a_run_refused_for_its_input_ends_there(bench, command):
    command.statuses = [2]
    assert bench.on_processor(["sparsert_table1"]) == {"run": 2}
    assert len(command.calls) == 1


def test_with_a_budget_each_run_goes_on_where_the_last_one_ended(bench, command, monkeypatch):
    command.statuses = [0, 2]
    monkeypatch.setattr(bench.importlib.util, "find_spec", lambda name: None)
    assert bench.on_gpu([], False, "15m") == {"run": 0, "report": 0}
    monkeypatch.setattr(bench.importlib.util, "find_spec", lambda name: name == "distributed" or None)
    assert bench.on_gpu(["nm_sparsity"], True, "5m") == {"run": 2}
    quick = str(bench.QUICK_RESULTS)  # no later run takes its rows for whole ones
    assert command.calls == [
        ("run", "all", "--budget", "15m", "--resume"),
        ("report",),
        ("run", "nm_sparsity", "--quick", "--out", quick, "--budget", "5m", "--cluster", "local", "--resume"),
    ]
    assert not bench.UNFINISHED.exists()


def test_a_gpu_run_ends_with_an_answer_for_each_kind_of_layer(bench, command, monkeypatch, capsys):
    timed = (("sparsert_paper", "r8_g4", lambda _: 2.0), ("cublas", "f16_rowmajor", lambda _: 3.0))
    rows = sputnik_records.records("sparsert_table1", timed)
    fake_records.write(bench.ROOT / "results" / "nvidia-h200" / "sparsert_table1", rows)
    monkeypatch.setattr(bench, "visible_gpus", lambda: [GPU])
    monkeypatch.setattr(sys, "argv", ["bench.py", "--no-install", "--budget", "15m"])
    assert bench.main() == 0
    layers, look = capsys.readouterr().out.rstrip().split("\n")
    assert layers.startswith("Small pruned layers: ")
    assert look.startswith("Figures and tables:")


def test_an_interrupted_step_ends_tidily_before_it_is_told(bench, monkeypatch):
    waits = [KeyboardInterrupt(), KeyboardInterrupt(), 1]

    class Child:
        def wait(self, timeout: float | None) -> int:
            found = waits.pop(0)
            if isinstance(found, BaseException):
                raise found
            return found

    monkeypatch.setattr(bench.subprocess, "Popen", lambda *_, **__: Child())
    assert bench.nnzbench("run", "all") == bench.INTERRUPTED
    assert not waits
