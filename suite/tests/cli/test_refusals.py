"""What commands refuse and how they fail: one clear sentence, and the exit status."""

import errno
import json
import subprocess
import sys

import pytest
from commands import invoke
from fakes import FakeDevice, FakeKernel
from small_commands import USER_KERNEL, Small, rows

from nnzbench import devices
from nnzbench.cli import chosen
from nnzbench.core.plan import Unsupported
from nnzbench.devices import DeviceLost, cpu_device
from nnzbench.kernels import registry as kernel
from nnzbench.papers.catalogue import EXPERIMENTS


def test_a_lost_device_is_told_in_one_sentence(world, tmp_path):
    world["fake"].variants["b"] = (1.0, "lost")
    result = invoke("run", "small")
    assert result.exit_code == 1
    assert "go on with --resume" in result.output
    assert not isinstance(result.exception, DeviceLost)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("run", "nope"), "unknown experiment 'nope': choose from"),
        (("run", "small", "--kernel", "nope"), "unknown kernel 'nope': choose from fake"),
        (("run", "small", "--kernel", "nope.py"), "kernel file nope.py does not exist"),
        (("run", "small", "--policy", "hot,warm"), "'warm' is not one of hot, cold"),
        (("run", "small", "--dtype", "f64"), "'f64' is not one of f32, f16, bf16"),
        (("run", "small", "--before", "2026-11-02"), "--before is of what is recorded: add --resume"),
        (("run", "small", "--before", "tuesday"), "'tuesday' does not match the formats"),
        (("run", "small", "--resume", "--before", "9026-11-02"), "--before is a time that has passed"),
        (("run",), "Missing argument"),
        (("list", "problems", "nope"), "unknown experiment 'nope'"),
        (("nope",), "No such command 'nope'."),
        (("bset",), "No such command 'bset': did you mean best?"),
        (("run", "all", "smal"), "unknown experiment 'smal': did you mean small?"),
        (("report", "smal"), "unknown experiment 'smal': did you mean small?"),
        (("predict", "smal", "--gpu", "T4"), "unknown experiment 'smal': did you mean small?"),
        (("compile", "--kernel", "sputnk"), "unknown kernel 'sputnk': did you mean sputnik"),
        (("compile", "--kernel", "cublas"), "cublas is a vendor's library: nothing of it is compiled here"),
        (("run", "small", "--device", "cpu", "--policy", "hot"), "--device cpu checks and times nothing"),
        (("run", "small", "--workers", "2"), "--workers is for --cluster"),
        (("run", "small", "--workers", "2", "--cluster", "tcp://h:1"), "those of tcp://h:1 run already"),
        (("run", "small", "--out", "/proc/nope"), "/proc/nope"),
        (("run", "small", "--real", "--standin"), "--standin patterns are not --real ones: choose one"),
        (("run", "small", "--uniform", "--real"), "--uniform patterns are neither --standin nor --real ones"),
    ],
)
def test_bad_usage_is_status_2_and_one_sentence(world, args, sentence):
    result = invoke(*args)
    assert result.exit_code == 2
    assert sentence in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("--problem", "nosuch*"), "no problem of small is named like 'nosuch*': the nearest are p1_None, p0_None"),
        (("--problem", "p0*", "--problem", "q0_None"), "'q0_None': the nearest are p0_None"),
        (("--dtype", "bf16"), "nothing of small runs in bf16: the kernels chosen run there in f32"),
        (("--kernel", "fak"), "unknown kernel 'fak': choose from fake"),
    ],
)
def test_what_matches_nothing_is_refused_before_anything_is_touched(world, tmp_path, args, sentence):
    assert invoke("run", "small").exit_code == 0
    before = (tmp_path / "results/fake-gpu/small/records.csv").read_bytes()
    result = invoke("run", "small", "--overwrite", *args)
    assert result.exit_code == 2, result.output
    assert sentence in " ".join(result.output.split())
    assert (tmp_path / "results/fake-gpu/small/records.csv").read_bytes() == before


@pytest.mark.parametrize("option", ["--standin", "--uniform", "--target-arch"])
def test_a_run_that_has_no_page_is_not_drawn_and_says_so_first(world, tmp_path, option):
    result = invoke("run", "small", "--report", option, *(["sm_75"] if option == "--target-arch" else []))
    assert result.exit_code == 2
    assert f"and {option} records into a folder below it: leave --report away" in " ".join(result.output.split())
    assert not (tmp_path / "results").exists(), "nothing was measured"
    assert not world["fake"].prepared


def test_a_report_of_such_runs_alone_says_why_it_draws_nothing(world, tmp_path):
    assert invoke("run", "small", "--standin").exit_code == 0
    assert invoke("run", "small", "--uniform").exit_code == 0
    result = invoke("report", "small", "--reports", str(tmp_path / "results"))
    assert result.exit_code == 2
    assert "holds records in standin/, uniform/ alone" in " ".join(result.output.split())


def test_a_kernel_without_plans_is_refused_by_name(world):
    world["empty"] = FakeKernel("empty", variants={})
    result = invoke("run", "small", "--kernel", "empty")
    assert result.exit_code == 2
    assert "empty: no plan for any of the problems chosen" in result.output
    assert invoke("run", "small", "--resume", "--kernel", "fake").exit_code == 0


def test_two_candidates_of_one_name_are_an_error(world, tmp_path):
    class Twice(FakeKernel):
        def candidates(self, problem, operands, device):
            yield from super().candidates(problem, operands, device)
            yield from super().candidates(problem, operands, device)

    world["fake"] = Twice(variants={"a": (5.0, "")})
    result = invoke("run", "small")
    assert result.exit_code == 1
    assert "fake has two candidates named 'a' for one problem" in result.stdout
    assert {(r.variant, r.status) for r in rows(tmp_path)} == {("a", "ok"), ("", "launch-error")}


