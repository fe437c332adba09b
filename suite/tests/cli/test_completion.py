"""What a shell completes."""

from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete

from nnzbench.cli import main


@pytest.mark.parametrize(
    ("words", "begun", "found"),
    [
        (["run"], "spmm_s", {"spmm_scaling"}),
        (["list", "problems"], "llm", {"llm_layers"}),
        (["best", "x.npz", "--kernel"], "flash", {"flash_llm"}),
        (["best", "x.npz", "--gpu"], "nvidia-h2", {"nvidia-h200"}),
        (["predict"], "eie_t", {"eie_table4"}),
    ],
)
def test_experiments_kernels_and_gpus_are_completed(words, begun, found):
    shell = ShellComplete(main, {}, "nnzbench", "_NNZBENCH_COMPLETE")
    assert {one.value for one in shell.get_completions(words, begun)} == found


def test_a_kernel_may_be_a_file():
    shell = ShellComplete(main, {}, "nnzbench", "_NNZBENCH_COMPLETE")
    assert [one.type for one in shell.get_completions(["run", "--kernel"], "./mine")] == ["file"]
