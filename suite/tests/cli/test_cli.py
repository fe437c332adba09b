"""What commands do, on a pretended GPU: which rows they write where, and what they say."""

import io
import json
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete
from commands import invoke
from draft_figures import figures_in_draft, pages_alone  # noqa: F401
from fakes import FakeDevice, FakeKernel
from small_commands import USER_KERNEL, Small, rows

from nnzbench import devices
from nnzbench.cli import main
from nnzbench.core.plan import Unsupported
from nnzbench.data.problems.problem import Problem
from nnzbench.devices.build.cache import CompileError, CompileTimeout
from nnzbench.kernels import registry as kernel
from nnzbench.kernels.registry import About
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.results.records.record import read_records


def test_a_locale_without_a_letter_does_not_end_in_a_traceback(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "latin-1"))
    monkeypatch.setattr("nnzbench.cli.list.command.callback", lambda **_: print("49 ± 1 – × µ"))
    main(["list", "experiments"], standalone_mode=False)
    sys.stdout.flush()
    assert written.getvalue().decode("latin-1").startswith("49 ± 1 ? × µ")


def test_run_writes_below_the_gpu_and_says_where(world, tmp_path):
    result = invoke("run", "small")
    assert result.exit_code == 0, result.output
    assert {(r.variant, r.selected) for r in rows(tmp_path)} == {("a", False), ("b", True)}
    folder = tmp_path / "results" / "fake-gpu" / "small"
    done = f"done: 4 candidates right, 0 wrong, 0 refused, 0 failed, 0 unsupported: {folder}\n"
    assert result.stdout == done
    log = tmp_path / "results" / "run.log"
    assert result.stderr == f"Details: {log}\n"
    for detail in ("[1/2] small p0_None f32 fake", "kernel 'future' is not in this version"):
        assert detail in log.read_text()
        assert detail in invoke("run", "small", "--overwrite", "--verbose").stderr


def test_a_second_run_is_refused_then_resumed_then_overwritten(world, tmp_path):
    invoke("run", "small")
    again = invoke("run", "small")
    assert again.exit_code == 2
    assert "--resume to go on or --overwrite" in again.output
    assert "nothing new" in invoke("run", "small", "--resume").output
    assert "nothing new" in invoke("run", "small", "--resume", "--before", "2026-11-02").output
    fewer = ("run", "small", "--overwrite", "--policy", "cold")
    refused = invoke(*fewer)
    assert refused.exit_code == 2
    assert "would delete 8 rows, 4 of which this run does not bring again" in refused.output
    assert len(rows(tmp_path)) == 8
    replaced = invoke(*fewer, "--yes")
    assert replaced.exit_code == 0
    log = (tmp_path / "results" / "run.log").read_text()
    assert "--overwrite deletes 8 rows (records.csv, tuning.csv, environment.json)" in log
    assert {(r.policy, r.problem) for r in rows(tmp_path)} == {("cold", "p0_None"), ("cold", "p1_None")}
    assert invoke("run", "small", "--resume", "--overwrite").exit_code == 2
    assert invoke("run", "small", "--yes").exit_code == 2
    assert invoke("run", "small", "--overwrite").exit_code == 0, "it brings all of it again, and more"
    assert len(rows(tmp_path)) == 8


def test_a_run_does_not_replace_more_candidates_than_it_tries(world, tmp_path):
    world["fake"].variants = {f"v{i}": (5.0, "") for i in range(10)}
    assert invoke("run", "small").exit_code == 0
    refused = invoke("run", "small", "--quick", "--overwrite")
    assert refused.exit_code == 2
    assert "would delete 40 rows, 8 of which this run does not bring again" in refused.output
    one = invoke("run", "small", "--candidates", "1", "--overwrite")
    assert one.exit_code == 2
    assert "would delete 40 rows, 36 of which this run does not bring again" in one.output
    assert len(rows(tmp_path)) == 40
    assert invoke("run", "small", "--quick", "--overwrite", "--yes").exit_code == 0
    assert len(rows(tmp_path)) == 32


def test_what_is_published_changes_only_where_it_is_named(world, tmp_path):
    published = tmp_path / "reports"
    with pages_alone():
        assert invoke("run", "small", "--report").exit_code == 0
        assert invoke("report", "small").exit_code == 0
    assert not published.exists()
    assert invoke("run", "small", "--out", str(published)).exit_code == 0
    recorded = published / "fake-gpu" / "small"
    assert [path.name for path in recorded.glob("records.*")] == ["records.parquet"]
    before = (recorded / "records.parquet").read_bytes()
    assert "exists already" in invoke("run", "small", "--out", str(published)).output
    assert invoke("run", "small", "--out", str(published), "--resume").exit_code == 0
    assert (recorded / "records.parquet").read_bytes() == before
    refused = invoke("run", "small", "--policy", "cold", "--out", str(published), "--overwrite")
    assert (refused.exit_code, "would delete" in refused.output) == (2, True)
    assert [path.name for path in recorded.glob("records.*")] == ["records.parquet"]
    assert (recorded / "records.parquet").read_bytes() == before
    with pages_alone():
        drawn = invoke("report", "small", "--reports", str(published))
    assert drawn.exit_code == 0, drawn.output
    assert (published / "fake-gpu" / "small" / "README.md").is_file()


