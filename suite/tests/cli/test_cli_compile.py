import json
from collections.abc import Callable, Iterator
from itertools import chain, combinations, islice, product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from click.testing import CliRunner, Result

from nnzbench import kernel as registry
from nnzbench.cli.compile import command
from nnzbench.core import paths
from nnzbench.core.architectures import architecture
from nnzbench.core.plan import Launch, Plan, Unsupported
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import NETWORKS, Op, Problem
from nnzbench.devices.build import toolchain
from nnzbench.kernels.registry import Kernel
from nnzbench.kernels.samples import PROBLEMS, sample_plans

try:
    toolchain.nvrtc_version()
except Unsupported as reason:
    pytest.skip(str(reason), allow_module_level=True)

SOURCE = """\
extern "C" __global__ void __launch_bounds__(64) scale(float* c) {
    __shared__ float s[64];
    s[threadIdx.x] = c[threadIdx.x] * FACTOR;
    __syncthreads();
    c[threadIdx.x] = s[63 - threadIdx.x];
}
"""
SUPPORT_FILES = {"decoder_steps.cu", "masked_softmax.cu", "network_steps.cu", "peaks.cu", "turn.cu"}
"""Kernels of the suite itself, and those that run between a library's calls: no plan of a kernel names them."""


class Scale:
    """Two variants on every architecture but sm_75."""

    name = "scale"
    paper = "none"
    ops: frozenset[Op] = frozenset({"spmm"})
    dtypes = frozenset({"f32"})
    source = "scale.cu"
    entry = "scale"
    shared_bytes = 1024

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        if arch == "sm_75":
            raise Unsupported("not on Turing")
        assert operands.sparse.nnz
        launch = Launch(self.entry, (1, 1, 1), (64, 1, 1), ("c",), self.shared_bytes)
        for factor in (2, 3):
            buffers = {"c": np.zeros(64, np.float32)}
            yield Plan(f"by{factor}", "cuda", self.source, {"FACTOR": factor}, buffers, "c", (launch,))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    (tmp_path / "include").mkdir()
    (tmp_path / "scale.cu").write_text(SOURCE)
    monkeypatch.setattr(paths, "kernels_cu", lambda: tmp_path)
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("nnzbench.cli.compile.kernels", lambda: {"scale": Scale()})

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(command, list(arguments))

    return invoke


def rows_of(result: Result) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


def test_every_variant_and_architecture_is_a_row_with_its_resources(run):
    result = run("--json", "--arch", "sm_80", "--arch", "sm_90a")
    assert result.exit_code == 0, result.stderr
    rows = rows_of(result)
    assert [(row["variant"], row["arch"]) for row in rows] == list(product(("by2", "by3"), ("sm_80", "sm_90a")))
    for row in rows:
        assert (row["status"], row["shared_bytes"], row["threads"]) == ("ok", 64 * 4 + 1024, 64)
        assert row["occupancy"] == 1.0  # 32 blocks of 2 warps
        assert row["code_bytes"] > 0
        assert not row["cached"]
    assert "4 programs for 2 architectures, 0 of 4 entry points failed" in result.stderr
    assert all(row["cached"] for row in rows_of(run("--json", "--arch", "sm_80")))


def test_a_kernel_named_twice_is_compiled_once(run):
    once = rows_of(run("--json", "--arch", "sm_80", "--kernel", "scale"))
    twice = rows_of(run("--json", "--arch", "sm_80", "--kernel", "scale", "--kernel", "scale"))
    assert [row["variant"] for row in twice] == [row["variant"] for row in once] == ["by2", "by3"]


def test_a_first_look_takes_some_kernels_for_each_architecture(run):
    rows = json.loads(run("--sample", "1", "--json").stdout)
    assert [row["arch"] for row in rows] == list(dict.fromkeys(row["arch"] for row in rows))
    assert {row["status"] for row in rows} == {"ok"}
    assert run("--sample", "1").stdout == ""
    assert run("--sample", "1", "--all").exit_code == 2


