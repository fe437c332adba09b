"""The modules of the runner `fairness.py` and a device without a GPU for them; import the fixtures to have them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import FakeDevice, FakeKernel

from nnzbench.measure.session import Session

RUNNERS = Path(__file__).resolve().parents[3] / "runners"
MODULES = ("fairness", "fairness_calls", "fairness_page")


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(RUNNERS))
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture(name="fairness")
def fairness_module():
    return importlib.import_module("fairness")


@pytest.fixture(name="calls")
def calls_module():
    return importlib.import_module("fairness_calls")


class Device(FakeDevice):
    """Also what public calls need; `refusal` is what capturing raises."""

    def __init__(self, refusal=None):
        super().__init__()
        self.backend = SimpleNamespace(stream=77)
        self.facts = SimpleNamespace(name="Fake GPU")
        self.refusal = refusal

    def synchronise(self):
        pass

    def capturable(self, run):
        if self.refusal is not None:
            raise self.refusal
        return True


def session_of(device, **kernels):
    session = Session(device, {name: FakeKernel(name, variants) for name, variants in kernels.items()})
    session._warm = True
    return session
