"""Claims of the papers: the table is complete, and the verdict on one number follows from what was published."""

import dataclasses
import math
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from fake_claim_records import CLAIMS, of_nothing

from nnzbench.core import paths
from nnzbench.data.problems import tables
from nnzbench.data.problems.sources import input_density
from nnzbench.papers import balanced
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.papers.claims.claim import WORDS, Measured, Scale, out_of_scope, read
from nnzbench.papers.claims.quantities import Outcome
from nnzbench.papers.claims.verdicts import (
    CONTRADICTED,
    NOT_COMPARABLE,
    NOT_MEASURABLE,
    REPRODUCED,
    STRONGER,
    UNDECIDED,
    WEAKER,
    _held,
    points_of,
    verdict,
)
from nnzbench.results import selector
from nnzbench.results.result_set import geometric_mean


def printed(name):
    """A table of published numbers."""
    return pd.read_csv(paths.datasets() / "published" / f"{name}.csv", dtype={"layer": str, "width": str})


# --- the table of claims ---------------------------------------------------------------------------------------------


def test_every_claim_has_an_experiment_a_source_and_words_that_are_known():
    listed = read()
    assert len(listed) == len({one.id for one in listed})
    for claim in listed:
        assert claim.experiment in EXPERIMENTS
        assert claim.paper
        assert claim.where
        assert claim.kernel
        assert claim.published_gpu
        for one in (claim.quantity, *claim.readings):
            assert one.statistic in WORDS
            assert one.of in get_args(Measured)
        assert claim.better in ("higher", "lower")
        assert claim.scale in get_args(Scale)


def test_the_sides_of_claims_are_those_of_the_pages_by_the_same_names():
    """One label means the same rows everywhere; the variants of whole networks alone are several of one label."""
    known = {one.label: one for one in vars(selector).values() if isinstance(one, selector.Selector)}
    sides = [one for claim in CLAIMS.values() for one in (claim.quantity.subject, claim.quantity.baseline)]
    shared = [one for one in sides if one and one.label in known]
    assert len(shared) > 50
    assert all(one == known[one.label] for one in shared)


def test_every_claim_finds_problems_and_the_best_of_today_is_another_baseline():
    counted = set(pd.read_csv(paths.datasets() / "counted.csv")["name"])
    for one in of_nothing():
        claim = CLAIMS[one.id]
        if claim.quantity.of == "counts":  # of no problems
            assert claim.quantity.group.cases in counted
            continue
        assert one.problems.startswith("0 of ")
        assert int(one.problems.removeprefix("0 of ")) > 0, f"{one.id} matches no problem of its table"
        for other in (claim.today, *claim.beside.values()):
            assert other != claim.quantity, one.id
            assert other is None or other.experiment in EXPERIMENTS


