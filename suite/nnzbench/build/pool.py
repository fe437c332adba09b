"""Compiles many programs at once in worker processes, while the caller waits or beside what it does."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from types import TracebackType

from nnzbench.build.cache import Compiled, CompileError, Job, Program, build, check, folder, lookup
from nnzbench.build.workers import Staff, Worker, WorkerError, processors


class Pool:
    """`workers` processes; leaving the context kills those that are at work."""

    def __init__(self, workers: int, timeout_s: float | None) -> None:
        self._staff = Staff()
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

        def serve(worker: Worker) -> None:
            while not self._staff.stopped:
                try:
                    index, program = todo.get_nowait()
                except queue.Empty:
                    break
                try:
                    done.put((index, worker.compile(program)))
                except WorkerError as error:
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
        self.workers = workers or max(1, processors() - 1)
        self._executor = ThreadPoolExecutor(self.workers)
        self._begun: dict[str, Future[CompileError | None]] = {}
        self._staff = Staff()

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
    with Pool(min(workers or processors(), len(todo)), timeout_s) as pool:
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