def test_compare_and_validate_find_ones_own_results(world, tmp_path):
    none = invoke("validate")
    assert none.exit_code == 2
    assert "results is not a result set" in none.output
    assert invoke("run", "small", "--out", str(tmp_path / "before")).exit_code == 0
    alone = invoke("compare", str(tmp_path / "before"))
    assert alone.exit_code == 2
    assert "has no run of the experiments and the GPU" in alone.output
    assert invoke("run", "small").exit_code == 0
    assert "8 SAME" in invoke("compare", str(tmp_path / "before")).output
    assert str(tmp_path / "results" / "fake-gpu" / "small") in invoke("validate").output


def test_a_full_run_goes_on_with_the_sample(world, tmp_path):
    invoke("run", "small")
    assert invoke("run", "small", "--full", "--resume").exit_code == 0
    assert len(rows(tmp_path)) == 9 * 2 * 2
    assert len(json.loads(invoke("list", "problems", "small", "--full", "--json").stdout)) == 9


def test_a_run_on_stand_ins_lies_beside_the_one_on_real_data(world, tmp_path):
    assert invoke("run", "small").exit_code == 0
    assert invoke("run", "small", "--standin").exit_code == 0
    assert {r.problem for r in rows(tmp_path, part="standin")} == {"p0_False", "p1_False"}
    assert invoke("run", "small", "--uniform").exit_code == 0
    assert {r.source for r in rows(tmp_path, part="uniform")} == {"uniform:0"}
    assert invoke("run", "small", "--uniform", "--real").exit_code == 2
    assert {r.problem for r in rows(tmp_path)} == {"p0_None", "p1_None"}


@pytest.mark.parametrize("role", ["paper", "library"])
def test_a_wrong_result_is_exit_status_1_with_the_row_kept(world, tmp_path, monkeypatch, role):
    world["fake"].variants["b"] = (1.0, "wrong")
    monkeypatch.setitem(kernel._registry, "fake", world["fake"])
    monkeypatch.setitem(kernel._about, "fake", About(role))
    result = invoke("run", "small")
    assert result.exit_code == 1
    assert ", 2 wrong, " in result.stdout
    assert "\n  2 wrong: fake: " in result.stdout
    assert "WRONG: fake b on p0_None" in (tmp_path / "results" / "run.log").read_text()
    assert {r.status for r in rows(tmp_path) if r.variant == "b"} == {"wrong"}


def test_an_experiment_that_a_choice_leaves_empty_keeps_its_records(world, tmp_path, monkeypatch):
    class Other(Small):
        def problems(self, real=None):
            return [Problem("other", "only", "spmm", 8, 16, 4, 0.5, "uniform:1")]

    monkeypatch.setitem(EXPERIMENTS, "other", Other("other", "", "", "", {"fake": ()}))
    assert invoke("run", "small", "other").exit_code == 0
    assert invoke("run", "small", "other", "--overwrite", "--problem", "only").exit_code == 0
    assert len(rows(tmp_path)) == 8


@pytest.mark.parametrize(("role", "status"), [("library", 0), ("own", 1), ("paper", 1), ("external", 1)])
def test_what_a_library_refuses_is_a_row_and_no_failure_of_the_run(world, tmp_path, monkeypatch, role, status):
    world["fake"].variants |= {"tf32_rowmajor": (1.0, "launch"), "slow": (1.0, CompileTimeout("stopped after 60 s"))}
    monkeypatch.setitem(kernel._registry, "fake", world["fake"])
    monkeypatch.setitem(kernel._about, "fake", About(role, "FakeLt"))
    result = invoke("run", "small")
    assert result.exit_code == status
    assert {(r.variant, r.status) for r in rows(tmp_path)} >= {("tf32_rowmajor", "launch-error"), ("slow", "timeout")}
    told = "4 refused by FakeLt, 0 failed" if role == "library" else "2 refused by FakeLt, 2 failed"
    assert f"done: 4 candidates right, 0 wrong, {told}, 0 unsupported" in result.stdout
    assert ("launch-error: fake: " in result.stdout) == bool(status)
    assert len(result.output.splitlines()) <= 4


def test_a_run_tells_programs_what_it_did(world):
    world["fake"].variants["late"] = (1.0, Unsupported("needs sm_100"))
    (found,) = json.loads(invoke("run", "small", "--json").stdout)
    assert found["records"].endswith("fake-gpu/small/records.csv")
    assert (found["right"], found["wrong"], found["unsupported"], found["rows"]["ok"]) == (4, 0, 2, 8)
    assert found["reasons"] == ["4 unsupported: fake: needs sm_100"]