def transcribed():
    """What tables of the papers make of claims' numbers."""
    products, conv = printed("sparsert_table1_spmm"), printed("sparsert_table3_conv")
    for level, name in ((0.9, "90"), (0.95, "95")):
        yield f"sparsert-conv-{name}", geometric_mean(conv.loc[conv["sparsity"] == level, "speedup"])
    halved = products[products["problem"] <= 11].groupby("sparsity")["speedup"].agg(geometric_mean)
    yield "sparsert-95-over-90", halved[0.95] / halved[0.9]
    yield "sparsert-spmm-most", products["speedup"].max()
    eie = printed("eie_table4_us").pivot_table("time_us", ["platform", "batch", "layer"], "matrix")
    for batch in (1, 64):
        times = eie.loc["GPU", batch]
        yield f"eie-gpu-{batch}", geometric_mean(times["dense"] / times["sparse"])
    drawn = printed("balanced_figure4_digitised")
    for batch in (1, 8):
        over = drawn[f"balanced_b{batch}_us"] / drawn[f"ideal_b{batch}_us"]
        yield f"balanced-ideal-{batch}", geometric_mean(over)
    layers = {"vgg16": "", "resnet50_1x1": "-1x1", "cnn_1d": "-1d"}
    for layer, blocks, percent in printed("direct_conv_table9_blocks").itertuples(index=False):
        yield f"direct-{'no-sub' if blocks == 'D*bS' else 'whole'}-batch{layers[layer]}", percent
    last = printed("direct_conv_table6_vgg16").iloc[-1]
    yield "direct-vgg-last", last["cudnn_f32_ms"] / last["sparse_f32_ms"]
    parts = {
        "-load_balancing": "load-balancing", "-vector_inst": "vector", "-residue_unroll": "residue-unroll",
        "-index_prescale": "prescale",
    }  # fmt: skip
    for product, part, model, batch, percent in printed("sputnik_table2_ablation").itertuples(index=False):
        short = {"transformer": "tf", "resnet50": "rn50"}[model]
        yield f"sputnik-{'sddmm-' * (product == 'sddmm')}no-{parts[part]}-{short}-{batch}", percent
    for cell in printed("direct_conv_table8_cnn1d").to_dict("records"):
        for level in ("77", "83", "87.5"):
            name = f"direct-1d-{cell['kernel'][0]}-{level}{'-half' * (cell['dtype'] == 'f16')}"
            yield name, cell["cudnn_ms"] / cell[f"sparse_{level.replace('.', '')}_ms"]
    rivals = {"MergeSpmm": "merge", "ASpT": "aspt"}
    recurrent = printed("sputnik_rnn").query("kernel == 'spmm' and baseline in @rivals")
    for rival, mean, peak in recurrent[["baseline", "geomean_speedup", "peak_speedup"]].itertuples(index=False):
        yield f"sputnik-rnn-{rivals[rival]}", mean
        yield f"sputnik-rnn-{rivals[rival]}-most", peak
    models = {
        "vgg": printed("balanced_table2_vgg16").set_index("layer").loc["total"].filter(like="_us"),
        "ptb": printed("balanced_table1_ptb_lstm").set_index("pattern")["inference_us"].add_suffix("_us"),
        "timit": printed("balanced_table3_timit").set_index("pattern")["inference_us"].add_suffix("_us"),
    }
    for model, times in models.items():
        for pattern in ("dense", "random", "block"):
            yield f"balanced-{model}-{pattern}", times[f"{pattern}_us"] / times["balanced_us"]
    connected = printed("balanced_table2_vgg16").query("layer.str.startswith('fc')")
    for pattern in ("dense", "random"):
        yield f"balanced-fc-{pattern}", geometric_mean(connected[f"{pattern}_us"] / connected["balanced_us"])
    frames = printed("sputnik_table4_sparse_mobilenet").set_index(["model", "width"])["throughput_fps"]
    for dense, sparse in (("1.0", "1.3"), ("1.2", "1.5"), ("1.4", "1.8")):
        yield f"sputnik-mobilenet-{dense}", frames["sparse", sparse] / frames["dense", dense]


def test_published_numbers_are_those_of_the_transcribed_tables():
    found = dict(transcribed())
    assert {name: CLAIMS[name].published for name in found} == pytest.approx(found, abs=0.01)
    for one in (CLAIMS[name] for name in found if "-no-" in name and name.startswith("sputnik")):
        assert (one.scale == "same") == (abs(one.published - 100) <= 2.0)


