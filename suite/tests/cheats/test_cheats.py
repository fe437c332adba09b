"""Kernels that cheat, run as those of a user's file are: what catches each is one sentence of its row."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_gpu import open_fake
from fake_torch import FakeTorch
from fakes import FakeDevice, Silent

from nnzbench.bench import trial
from nnzbench.bench.attempts import Attempts
from nnzbench.bench.session import Session
from nnzbench.bench.subject import Subject
from nnzbench.bench.sweep import Choice, run_experiment
from nnzbench.bench.timing import Measurement, StoppingRule
from nnzbench.bench.trial import Outcome
from nnzbench.core.gpus import Peaks
from nnzbench.core.plan import Unsupported
from nnzbench.data.problems.experiment import Experiment
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import Problem
from nnzbench.devices import Device
from nnzbench.devices.cpu_device import CpuDevice
from nnzbench.devices.gpu import GpuDevice
from nnzbench.devices.gpu_timer import GpuTimer
from nnzbench.kernels import registry, user
from nnzbench.results.records.record import Record, read_records

pytestmark = pytest.mark.usefixtures("cache_dir")
HERE = Path(__file__).parent

CAUGHT = {
    "cached_result": "with other values of the operands: relative error",
    "changed_inputs": "it changed its operand b, in the buffer 'b'",
    "half_the_rows": "elements are NaN",
    "fp16_sums": "is outside the f32 tolerance",
    "same_b_not_written": "launched again over the same values: all",
    "first_launch_alone": "with other values of the operands: relative error",
    "one_size": "is outside the f32 tolerance",
    "hidden_in_prepare": "with other values of the operands: relative error",
    "reference_overwritten": "is outside the f32 tolerance",
}
"""What the processor finds, by a part of the sentence."""
TIMED = {"same_b_seen_twice": "a launch over new values takes"}
"""What only times tell."""
CALLS = {
    "cached_output": "with other values of the operands: relative error",
    "changed_inputs": "it changed its operand b, in the buffer 'b'",
    "ignores_values": "over other weights: relative error",
    "nothing": "elements are NaN",
}
"""Of functions over tensors, what is found on the processor too."""
ON_A_GPU = {
    "changed_inputs": ("wrong", "is outside the f32 tolerance"),  # it was launched before the first check
    "other_stream": ("wrong", "with other values of the operands: all"),
    "never_in_a_graph": ("unsupported", "can't be captured into a CUDA graph"),
}
KEPT_OUT = ("patched_timer", "l2_carve_out")
"""What computes the right thing, and must gain nothing."""


@pytest.fixture(scope="module", autouse=True)
def names() -> Iterator[tuple[str, ...]]:
    """The kernels of the file, which are registered for this module alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_registry", registry.kernels())
        patch.setattr(registry, "_about", dict(registry._about))
        yield user.load(HERE / "cheats.py")


class Sizes(Experiment):
    """A size, and a smaller one for the cheat that knows of two."""

    def problems(self, real: bool | None = None) -> list[Problem]:
        sizes = ((16, 40, 12), (80, 64, 33))
        return [Problem(self.name, f"p{m}", "spmm", m, k, n, 0.6, "uniform:0") for m, k, n in sizes]

    def takes(self, kernel: str, problem: Problem) -> bool:
        return problem.m > 16 or kernel == "cheat_one_size"


class Large(Experiment):
    def problems(self, real: bool | None = None) -> list[Problem]:
        return [Problem(self.name, "p2048", "spmm", 2048, 2048, 256, 0.6, "uniform:0")]


def rows(
    device: Device, folder: Path, *names: str, kind: type[Experiment] = Sizes, prefix: str = "cheat"
) -> list[Record]:
    chosen = {f"{prefix}_{name}": () for name in names}
    session = Session(device, registry.kernels(), Peaks())
    run_experiment(kind("cheats", "", "", "", chosen), session, folder, Choice(), Silent())
    return read_records(folder / "records.csv")


