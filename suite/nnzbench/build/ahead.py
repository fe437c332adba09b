"""Compiles the plans of many candidates at once into the cache, before each is prepared on its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from nnzbench.build.cache import CompileTimeout, Job
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
        longest = max((len(job.source) for _, job in programs), default=0)
        timeout_s = max(TIMEOUT_S, TIMEOUT_S_PER_MB * longest / 1e6)
        try:
            for index, result in compile_many([job for _, job in programs], timeout_s=timeout_s):
                at = programs[index][0]
                item = held[at]
                if isinstance(result, CompileTimeout) and isinstance(item, Candidate):
                    held[at] = replace(item, prepare=_Raises(result), ready=None)
        except Unsupported:  # no compiler: preparing says so, candidate by candidate
            pass
        yield from held


class _Raises:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def __call__(self) -> Prepared:
        raise self._error
