"""`pytest` runs the tests; `pytest --benchmark` runs the experiments."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("nnzbench").addoption(
        "--benchmark",
        action="store_true",
        default=False,
        dest="nnzbench_run",
        help="run the GPU benchmarks of suite/benchmarks (checks on the processor where there is no GPU)",
    )
    parser.getgroup("nnzbench").addoption(
        "--device",
        default=os.environ.get("NNZBENCH_DEVICE"),
        dest="nnzbench_device",
        metavar="cupy|pycuda|cuda_core|cpu",
        help="with --benchmark: what launches the kernels (default: NNZBENCH_DEVICE, else cupy, else pycuda, else cpu)",
    )
    parser.getgroup("nnzbench").addoption(
        "--other-arch",
        action="append",
        default=[],
        metavar="sm_XY",
        help="of the older architectures whose code the GPU tests check, only this one; repeatable",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.option.nnzbench_run:
        from nnzbench import pytest_bridge

        pytest_bridge.configure(config)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves the benchmarks out of a test run and the tests out of a benchmark run."""
    left_out = config.rootpath / "suite" / ("tests" if config.option.nnzbench_run else "benchmarks")
    return True if left_out in (collection_path, *collection_path.parents) else None


def pytest_report_header(config: pytest.Config) -> str:
    if not config.option.nnzbench_run:
        return "benchmarks: left out; pytest --benchmark runs them"
    from nnzbench import pytest_bridge

    return pytest_bridge.header(config)
