"""Processes that compile one program at a time and can be killed: an assembler may run for minutes.

A worker is this module run as a program. It reads one program per line as JSON, compiles it into the cache and answers
with one line; the parent then finds the result, good or bad, in the cache. It is a fresh process rather than a fork,
because the parent may hold a CUDA context. What has nothing to do is kept for the next programs: starting it takes
longer than most compilations.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from dataclasses import asdict
from pathlib import Path

from filelock import FileLock, Timeout

from nnzbench import host, paths
from nnzbench.build.cache import CompileError, CompilerKilled, CompileTimeout, Program, build, folder
from nnzbench.plans.plan import Unsupported

COMPILERS = "NNZBENCH_COMPILERS"
"""Environment variable: most processes of a pool, where several pools share the processors."""
PATIENCE = 10.0
"""Times its limit that a program may take by the clock, where the processors are busy with others."""
POLL_S = 0.05
"""Between two looks for a processor that is free."""
_ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds the package, for a worker to import it from."""


def processors() -> int:
    """Most processes of one pool: the processors this process may use, or `$NNZBENCH_COMPILERS` where that is fewer."""
    told = os.environ.get(COMPILERS, "")
    return min(host.processors(), int(told)) if told.isdecimal() and int(told) else host.processors()


def turn(stopped: threading.Event) -> contextlib.AbstractContextManager[object]:
    """Where several pools share the processors (`$NNZBENCH_COMPILERS`): waits for one that no pool compiles on.

    Raises `CancelledError` once `stopped` is set.
    """
    if not os.environ.get(COMPILERS) or not hasattr(os, "sched_getaffinity"):
        return contextlib.nullcontext()
    shared = f"{tempfile.gettempdir()}/nnzbench-{os.getuid()}-processor"
    every = [FileLock(f"{shared}-{at}.lock") for at in os.sched_getaffinity(0)]
    random.shuffle(every)
    while not stopped.is_set():
        for one in every:
            with contextlib.suppress(Timeout):
                return one.acquire(blocking=False)
        stopped.wait(POLL_S)
    raise CancelledError


class Worker:
    """One process, started at its first program and started again after it was killed."""

    def __init__(self, timeout_s: float | None) -> None:
        self.timeout_s = timeout_s
        self._of = _whose()
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._closed = False

    def compile(self, program: Program) -> CompileError | None:
        """None where the cache now holds the result, else why it can't.

        The limit is of the processors' time: on a busy machine a program takes no more of it, but longer by the clock.
        Raises `CannotWrite` where the cache can't be.
        """
        process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        answer = ""
        with self._limited(process) as expired, contextlib.suppress(OSError):  # gone: its exit status tells how
            process.stdin.write(json.dumps(asdict(program)) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        if answer and not expired.is_set():
            failure = json.loads(answer)
            if isinstance(failure, list):
                raise paths.CannotWrite(*failure)
            return CompileError(failure) if failure else None
        code = process.wait()
        self.close()
        if expired.is_set():
            return CompileTimeout(f"{program.name}: compiling took longer than {self.timeout_s:g} s")
        if code == -signal.SIGKILL and not self._closed:
            return CompilerKilled(f"{program.name}: the compiler was killed, as if the system was out of memory")
        return CompileError(f"{program.name}: the compiler process ended with status {code}")

    @contextlib.contextmanager
    def _limited(self, process: subprocess.Popen[str]) -> Iterator[threading.Event]:
        """Kills the process at the time limit, as the event tells from the end on."""
        expired, over = threading.Event(), threading.Event()
        if self.timeout_s is None:
            yield expired
            return
        watcher = threading.Thread(target=self._watch, args=(process, self.timeout_s, expired, over), daemon=True)
        watcher.start()
        try:
            yield expired
        finally:
            over.set()
            watcher.join()

    @staticmethod
    def _watch(process: subprocess.Popen[str], limit_s: float, expired: threading.Event, over: threading.Event) -> None:
        begun, end, wait = host.processor_s(process.pid), time.monotonic() + PATIENCE * limit_s, limit_s
        while not over.wait(wait):
            used = host.processor_s(process.pid)
            left = 0.0 if begun is None or used is None else limit_s - (used - begun)
            if min(left, end - time.monotonic()) <= 0:
                expired.set()
                process.kill()
                return
            wait = max(left, POLL_S)

    def _start(self) -> subprocess.Popen[str]:
        with self._lock:
            if self._closed:
                raise CompileError("compiling was stopped")
            process, fresh = self._process, self._process is None
            if process is None:
                command = [sys.executable, "-m", "nnzbench.build.workers"]
                path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
                process = self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env={**os.environ, "PYTHONPATH": path},
                    start_new_session=True,  # Ctrl-C is the parent's to handle
                )
        if fresh:
            assert process.stdout is not None
            process.stdout.readline()  # ready: start-up does not count against the program's time limit
        return process

    @property
    def fit(self) -> bool:
        """Whether its process is there, idle, and what this one would start now."""
        there = self._process is not None and self._process.poll() is None
        return there and not self._closed and self._of == _whose()

    def close(self) -> None:
        """Ends the process; a later program starts a new one."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def stop(self) -> None:
        """Kills the process, at work or idle, for good."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()


_idle: list[Worker] = []
_idle_lock = threading.Lock()


def _whose() -> tuple[object, ...]:
    """What a worker's process depends on: another one's does not do."""
    return os.getpid(), sys.executable, dict(os.environ)


def take(timeout_s: float | None) -> Worker:
    """A worker that is idle, else a new one."""
    with _idle_lock:
        while _idle:
            worker = _idle.pop()
            if worker.fit:
                worker.timeout_s = timeout_s
                return worker
            worker.close()
    return Worker(timeout_s)


def keep(worker: Worker) -> None:
    """For the next program, or ends its process."""
    with _idle_lock:
        if worker.fit and len(_idle) < processors():
            _idle.append(worker)
            return
    worker.close()


@atexit.register
def _end_idle() -> None:
    with _idle_lock:
        while _idle:
            _idle.pop().close()


def _serve() -> None:
    if hasattr(os, "nice"):
        os.nice(5)  # what enqueues work for a GPU that is timed meanwhile goes first
    with contextlib.suppress(OSError):  # where memory runs out, compilers end before all else: they are started again
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    answers = sys.stdout
    sys.stdout = sys.stderr  # nothing a library prints may pass for an answer
    print(file=answers, flush=True)
    for line in sys.stdin:
        failure: str | list[object] = ""
        try:
            build(Program(**json.loads(line)))
        except (CompileError, Unsupported) as error:
            failure = str(error)
        except OSError as error:
            failure = [error.errno, error.strerror, str(error.filename or folder())]
        try:
            print(json.dumps(failure), file=answers, flush=True)
        except BrokenPipeError:  # whoever asked ended meanwhile; what was built is in the cache
            os._exit(0)  # closing the pipe would write once more


if __name__ == "__main__":
    _serve()