FULL = OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_one_sentence_and_never_a_failure_of_a_kernel(world, tmp_path):
    world["fake"].variants["b"] = (1.0, FULL)
    result = invoke("run", "small")
    assert result.exit_code == 2
    assert result.output.splitlines()[-1].startswith("Error: No space left on device: what is recorded is whole")
    assert {(r.variant, r.status, r.selected) for r in rows(tmp_path)} == {("a", "ok", True)}
    world["fake"].variants["b"] = (4.0, "")
    assert invoke("run", "small", "--resume").exit_code == 0
    assert {r.status for r in rows(tmp_path)} == {"ok"}


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("--help >/dev/full", 2, "Error: No space left on device"),
        (
            "list experiments >/dev/full",
            2,
            "Error: No space left on device: what is recorded is whole, the rest is not written",
        ),
        ("nosuch 2>/dev/full", 2, ""),
        ("nosuch 2>&-", 2, ""),
        ("list experiments >&- 2>&- <&-", 0, ""),
        ("list nosuch >&- 2>&- <&-", 2, ""),
    ],
)
def test_streams_that_take_nothing_leave_the_status_and_no_traceback(words, status, said):
    done = subprocess.run(
        f"'{sys.executable}' -m nnzbench {words}", shell=True, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.strip()) == (status, said)


def test_a_full_disk_ends_a_report_with_one_sentence(world, monkeypatch):
    def build(*arguments, **options):
        raise FULL

    assert invoke("run", "small").exit_code == 0
    monkeypatch.setattr("nnzbench.site.build.build", build)
    result = invoke("report")
    assert result.exit_code == 2
    assert "Error: No space left on device" in result.output


def test_sanitizers_are_for_the_processor(world, monkeypatch):
    built = []
    monkeypatch.setattr(cpu_device, "CpuDevice", lambda build: built.append(build) or FakeDevice(timed=False))
    assert invoke("run", "small", "--device", "cpu", "--sanitize", "asan").exit_code == 0
    assert built == ["asan"]
    refused = invoke("run", "small", "--sanitize", "asan")
    assert refused.exit_code == 2
    assert "--sanitize is for --device cpu" in refused.output
    assert invoke("run", "small", "--device", "cpu", "--sanitize", "msan").exit_code == 2


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"bad_one", "none"', '5, "none"', "a kernel's name must be one word, not 5"),
        ('"bad_one", "none"', '"two words", "none"', "not 'two words'"),
        ("name, paper, ops, dtypes", "name, paper, others, dtypes", "kernel 'bad_one' needs `ops`"),
        ('frozenset({"spmm"})', '"spmm"', "kernel 'bad_one' needs `ops`"),
        ('frozenset({"f32"})', 'frozenset({"f64"})', "kernel 'bad_one' needs `dtypes`"),
        ("def plans", "def plan", "kernel 'bad_one' needs a method `plans`"),
        ("class Mine", "import sys; sys.exit(0)\nclass Mine", "failed: SystemExit: 0"),
    ],
)
def test_a_kernel_file_that_breaks_the_contract_is_one_sentence(monkeypatch, tmp_path, old, new, says):
    text = USER_KERNEL.format(name="bad_one")
    assert text.count(old) == 1 or old == "class Mine"
    (tmp_path / "bad.py").write_text(text.replace('"{name}"', '"bad_one"').replace(old, new))
    monkeypatch.setattr(kernel, "_registry", kernel.kernels())
    monkeypatch.setitem(EXPERIMENTS, "small", Small("small", "", "", "", {"fake": ()}))
    monkeypatch.setattr(devices, "open_device", lambda name: FakeDevice())
    result = invoke("run", "small", "--kernel", str(tmp_path / "bad.py"), "--out", str(tmp_path / "out"))
    assert result.exit_code == 2, result.output
    assert says in result.output


def test_tuning_without_a_timer_is_refused_once(world):
    result = invoke("tune", "sparsert_table1", "--device", "cpu")
    assert result.exit_code == 2, result.output
    assert result.output.count("tuning needs a GPU") == 1
    assert "the nearest are" in invoke("tune", "sparsert_table1", "--problem", "nosuch*").output


def test_an_experiment_without_any_kernel_is_refused_and_left_out_of_all(world, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "later", Small("later", "", "", "", {"future": ()}))
    result = invoke("run", "later")
    assert result.exit_code == 2
    assert "none of future" in result.output
    assert [one.name for one in chosen.choose_experiments(("all",), False)] == ["small"]


def test_what_runs_nothing_is_refused_and_has_no_problems(world):
    refused = invoke("run", "sputnik_figure2")
    assert refused.exit_code == 2
    assert "nnzbench report sputnik_figure2" in refused.output
    assert json.loads(invoke("list", "problems", "sputnik_figure2", "--json").stdout) == []


@pytest.mark.parametrize(("gpus", "why"), [([], "no GPU or driver found"), (["a GPU"], "no cupy here")])
def test_without_a_gpu_the_default_device_says_what_to_do(world, monkeypatch, gpus, why):
    def none(name):
        raise Unsupported(f"no {name} here")

    monkeypatch.setattr(devices, "open_device", none)
    monkeypatch.setattr(devices, "visible_gpus", lambda: gpus)
    result = invoke("run", "small")
    assert result.exit_code == 2
    assert why in result.output
    assert "--device cpu" in result.output
