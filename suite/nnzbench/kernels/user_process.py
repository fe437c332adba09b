"""The process that a user's kernel file runs in: it reads a request from a folder and answers with plain data.

`python -m nnzbench.kernels.user_process FILE FOLDER [KERNEL ARCH]`: the file's kernels, or one kernel's plans of the
problem in the folder, one line per line read, so that no more are made than are asked for. Answers go to a copy of
standard output; what the file prints goes to standard error.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

from nnzbench.kernels.registry import VendorKernel, about, kernels
from nnzbench.plans.plan import Unsupported
from nnzbench.plans.plan_files import ArrayFiles, encode

REQUEST = "request"
"""The file of the problem and its operands in the request's folder."""
PLAIN = ("label", "work", "pattern", "weights_in_code", "nothing_to_tune", "rank")
"""Of `About`, what a file may say of its kernel; its role is not among them."""


def load(path: Path) -> tuple[str, ...]:
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
    for name in load(path):
        one, said = kernels()[name], about(name)
        plain = {field: getattr(said, field) for field in PLAIN}
        sets = {field: sorted(getattr(one, field)) for field in ("ops", "dtypes")}
        told.append({"name": name, "paper": one.paper, **sets, "about": {**plain, "maths": sorted(said.maths)}})
    yield json.dumps({"kernels": told})


def _planned(path: Path, folder: Path, name: str, arch: str) -> Iterator[str]:
    load(path)
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
