"""Kernels are compiled once a module and without optimisation: more than half of the tests' time was the compiler's."""

import pickle
from dataclasses import replace

import pytest
from on_cpu import fresh_cache  # noqa: F401

from nnzbench.core import plan
from nnzbench.core.plan import SharedWork
from nnzbench.devices.cpu import build


@pytest.fixture(autouse=True, scope="module")
def _unoptimised():
    """`-O0` behind the flags of a build, for the kernel alone; sanitizers then see also what an optimiser removes.

    The builds as they are run are checked in suite/tests/devices, and by the commands that other tests start.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, one in list(build.BUILDS.items()):
            patch.setitem(build.BUILDS, name, replace(one, instrument=(*one.instrument, "-O0")))
        yield


@pytest.fixture
def differing(monkeypatch):
    """Keys under which two who share work would have made different things."""
    found = []

    def again(self, held, key, make):
        value = make()
        bits = pickle.dumps(value)
        if held.setdefault(key, (bits, 0.0))[0] != bits:
            found.append(key)
        return value

    monkeypatch.setattr(plan, "_owned", {})
    monkeypatch.setattr(SharedWork, "_once", again)
    return found
