"""The cpu device: executes the very same `.cu` files on the processor, optionally under sanitizers.

Its times mean nothing for a GPU and are never recorded. Architecture-dependent code takes its sm_80 path.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from nnzbench import paths
from nnzbench.devices.contract import Timer
from nnzbench.devices.cpu import LaunchError, SanitizerError, job
from nnzbench.devices.cpu.build import BUILDS, Program, compiler, program
from nnzbench.plans.plan import Plan, Prepared, Unsupported

__all__ = ["CpuDevice", "LaunchError", "SanitizerError", "open_device"]

_TIME_LIMIT_S = 600
_running: list[subprocess.Popen[bytes]] = []
"""Kernels' programs at work."""
_CRASHES = {
    **dict.fromkeys(("SIGSEGV", "SIGBUS"), ": an access out of bounds or misaligned; the asan build finds where"),
    "SIGFPE": ": an integer divided by zero; the ubsan build finds where",
    "SIGKILL": ": ended from outside, as where memory runs out",
}
"""What a signal says of a kernel, nothing for others."""
# The compiler's own symbolizer is used: an external one may outlive the program.
_SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:exitcode=66:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:exitcode=66:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=66:report_thread_leaks=0",
}


class CpuDevice:
    """Runs plans as programs of their own, so that a kernel's crash or endless loop is an exception here.

    `build`: `plain`; `asan` finds accesses outside buffers and shared arrays, misaligned vectors and undefined
    arithmetic, `ubsan` the latter two alone; `tsan` finds missing barriers and blocks that write the same place.
    `order`: in which order runnable threads and blocks get their turn: `forward`, `backward` or `random:<seed>`.
    A kernel whose result depends on it lacks a barrier.
    `arch`: whose plans run; the code path is sm_80's, or the one under `NNZ_CPU`, for all of them.
    """

    name = "cpu"
    gpu = "cpu"
    link = ""
    compiles_from_cache = False
    timer: Timer | None = None

    def __init__(
        self,
        build: Literal["plain", "asan", "ubsan", "tsan"] = "plain",
        order: str = "forward",
        arch: str = "sm_80",
    ) -> None:
        if build not in BUILDS:
            raise Unsupported(f"unknown build '{build}' of the cpu device: choose one of {', '.join(BUILDS)}")
        kind, _, seed = order.partition(":")
        if kind not in ("forward", "backward", "random") or (kind == "random") != seed.isdigit():
            raise Unsupported(f"unknown order '{order}': choose forward, backward or random:<seed>")
        compiler()
        self.arch = arch
        self._build: Literal["plain", "asan", "ubsan", "tsan"] = build
        self._order = (kind, seed or "0")
        self._cleanups: list[Callable[[], object]] = []

    def checking(self, arch: str) -> CpuDevice:
        """The same build and order, for the plans of another architecture."""
        return CpuDevice(self._build, ":".join(self._order) if self._order[0] == "random" else self._order[0], arch)

    def prepare(self, plan: Plan) -> Prepared:
        """Builds the plan's program and writes its buffers.

        Raises `CompileError`, `Unsupported`, `LaunchError` where a launch doesn't fit its kernel, `CannotWrite` where
        programs or temporary files can't be written. `run` raises `LaunchError` for divergent barriers, deadlocks,
        impossible shuffles and crashes, `SanitizerError` for findings.
        """
        if any(launch.cluster != (1, 1, 1) for launch in plan.launches):
            raise Unsupported(f"{plan.variant} needs clusters of blocks, which the cpu device does not run")
        started = time.perf_counter()
        with paths.writing(Path(os.environ.get("TMPDIR") or "/tmp")):
            folder = Path(tempfile.mkdtemp(prefix="nnzbench-cpu-"))
        cleanup = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._cleanups.append(cleanup)
        try:
            with paths.writing(folder):
                written = job.write(plan, folder)
            prepare_ms = 1e3 * (time.perf_counter() - started)
            built = [program(stage, self._build) for stage in plan.stages()]
            for made, description in zip(built, written.descriptions, strict=True):
                _execute([str(made.path), "check", str(description)], folder)
        except BaseException:
            cleanup()
            raise

        def close() -> None:
            cleanup()

        return Prepared(
            run=lambda: self._run(built, written),
            read=lambda: plan.result(written.output.read()),
            poison=written.poison,
            close=close,
            compile_ms=sum({made.path: made.compile_ms for made in built}.values()),
            prepare_ms=prepare_ms,
            capturable=False,
            arrays=written.held,
        )

    def abandon(self) -> None:
        """Ends the kernel's program that is running, if any, and removes what was written."""
        for child in list(_running):
            _end(child)
        self.close()

    def close(self) -> None:
        for cleanup in self._cleanups:
            cleanup()
        self._cleanups.clear()

    def _run(self, built: Sequence[Program], written: job.Job) -> None:
        # at least two, so that blocks that write the same place race even on one core
        workers = min(BUILDS[self._build].max_workers, max(os.cpu_count() or 1, 2))
        limits = [str(workers), str(_TIME_LIMIT_S)]
        for made, description in zip(built, written.descriptions, strict=True):
            files = [str(description), str(written.data)]
            _execute([str(made.path), "run", *files, *self._order, *limits], written.data.parent)


def _execute(command: list[str], folder: Path) -> None:
    """Runs a program in a process group of its own, output to files; raises what went wrong."""
    code = _wait(command, folder)
    log = (folder / "stderr").read_text(errors="replace")
    setarch = shutil.which("setarch")
    if "unexpected memory mapping" in log and setarch:  # an older libtsan under many bits of address randomisation
        code = _wait([setarch, "-R", *command], folder)
        log = (folder / "stderr").read_text(errors="replace")
    sys.stdout.write((folder / "stdout").read_text(errors="replace"))  # what the kernel printed
    for line in log.splitlines():
        if line.startswith("nnz-error: "):
            raise LaunchError(line.removeprefix("nnz-error: "))
    if finding := job.first(log):
        raise SanitizerError(finding, log)
    if code == -signal.SIGALRM:
        raise LaunchError(f"the kernel did not end within {_TIME_LIMIT_S} s")
    if code < 0:
        name = signal.Signals(-code).name
        raise LaunchError(f"the kernel crashed with {name}{_CRASHES.get(name, '')}")
    if code != 0:
        raise LaunchError(f"the kernel's program ended with status {code}: {job.words(log)}")


def _wait(command: list[str], folder: Path) -> int:
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, **_SANITIZER_OPTIONS},
            start_new_session=True,
        )
        _running.append(child)
        try:
            return child.wait()
        finally:
            _end(child)
            _running.remove(child)
            child.wait()


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends the program and whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def open_device() -> CpuDevice:
    """The plain build in forward order. Raises `Unsupported` naming what to install where no C++ compiler is found."""
    return CpuDevice()
