"""Compiles many programs at once in worker processes: all that a caller waits for, or ahead of what it does.

A worker is this module run as a program. It reads one program and its time limit per line as JSON, compiles it into the
cache and answers with one line; the parent then finds the result, good or bad, in the cache. It is a fresh process
rather than a fork, because the parent may hold a CUDA context, and can be killed alone: an assembler may run for
minutes. What has nothing to do is kept for the next programs: starting it takes longer than most compilations.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from filelock import FileLock, Timeout

from nnzbench.core import host, paths
from nnzbench.core.plan import Candidate, Prepared, Unsupported
from nnzbench.devices.build.cache import (
    Compiled,
    CompileError,
    CompilerKilled,
    CompileTimeout,
    Job,
    Program,
    build,
    check,
    folder,
    lookup,
)

COMPILERS = "NNZBENCH_COMPILERS"
"""Environment variable: most processes of a pool, where several pools share the processors."""
PATIENCE = 10.0
"""Times its limit that a program may take by the clock, where the processors are busy with others."""
POLL_S = 0.05
"""Between two looks for a processor that is free."""
_LATE = {-getattr(signal, name) for name in ("SIGPROF", "SIGALRM") if hasattr(signal, name)}
"""Exit status of a process that its limit has ended: of the processors' time, or of the clock."""
_ROOT = Path(__file__).resolve().parents[3]
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
        with contextlib.suppress(OSError):  # gone: its exit status tells how
            process.stdin.write(json.dumps([asdict(program), self.timeout_s]) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        if answer:
            failure = json.loads(answer)
            if isinstance(failure, list):
                raise paths.CannotWrite(*failure)
            return CompileError(failure) if failure else None
        code = process.wait()
        self.close()
        if code in _LATE:
            return CompileTimeout(f"{program.name}: compiling took longer than {self.timeout_s:g} s")
        if code == -signal.SIGKILL and not self._closed:
            return CompilerKilled(f"{program.name}: the compiler was killed, as if the system was out of memory")
        return CompileError(f"{program.name}: the compiler process ended with status {code}")

    def _start(self) -> subprocess.Popen[str]:
        with self._lock:
            if self._closed:
                raise CompileError("compiling was stopped")
            process, fresh = self._process, self._process is None
            if process is None:
                command = [sys.executable, "-m", "nnzbench.devices.build.pool"]
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


@contextlib.contextmanager
def _limited(seconds: float | None) -> Iterator[None]:
    """The system ends this process at the limit: what a compiler is at can't be interrupted."""
    timers: dict[int, float] = {}
    if seconds is not None and hasattr(signal, "setitimer"):
        timers = {signal.ITIMER_PROF: seconds, signal.ITIMER_REAL: PATIENCE * seconds}
    for timer, most in timers.items():
        signal.setitimer(timer, most)
    try:
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)


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
            program, seconds = json.loads(line)
            with _limited(seconds):
                build(Program(**program))
        except (CompileError, Unsupported) as error:
            failure = str(error)
        except OSError as error:
            failure = [error.errno, error.strerror, str(error.filename or folder())]
        try:
            print(json.dumps(failure), file=answers, flush=True)
        except BrokenPipeError:  # whoever asked ended meanwhile; what was built is in the cache
            os._exit(0)  # closing the pipe would write once more


