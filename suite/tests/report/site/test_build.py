"""Pages drawn by several processes: in order, and with the first one's error."""

from __future__ import annotations

import os

import pytest
from html_reports import numbered

from nnzbench.core.progress import RunProgress
from nnzbench.results.records.record import RecordError
from nnzbench.site import build


def jobs(*numbers: int) -> list[build.Job]:
    return [build.Job(str(at), numbered, (at,)) for at in numbers]


def test_many_pages_are_drawn_by_other_processes_and_come_in_order() -> None:
    found = list(build.each_done(jobs(*range(build.MANY)), 2, RunProgress()))
    assert [at for at, _ in found] == list(range(build.MANY))
    assert os.getpid() not in {process for _, process in found}
    with pytest.raises(RecordError, match="-1 is below zero"):
        list(build.each_done(jobs(*range(build.MANY), -1), 2, RunProgress()))


def test_few_pages_are_drawn_by_this_process() -> None:
    assert {process for _, process in build.each_done(jobs(1, 2), 2, RunProgress())} == {os.getpid()}