def recounted():
    """What the data sets alone make of the numbers in `counted.csv`."""
    queues = pd.read_csv(paths.datasets() / "queues.csv").query("experiment == 'eie_activations'")
    used = queues["label"].str.startswith("nt_") | ~queues["label"].str.endswith("_a100")
    shares = queues[used].pivot(index="label", columns="depth", values="utilisation")
    layers = queues[used & (queues["depth"] == 8)].set_index("label")
    yield "eie_queue", 100 * shares[8].mean()
    yield "eie_depth", 100 * (shares[8] / shares[256]).mean()
    sizes = pd.DataFrame(
        [(one.label, one.m * one.k, 1 - one.sparsity, input_density(one)) for one in tables.load("eie_activations")],
        columns=["label", "weights", "kept", "inputs"],
    ).drop_duplicates("label").set_index("label").loc[layers.index]  # fmt: skip
    done = sizes["weights"] * sizes["kept"] * sizes["inputs"]
    yield "eie_operations", 100 * (1 - done.sum() / sizes["weights"].sum())
    clocks = done * (1 + layers["padding"]) / layers["elements"] / layers["utilisation"]
    yield "eie_frames", 8e8 / clocks.filter(like="alexnet").sum()
    collection = tables.dlmc_selection()
    rows, nonzeros = (np.array([getattr(one, name) for one in collection]) for name in ("rows", "nnz"))
    yield "swizzle_memory", 100 * (1 + 4 * rows / (4 * (rows + 1) + 8 * nonzeros)).mean()
    sampled = balanced.samples().query("size >= 32")
    yield "balanced_variance", (sampled["balanced"] / sampled["random"]).max()


def test_numbers_that_data_sets_alone_give_are_those_of_the_table_of_counts():
    counted = pd.read_csv(paths.datasets() / "counted.csv").set_index("name")["value"]
    found = dict(recounted())
    assert counted[list(found)].to_dict() == pytest.approx(found, rel=0.002)


# --- verdicts on one number ------------------------------------------------------------------------------------------


def claim(**changes):
    return dataclasses.replace(CLAIMS["sparsert-spmm-95"], **changes)


LOWER = {"better": "lower"}
POINTS = LOWER | {"published": 64.8, "scale": "points", "break_even": 100.0}
PERCENT = POINTS | {"published": 96.8, "unit": "%"}
DENSITY = LOWER | {"published": 0.71, "scale": "density"}
UNBROKEN = {"break_even": math.nan}
SAME = UNBROKEN | {"published": 1.0, "scale": "same"}
VERDICTS = (  # about break-even on neither side; infinite where a crossover is never reached
    ({"published": 4.0}, {3.2: REPRODUCED, 5.0: REPRODUCED, 3.19: WEAKER, 5.01: STRONGER, 0.97: CONTRADICTED}),
    ({"published": 4.0}, {0.99: WEAKER, math.nan: NOT_MEASURABLE, math.inf: STRONGER}),
    ({"published": 1.1}, {1.0: WEAKER, 0.99: WEAKER, 0.979: CONTRADICTED}),
    (LOWER | {"published": 0.27}, {0.1: STRONGER, 0.8: WEAKER, 1.5: CONTRADICTED}),
    (UNBROKEN | {"published": 1.0}, {0.9: REPRODUCED, 2.0: STRONGER}),
    (POINTS, {69.8: REPRODUCED, 69.9: WEAKER, 40.0: STRONGER, 103.0: CONTRADICTED}),
    (PERCENT, {101.9: WEAKER, 102.1: CONTRADICTED}),
    (DENSITY, {math.inf: CONTRADICTED}),
    (DENSITY | UNBROKEN, {0.75: REPRODUCED, 0.80: WEAKER, 0.55: STRONGER}),
    ({"published": 10.0, "scale": "least"}, {8.35: WEAKER, 10.0: REPRODUCED, 40.0: REPRODUCED, 0.9: CONTRADICTED}),
    (LOWER | UNBROKEN | {"published": 120.0, "scale": "least"}, {100.0: REPRODUCED, 121.0: WEAKER}),
    (SAME, {1.2: REPRODUCED, 1.83: CONTRADICTED, 0.7: CONTRADICTED}),
    (SAME | {"published": 98.2, "unit": "%"}, {94.0: REPRODUCED, 83.1: CONTRADICTED}),
)


@pytest.mark.parametrize(("changes", "words"), VERDICTS)
def test_verdicts(changes, words):
    assert {measured: verdict(claim(**changes), measured) for measured in words} == words
    assert [points_of(band) for band in (1.25, 1.1, 1.5)] == pytest.approx([5.0, 2.0, 10.0])


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
    assert listed.notna().all(axis=None)
