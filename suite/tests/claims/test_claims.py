"""Claims of the papers: the table is complete, and the verdict on one number follows from what was published."""

import csv
import dataclasses
import math

import pytest
from fake_claim_records import CLAIMS, of_nothing

from nnzbench import paths
from nnzbench.claims.quantities import Outcome
from nnzbench.claims.rules import RULES
from nnzbench.claims.verdicts import (
    CONTRADICTED,
    NOT_COMPARABLE,
    NOT_MEASURABLE,
    REPRODUCED,
    STRONGER,
    UNDECIDED,
    WEAKER,
    _held,
    out_of_scope,
    read,
    verdict,
)
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.records.record import RecordError


def printed(name):
    """Rows of a table of published numbers."""
    with (paths.datasets() / "published" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


# --- the table of claims ---------------------------------------------------------------------------------------------


def test_every_claim_has_a_rule_an_experiment_and_a_source_and_every_rule_a_claim():
    listed = [claim.id for claim in read()]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(RULES)
    for claim in CLAIMS.values():
        assert claim.experiment in EXPERIMENTS
        assert claim.paper
        assert claim.where
        assert claim.baseline
        assert claim.published_gpu


def test_every_rule_finds_problems_and_the_best_of_today_is_another_baseline():
    for one in of_nothing():
        rule = RULES[one.id]
        if isinstance(rule, str):
            assert (one.reason, one.rule, one.problems) == (rule, "none", "")
            continue
        assert one.problems.startswith("0 of ")
        assert int(one.problems.removeprefix("0 of ")) > 0, f"{one.id} matches no problem of its table"
        for other in (rule.today, *rule.beside.values()):
            assert other != rule.quantity, one.id
            assert other is None or other.experiment in ("", *EXPERIMENTS)


def test_published_numbers_are_those_of_the_transcribed_tables():
    def mean(values):
        return math.exp(sum(map(math.log, values)) / len(values))

    conv = [float(r["speedup"]) for r in printed("sparsert_table3_conv") if r["sparsity"] == "0.95"]
    assert CLAIMS["sparsert-conv-95"].published == pytest.approx(mean(conv), abs=0.01)
    times = {
        (r["matrix"], r["batch"], r["layer"]): float(r["time_us"])
        for r in printed("eie_table4_us")
        if r["platform"] == "GPU"
    }
    for batch in ("1", "64"):
        ratios = [
            us / times["sparse", batch, layer]
            for (matrix, b, layer), us in times.items()
            if (matrix, b) == ("dense", batch)
        ]
        assert CLAIMS[f"eie-gpu-{batch}"].published == pytest.approx(mean(ratios), rel=0.01)
    drawn = printed("balanced_figure4_digitised")
    for batch in ("1", "8"):
        ratios = [float(r[f"balanced_b{batch}_us"]) / float(r[f"ideal_b{batch}_us"]) for r in drawn]
        assert CLAIMS[f"balanced-ideal-{batch}"].published == pytest.approx(mean(ratios), rel=0.01)
    lost = {
        (r["layer"], r["thread_blocks"]): r["performance_decrease_percent"]
        for r in printed("direct_conv_table9_blocks")
    }
    assert len(lost) == 6
    for (layer, blocks), percent in lost.items():
        claim = "direct-no-sub-batch" if blocks == "D*bS" else "direct-whole-batch"
        claim += {"vgg16": "", "resnet50_1x1": "-1x1", "cnn_1d": "-1d"}[layer]
        assert CLAIMS[claim].published == float(percent)
    half = [float(r["speedup"]) for r in printed("sparsert_table1_spmm") if float(r["sparsity"]) == 0.95]
    full = [
        float(r["speedup"])
        for r in printed("sparsert_table1_spmm")
        if int(r["problem"]) <= 11 and float(r["sparsity"]) == 0.9
    ]
    assert CLAIMS["sparsert-95-over-90"].published == pytest.approx(mean(half) / mean(full), abs=0.01)
    last = printed("direct_conv_table6_vgg16")[-1]
    assert CLAIMS["direct-vgg-last"].published == pytest.approx(
        float(last["cudnn_f32_ms"]) / float(last["sparse_f32_ms"]), abs=0.01
    )


def test_claims_of_whole_tables_are_their_cells():
    parts = {
        "-load_balancing": "load-balancing", "-vector_inst": "vector", "-residue_unroll": "residue-unroll",
        "-index_prescale": "prescale",
    }  # fmt: skip
    cells = printed("sputnik_table2_ablation")
    assert len(cells) == 24
    for cell in cells:
        product = "sddmm-" if cell["kernel"] == "sddmm" else ""
        model = {"transformer": "tf", "resnet50": "rn50"}[cell["model"]]
        one = CLAIMS[f"sputnik-{product}no-{parts[cell['ablation']]}-{model}-{cell['batch']}"]
        assert one.published == float(cell["percent_of_full"])
        assert (one.scale == "same") == (abs(one.published - 100) <= 2.0)
    for cell in printed("direct_conv_table8_cnn1d"):
        for level, column in (("77", "sparse_77_ms"), ("83", "sparse_83_ms"), ("87.5", "sparse_875_ms")):
            half = "-half" if cell["dtype"] == "f16" else ""
            one = CLAIMS[f"direct-1d-{cell['kernel'][0]}-{level}{half}"]
            assert one.published == pytest.approx(float(cell["cudnn_ms"]) / float(cell[column]), abs=0.006)
    rivals = {"MergeSpmm": "merge", "ASpT": "aspt"}
    for cell in printed("sputnik_rnn"):
        if cell["kernel"] == "spmm" and cell["baseline"] in rivals:
            name = f"sputnik-rnn-{rivals[cell['baseline']]}"
            expected = [float(cell["geomean_speedup"]), float(cell["peak_speedup"])]
            assert [CLAIMS[name].published, CLAIMS[f"{name}-most"].published] == expected
    (total,) = (row for row in printed("balanced_table2_vgg16") if row["layer"] == "total")
    for pattern in ("dense", "random", "block"):
        ratio = float(total[f"{pattern}_us"]) / float(total["balanced_us"])
        assert CLAIMS[f"balanced-vgg-{pattern}"].published == pytest.approx(ratio, abs=0.006)
    for model, table in (("ptb", "balanced_table1_ptb_lstm"), ("timit", "balanced_table3_timit")):
        times = {row["pattern"]: float(row["inference_us"]) for row in printed(table)}
        for pattern in ("dense", "random", "block"):
            ratio = times[pattern] / times["balanced"]
            assert CLAIMS[f"balanced-{model}-{pattern}"].published == pytest.approx(ratio, abs=0.006)
    frames = {(r["model"], r["width"]): float(r["throughput_fps"]) for r in printed("sputnik_table4_sparse_mobilenet")}
    for dense, sparse in (("1.0", "1.3"), ("1.2", "1.5"), ("1.4", "1.8")):
        ratio = frames["sparse", sparse] / frames["dense", dense]
        assert CLAIMS[f"sputnik-mobilenet-{dense}"].published == pytest.approx(ratio, abs=0.006)


@pytest.mark.parametrize(
    ("old", "new", "says"), [(",3.4,x,", ",much,x,", "line 2"), ("published_gpu", "gpu", "columns")]
)
def test_a_row_that_is_no_claim_is_refused_with_its_line(tmp_path, monkeypatch, old, new, says):
    source = (paths.datasets() / "published" / "claims.csv").read_text()
    (tmp_path / "published").mkdir()
    monkeypatch.setattr(paths, "datasets", lambda: tmp_path)
    (tmp_path / "published" / "claims.csv").write_text(source.replace(old, new, 1))
    with pytest.raises(RecordError, match=says):
        read()


# --- verdicts on one number ------------------------------------------------------------------------------------------


def claim(**changes):
    return dataclasses.replace(CLAIMS["sparsert-spmm-95"], **changes)


@pytest.mark.parametrize(
    ("changes", "measured", "expected"),
    [
        ({"published": 4.0}, 3.2, REPRODUCED),
        ({"published": 4.0}, 5.0, REPRODUCED),
        ({"published": 4.0}, 3.19, WEAKER),
        ({"published": 4.0}, 5.01, STRONGER),
        ({"published": 4.0}, 0.99, CONTRADICTED),
        ({"published": 4.0}, 1.0, CONTRADICTED),
        ({"published": 4.0}, math.nan, NOT_MEASURABLE),
        ({"published": 1.1}, 0.99, CONTRADICTED),
        ({"published": 0.27, "better": "lower"}, 0.1, STRONGER),
        ({"published": 0.27, "better": "lower"}, 0.8, WEAKER),
        ({"published": 0.27, "better": "lower"}, 1.5, CONTRADICTED),
        ({"published": 1.0, "break_even": math.nan}, 0.9, REPRODUCED),
        ({"published": 1.0, "break_even": math.nan}, 2.0, STRONGER),
        ({"published": 64.8, "scale": "points", "break_even": 100.0, "better": "lower"}, 69.8, REPRODUCED),
        ({"published": 64.8, "scale": "points", "break_even": 100.0, "better": "lower"}, 80.0, WEAKER),
        ({"published": 64.8, "scale": "points", "break_even": 100.0, "better": "lower"}, 40.0, STRONGER),
        ({"published": 64.8, "scale": "points", "break_even": 100.0, "better": "lower"}, 101.0, CONTRADICTED),
        ({"published": 0.71, "scale": "density", "break_even": math.nan, "better": "lower"}, 0.75, REPRODUCED),
        ({"published": 0.71, "scale": "density", "break_even": math.nan, "better": "lower"}, 0.80, WEAKER),
        ({"published": 0.71, "scale": "density", "break_even": math.nan, "better": "lower"}, 0.55, STRONGER),
        ({"published": 10.0, "scale": "least"}, 8.35, WEAKER),
        ({"published": 10.0, "scale": "least"}, 10.0, REPRODUCED),
        ({"published": 10.0, "scale": "least"}, 40.0, REPRODUCED),
        ({"published": 10.0, "scale": "least"}, 0.9, CONTRADICTED),
        ({"published": 120.0, "scale": "least", "better": "lower", "break_even": math.nan}, 100.0, REPRODUCED),
        ({"published": 120.0, "scale": "least", "better": "lower", "break_even": math.nan}, 121.0, WEAKER),
        ({"published": 1.0, "scale": "same", "break_even": math.nan}, 1.2, REPRODUCED),
        ({"published": 1.0, "scale": "same", "break_even": math.nan}, 1.83, CONTRADICTED),
        ({"published": 1.0, "scale": "same", "break_even": math.nan}, 0.7, CONTRADICTED),
        ({"published": 98.2, "unit": "%", "scale": "same", "break_even": math.nan}, 94.0, REPRODUCED),
        ({"published": 98.2, "unit": "%", "scale": "same", "break_even": math.nan}, 83.1, CONTRADICTED),
    ],
)
def test_verdicts(changes, measured, expected):
    assert verdict(claim(**changes), measured) == expected


@pytest.mark.parametrize(
    ("changes", "have", "told"),
    [
        ({}, 11, ""),
        ({}, 10, "10 of 11 problems"),
        ({"problems": 11}, 11, ""),
        ({"obstacle": "The image size is not printed."}, 11, "not printed"),
    ],
)
def test_what_is_not_the_same_thing_is_not_comparable(changes, have, told):
    word, reason = _held(claim(**changes), Outcome(4.0, have, 11))
    assert told in reason
    assert bool(told) == bool(reason) == (word == NOT_COMPARABLE)


@pytest.mark.parametrize(
    ("low", "value", "high", "word"),
    [
        (3.3, 3.5, 3.7, REPRODUCED),
        (3.9, 4.6, 5.3, UNDECIDED),  # reproduced or stronger
        (0.77, 0.85, 0.93, CONTRADICTED),
        (0.9, 0.95, 1.1, UNDECIDED),
        (6.8, 6.8, math.inf, STRONGER),  # the largest of a sample
        (2.5, 2.5, math.inf, UNDECIDED),
    ],
)
def test_a_sample_decides_where_its_interval_lies_in_one_verdict(low, value, high, word):
    found = Outcome(value, 120, 120, low=low, high=high)
    held, reason = _held(claim(published=3.58, problems=6024), found)
    assert held == word
    assert ("120" in reason) == (word == UNDECIDED)
    assert ("holds the paper" in reason) == (word == UNDECIDED and low <= 3.58 <= high)
    assert _held(claim(published=3.58), found)[0] != UNDECIDED


def test_a_guess_a_count_or_a_part_is_never_a_verdict():
    guesses = [one for one in CLAIMS.values() if "guess" in one.remark or "counted" in one.remark.lower()]
    assert not [one.id for one in guesses if not one.obstacle]
    for name in ("flash-llm-cublas-70", "nm-bert", "ese-gpu"):
        assert CLAIMS[name].obstacle
    assert NOT_COMPARABLE not in {one.verdict for one in of_nothing()}  # without a number there is none


def test_claims_about_accuracy_energy_and_other_chips_are_listed_apart():
    listed = out_of_scope()
    assert set(listed["paper"]) <= {claim.paper for claim in CLAIMS.values()}
    assert listed[["claim", "where", "kind"]].notna().all(axis=None)