@pytest.fixture(scope="module")
def checked(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    return rows(CpuDevice(), tmp_path_factory.mktemp("cheats"), *CAUGHT, "patched_timer")


def test_every_cheat_is_tried(names: tuple[str, ...]) -> None:
    assert set(names) == {f"cheat_{name}" for name in (*CAUGHT, *TIMED, *KEPT_OUT)}


@pytest.mark.parametrize("name", CAUGHT)
def test_the_check_catches(name: str, checked: list[Record]) -> None:
    found = [row for row in checked if row.kernel == f"cheat_{name}"]
    wrong = [row for row in found if row.status == "wrong"]
    assert {row.status for row in found} == ({"ok", "wrong"} if name == "one_size" else {"wrong"}), found
    assert all(CAUGHT[name] in row.reason and "\n" not in row.reason for row in wrong), [row.reason for row in wrong]


def test_a_file_that_makes_calls_of_its_own_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"'cheat_other_stream' makes calls of its own"):
        user.load(HERE / "other_stream.py")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Functions over tensors, which run in this process."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    monkeypatch.setattr(registry, "_about", dict(registry._about))
    return user.load(HERE / "torch_cheats.py")


def check_calls(calls: tuple[str, ...], device: Device, folder: Path, caught: dict[str, tuple[str, str]]) -> None:
    """Each is caught by its sentence, and the honest one is right."""
    assert set(calls) == {f"call_{name}" for name in ("honest", *CALLS, *ON_A_GPU)}
    found = rows(device, folder, "honest", *caught, prefix="call")
    told = {(row.kernel, row.status, row.reason) for row in found}
    for name, (status, said) in {"honest": ("ok", ""), **caught}.items():
        of = [one for one in told if one[0] == f"call_{name}"]
        assert of, told
        assert all(one[1] == status and said in one[2] for one in of), of
    assert {registry.about(name).role for name in calls} == {"external"}


