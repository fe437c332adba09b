"""Kernels from a user's own file: `nnzbench run --kernel ./my_kernel.py`.

The file never runs in this process: what it yields are plans, which come as plain data from a process of its own, and
everything that is compiled, launched, timed or compared is done here. That process is `python -m nnzbench.kernels.user
FILE FOLDER [KERNEL ARCH]`: the file's kernels, or one kernel's plans of the problem in the folder, one line per line
read, so that no more are made than are asked for. Answers go to a copy of standard output; what the file prints goes to
standard error.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nnzbench.kernels.registry import About, KernelDefect, PlannedKernel, VendorKernel, about, kernels, register
from nnzbench.plans.plan import Plan, Unsupported
from nnzbench.plans.plan_files import ArrayFiles, decode, encode
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
        [sys.executable, "-m", "nnzbench.kernels.user", str(path), str(folder), *which],
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


REQUEST = "request"
"""The file of the problem and its operands in the request's folder."""
PLAIN = ("label", "work", "pattern", "weights_in_code", "nothing_to_tune", "rank")
"""Of `About`, what a file may say of its kernel; its role is not among them."""


def _loaded(path: Path) -> tuple[str, ...]:
    """Runs the file, which calls `nnzbench.kernel.register`; names of the kernels it added.

    Raises `Unsupported` where the file fails, registers nothing new, or a kernel that is no plans.
    """
    before = set(kernels())
    spec = importlib.util.spec_from_file_location(f"nnzbench_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise Unsupported(f"kernel file {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # `sys.exit(0)` in the file must not pass for a finished run
        raise Unsupported(f"kernel file {path} failed: {type(error).__name__}: {error}") from error
    added = tuple(name for name in kernels() if name not in before)
    if not added:
        raise Unsupported(f"kernel file {path} registers no kernel: call nnzbench.kernel.register(...) in it")
    for name in added:
        if isinstance(kernels()[name], VendorKernel):
            raise Unsupported(
                f"kernel file {path}: '{name}' makes calls of its own (`candidates`); a file's kernel yields "
                "plans, which are launched for it"
            )
    return added


def _named(path: Path) -> Iterator[str]:
    told = []
    for name in _loaded(path):
        one, said = kernels()[name], about(name)
        plain = {field: getattr(said, field) for field in PLAIN}
        sets = {field: sorted(getattr(one, field)) for field in ("ops", "dtypes")}
        told.append({"name": name, "paper": one.paper, **sets, "about": {**plain, "maths": sorted(said.maths)}})
    yield json.dumps({"kernels": told})


def _planned(path: Path, folder: Path, name: str, arch: str) -> Iterator[str]:
    _loaded(path)
    problem, operands = pickle.loads((folder / REQUEST).read_bytes())  # from the process that started this one
    kernel = kernels()[name]
    assert not isinstance(kernel, VendorKernel)
    files = ArrayFiles(folder)
    for plan in kernel.plans(problem, operands, arch):
        yield encode(plan, files)


def main(arguments: list[str]) -> None:
    """Answers each line of standard input with one of its own, until there is nothing left to say."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    path, folder, *which = arguments
    found = _planned(Path(path), Path(folder), *which) if which else _named(Path(path))
    for _ in sys.stdin:
        try:
            answer = next(found, "")
        except Unsupported as reason:
            answer = json.dumps({"unsupported": str(reason)})
        except (Exception, SystemExit) as error:
            answer = json.dumps({"failed": f"{type(error).__name__}: {error}"})
        print(answer, file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
