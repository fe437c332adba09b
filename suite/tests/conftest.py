"""Fixtures of the whole suite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One `$NNZBENCH_CACHE` for the session, so that tests share what they compile; each run starts with none."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("NNZBENCH_CACHE")
    os.environ["NNZBENCH_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["NNZBENCH_CACHE"]
    else:
        os.environ["NNZBENCH_CACHE"] = before