class CompilePool(AbstractContextManager["CompilePool"]):
    """Compiles programs in worker processes while the caller waits, or does something else such as timing on a GPU.

    `workers` is the number of processes, by default one less than the processors this process may use: the caller has
    work of its own. Where the system ends compilers, as without memory left (one program may take 20 GB), fewer are at
    work from then on. `close` (or the end of a `with` block) kills those that are at work.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or max(1, processors() - 1)
        self._executor = ThreadPoolExecutor(self.workers)
        self._begun: dict[str, Future[CompileError | None]] = {}
        self._at_work: list[Worker] = []
        self._most = self.workers
        self._lock = threading.Condition()
        self._stopped = threading.Event()

    def add(self, job: Job, timeout_s: float) -> Future[CompileError | None] | None:
        """Begins a program, in the order of the calls; None where the cache holds its result, good or bad.

        The future has None once it does, or what kept it from that: a `CompileTimeout` after `timeout_s` seconds of the
        processors' time; an `OSError` where the cache can't be written. A program that is begun is not begun again.
        Raises `Unsupported` where a compiler is missing or does not know the architecture.
        """
        check(job.arch, job.link)
        try:
            program = job.program()
            key = program.key()
            if key not in self._begun and lookup(program) is not None:
                return None
        except CompileError:
            return None
        if key not in self._begun:
            self._begun[key] = self.submit(program, timeout_s)
        return self._begun[key]

    def submit(self, program: Program, timeout_s: float | None) -> Future[CompileError | None]:
        """Begins a program whatever the cache holds; the future has what `add` says."""
        return self._executor.submit(self._compile, program, timeout_s)

    def _compile(self, program: Program, timeout_s: float | None) -> CompileError | None:
        while True:
            with turn(self._stopped):
                failure = self._compile_now(program, timeout_s)
            with self._lock:
                beside = len(self._at_work)
                if not isinstance(failure, CompilerKilled) or not beside:
                    return failure
                self._most = min(self._most, (beside + 1) // 2)

    def _compile_now(self, program: Program, timeout_s: float | None) -> CompileError | None:
        with self._lock:
            self._lock.wait_for(lambda: len(self._at_work) < self._most or self._stopped.is_set())
            if self._stopped.is_set():
                raise CancelledError
            worker = take(timeout_s)
            self._at_work.append(worker)
        try:
            return worker.compile(program)
        finally:
            with self._lock:
                self._at_work.remove(worker)
                self._lock.notify_all()
                stopped = self._stopped.is_set()
            if stopped:
                worker.close()
            else:
                keep(worker)

    def wait(self, begun: Sequence[Future[CompileError | None]], seconds: float) -> None:
        """Waits until one of them is done, `seconds` at most."""
        wait(begun, seconds if math.isfinite(seconds) else None, FIRST_COMPLETED)

    def close(self) -> None:
        """Begins nothing more and kills the processes at work."""
        with self._lock:
            self._stopped.set()
            for worker in self._at_work:
                worker.stop()
            self._lock.notify_all()
        self._executor.shutdown(cancel_futures=True)

    def __exit__(self, *_: object) -> None:
        self.close()


def compile_one(job: Job, timeout_s: float) -> Compiled:
    """Compiles in a process of its own. Raises `CompileError`, `CompileTimeout`, and as `compile_many` does."""
    ((_, result),) = compile_many([job], workers=1, timeout_s=timeout_s)
    if isinstance(result, CompileError):
        raise result
    return result


def compile_many(
    jobs: Sequence[Job], workers: int | None = None, timeout_s: float | None = None
) -> Iterator[tuple[int, Compiled | CompileError]]:
    """Compiles in worker processes and yields (index of the job, result) as each is done, cache hits first.

    Jobs of the same program are compiled once.
    A job past `timeout_s` (seconds of the processors' time) yields a `CompileTimeout`, and its process is killed.
    `workers` is the number of processes, by default one per processor this process may use, or `$NNZBENCH_COMPILERS`
    where that is fewer.
    Raises `Unsupported` where a compiler is missing or does not know an architecture, `OSError` where the cache
    can't be written.
    """
    for arch, link in sorted({(job.arch, job.link) for job in jobs}):
        check(arch, link)
    todo: dict[str, tuple[Program, list[int]]] = {}  # and the jobs that wait for it
    for index, job in enumerate(jobs):
        try:
            program = job.program()
            hit = lookup(program)
        except CompileError as error:
            yield index, error
        else:
            if hit is not None:
                yield index, hit
                continue
            todo.setdefault(program.key(), (program, []))[1].append(index)
    if not todo:
        return
    with CompilePool(min(workers or processors(), len(todo))) as pool:
        begun = {pool.submit(program, timeout_s): (program, waiting) for program, waiting in todo.values()}
        for future in as_completed(begun):
            program, waiting = begun[future]
            result = _result(program, future)
            for index in waiting:
                yield index, result


def _result(program: Program, future: Future[CompileError | None]) -> Compiled | CompileError:
    """What a worker left in the cache (a failure with its log too), else its own account of why it could not.

    Raises `OSError` where the cache can't be written: that is nobody's failure to compile.
    """
    try:
        failure = future.result()
    except OSError:
        raise
    except Exception as error:  # a waiting caller must hear of anything
        failure = CompileError(f"{program.name}: {error}")
    try:
        made = lookup(program)
    except CompileError as error:
        return error
    if made is None:
        return failure or CompileError(f"{program.name}: the compiled program is not in the cache {folder()}")
    return replace(made, cached=False)


AT_ONCE = 32
"""Candidates whose plans (with their buffers) are held in memory at a time."""
TIMEOUT_S = 60.0
"""Limit of one compilation where no program is long."""
TIMEOUT_S_PER_MB = 30.0
"""The same by the length of the longest generated program: a core takes ten seconds per megabyte of PTX."""

T = TypeVar("T")


class Pending(Generic[T]):
    """Items in their order, of which those that are held compile while the caller does something else.

    Without a `pool` nothing is compiled, and what is held is ready. `len()` is how many are held.
    """

    def __init__(
        self, found: Iterator[Candidate | T], arch: str, link: str = "", pool: CompilePool | None = None
    ) -> None:
        self._found, self._arch, self._link, self._pool = found, arch, link, pool
        self._held: deque[tuple[Candidate | T, tuple[Future[CompileError | None], ...]]] = deque()
        self.over = False
        """Whether there is none to hold beyond those that are."""

    def __len__(self) -> int:
        return len(self._held)

    def hold(self) -> bool:
        """Makes one more item and begins to compile it; false where there is none."""
        item = next(self._found, None)
        if item is None:
            self.over = True
            return False
        self._held.append((item, self._begin(item)))
        return True

    def _begin(self, item: Candidate | T) -> tuple[Future[CompileError | None], ...]:
        if self._pool is None or not isinstance(item, Candidate) or item.plan is None:
            return ()
        jobs = [Job.of(stage, self._arch, self._link) for stage in item.plan.stages()]
        try:
            begun = [self._pool.add(job, limit_s(jobs)) for job in jobs]
        except Unsupported:  # no compiler: preparing says so
            return ()
        return tuple(one for one in begun if one is not None)

    def awaited(self) -> list[Future[CompileError | None]]:
        """What the first item that is held still waits for."""
        return [one for one in self._held[0][1] if not one.done()] if self._held else []

    def take(self) -> Candidate | T | None:
        """The next item, compiled; waits for that. None where there is none left."""
        if not self._held and not self.hold():
            return None
        item, begun = self._held.popleft()
        for one in begun:
            failure = one.result()
            if isinstance(failure, CompileTimeout) and isinstance(item, Candidate):
                item = replace(item, prepare=partial(_raise, failure), ready=None)
        return item


def compiled_ahead(found: Iterator[Candidate | T], arch: str, link: str = "") -> Iterator[Candidate | T]:
    """The same items in the same order, their programs already in the compile cache, for `Job.link` where given.

    `AT_ONCE` of them are compiled together, and nothing while they are handed out.

    A candidate whose program does not compile within its time limit raises that when it is prepared; other failures are
    met again in the cache.
    """
    with CompilePool(processors()) as pool:
        pending = Pending(found, arch, link, pool)
        while pending.hold():
            while len(pending) < AT_ONCE and pending.hold():
                pass
            yield from [item for _ in range(len(pending)) if (item := pending.take()) is not None]


def limit_s(jobs: Sequence[Job]) -> float:
    """Seconds of the processors' time that each of the programs may take, by the longest."""
    longest = max((len(job.source) for job in jobs), default=0)
    return max(TIMEOUT_S, TIMEOUT_S_PER_MB * longest / 1e6)


def _raise(error: Exception) -> Prepared:
    raise error


if __name__ == "__main__":
    _serve()
