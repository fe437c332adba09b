"""Compiles many programs at once, in worker processes that can be killed: an assembler may run for minutes.

A worker is this module run as a program. It reads one program per line as JSON, compiles it into the cache and answers
with one line; the parent then finds the result, good or bad, in the cache. It is a fresh process rather than a fork,
because the parent may hold a CUDA context. What has nothing to do is kept for the next programs: starting it takes
longer than most compilations.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType

from nnzbench import host
from nnzbench.build.cache import Compiled, CompileError, CompileTimeout, Job, Program, build, check, folder, lookup
from nnzbench.plans.plan import Unsupported

COMPILERS = "NNZBENCH_COMPILERS"
"""Environment variable: most processes of a pool, where several pools share the processors. Time limits are of wall
clock, so that a program which takes long alone would pass its own if all pools took every processor."""
_ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds the package, for a worker to import it from."""


class _WorkerError(OSError):
    """What kept a worker from writing to the cache."""


class _Worker:
    """One process, started at its first program and started again after it was killed."""

    def __init__(self, timeout_s: float | None) -> None:
        self.timeout_s = timeout_s
        self._of = _whose()
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._closed = False

    def compile(self, program: Program) -> CompileError | None:
        """None where the cache now holds the result, else why it can't.

        Raises `_WorkerError` where the cache can't be written.
        """
        process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        expired = threading.Event()

        def kill() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(self.timeout_s, kill) if self.timeout_s is not None else None
        answer = ""
        try:
            if timer is not None:
                timer.start()
            process.stdin.write(json.dumps(asdict(program)) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            pass  # the process is gone; its exit status tells how
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()  # from here on `expired` is final
        if answer and not expired.is_set():
            failure = json.loads(answer)
            if isinstance(failure, list):
                raise _WorkerError(*failure)
            return CompileError(failure) if failure else None
        code = process.wait()
        self.close()
        if expired.is_set():
            return CompileTimeout(f"{program.name}: compiling took longer than {self.timeout_s:g} s")
        return CompileError(f"{program.name}: the compiler process ended with status {code}")

    def _start(self) -> subprocess.Popen[str]:
        with self._lock:
            if self._closed:
                raise CompileError("compiling was stopped")
            if self._process is None:
                command = [sys.executable, "-m", "nnzbench.build.pool"]
                path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env={**os.environ, "PYTHONPATH": path},
                    start_new_session=True,  # Ctrl-C is the parent's to handle
                )
                fresh = True
            else:
                fresh = False
            process = self._process
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


_idle: list[_Worker] = []
_idle_lock = threading.Lock()


def _whose() -> tuple[object, ...]:
    """What a worker's process depends on: another one's does not do."""
    return os.getpid(), sys.executable, dict(os.environ)


def _take(timeout_s: float | None) -> _Worker:
    """A worker that is idle, else a new one."""
    with _idle_lock:
        while _idle:
            worker = _idle.pop()
            if worker.fit:
                worker.timeout_s = timeout_s
                return worker
            worker.close()
    return _Worker(timeout_s)


def _keep(worker: _Worker) -> None:
    with _idle_lock:
        if worker.fit and len(_idle) < _processors():
            _idle.append(worker)
            return
    worker.close()


@atexit.register
def _end_idle() -> None:
    with _idle_lock:
        while _idle:
            _idle.pop().close()


class _Staff:
    """Workers that are not idle: each goes back to the idle ones, or all that are at work are killed."""

    def __init__(self) -> None:
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def take(self, timeout_s: float | None) -> _Worker:
        """Raises `CancelledError` once all have been stopped."""
        with self._lock:
            if self.stopped:
                raise CancelledError
            worker = _take(timeout_s)
            self._workers.append(worker)
        return worker

    def give_back(self, worker: _Worker) -> None:
        with self._lock:
            self._workers.remove(worker)
            stopped = self.stopped
        if stopped:
            worker.close()
        else:
            _keep(worker)

    def stop(self) -> None:
        with self._lock:
            self._stopped.set()
            for worker in self._workers:
                worker.stop()


class Pool:
    """`workers` processes; leaving the context kills those that are at work."""

    def __init__(self, workers: int, timeout_s: float | None) -> None:
        self._staff = _Staff()
        self._workers = [self._staff.take(timeout_s) for _ in range(workers)]
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self._staff.stop()
        for thread in self._threads:
            thread.join()

    def run(self, programs: Sequence[Program]) -> Iterator[tuple[int, CompileError | None]]:
        """Yields (index, failure) as each is done; None means that the cache holds the result.

        Raises `OSError` where the cache can't be written: that is nobody's failure to compile.
        """
        todo: queue.SimpleQueue[tuple[int, Program]] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[int, CompileError | OSError | None]] = queue.SimpleQueue()
        for item in enumerate(programs):
            todo.put(item)

        def serve(worker: _Worker) -> None:
            while not self._staff.stopped:
                try:
                    index, program = todo.get_nowait()
                except queue.Empty:
                    break
                try:
                    done.put((index, worker.compile(program)))
                except _WorkerError as error:
                    done.put((index, error))
                except Exception as error:  # a waiting caller must hear of anything
                    done.put((index, CompileError(f"{program.name}: {error}")))
            self._staff.give_back(worker)

        for worker in self._workers:
            thread = threading.Thread(target=serve, args=(worker,), daemon=True)
            self._threads.append(thread)
            thread.start()
        for _ in programs:
            index, failure = done.get()
            if isinstance(failure, OSError):
                raise failure
            yield index, failure


