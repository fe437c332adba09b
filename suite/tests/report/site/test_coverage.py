"""The coverage of a set: every cell that the catalogue runs is timed, refused with a reason, failed or missing."""

from __future__ import annotations

import pandas as pd
import pytest
from fake_records import failed, record, replace_all, tuned

from nnzbench.data.problems import tables
from nnzbench.data.problems.problem import case_of
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.results.records.record import frame_of
from nnzbench.site import coverage

NAME = "sparsert_table3"
STUDY = "sputnik_figure7"
PARTS = ("complete", "no_load_balancing", "no_vector", "no_residue_unroll", "no_prescale", "paper_residue")


def one(problem, **changes):
    facts = {"experiment": NAME, "problem": problem.name, "op": problem.op, "dtype": problem.dtype}
    return record(**{**facts, "kernel": "cudnn", "policy": "hot", **changes})


def test_a_cell_is_timed_refused_failed_or_missing():
    rows = tables.rows(NAME)
    records = [
        one(rows[0]),
        failed(one(rows[0], variant="other"), "wrong", "off by one"),
        failed(one(rows[1]), "unsupported", "too wide"),
        failed(one(rows[2]), "launch-error", "INTERNAL_ERROR"),  # a library's own: it refuses
        failed(one(rows[2], kernel="sparsert_conv"), "launch-error", "it broke"),
        one(rows[3], policy="cold"),
        one(rows[0], kernel="not_of_this_experiment"),
        failed(one(rows[4], kernel="sparsert_conv"), "unsupported", "too wide"),
        failed(one(rows[4], kernel="sparsert_conv", variant="other"), "wrong", "off by one"),
        one(rows[5], search="some"),
        one(rows[6], search="first"),
        one(rows[6], variant="other", search="all"),
        failed(one(rows[7], search="first"), "unsupported", "too wide"),
    ]
    found = coverage.states(NAME, frame_of(records)).set_index(coverage.CELL)
    states, untuned = found["state"], found["untuned"]
    assert len(states) == len(coverage.expected(NAME))
    assert [case_of(rows[5].name)] == [case for case, *_ in untuned.index[untuned]]

    def state(i, policy="hot", kernel="cudnn"):
        return states[case_of(rows[i].name), "f32", kernel, policy, ""]

    assert [state(i) for i in range(4)] == ["timed", "refused", "refused", "missing"]
    assert (state(2, kernel="sparsert_conv"), state(4, kernel="sparsert_conv")) == ("failed", "failed")
    assert (state(3, "cold"), state(0, "cold"), state(0, kernel="direct_conv")) == ("timed", "missing", "missing")


@pytest.fixture
def study(monkeypatch):
    """The problems of the study, which pages' tests do without."""
    monkeypatch.setattr(coverage, "EXPERIMENTS", {STUDY: EXPERIMENTS[STUDY]})
    coverage.expected.cache_clear()
    yield tables.rows(STUDY)
    coverage.expected.cache_clear()


def of_study(row, variant, **changes):
    return one(row, **{"experiment": STUDY, "kernel": "sputnik_ablation", "variant": variant, **changes})


def test_the_gaps_name_the_variants_of_a_study(study):
    kernels = [name for name in EXPERIMENTS[STUDY].kernels if name != "sputnik_ablation"]
    named = [("sputnik_ablation", part) for part in PARTS] + [(name, "x64") for name in kernels]
    everything = [
        of_study(row, variant, kernel=kernel, policy=policy)
        for row in study
        for kernel, variant in named
        for policy in ("hot", "cold")
    ]
    first = study[0].name
    out = PARTS[-2:]
    kept = [row for row in everything if row.variant not in out or (row.policy, row.problem) == ("hot", first)]
    assert coverage.gaps(coverage.count(STUDY, frame_of(everything))) == []
    assert coverage.gaps(coverage.count(STUDY, frame_of(kept))) == [
        f"Not measured {policy} ([coverage](../coverage.md)): `sputnik_ablation` f32 (`no_prescale`, `paper_residue`) "
        f"on {some} of 11."
        for policy, some in (("hot", "10"), ("cold", "all"))
    ]


def test_a_gpu_comes_before_another_by_whole_percents_of_its_cells_and_then_by_its_memory():
    def placed(gpu, missing, untuned, expected=1000):
        return coverage.rank(gpu, pd.DataFrame([{"expected": expected, "missing": missing, "untuned": untuned}] * 2))

    fast, slow = "nvidia-h200", "nvidia-t4"
    ordered = [placed(fast, 0, 9), placed(slow, 9, 0), placed(fast, 10, 0), placed(fast, 5, 15), placed(fast, 0, 0, 0)]
    assert ordered == sorted(ordered)
    assert placed(slow, 0, 0) > placed(fast, 4, 5)


def test_the_page_and_the_table_say_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(coverage, "EXPERIMENTS", {NAME: coverage.EXPERIMENTS[NAME]})
    rows = tables.rows(NAME)
    folder = tmp_path / "fast-gpu" / NAME
    folder.mkdir(parents=True)
    refused = [failed(one(row, policy="cold"), "unsupported", "no room") for row in rows]
    replace_all(folder / "records.csv", [*(one(row) for row in rows), *refused])
    short = {row.name for row in rows[:3]}  # refused rows have nothing to tune
    tuned(folder, lambda row: ["first"] if row.problem in short else ["first", "all"])
    path = coverage.write(tmp_path, "fast-gpu", coverage.of_gpu(tmp_path, "fast-gpu", {}))
    table = pd.read_csv(path.with_suffix(".csv"))
    counts = table[["expected", *coverage.STATES]]
    assert (counts["expected"] == counts.drop(columns="expected").sum(axis=1)).all()
    text = path.read_text()
    assert "Of 80 cells 8 are timed, 8 refused with a reason and 0 failed; 64 are missing (80.0 %)" in text
    assert "(80.0 %), 32 of them under the cold policy (80.0 % of those). 3 of the timed ones are untuned." in text
    assert table["untuned"].sum() == table.loc[table["kernel"] == "cudnn", "untuned"].sum() == 3
    assert "| sparsert_table3 | cudnn | f32 | no room (8 rows) |" in text
    assert "| sparsert_table3 | direct_conv |  | f32 | hot | 8 | 0 | 0 | 0 | 8 | 0 |" in text
