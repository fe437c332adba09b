"""Hooks that turn the experiments into tests; see `nnzbench.pytest_bridge`."""

from __future__ import annotations

from nnzbench.pytest_bridge import (  # noqa: F401
    bench,
    pytest_benchmark_update_machine_info,
    pytest_generate_tests,
)
