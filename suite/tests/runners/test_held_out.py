"""The table of what estimates are off by, over times that follow a law of sizes."""

from __future__ import annotations

import importlib
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fake_records import record

from nnzbench.advise.recorded import load
from nnzbench.records.record import append

TRIALS = Path(__file__).resolve().parents[3] / "runners" / "trials"
TIMES = {
    ("cublas", "f32_x"): lambda m, k, n, nnz: 4 + 2e-8 * m * k * n,
    ("sputnik", "v"): lambda m, k, n, nnz: 2 + 2e-7 * nnz * n,
}


@pytest.fixture(scope="module")
def held_out():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TRIALS))
        yield importlib.import_module("held_out")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    for experiment, sides in (("sputnik_rnn", (256, 512, 1024)), ("sparsert_table1", (384, 768, 1536))):
        rows = []
        for m, k, n in product(sides, sides, (8, 32, 128)):
            for (kernel, variant), law in TIMES.items():
                us = law(m, k, n, m * k // 10)
                rows.append(
                    record(
                        experiment=experiment, problem=f"{m}x{k}x{n}", m=m, k=k, n=n, nnz=m * k // 10, sparsity=0.9,
                        kernel=kernel, variant=variant, selected=True, median_us=us, q1_us=us, q3_us=us,
                    )
                )  # fmt: skip
        append(folder / "nvidia-h200" / experiment / "records.csv", rows)
    return load("nvidia-h200", [folder])


def test_each_part_is_estimated_without_itself(held_out, recorded):
    for way in [way for way in held_out.WAYS if way.endswith("in turn")]:
        rows = held_out.errors(recorded, way)
        assert len(rows) == 2 * 54
        assert rows["error"].mean() < 0.1
        assert rows["error"].max() > 1e-6


def test_all_narrow_or_all_wide_rows_are_held_out_together(held_out, recorded, monkeypatch):
    below, above = (way for way in held_out.WAYS if way.endswith("together"))
    rows = held_out.errors(recorded, below)
    assert set(rows["n"]) == {8}
    assert len(rows) == 2 * 18
    assert held_out.errors(recorded, above).empty  # none is that wide
    monkeypatch.setattr(held_out, "FEWEST", 40)
    assert held_out.errors(recorded, below).empty  # of 54 rows 36 are left: too few for an answer


def test_the_fastest_of_each_kind_count_once_per_problem(held_out):
    rows = pd.DataFrame(
        {"experiment": "e", "problem": "p", "n": 8, "dtype": "f32", "dense": [False, False, True, True]}
    ).assign(median_us=[3.0, 2.0, 5.0, 4.0], error=[0.9, 0.1, 0.9, 0.3])
    assert np.allclose(sorted(held_out.fastest(rows)["error"]), [0.1, 0.3])


def test_layer_sizes_stay_together(recorded):
    for model in recorded.models("spmm", "f32").values():
        layers = model.rows.assign(part=model.folds).groupby(["m", "k"])["part"]
        assert layers.nunique().max() == 1
        assert set(model.folds) == set(range(5))