def test_reasons_are_summed_up_at_the_end(world, tmp_path):
    log = "k.cu(4): error: expected a ';'\nk.cu(5): error: more"
    world["fake"].variants |= {"bad": (1.0, CompileError(log)), "late": (1.0, Unsupported("needs sm_100"))}
    world["fake"].variants |= {f"o{i}": (1.0, Unsupported(f"reason {i}")) for i in range(6)}
    result = invoke("run", "small")
    assert result.exit_code == 1
    assert "\n  4 compile-error: fake: k.cu(4): error: expected a ';'\n" in result.stdout
    assert "unsupported: fake" not in result.stdout
    assert "4 unsupported: fake: needs sm_100\n" in (tmp_path / "results" / "run.log").read_text()
    world["fake"].variants = {f"o{i}": (1.0, Unsupported(f"reason {i}")) for i in range(7)}
    result = invoke("run", "small", "--overwrite", "--yes")
    assert "\n  4 unsupported: fake: reason 4\n  and 2 other reasons: " in result.stdout


@pytest.mark.parametrize("module", ["nnzbench", "nnzbench.cli"])
def test_the_package_runs_as_a_module(module):
    done = subprocess.run([sys.executable, "-m", module, "nosuch"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "No such command 'nosuch'" in done.stderr


def test_a_run_draws_its_pages_when_asked_where_its_rows_are(world, tmp_path):
    world["fake"] = FakeKernel(variants={"a": (5.0, ""), "b": (4.0, "wrong")})
    with pages_alone():
        assert invoke("run", "small", "--report").exit_code == 1, "the run's status"
        assert invoke("run", "small", "--report", "--out", str(tmp_path / "out")).exit_code == 1
    for folder in ("results", "out"):
        assert (tmp_path / folder / "fake-gpu" / "small" / "README.md").is_file()
    assert not (tmp_path / "reports").exists()


def test_a_kernel_file_of_the_user_runs_beside_named_kernels(monkeypatch, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(USER_KERNEL.format(name="mine_only"))
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kernel, "_registry", kernel.kernels())  # a copy: the file's kernel stays in this test
    monkeypatch.setitem(EXPERIMENTS, "small", Small("small", "", "", "", {"fake": ()}))
    monkeypatch.setattr(devices, "open_device", lambda name: FakeDevice())
    out = tmp_path / "out"
    result = invoke("run", "small", "--kernel", str(file), "--out", str(out), "--policy", "hot")
    assert result.exit_code == 0, result.output
    found = read_records(out / "fake-gpu" / "small" / "records.csv")
    assert {(r.kernel, r.status, r.reason) for r in found} == {("mine_only", "unsupported", "only a test")}
    again = invoke("run", "small", "--kernel", str(file), "--out", str(out))
    assert again.exit_code == 2
    assert "registered twice" in again.output


def test_listings_are_aligned_text_or_json():
    found = json.loads(invoke("list", "experiments", "--json").output)
    assert [row["name"] for row in found] == list(EXPERIMENTS)
    assert "sparsert_table1" in invoke("list", "experiments").output
    problems = json.loads(invoke("list", "problems", "sparsert_table1", "--json").output)
    assert len(problems) == 31
    kernels = json.loads(invoke("list", "kernels", "--json").output)
    roles = {row["name"]: row["role"] for row in kernels}
    assert (roles["sputnik"], roles["ring"], roles["cublas"]) == ("paper", "own", "library")


def test_listing_loads_neither_a_gpu_library_nor_pandas():
    program = (
        "import sys; from click.testing import CliRunner; from nnzbench.cli import main; "
        "assert CliRunner().invoke(main, ['list', 'kernels']).exit_code == 0; "
        "assert CliRunner().invoke(main, ['list', 'experiments']).exit_code == 0; "
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0; "
        "heavy = {'cupy', 'pycuda', 'nvmath', 'matplotlib', 'pandas.core', 'scipy.stats', 'scipy.optimize'}; "
        "sys.exit(bool(heavy & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("words", "begun", "found"),
    [
        (["run"], "spmm_s", {"spmm_scaling"}),
        (["list", "problems"], "llm", {"llm_layers"}),
        (["best", "x.npz", "--kernel"], "flash", {"flash_llm"}),
        (["best", "x.npz", "--gpu"], "nvidia-h2", {"nvidia-h200"}),
        (["best", "x.npz", "--gpu"], "nvidia-geforce-gtx", set()),  # a TITAN X, which no kernel is compiled for
        (["predict"], "eie_t", {"eie_table4"}),
    ],
)
def test_experiments_kernels_and_gpus_are_completed(words, begun, found):
    shell = ShellComplete(main, {}, "nnzbench", "_NNZBENCH_COMPLETE")
    assert {one.value for one in shell.get_completions(words, begun)} == found


def test_a_kernel_may_be_a_file():
    shell = ShellComplete(main, {}, "nnzbench", "_NNZBENCH_COMPLETE")
    assert [one.type for one in shell.get_completions(["run", "--kernel"], "./mine")] == ["file"]
