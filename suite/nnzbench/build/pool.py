"""Compiles many programs at once in worker processes, while the caller waits or beside what it does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import replace
from types import TracebackType

from nnzbench.build.cache import Compiled, CompileError, Job, Program, build, check, folder, lookup
from nnzbench.build.workers import Staff, processors


class CompilePool:
    """Compiles programs in worker processes while the caller waits, or does something else such as timing on a GPU.

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
            self._begun[key] = self.submit(program, timeout_s)
        return self._begun[key]

    def submit(self, program: Program, timeout_s: float | None) -> Future[CompileError | None]:
        """Begins a program whatever the cache holds; the future has what `add` says."""
        return self._executor.submit(self._compile, program, timeout_s)

    def _compile(self, program: Program, timeout_s: float | None) -> CompileError | None:
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

    def __enter__(self) -> CompilePool:
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
