"""What a log is told while something takes long."""

from __future__ import annotations

import itertools

from nnzbench.progress import EVERY_S, counted


def test_steps_too_many_for_a_line_each_get_a_line_every_few_seconds(capsys):
    clock = itertools.count(0, EVERY_S / 4)
    assert list(counted(range(20), "compiled", 20, lambda: next(clock))) == list(range(20))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("compiled: ")
    assert lines[0].endswith(" of 20")
    assert 3 <= len(lines) <= 6
