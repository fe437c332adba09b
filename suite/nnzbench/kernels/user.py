"""Kernels from a user's own file: `nnzbench run --kernel ./my_kernel.py`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from nnzbench.kernels.registry import kernels
from nnzbench.plans.plan import Unsupported


def load(path: Path) -> tuple[str, ...]:
    """Runs the file, which calls `nnzbench.kernel.register`; names of the kernels it added.

    Raises `Unsupported` where the file is missing, fails or registers nothing new.
    """
    if not path.is_file():
        raise Unsupported(f"kernel file {path} does not exist")
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
    return added
