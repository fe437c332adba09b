"""Processes of kernel files: each question has its own, which ends with it, whatever the file does."""

import os
from pathlib import Path

import numpy as np
import pytest
from on_cpu import matrix

from nnzbench.core.plan import Unsupported
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels import registry, user

FILE = """
import os, sys
from nnzbench.kernel import Launch, Plan, register

class Mine:
    name, paper, ops, dtypes = "mine_only", "none", frozenset({"spmm"}), frozenset({"f32"})

    def plans(self, problem, operands, arch):
        sys.modules["nnzbench.kernel"].asked = getattr(sys.modules["nnzbench.kernel"], "asked", 0) + 1
        print("told on standard output")
        launches = (Launch("f", (1, 1, 1), (1, 1, 1), ()),)
        variant = f"{os.getpid()}_{sys.modules['nnzbench.kernel'].asked}_{os.environ['OF_NOW']}"
        yield Plan(variant, "cuda", "a\\nb", {}, {"y": operands.dense["b"]}, "y", launches)
        THEN

register(Mine())
"""


@pytest.fixture
def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function: asks a kernel for its plans, which goes on with such a statement after the first one."""
    monkeypatch.setattr(registry, "_registry", registry.kernels())
    monkeypatch.setattr(registry, "_about", dict(registry._about))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OF_NOW", "here")
    data = Operands(matrix(4, 5, 0.5), {"b": np.ones((5, 3), np.float32)}, "")

    def of(then: str):
        Path("mine.py").write_text(FILE.replace("THEN", then))
        user.load(Path("mine.py"))
        mine, problem = registry.kernels()["mine_only"], Problem("x", "p", "spmm", 4, 5, 3, 0.5, "")
        return lambda: mine.plans(problem, data, "sm_90")

    return of


def test_a_process_ends_with_its_question_and_leaves_nothing_to_the_next(plans, capfd):
    ask, numbers = plans("while True: pass"), set()
    for _ in range(2):
        asked = ask()
        number, count, setting = next(asked).variant.split("_")
        assert (count, setting) == ("1", "here")
        os.kill(int(number), 0)  # it is there
        asked.close()
        with pytest.raises(ProcessLookupError):
            os.kill(int(number), 0)
        numbers.add(number)
    assert len(numbers) == 2
    assert "told on standard output" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("then", "said"),
    [("os._exit(3)", "ended with status 3"), ("1 / 0", "ZeroDivisionError"), ("sys.exit(0)", "SystemExit: 0")],
)
def test_a_process_that_ends_or_fails_is_a_defect_in_a_sentence(plans, then, said):
    asked = plans(then)()
    next(asked)
    with pytest.raises(registry.KernelDefect, match=said):
        next(asked)


def test_processes_end_with_the_one_that_asks(plans):
    asked = plans("while True: pass")()
    number = int(next(asked).variant.split("_")[0])
    template = user._templates.pop(os.getpid())
    template._control.close()
    template.process.wait(20)
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
    asked.close()


def test_a_file_that_fails_is_told_in_one_line(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(r'raise ValueError("one\ntwo")')
    with pytest.raises(Unsupported, match=r"ValueError: one two$"):
        user.load(file)
