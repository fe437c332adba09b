import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

RUNNERS = Path(__file__).resolve().parents[3] / "runners"


@pytest.fixture
def runner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script that the test file names as `RUNNER`, loaded anew."""
    monkeypatch.syspath_prepend(str(RUNNERS))
    name = request.module.RUNNER
    yield importlib.import_module(name)
    sys.modules.pop(name, None)
