"""Fixtures of the whole suite."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnzbench.bench import attempts
from nnzbench.core.plan import Unsupported
from nnzbench.devices import open_device
from nnzbench.devices.cpu import build
from nnzbench.devices.gpu import GpuDevice

PROGRAMS, KEPT_DAYS = "programs", 14

with contextlib.suppress(ImportError):  # the GPU tests do without it
    import hypothesis

    # the same examples each time, however busy the machine: a failure is of the change at hand
    hypothesis.settings.register_profile(
        "nnzbench", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("nnzbench")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Forgets old programs, before there are workers that use them."""
    cache = getattr(session.config, "cache", None)
    if cache is None or hasattr(session.config, "workerinput"):
        return
    files = list(cache.mkdir(PROGRAMS).iterdir())
    young = set()
    for path in files:
        with contextlib.suppress(FileNotFoundError):  # another session's, renamed since
            if time.time() - path.stat().st_mtime < KEPT_DAYS * 86400:
                young.add(path.stem)
    for path in files:
        if path.stem not in young:
            path.unlink(missing_ok=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why tests were skipped, in one line: the five commonest reasons."""
    told = [str(one.longrepr[2]).removeprefix("Skipped: ") for one in terminalreporter.stats.get("skipped", [])]
    if counts := Counter(re.sub(r"\d+", "#", one) for one in told).most_common(5):
        terminalreporter.write_line("Skipped: " + "; ".join(f"{count} {reason}" for reason, count in counts))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is imported and collected stays: looking it through for garbage was an eighth of the time of pages."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)


@pytest.fixture(autouse=True, scope="module")
def _what_modules_leave_stays() -> Iterator[None]:
    """So does what a module leaves in caches: a collection that some code asks for took a second, late in a run."""
    yield
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """For `-n auto`: as many as this process may use processors. xdist asks psutil, where it is there, which counts the
    cores of the host: one where two threads of a core are all there is, dozens where a container has two of them.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ or not hasattr(os, "sched_getaffinity"):
        return None
    return len(os.sched_getaffinity(0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """For `--dist loadfile`: a file is one worker's, as its fixtures are, and so are all that use the GPU.

    Files in their order, which ends with quick ones. xdist's own `loadgroup` groups nothing under pytest 9.2.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "gpu" if "/gpu/" in file else file

    config.option.loadscopereorder = False
    return ByFile(config, log)


@pytest.fixture(autouse=True, scope="session")
def _nobodys_settings() -> Iterator[None]:
    """What a user may have set for runs of their own does not reach the tests, which set it where they mean it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("NNZBENCH_COMMIT", "NNZBENCH_PTX"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(autouse=True, scope="session")
def programs(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the processor's C++ compiler makes, shared by all tests, workers and runs: the names are digests of all
    that a program is made from, so that a change of a kernel, the compiler or the runtime makes another.

    In pytest's own cache, which `--cache-clear` empties.
    """
    cache = getattr(pytestconfig, "cache", None)
    folder = cache.mkdir(PROGRAMS) if cache else tmp_path_factory.getbasetemp().parent / PROGRAMS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "programs", lambda: folder)
        yield folder


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Iterator[Path]:
    """One `$NNZBENCH_CACHE` for the session, so that tests share what they compile; each run starts with none but the
    processor's programs, which commands that tests start find there too.
    """
    folder = tmp_path_factory.mktemp("cache")
    (folder / "cpu").symlink_to(programs)
    before = os.environ.get("NNZBENCH_CACHE")
    os.environ["NNZBENCH_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["NNZBENCH_CACHE"]
    else:
        os.environ["NNZBENCH_CACHE"] = before


@pytest.fixture(scope="module")
def gpu() -> Iterator[GpuDevice]:
    """The current GPU through CuPy; skips, with the reason, where there is none."""
    try:
        opened = open_device("cupy")
    except Unsupported as reason:
        pytest.skip(str(reason))
    assert isinstance(opened, GpuDevice)
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _gpu_tests_end(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ends the run, by name, where a GPU library does not come back: nothing else can stop such a call."""
    if request.node.get_closest_marker("gpu") is None:
        yield
        return

    def give_up() -> None:
        print(f"\n{request.node.nodeid}: no answer within {attempts.HANG_S:g} s", file=sys.__stderr__, flush=True)
        os._exit(1)

    with attempts.watch(give_up):
        yield
