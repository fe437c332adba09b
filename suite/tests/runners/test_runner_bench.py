from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import fake_records
import pytest
import sputnik_records

from nnzbench.host import VisibleGpu

RUNNER = Path(__file__).resolve().parents[3] / "runners" / "bench.py"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("runner_bench", RUNNER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "runner_bench", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "UNFINISHED", tmp_path / "build" / "unfinished")
    return module


@pytest.mark.parametrize(
    ("driver", "capabilities", "extra"),
    [
        (13010, ((9, 0),), "cuda13"),
        (13000, ((7, 5), (8, 0)), "cuda13"),
        (13000, ((7, 0),), "cuda12"),
        (13000, ((8, 0), (7, 0)), "cuda12"),
        (12090, ((9, 0),), "cuda12"),
    ],
)
def test_extra_follows_driver_and_oldest_gpu(
    bench: ModuleType, driver: int, capabilities: tuple[tuple[int, int], ...], extra: str
) -> None:
    assert bench.extra_for([VisibleGpu("", one, 0, driver) for one in capabilities]) == extra


def test_without_a_gpu_only_the_compilers_are_needed(bench: ModuleType) -> None:
    assert bench.extra_for([]) == "compile"


def test_an_interrupted_gpu_run_is_gone_on_with_and_a_finished_one_redone(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, ...]] = []
    statuses = [130, 0, 0, 0]

    def nnzbench(*arguments: str) -> int:
        calls.append(arguments)
        return statuses.pop(0) if arguments[0] == "run" else 0

    monkeypatch.setattr(bench, "nnzbench", nnzbench)
    assert bench.on_gpu([], False) == {"run": 130}  # who stops a run waits for no page
    assert bench.on_gpu([], True) == {"run": 0, "report": 0}
    assert bench.on_gpu([], False) == {"run": 0, "report": 0}
    assert bench.on_gpu(["sparsert_table1"], False) == {"run": 0, "report": 0}
    assert [call for call in calls if call[0] == "run"] == [
        ("run", "all", "--overwrite"),
        ("run", "all", "--quick", "--out", str(bench.QUICK_RESULTS), "--overwrite", "--yes"),
        ("run", "all", "--resume"),
        ("run", "sparsert_table1", "--overwrite"),
    ]