class Beside:
    """Compiles programs in worker processes while the caller does something else, such as timing on a GPU.

    `workers` is the number of processes, by default one less than the processors this process may use: the caller has
    work of its own. `close` (or the end of a `with` block) kills those that are at work.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or max(1, _processors() - 1)
        self._executor = ThreadPoolExecutor(self.workers)
        self._begun: dict[str, Future[CompileError | None]] = {}
        self._staff = _Staff()

    def add(self, job: Job, timeout_s: float) -> Future[CompileError | None] | None:
        """Begins a program, in the order of the calls; None where the cache holds its result, good or bad.

        The future has None once it does, or what kept it from that: a `CompileTimeout` after `timeout_s` seconds of its
        compilation; an `OSError` where the cache can't be written. A program that is begun is not begun again.
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
            self._begun[key] = self._executor.submit(self._compile, program, timeout_s)
        return self._begun[key]

    def _compile(self, program: Program, timeout_s: float) -> CompileError | None:
        worker = self._staff.take(timeout_s)
        try:
            return worker.compile(program)
        finally:
            self._staff.give_back(worker)

    def wait(self, begun: Sequence[Future[CompileError | None]], seconds: float) -> None:
        """Waits until one of them is done, `seconds` at most."""
        wait(begun, seconds if math.isfinite(seconds) else None, FIRST_COMPLETED)

    def close(self) -> None:
        """Begins nothing more and kills the processes at work."""
        self._staff.stop()
        self._executor.shutdown(cancel_futures=True)

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def assemble_ptx(text: str, arch: str, timeout_s: float | None = None, link: str = "") -> Compiled:
    """Assembles PTX of `arch` with nvJitLink, in a process of its own where a time limit is given.

    Raises `CompileError`, `CompileTimeout`; `Unsupported` where nvJitLink is missing or does not know `arch`.
    """
    job = Job("ptx", text, arch, link=link)
    if timeout_s is None:
        return build(job.program())
    ((_, result),) = compile_many([job], workers=1, timeout_s=timeout_s)
    if isinstance(result, CompileError):
        raise result
    return result


def compile_many(
    jobs: Sequence[Job], workers: int | None = None, timeout_s: float | None = None
) -> Iterator[tuple[int, Compiled | CompileError]]:
    """Compiles in worker processes and yields (index of the job, result) as each is done, cache hits first.

    Jobs of the same program are compiled once.
    A job past `timeout_s` (seconds of its own compilation) yields a `CompileTimeout`, and its process is killed.
    `workers` is the number of processes, by default one per processor this process may use, or `$NNZBENCH_COMPILERS`
    where that is fewer.
    Raises `Unsupported` where a compiler is missing or does not know an architecture, `OSError` where the cache
    can't be written.
    """
    for arch, link in sorted({(job.arch, job.link) for job in jobs}):
        check(arch, link)
    todo: list[Program] = []
    waiting: dict[str, list[int]] = {}  # jobs by the key of their program, in the order of `todo`
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
            same = waiting.setdefault(program.key(), [])
            if not same:
                todo.append(program)
            same.append(index)
    equal = list(waiting.values())
    with Pool(min(workers or _processors(), len(todo)), timeout_s) as pool:
        for at, failure in pool.run(todo):
            result = _result(todo[at], failure)
            for index in equal[at]:
                yield index, result


def _result(program: Program, failure: CompileError | None) -> Compiled | CompileError:
    """What a worker left in the cache (a failure with its log too), else its own account of why it could not."""
    try:
        made = lookup(program)
    except CompileError as error:
        return error
    if made is None:
        return failure or CompileError(f"{program.name}: the compiled program is not in the cache {folder()}")
    return replace(made, cached=False)


def _processors() -> int:
    told = os.environ.get(COMPILERS, "")
    return min(host.processors(), int(told)) if told.isdecimal() and int(told) else host.processors()


def _serve() -> None:
    if hasattr(os, "nice"):
        os.nice(5)  # what enqueues work for a GPU that is timed meanwhile goes first
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
        print(json.dumps(failure), file=answers, flush=True)


if __name__ == "__main__":
    _serve()
