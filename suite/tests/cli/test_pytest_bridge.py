import json
from pathlib import Path

import pytest
from fakes import FakeDevice, FakeKernel

from nnzbench import devices, pytest_bridge
from nnzbench.core.plan import Unsupported
from nnzbench.data.problems.experiment import Experiment
from nnzbench.data.problems.problem import Problem
from nnzbench.papers.catalogue import EXPERIMENTS

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[3]


class Small(Experiment):
    def problems(self, real=None):
        return [Problem(self.name, f"p{i}", "spmm", 8 + i, 16, 4, 0.5, f"uniform:{i}") for i in range(5)]


BENCHMARKS = ("conftest.py", "test_experiments.py")
KERNELS = {
    "good": FakeKernel("good", {"slow": (20.0, ""), "fast": (5.0, ""), "tf32_x": (2.0, "")}),
    "bad": FakeKernel("bad", {"v": (5.0, "wrong")}),
    "absent": FakeKernel("absent", {"v": (5.0, "unsupported")}),
    "alone": FakeKernel("alone", {"v": (7.0, "")}),
}


@pytest.fixture
def checkout(pytester, monkeypatch):
    """A copy of the checkout's conftest files round one small experiment; returns a way to run pytest in it."""
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):  # pytest-benchmark measures nothing in a worker
        monkeypatch.delenv(name, raising=False)
    few = {
        "small": Small("small", "", "", "", dict.fromkeys(("good", "bad", "absent"), ())),
        "other": Small("other", "", "", "", {"alone": ()}),
        "nothing": Experiment("nothing", "", "", "", {}),
    }
    for name, one in few.items():
        monkeypatch.setitem(EXPERIMENTS, name, one)
    monkeypatch.setattr(pytest_bridge, "EXPERIMENTS", few)
    monkeypatch.setattr(pytest_bridge, "kernels", lambda: KERNELS)

    def make(gpu):
        def open_device(name):
            if gpu and name == "cupy":
                return FakeDevice()
            if name == "cpu":
                return FakeDevice(timed=False)
            raise Unsupported("no CUDA GPU found")

        monkeypatch.setattr(devices, "open_device", open_device)
        (pytester.path / "conftest.py").write_text((ROOT / "conftest.py").read_text(), encoding="utf-8")
        for folder, name, text in (
            *(("benchmarks", name, (ROOT / "suite/benchmarks" / name).read_text()) for name in BENCHMARKS),
            ("tests", "test_unit.py", "def test_unit():\n    pass\n"),
        ):
            (pytester.path / "suite" / folder).mkdir(parents=True, exist_ok=True)
            (pytester.path / "suite" / folder / name).write_text(text, encoding="utf-8")
        pytester.makeini("[pytest]\ntestpaths = suite/tests suite/benchmarks\naddopts = --import-mode=importlib\n")
        return lambda *args: pytester.runpytest_inprocess("-p", "no:cacheprovider", *args)

    return make


def test_plain_pytest_runs_the_tests_only(checkout):
    result = checkout(gpu=True)("-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*pytest --benchmark runs them*", "*test_unit PASSED*"])


def test_benchmark_replays_device_samples_into_statistics_and_json_and_compares(checkout, pytester):
    run = checkout(gpu=True)
    result = run("--benchmark", "--benchmark-json=out.json", "-k", "good", "--benchmark-save=one")
    result.assert_outcomes(passed=10)
    result.stdout.fnmatch_lines(["*fake-gpu (sm_90)*"])
    data = json.loads((pytester.path / "out.json").read_text())
    assert data["machine_info"]["gpu"] == "fake-gpu"
    assert len(data["benchmarks"]) == 10
    hot = next(b for b in data["benchmarks"] if b["name"] == "test_experiment[small-p0-f32-good-hot]")
    assert hot["group"] == "p0 hot"
    assert hot["options"]["timer"].endswith("cuda_events")
    assert hot["stats"]["median"] == pytest.approx(5e-6)
    assert hot["stats"]["rounds"] >= 15
    params = {"experiment": "small", "problem": "p0", "dtype": "f32", "kernel": "good", "policy": "hot"}
    assert hot["params"] == params
    info = hot["extra_info"]
    assert (info["kernel"], info["variant"], info["policy"], info["math"]) == ("good", "fast", "hot", "f32")
    assert info["relative_error"] == 0.0
    assert info["tf32_us"] == pytest.approx(2.0)
    assert "UNSERIALIZABLE" not in (pytester.path / "out.json").read_text()
    again = run("--benchmark", "-k", "p0 and good", "--benchmark-compare", "--benchmark-compare-fail=median:5%")
    assert again.ret == 0
    again.stderr.fnmatch_lines(["*Comparing against benchmarks from*"])


def test_an_experiment_is_chosen_by_its_name_and_grouped_by_its_problems(checkout):
    result = checkout(gpu=True)("--benchmark", "-k", "other", "--benchmark-group-by=param:problem")
    result.assert_outcomes(passed=10, deselected=30)
    result.stdout.fnmatch_lines([f"*benchmark 'problem=p{number}': 2 tests*" for number in range(5)])


def test_a_wrong_kernel_fails_and_an_absent_library_skips_with_its_reason(checkout):
    result = checkout(gpu=True)("--benchmark", "-k", "small and p0", "-rs")
    result.assert_outcomes(passed=2, failed=2, skipped=2)
    result.stdout.fnmatch_lines(["*wrong: *relative error*", "*no such device*"])
    assert result.ret == 1


def test_without_a_gpu_kernels_are_checked_on_the_processor_and_the_reason_is_told(checkout):
    result = checkout(gpu=False)("--benchmark", "-k", "good")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*no GPU (cupy: no CUDA GPU found; pycuda: no CUDA GPU found)*on the processor*"])
    assert "warning" not in result.stdout.str().lower()


def test_the_device_is_the_one_asked_for_by_option_or_environment(checkout, monkeypatch):
    header = checkout(gpu=True)("--benchmark", "--device", "cpu").stdout.str()
    assert "no GPU (--device cpu)" in header
    monkeypatch.setenv("NNZBENCH_DEVICE", "pycuda")
    result = checkout(gpu=True)("--benchmark")
    assert result.ret != 0
    assert "no CUDA GPU found" in result.stderr.str() + result.stdout.str()


def test_what_benchmarks_cannot_run_with_is_refused(checkout):
    run = checkout(gpu=True)
    refused = run("--benchmark", "-p", "no:benchmark")
    assert refused.ret == 4
    refused.stderr.fnmatch_lines(["*--benchmark needs pytest-benchmark*"])
    run("-p", "no:benchmark").assert_outcomes(passed=1)


def test_a_benchmark_file_named_without_the_flag_says_so(checkout):
    result = checkout(gpu=True)("suite/benchmarks/test_experiments.py", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*add --benchmark to run it*"])
