"""Kernels from a user's own file: `nnzbench run --kernel ./my_kernel.py`.

The file never runs in this process: what it yields are plans, which come as plain data from a process of its own
(`user_process.py`), and everything that is compiled, launched, timed or compared is done here.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nnzbench.kernels.registry import About, KernelDefect, PlannedKernel, register
from nnzbench.kernels.user_process import REQUEST
from nnzbench.plans.plan import Plan, Unsupported
from nnzbench.plans.plan_files import decode
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem


def load(path: Path) -> tuple[str, ...]:
    """Registers the kernels of the file as `external`, whatever it says they are; their names.

    Raises `Unsupported` where the file is missing, fails, registers nothing new, or a kernel that yields no plans.
    """
    if not path.is_file():
        raise Unsupported(f"kernel file {path} does not exist")
    try:
        with tempfile.TemporaryDirectory(prefix="nnzbench-user-") as folder:
            told = json.loads(next(_answers(path, Path(folder))))["kernels"]
        for one in told:
            said = {**one["about"], "maths": frozenset(one["about"]["maths"])}
            name, ops, dtypes = one["name"], frozenset(one["ops"]), frozenset(one["dtypes"])
            register(PlannedKernel(name, one["paper"], ops, dtypes, _Plans(path, name)), About("external", **said))
    except (KernelDefect, ValueError, KeyError, TypeError) as error:
        raise Unsupported(f"kernel file {path} failed: {error}") from error
    return tuple(one["name"] for one in told)


@dataclasses.dataclass(frozen=True)
class _Plans:
    """`Kernel.plans` of a kernel of the file."""

    path: Path
    name: str

    def __call__(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        with tempfile.TemporaryDirectory(prefix="nnzbench-user-") as name:
            folder = Path(name)
            (folder / REQUEST).write_bytes(pickle.dumps((problem, operands)))
            for line in _answers(self.path, folder, self.name, arch):
                try:
                    plan = decode(line, folder)
                except (ValueError, KeyError, TypeError, OSError) as error:
                    raise KernelDefect(f"{self.name} yields what is no plan: {error}") from error
                yield plan


def _answers(path: Path, folder: Path, *which: str) -> Iterator[str]:
    """The lines that the file's process answers; it ends with this generator.

    Raises `Unsupported` with the file's reason, `KernelDefect` where the file fails or its process ends.
    """
    package = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    child = subprocess.Popen(
        [sys.executable, "-m", "nnzbench.kernels.user_process", str(path), str(folder), *which],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        while True:
            with suppress(BrokenPipeError):
                child.stdin.write("next\n")
                child.stdin.flush()
            line = child.stdout.readline()
            if not line:
                raise KernelDefect(f"kernel file {path}: its process ended with status {child.wait()} and no answer")
            if not line.strip():
                return
            told = json.loads(line)
            if "unsupported" in told:
                raise Unsupported(told["unsupported"])
            if "failed" in told:
                raise KernelDefect(f"kernel file {path}: its plans failed with {told['failed']}")
            yield line
    finally:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            with suppress(OSError):
                pipe.close()
