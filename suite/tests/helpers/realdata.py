"""Finds real matrices for tests that use them: `$NNZBENCH_DATA`, or a `shared/data` folder beside the checkout."""

from pathlib import Path

import pytest

from nnzbench.core import paths

_BESIDE = Path(__file__).resolve().parents[3].parent / "shared" / "data"


def find(relative: str) -> Path:
    """The file under the first root that has it; skips the test where none does."""
    for root in (*paths.data_roots(), _BESIDE):
        if (root / relative).is_file():
            return root / relative
    pytest.skip(f"{relative} is not on disk; set NNZBENCH_DATA to a folder that holds it")