def test_functions_over_tensors_that_cheat(calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", FakeTorch())
    check_calls(calls, CpuDevice(), tmp_path, {name: ("wrong", said) for name, said in CALLS.items()})


def test_functions_over_tensors_on_a_pretended_gpu(calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = open_fake()
    monkeypatch.setitem(sys.modules, "torch", FakeTorch(device.backend))
    caught = {**{name: ("wrong", said) for name, said in CALLS.items()}, **ON_A_GPU}
    check_calls(calls, device, tmp_path, caught)


def test_a_function_over_tensors_without_pytorch(calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    found = rows(CpuDevice(), tmp_path, "honest", prefix="call")
    assert {(row.status, row.reason) for row in found} == {
        ("unsupported", "PyTorch is missing: pip install 'nnzbench[torch]'")
    }


def test_a_file_of_functions_does_not_patch_this_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GpuTimer, "cold_us", GpuTimer.cold_us)  # and afterwards it is what it was
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    text = (HERE / "torch_cheats.py").read_text().replace("call_", "patching_")
    patch = "from nnzbench.devices.gpu_timer import GpuTimer\nGpuTimer.cold_us = lambda self, run, samples: [0.01]\n"
    (tmp_path / "patching.py").write_text(text + patch)
    with pytest.raises(Unsupported, match=r"changes nnzbench\.devices\.gpu_timer\.GpuTimer\.cold_us"):
        user.load(tmp_path / "patching.py")


def test_what_a_file_patches_is_its_own_process(checked: list[Record]) -> None:
    assert {row.status for row in checked if row.kernel == "cheat_patched_timer"} == {"ok"}
    patched = (GpuTimer.elapsed_us, GpuTimer.cold_us, trial.held)
    assert "<lambda>" not in {one.__name__ for one in patched}


def test_a_file_does_not_say_whose_its_kernel_is(names: tuple[str, ...], tmp_path: Path) -> None:
    text = (HERE / "cheats.py").read_text().replace("import Launch", "import About, Launch").replace("cheat_", "own_")
    (tmp_path / "own.py").write_text(text.replace("register(Cheat(name))", 'register(Cheat(name), About("own"))'))
    assert {registry.about(name).role for name in (*names, *user.load(tmp_path / "own.py"))} == {"external"}


@pytest.mark.parametrize(("median", "status"), [(24.0, "wrong"), (26.0, "ok")])
def test_a_time_below_a_quarter_of_the_roofline_is_refused(median: float, status: str) -> None:
    problem = Problem("x", "p", "spmm", 64, 64, 64, 0.5, "uniform:0")
    operands = make_operands(problem)
    peaks = Peaks(copy_gbs=1e9, l2_gbs=1e9, fp32_tflops=1e9, floor_hot_us=100.0, floor_cold_us=100.0)
    results = SimpleNamespace(done=set())
    attempts = Attempts("x", Session(FakeDevice(), {}, peaks), results, ("hot",), StoppingRule())
    measured = {"hot": Measurement((median,) * 3, None, (), True)}
    subject = Subject(problem, operands)
    outcome = attempts._possible(subject, "nobodys", "f32", Outcome("ok", "", 0.0, measured))
    assert outcome.status == status
    assert ("below a quarter" in outcome.reason) == (status == "wrong")
    assert bool(outcome.measurements) == (status == "ok")


@pytest.mark.gpu
def test_a_gpu_catches_functions_over_tensors(calls, gpu: GpuDevice, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    found = rows(gpu, tmp_path, "honest", *CALLS, *ON_A_GPU, prefix="call")
    told = {(row.kernel.removeprefix("call_"), row.status) for row in found}
    assert told == {("honest", "ok"), ("never_in_a_graph", "unsupported")} | {
        (name, "wrong") for name in (*CALLS, "other_stream")
    }, [(row.kernel, row.status, row.reason) for row in found]


@pytest.mark.gpu
@pytest.mark.parametrize(("bound", "status"), [("while i < end", "ok"), ("while i + 1 < end", "wrong")])
def test_the_triton_kernel_of_the_page(gpu: GpuDevice, calls, tmp_path: Path, bound: str, status: str) -> None:
    pytest.importorskip("triton")
    page = (HERE.parents[2] / "docs" / "outside-kernels.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"(?s)`triton_spmm\.py`:\n\n```python\n(.*?)```", page)
    (tmp_path / "triton_spmm.py").write_text(text.replace("while i < end", bound))
    assert user.load(tmp_path / "triton_spmm.py") == ("triton_spmm",)
    found = rows(gpu, tmp_path, "spmm", kind=Large, prefix="triton")
    assert {row.status for row in found} == {status}, [(row.status, row.reason) for row in found]
    assert all(row.captured for row in found if row.policy == "hot" and status == "ok")


@pytest.mark.gpu
@pytest.mark.parametrize("name", {**CAUGHT, **TIMED})
def test_a_gpu_catches(name: str, gpu: GpuDevice, tmp_path: Path) -> None:
    found = rows(gpu, tmp_path, name, kind=Large)
    assert {row.status for row in found} == {"wrong"}, [(row.status, row.reason) for row in found]
    assert all({**CAUGHT, **TIMED}[name] in row.reason for row in found), [row.reason for row in found]


@pytest.mark.gpu
def test_a_gpu_gives_nothing_for_what_is_patched_or_kept_in_cache(gpu: GpuDevice, tmp_path: Path) -> None:
    found = rows(gpu, tmp_path, *KEPT_OUT, kind=Large)
    assert {row.status for row in found} == {"ok"}, [row.reason for row in found]
    times = {(row.kernel, row.policy): row.median_us for row in found if row.median_us}
    assert min(times.values()) > 5.0, times
    assert times["cheat_l2_carve_out", "cold"] > 0.9 * times["cheat_patched_timer", "cold"], times


@pytest.mark.gpu
def test_a_kernel_over_new_values_is_as_hot_as_over_the_same(
    gpu: GpuDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [rows(gpu, tmp_path / "guarded", "patched_timer", kind=Large)]
    monkeypatch.setattr(registry, "_about", {**registry._about, "cheat_patched_timer": registry.about("sputnik")})
    session = Session(gpu, registry.kernels(), Peaks())
    chosen = Large("cheats", "", "", "", {"cheat_patched_timer": ()})
    run_experiment(chosen, session, tmp_path / "bare", Choice(), Silent())
    found.append(read_records(tmp_path / "bare" / "records.csv"))
    guarded, bare = ({row.policy: row.median_us for row in one} for one in found)
    for policy in ("hot", "cold"):
        assert guarded[policy] == pytest.approx(bare[policy], rel=0.02), (policy, guarded, bare)
