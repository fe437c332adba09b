"""Compiles many programs at once in worker processes: all that a caller waits for, or ahead of what it does."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Generic, TypeVar

from nnzbench.build.cache import (
    Compiled,
    CompileError,
    CompilerKilled,
    CompileTimeout,
    Job,
    Program,
    check,
    folder,
    lookup,
)
from nnzbench.build.workers import Worker, keep, processors, take, turn
from nnzbench.plans.plan import Candidate, Prepared, Unsupported


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
