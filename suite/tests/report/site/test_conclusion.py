"""The sentences that a run ends with."""

from __future__ import annotations

import re

import fake_records
import sputnik_records

from nnzbench.site.conclusion import sentences


def test_what_is_recorded_is_answered_and_what_is_not_is_told(tmp_path):
    timed = (("sparsert_paper", "r8_g4", lambda _: 2.0), ("cublas", "f16_rowmajor", lambda _: 3.0))
    rows = sputnik_records.records("sparsert_table1", timed)
    fake_records.write(tmp_path / "nvidia-h200" / "sparsert_table1", rows)
    llm, small, large, _, judged = sentences(tmp_path, "nvidia-h200")
    assert small.startswith("Small pruned layers on NVIDIA H200: ")
    assert "1.50×" in small
    assert all("is not recorded" in one for one in (llm, large))
    assert re.fullmatch(
        r"Of \d+ claims of the papers these records of NVIDIA H200 judge \d+: \d+ reproduced, \d+ stronger, "
        r"\d+ weaker, \d+ contradicted\.",
        judged,
    )


def test_nothing_recorded_answers_nothing(tmp_path):
    *layers, judged = sentences(tmp_path, "nvidia-h200")
    assert all("is not recorded" in one for one in layers)
    assert "judge 0:" in judged
