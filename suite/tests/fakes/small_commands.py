"""One small experiment and a user's kernel, for tests of commands. Not a test file."""

from __future__ import annotations

from nnzbench.data.problems.experiment import Experiment
from nnzbench.data.problems.problem import Problem
from nnzbench.results.records.record import read_records

USER_KERNEL = """
from nnzbench.kernel import Unsupported, register

class Mine:
    name, paper, ops, dtypes = "{name}", "none", frozenset({{"spmm"}}), frozenset({{"f32"}})
    def plans(self, problem, operands, arch):
        raise Unsupported("only a test")
        yield

register(Mine())
"""


class Small(Experiment):
    def problems(self, real=None):
        return [
            Problem("small", f"p{i}_{real}", "spmm", 8 + i, 16, 4, 0.5, f"uniform:{i}")
            for i in range(9 if self.full else 2)
        ]


def rows(tmp_path, gpu="fake-gpu", part=""):
    return read_records(tmp_path / "results" / gpu / "small" / part / "records.csv")
