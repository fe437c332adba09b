"""The page of an older architecture's code checked on a newer GPU, and the rules of its rows."""

from __future__ import annotations

from pathlib import Path

import fake_records
import pytest
from draft_figures import pages_alone
from fit_set import ENTRY, SPARSITY, faults

from nnzbench.results.records.record import Record
from nnzbench.site import other_archs
from nnzbench.site.build import build

SNAPSHOT = {
    "schema": "nnzbench-environment/1",
    "recorded_at": "2026-11-22T10:00:00+00:00",
    "gpu": {"name": "NVIDIA H200", "slug": "nvidia-h200", "runs_code_of": "sm_75"},
    "software": {"nvrtc": "12.9"},
    "source": {"commit": "ab" * 20, "dirty": False},
}
BLANK = dict.fromkeys(("median_us", "q1_us", "q3_us", "samples", "sm_clock_mhz", "limit_us", "floor_us"))


def checked(**changes: object) -> Record:
    facts = {"problem": "01_64x256x3136_90_dlmc", "nnz": ENTRY.nnz, "sparsity": SPARSITY}
    facts |= {"source": f"dlmc:{ENTRY.path}", "flops": 2.0 * ENTRY.nnz * 3136, "arch": "sm_75"}
    return fake_records.record(**{**facts, "policy": "check", **BLANK, **changes})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [checked(variant="a"), checked(variant="b", relative_error=3e-7)]
    rows.append(fake_records.failed(checked(kernel="tensor_spmm"), "unsupported", "no 2:4 tiles"))
    return fake_records.write(tmp_path / "nvidia-h200" / "sparsert_table1" / "as-sm_75", rows, SNAPSHOT)


def test_the_page_counts_what_was_verified_and_names_what_was_not(folder: Path) -> None:
    fake_records.write(folder.parent, [fake_records.record(problem="01_64x256x3136_90_dlmc")])
    with pages_alone():
        build(folder.parents[2], ["sparsert_table1"])
    text = (folder.parents[1] / "as-sm_75" / "README.md").read_text()
    assert text.startswith("# Code of sm_75, checked on NVIDIA H200\n")
    assert "2 candidates of 1 kernels on 1 problems were right, 0 were wrong or failed, 1 rows say why" in text
    assert "| sputnik | spmm | f32 | 1 | 2 | 0 | 0 | 3e-07 |" in text
    assert "| tensor_spmm | spmm | f32 | 0 | 0 | 0 | 1 | – |" in text
    assert "| sparsert_table1 | 3 | 2026-11-22 | `abababababab` | 12.9 |" in text
    assert "What only a real Tesla T4 can tell" in text
    assert "Wrong or failed" not in text


def test_a_wrong_row_is_on_the_page_with_its_reason(folder: Path) -> None:
    wrong = checked(variant="c", problem="rnn1k_b32_1024x1024x32_90_uniform")
    rows = [fake_records.failed(wrong, "wrong", "relative error 2")]
    fake_records.write(folder.parents[1] / "sputnik_rnn" / "as-sm_75", rows, SNAPSHOT)
    (page,) = other_archs.write(folder.parents[2], "nvidia-h200")
    text = page.read_text()
    assert "on 1 problems were right, 1 were wrong or failed" in text
    assert "relative error 2" in text


def test_its_rows_keep_rules_of_their_own(folder: Path) -> None:
    assert faults(folder) == []
    rows = [checked(variant="a"), checked(variant="t", arch="sm_80")]
    other = fake_records.write(folder.parents[2] / "x" / "nvidia-h200" / "sparsert_table1" / "as-sm_75", rows, SNAPSHOT)
    assert "it lies in as-sm_75/ and has rows of `sm_80`" in "".join(faults(other))
    timed = [fake_records.record(problem="01_64x256x3136_90_dlmc", arch="sm_75")]
    other = fake_records.write(
        folder.parents[2] / "y" / "nvidia-h200" / "sparsert_table1" / "as-sm_75", timed, SNAPSHOT
    )
    assert "it lies in as-sm_75/ and has rows that are timed" in "".join(faults(other))
