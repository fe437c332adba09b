"""The lines that a run ends with."""

from __future__ import annotations

import fake_records
import sputnik_records

from nnzbench.site.conclusion import answers


def test_what_is_recorded_is_answered_in_a_line_and_what_is_not_has_none(tmp_path):
    timed = (("sparsert_paper", "r8_g4", lambda _: 2.0), ("cublas", "f16_rowmajor", lambda _: 3.0))
    rows = sputnik_records.records("sparsert_table1", timed)
    fake_records.write(tmp_path / "nvidia-h200" / "sparsert_table1", rows)
    (small,) = answers(tmp_path, "nvidia-h200")
    assert small.startswith("Small pruned layers: ")
    assert " is 1.50× as fast as " in small
    assert len(small) <= 160


def test_nothing_recorded_answers_nothing(tmp_path):
    assert list(answers(tmp_path, "nvidia-h200")) == []
