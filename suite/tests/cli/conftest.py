import functools
from pathlib import Path

import pytest
from fakes import FakeDevice, FakeKernel
from small_commands import Small

from nnzbench import devices
from nnzbench.cli import chosen
from nnzbench.cli import run as cli_run
from nnzbench.papers.catalogue import EXPERIMENTS


@pytest.fixture
def world(monkeypatch, tmp_path):
    """One small experiment on a fake GPU; returns the kernels by name, and results go to tmp_path/results."""
    known = {"fake": FakeKernel(variants={"a": (5.0, ""), "b": (4.0, "")})}
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "cache"))
    for name in ("results", "reports"):
        monkeypatch.setattr(cli_run.paths, name, functools.partial(Path.joinpath, tmp_path, name))
    monkeypatch.setitem(EXPERIMENTS, "small", Small("small", "", "", "", {"fake": (), "future": ()}))
    for module in (chosen, cli_run):
        monkeypatch.setattr(module, "kernels", lambda: known)
    monkeypatch.setattr(devices, "open_device", lambda name: FakeDevice(timed=name != "cpu"))
    return known
