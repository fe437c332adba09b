from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from fakes import FakeTimer
from on_cpu import matrix as random_matrix
from sparsert_programs import truth

import nnzbench.cli.tune
from nnzbench.cli.chosen import NothingMatched
from nnzbench.cli.tune import command, tune
from nnzbench.core.plan import Prepared, Unsupported
from nnzbench.data.problems.operands import Operands, make_operands
from nnzbench.data.problems.problem import ConvShape, Problem
from nnzbench.data.problems.reference import reference
from nnzbench.devices.build.cache import Compiled, CompileTimeout
from nnzbench.kernels.sparsert.program import MatrixColumns
from nnzbench.kernels.sparsert.schedule import Tiling, Tuned, recall, remember, search_name
from nnzbench.kernels.sparsert.spmm import Planner, sparsert

PROBLEM = Problem("t", "t", "spmm", 64, 64, 100, 0.9, "uniform:0")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def operands():
    b = np.random.default_rng(1).standard_normal((64, 100)).astype(np.float32)
    return Operands(random_matrix(64, 64, 0.1), {"b": b}, "0123456789abcdef")


class Device:
    """Gives each variant the time and the result that the test decides."""

    name, gpu, arch = "fake", "fake", "sm_90"

    def __init__(self, operands, time_of, wrong=""):
        self.right = truth(operands.sparse, operands.dense["b"]).value.astype(np.float32)
        self.time_of, self.wrong, self.current = time_of, wrong, 10.0
        self.timer: FakeTimer | None = FakeTimer(times=iter(lambda: self.current, None))
        self.prepared: list[str] = []

    def prepare(self, plan):
        assert self.timer is not None
        self.prepared.append(plan.variant)
        self.current = self.time_of(plan.variant)
        result = self.right + 1 if plan.variant == self.wrong else self.right
        return Prepared(self.timer.launch, lambda: result, lambda: None, lambda: None)

    def close(self): ...


@pytest.fixture
def assembler(monkeypatch):
    """Stands for the real one; jobs whose number is in the set time out."""
    late: set[int] = set()

    def assemble(jobs, workers, timeout_s):
        assert timeout_s == 60.0
        done = Compiled(Path("x"), {}, 1.0, False, "")
        return [(i, CompileTimeout("late") if i in late else done) for i in range(len(jobs))]

    monkeypatch.setattr(nnzbench.cli.tune, "compile_many", assemble)
    return late


def test_fastest_correct_tiling_is_found_and_remembered(operands, assembler):
    assembler.add(0)
    seen: list[tuple[int, int, float]] = []
    names: list[str] = []

    def time_of(name):
        names.append(name)
        return {1: 2.0, 3: 3.0}.get(len(names), 9.0)  # the first one prepared is fastest, and wrong

    device = Device(operands, time_of)
    wrong = sorted_names(operands)[1]
    device.wrong = wrong
    found = tune(PROBLEM, operands, device, lambda *what: seen.append(what), limit=12)
    assert device.prepared[0] == wrong
    assert sorted_names(operands)[0] not in device.prepared
    assert found.tiling.name == device.prepared[2]
    assert found.median_us == pytest.approx(3.0)
    assert found.candidates == 12
    assert 8 <= found.correct == len(device.prepared) - 1
    assert seen[-1][:2] == (12, 12)
    assert recall(search_name(operands.pattern, PROBLEM, "sm_90")) == found


def test_the_output_of_a_convolution_is_whole_where_its_reference_is_of_a_sample(assembler):
    conv = ConvShape(128, 2, 128, 128, 6, 1, 1)
    problem = Problem("t", "sampled", "conv2d", 6, 2, 128 * 128 * 128, 0.5, "uniform:0", conv=conv)
    operands = make_operands(problem)
    truth = reference(problem, operands)
    outputs: list[tuple[int, ...]] = []

    class Whole(Device):
        def prepare(self, plan):
            outputs.append(plan.buffers[plan.output].shape)
            return super().prepare(plan)

    assert truth.sample is not None
    device = Whole(Operands(random_matrix(4, 4, 0.5), {"b": np.ones((4, 1), np.float32)}, "0"), lambda name: 9.0)
    with pytest.raises(Unsupported, match="right result"):
        tune(problem, operands, device, limit=1)
    assert outputs == [conv.output]


def sorted_names(operands):
    planner = Planner(operands.sparse, MatrixColumns(100), "sm_90")
    return [t.name for t in sorted(planner.grid(), key=planner.cycles)]


def test_a_small_matrix_gets_the_papers_tiling_where_it_divides_the_columns():
    matrix = random_matrix(64, 256, 0.09)
    papers = Tiling(16, column_tiles=2, depth=32)
    found = {n: Planner(matrix, MatrixColumns(n), "sm_90").candidates() for n in (3136, 3135)}
    assert found[3136].count(papers) == 1
    assert papers not in found[3135]


def test_kernel_offers_the_remembered_tiling_first(operands):
    name = search_name(operands.pattern, PROBLEM, "sm_90")
    assert recall(name) is None
    before = [plan.variant for plan in sparsert.plans(PROBLEM, operands, "sm_90")]
    winner = Tiling(8, parts=2, row_tiles=2, loop=3)
    assert winner.name not in before
    remember(name, Tuned(winner, 1.5, 100, 99, 1.0, 2.0, 3.0))
    after = [plan.variant for plan in sparsert.plans(PROBLEM, operands, "sm_90")]
    assert after == [winner.name, *before]
    other_arch = [plan.variant for plan in sparsert.plans(PROBLEM, operands, "sm_80")]
    assert winner.name not in other_arch


def test_a_damaged_entry_is_no_entry(cache, operands):
    path = remember("x", Tuned(Tiling(8), 1.0, 1, 1, 0.0, 0.0, 0.0))
    path.write_text(path.read_text()[:20])
    assert recall("x") is None


def test_reasons_not_to_tune(operands, assembler):
    device = Device(operands, lambda name: 1.0)
    assembler.update(range(64))
    with pytest.raises(Unsupported, match="none of 5 tilings"):
        tune(PROBLEM, operands, device, limit=5)
    device.timer = None
    with pytest.raises(Unsupported, match="needs a GPU"):
        tune(PROBLEM, operands, device)


def test_command_says_why_it_can_not_tune(monkeypatch):
    monkeypatch.setattr("nnzbench.cli.tune.open_device", lambda name: CpuLike())
    runner = CliRunner()
    nothing = runner.invoke(command, ["sparsert_table1", "--problem", "no such*"])
    assert isinstance(nothing.exception, NothingMatched)  # as below
    assert "named like 'no such*'" in str(nothing.exception)
    said = runner.invoke(command, ["sparsert_table1", "--problem", "12*", "--device", "cpu"])
    assert isinstance(said.exception, Unsupported)  # which the command group turns into status 2
    assert "tuning needs a GPU" in str(said.exception)


class CpuLike:
    name, gpu, arch, timer = "cpu", "cpu", "sm_80", None

    def close(self): ...
