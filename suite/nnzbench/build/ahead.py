"""Compiles the plans of many candidates into the cache, before each is prepared on its own.

Many at once while the caller waits, or beside what the caller does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from nnzbench.build.cache import CompileError, CompileTimeout, Job
from nnzbench.build.pool import compile_many
from nnzbench.plans.plan import Candidate, Prepared, Unsupported

AT_ONCE = 32
"""Candidates whose plans (with their buffers) are held in memory at a time."""
TIMEOUT_S = 60.0
"""Limit of one compilation where no program is long."""
TIMEOUT_S_PER_MB = 30.0
"""The same by the length of the longest generated program: a core takes ten seconds per megabyte of PTX."""

T = TypeVar("T")


def compiled_ahead(
    found: Iterator[Candidate | T], arch: str, link: str = "", at_once: int = AT_ONCE
) -> Iterator[Candidate | T]:
    """The same items in the same order, their programs already in the compile cache, for `Job.link` where given.

    `at_once` of them are compiled together.

    A candidate whose program does not compile within its time limit raises that when it is prepared; other failures are
    met again in the cache.
    """
    while held := list(islice(found, at_once)):
        programs = [
            (at, Job.of(stage, arch, link))
            for at, item in enumerate(held)
            if isinstance(item, Candidate) and item.plan
            for stage in item.plan.stages()
        ]
        jobs = [job for _, job in programs]
        try:
            for index, result in compile_many(jobs, timeout_s=_timeout_s(jobs)):
                at = programs[index][0]
                item = held[at]
                if isinstance(result, CompileTimeout) and isinstance(item, Candidate):
                    held[at] = replace(item, prepare=_Raises(result), ready=None)
        except Unsupported:  # no compiler: preparing says so, candidate by candidate
            pass
        yield from held


class Compiling(Protocol):
    """A program under way."""

    def done(self) -> bool:
        """Whether the cache holds its result, or never will."""
        ...

    def result(self) -> CompileError | None:
        """What kept the cache from that, once done."""
        ...


class Crew(Protocol):
    """What compiles beside the caller's work: `pool.Beside`, or what stands for it."""

    @property
    def workers(self) -> int:
        """Programs at a time."""
        ...

    def add(self, job: Job, timeout_s: float) -> Compiling | None:
        """Begins a program; None where the cache has it."""
        ...

    def wait(self, begun: Any, seconds: float) -> None:
        """Waits until one of those that it began is done, `seconds` at most."""
        ...

    def close(self) -> None:
        """Ends what is under way."""
        ...


class Coming(Generic[T]):
    """Items in their order, of which those that are held compile while the caller does something else.

    Without a `crew` nothing is compiled, and what is held is ready. `len()` is how many are held.
    """

    def __init__(self, found: Iterator[Candidate | T], arch: str, link: str = "", crew: Crew | None = None) -> None:
        self._found, self._arch, self._link, self._crew = found, arch, link, crew
        self._held: deque[tuple[Candidate | T, tuple[Compiling, ...]]] = deque()
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

    def _begin(self, item: Candidate | T) -> tuple[Compiling, ...]:
        if self._crew is None or not isinstance(item, Candidate) or item.plan is None:
            return ()
        jobs = [Job.of(stage, self._arch, self._link) for stage in item.plan.stages()]
        try:
            begun = [self._crew.add(job, _timeout_s(jobs)) for job in jobs]
        except Unsupported:  # no compiler: preparing says so
            return ()
        return tuple(one for one in begun if one is not None)

    def awaited(self) -> list[Compiling]:
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
                item = replace(item, prepare=_Raises(failure), ready=None)
        return item


def _timeout_s(jobs: Sequence[Job]) -> float:
    longest = max((len(job.source) for job in jobs), default=0)
    return max(TIMEOUT_S, TIMEOUT_S_PER_MB * longest / 1e6)


class _Raises:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def __call__(self) -> Prepared:
        raise self._error
