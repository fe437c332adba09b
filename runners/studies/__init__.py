"""Studies of a GPU that are no experiments, a module each; `gpu_studies.py` runs them. Here is what they share."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from nnzbench.bench.session import snapshot
from nnzbench.core import paths
from nnzbench.core.plan import Unsupported
from nnzbench.data.problems.problem import Problem
from nnzbench.devices import open_gpu
from nnzbench.devices.gpu import GpuDevice


def gpu_for(what: str) -> GpuDevice:
    """Raises `Unsupported` where none works here."""
    device = open_gpu()
    if not isinstance(device, GpuDevice):
        raise Unsupported(f"{what} on a GPU, and none works here")
    return device


def chosen(problems: Iterable[Problem], patterns: Sequence[str] | None) -> Iterator[Problem]:
    """Those whose name matches a shell pattern; all without any."""
    return (one for one in problems if any(fnmatch.fnmatchcase(one.name, pattern) for pattern in patterns or ["*"]))


def write_environment(device: GpuDevice, folder: Path) -> None:
    paths.write_text(folder / "environment.json", json.dumps(snapshot(device), indent=2) + "\n")