def test_a_run_that_was_refused_is_not_gone_on_with(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(bench, "nnzbench", lambda *arguments: calls.append(arguments) or 2)
    bench.on_gpu([], False)
    bench.on_gpu([], False)
    assert [call[-1] for call in calls if call[0] == "run"] == ["--overwrite", "--overwrite"]


def test_a_failed_step_fails_the_whole_and_the_others_still_run(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    calls: list[str] = []

    def nnzbench(*arguments: str) -> int:
        calls.append(arguments[0])
        if arguments[0] == "report":  # a copy is redrawn, never what is published
            assert arguments[1:] == ("sparsert_table1", "--reports", str(tmp_path / "build" / "reports"))
            copies = sorted(path.relative_to(bench.REDRAWN) for path in bench.REDRAWN.glob("*/*/*"))
            assert [str(path) for path in copies] == ["nvidia-h200/sparsert_table1/records.csv"]
        return int(arguments[0] == "compile")

    monkeypatch.setattr(bench, "nnzbench", nnzbench)
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    monkeypatch.setattr(bench, "CPU_RESULTS", tmp_path / "build" / "bench")
    monkeypatch.setattr(bench, "REDRAWN", tmp_path / "build" / "reports")
    for name in ("sparsert_table1", "sputnik_rnn"):  # only what was run is drawn
        (tmp_path / "reports" / "nvidia-h200" / name).mkdir(parents=True)
        (tmp_path / "reports" / "nvidia-h200" / name / "records.csv").write_text("published")
    monkeypatch.setattr(bench, "visible_gpus", list)
    monkeypatch.setattr(sys, "argv", ["bench.py", "--no-install"])
    assert bench.main() == 1
    assert calls == ["run", "compile", "report"]
    out = capsys.readouterr().out
    assert "Failed: nnzbench compile" in out
    assert out.rstrip().split("\n")[-1].startswith("Figures and tables:")


@pytest.mark.parametrize("gpus", [(), ((9, 0),)], ids=["processor", "GPU"])
@pytest.mark.parametrize(
    ("name", "says"),
    [("sparsert_tabel1", "did you mean sparsert_table1"), ("sputnik_figure2", "runs nothing")],
)
def test_experiments_are_checked_before_any_work(
    bench: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    gpus: tuple[tuple[int, int], ...],
    name: str,
    says: str,
) -> None:
    monkeypatch.setattr(bench, "nnzbench", lambda *arguments: pytest.fail(f"nnzbench {arguments} was called"))
    monkeypatch.setattr(bench, "visible_gpus", lambda: [VisibleGpu("", one, 0, 13010) for one in gpus])
    monkeypatch.setattr(sys, "argv", ["bench.py", "--no-install", "sparsert_table1", name])
    assert bench.main() == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert says in said.err


def test_a_run_refused_for_its_input_ends_there(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def nnzbench(*arguments: str) -> int:
        calls.append(arguments[0])
        return 2

    monkeypatch.setattr(bench, "nnzbench", nnzbench)
    assert bench.on_processor(["sparsert_table1"]) == {"run": 2}
    assert calls == ["run"]


def test_with_a_budget_each_run_goes_on_where_the_last_one_ended(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, ...]] = []
    statuses = [0, 2]

    def nnzbench(*arguments: str) -> int:
        calls.append(arguments)
        return statuses.pop(0) if arguments[0] == "run" else 0

    monkeypatch.setattr(bench, "nnzbench", nnzbench)
    monkeypatch.setattr(bench.importlib.util, "find_spec", lambda name: None)
    assert bench.on_gpu([], False, "15m") == {"run": 0, "report": 0}
    monkeypatch.setattr(bench.importlib.util, "find_spec", lambda name: name == "distributed" or None)
    assert bench.on_gpu(["nm_sparsity"], True, "5m") == {"run": 2}
    quick = str(bench.QUICK_RESULTS)  # no later run takes its rows for whole ones
    assert calls == [
        ("run", "all", "--budget", "15m", "--resume"),
        ("report",),
        ("run", "nm_sparsity", "--quick", "--out", quick, "--budget", "5m", "--cluster", "local", "--resume"),
    ]
    assert not bench.UNFINISHED.exists()


def test_a_gpu_run_ends_with_an_answer_for_each_kind_of_layer(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    timed = (("sparsert_paper", "r8_g4", lambda _: 2.0), ("cublas", "f16_rowmajor", lambda _: 3.0))
    rows = sputnik_records.records("sparsert_table1", timed)
    fake_records.write(tmp_path / "results" / "nvidia-h200" / "sparsert_table1", rows)
    monkeypatch.setattr(bench, "nnzbench", lambda *arguments: 0)
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    monkeypatch.setattr(bench, "visible_gpus", lambda: [VisibleGpu("", (9, 0), 0, 13010)])
    monkeypatch.setattr(sys, "argv", ["bench.py", "--no-install", "--budget", "15m"])
    assert bench.main() == 0
    layers, look = capsys.readouterr().out.rstrip().split("\n")
    assert layers.startswith("Small pruned layers: ")
    assert look.startswith("Figures and tables:")


def test_an_interrupted_step_ends_tidily_before_it_is_told(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = [KeyboardInterrupt(), KeyboardInterrupt(), 1]

    class Child:
        def wait(self) -> int:
            found = waits.pop(0)
            if isinstance(found, BaseException):
                raise found
            return found

    monkeypatch.setattr(bench.subprocess, "Popen", lambda *_, **__: Child())
    assert bench.nnzbench("run", "all") == bench.INTERRUPTED
    assert not waits