def test_default_architectures_and_a_kernel_that_leaves_one_out(run):
    rows = rows_of(run("--json", "--kernel", "scale"))
    turing = [row for row in rows if row["arch"] == "sm_75"]
    assert [(row["status"], row["reason"]) for row in turing] == [("unsupported", "not on Turing")]
    assert {row["arch"] for row in rows} >= {"sm_80", "sm_86", "sm_89", "sm_90"}


def test_without_a_filter_most_architectures_get_a_sample_that_has_every_value(run, monkeypatch):
    def plans(self: Scale, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        launch = Launch(self.entry, (1, 1, 1), (64, 1, 1), ("c",), self.shared_bytes)
        for factor, other in ((2, 1), (2, 2), (3, 1), (3, 2)):
            if (factor, other, arch) != (2, 1, "sm_90"):
                defines = {"FACTOR": factor, "OTHER": other}
                yield Plan(f"{factor}x{other}", "cuda", self.source, defines, {"c": np.zeros(64)}, "c", (launch,))

    monkeypatch.setattr(Scale, "plans", plans)
    sampled = run("--json")
    built: dict[str, set[str]] = {}
    for row in rows_of(sampled):
        assert row["status"] == "ok"
        built.setdefault(row["arch"], set()).add(row["variant"])
    assert built.pop("sm_90") == {"2x2", "3x1", "3x2"}  # all that it has
    alike: dict[frozenset[str], list[str]] = {}
    for arch, variants in built.items():
        assert variants, arch
        alike.setdefault(architecture(arch).capabilities, []).extend(variants)
    for variants in alike.values():
        assert {value for variant in variants for value in variant.split("x")} == {"1", "2", "3"}
    assert len(alike) < len(built)
    assert "2x1" in set().union(*built.values())  # what sm_90 does not have is compiled somewhere
    made = 3 + sum(map(len, alike.values()))
    assert f"{made} of {3 + 4 * len(built)} programs for {1 + len(built)} arch" in sampled.stderr
    whole = {(row["arch"], row["variant"]) for row in rows_of(run("--json", "--all"))}
    assert len(whole) == 3 + 4 * len(built)
    for shown in (run(), run("--details")):
        assert shown.exit_code == 0
    assert len(run().stdout.splitlines()) < 12
    assert "scale" in run().stdout


def test_the_file_of_a_kernel_without_plans_here_is_no_support_file(run):
    assert [row["status"] for row in rows_of(run("--json", "--arch", "sm_75"))] == ["unsupported"]


def test_support_files_are_built_as_they_are(run, tmp_path):
    (tmp_path / "extra.cu").write_text('extern "C" __global__ void extra(float* c) { c[0] = 1.0f; }\n')
    support = [row for row in rows_of(run("--json", "--arch", "sm_80")) if row["kernel"] == "(support)"]
    assert [(row["variant"], row["entry"], row["occupancy"]) for row in support] == [("extra.cu", "extra", None)]


def test_compile_errors_end_with_status_1_and_their_log_once(run, tmp_path):
    (tmp_path / "scale.cu").write_text("\n" + SOURCE.replace("* FACTOR", "* OTHER"))
    result = run("--arch", "sm_80")
    assert result.exit_code == 1
    assert 'scale.cu(4): error: identifier "OTHER" is undefined' in result.stderr
    assert result.stderr.count("1 error detected") == 1
    assert "2 of 2 entry points failed" in result.stderr


def test_a_plan_that_names_no_entry_point_fails(run, monkeypatch):
    monkeypatch.setattr(Scale, "entry", "scales")
    result = run("--arch", "sm_80")
    assert result.exit_code == 1
    assert "no entry point 'scales'" in result.stderr


def test_a_plan_that_can_not_be_launched_fails(run, monkeypatch):
    monkeypatch.setattr(Scale, "shared_bytes", 70 * 1024)
    result = run("--json", "--arch", "sm_70", "--arch", "sm_80")
    assert result.exit_code == 0
    monkeypatch.setattr(Scale, "shared_bytes", 163 * 1024)
    result = run("--json", "--arch", "sm_80")
    assert result.exit_code == 1
    assert "not one block fits on an SM, for its shared memory" in rows_of(result)[0]["reason"]


def test_bad_names_are_one_sentence(run):
    assert "unknown kernel 'scala': choose from scale" in run("--kernel", "scala").stderr
    assert isinstance(run("--arch", "sm_20").exception, Unsupported)


@pytest.mark.parametrize("wrong", ["text", "shared memory"])
def test_what_only_other_architectures_have_is_compiled_by_threes_and_the_rest_is_read(
    run, monkeypatch, tmp_path, wrong
):
    refused, every = [], list(product((0, 1), repeat=4))

    def plans(self: Scale, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        for values in every[:1] if arch == "sm_90" else every:
            shared = 228 * 1024 if wrong != "text" and values in refused else 0
            launch = Launch(self.entry, (1, 1, 1), (64, 1, 1), ("c",), shared)
            defines = {"FACTOR": 2, **dict(zip("ABCD", values, strict=True))}
            yield Plan(str(values), "cuda", self.source, defines, {"c": np.zeros(64)}, "c", (launch,))

    monkeypatch.setattr(Scale, "plans", plans)
    monkeypatch.setattr("nnzbench.cli.compile.compiled_architectures", lambda: ("sm_80", "sm_90"))
    built = {values for values in every for row in rows_of(run("--json")) if row["variant"] == str(values)}
    for places in combinations(range(4), 3):
        assert {tuple(values[at] for at in places) for values in built} == {*product((0, 1), repeat=3)}
    refused += [values for values in every if values not in built][:1]
    if wrong == "text":
        assertion = (
            f"static_assert({' || '.join(f'{name} != {at}' for name, at in zip('ABCD', *refused, strict=True))});"
        )
        (tmp_path / "scale.cu").write_text(assertion + SOURCE)
    result = run("--json")
    assert result.exit_code == 1
    assert [row["variant"] for row in rows_of(result) if row["status"] == "compile-error"] == list(map(str, refused))
    assert ("static assertion failed" if wrong == "text" else "shared memory") in result.stderr


def test_representative_problems_cover_every_op_with_unique_names():
    assert {problem.op for problem in PROBLEMS} == set(get_args(Op)) - NETWORKS  # made of other ops' programs
    assert len({problem.name for problem in PROBLEMS}) == len(PROBLEMS)


def test_a_kernel_without_plans_gives_its_last_reason():
    class Never(Scale):
        def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
            raise Unsupported(f"not for n = {problem.n}")

    with pytest.raises(Unsupported, match="not for n = "):
        list(sample_plans(Never(), "sm_80"))


def test_every_kernel_file_is_used_by_a_kernel_or_by_the_suite():
    plans = [sample_plans(kernel, "sm_90") for kernel in registry.kernels().values() if isinstance(kernel, Kernel)]
    firsts = (islice(some, 1) for some in plans)  # nearly all files have one; plans take seconds to make
    unused = {path.name for path in paths.kernels_cu().glob("*.cu")} - SUPPORT_FILES
    for plan in chain(*firsts, *plans):
        unused -= {stage.source for stage in plan.stages()}
        if not unused:
            break
    assert not unused


def test_programs_of_an_experiments_run_are_compiled_ahead(tmp_path, monkeypatch):
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path))
    words = ["awkward_sizes", "--arch", "sm_90", "--kernel", "eie", "--candidates", "1"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0
    assert "4 programs compiled for sm_90, 0 failed" in done.output
    refusals = ([*words, "--json"], words[:1], ["--candidates", "1"])
    assert [CliRunner().invoke(command, given).exit_code for given in refusals] == [2, 2, 2]
