"""The sentences that a run ends with."""

from __future__ import annotations

import re

import fake_records

from nnzbench.site.conclusion import sentences


def test_what_is_recorded_is_answered_and_what_is_not_is_called_open(tmp_path):
    fake_records.write(tmp_path / "nvidia-h200" / "sparsert_table1", fake_records.table1())
    small, large, judged = sentences(tmp_path, "nvidia-h200")
    assert small.startswith("Does sparsity pay on NVIDIA H200 for small layers")
    assert re.search(r"at 90 % zeros, hot: yes against \S.* \(\d\.\d\d×, faster on \d+ of \d+\)", small)
    assert "sputnik_rnn is not recorded" in large
    assert re.fullmatch(
        r"Of \d+ claims of the papers these records of NVIDIA H200 judge \d+: \d+ reproduced, \d+ stronger, "
        r"\d+ weaker, \d+ contradicted\.",
        judged,
    )


def test_nothing_recorded_answers_nothing(tmp_path):
    *open_, judged = sentences(tmp_path, "nvidia-h200")
    assert all("is open" in one for one in open_)
    assert "judge 0:" in judged


def test_times_at_another_level_answer_nothing(tmp_path):
    rows = [row for row in fake_records.table1() if row.sparsity > 0.94]
    fake_records.write(tmp_path / "nvidia-h200" / "sparsert_table1", rows)
    small, *_ = sentences(tmp_path, "nvidia-h200")
    assert small.endswith("is open: sparsert_table1 has no times at 90 % zeros.")
