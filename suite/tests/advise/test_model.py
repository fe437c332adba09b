"""Times from sizes: what an estimate may be carried to, and what not."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest

from nnzbench.advise.model import Model, Sizes


def modelled(widths, law, dense=False):
    """A model of rows that follow a law of their sizes."""
    rows = [
        {"m": m, "k": k, "n": n, "nnz": m * k // 10, "median_us": law(m, k, n, m * k // 10)}
        for m, k, n in product((256, 512, 1024), (256, 1024), widths)
    ]
    return Model(pd.DataFrame(rows), dense, False, 4)


def at(model, n):
    return float(model.at([Sizes(512, 512, n, 26214)])[0])


@pytest.mark.parametrize("dense", [False, True])
def test_no_time_is_carried_below_the_narrowest_recorded_width(dense):
    model = modelled((32, 64, 128, 256), lambda m, k, n, nnz: 2 + 1e-5 * nnz * n, dense)
    assert at(model, 1) == at(model, 8) == at(model, 31) == at(model, 32)
    assert at(model, 64) > 1.3 * at(model, 32)


def test_below_wide_rows_a_time_is_carried_to_a_tile_of_columns():
    model = modelled((128, 256, 512), lambda m, k, n, nnz: 2 + 1e-6 * nnz * n)
    assert at(model, 1) == at(model, 32) < 0.7 * at(model, 128)
    assert at(model, 32) == pytest.approx(2 + 1e-6 * 26214 * 32, rel=0.3)


def test_where_narrow_rows_are_recorded_they_are_followed():
    model = modelled((1, 8, 32, 128), lambda m, k, n, nnz: 2 + 1e-5 * nnz * n)
    assert 1.5 * at(model, 1) < at(model, 8) < 0.5 * at(model, 32)


def test_a_dense_library_takes_whole_tiles_of_columns():
    model = modelled((1, 8, 32, 128), lambda m, k, n, nnz: 2 + 1e-6 * m * k * max(n, 32), dense=True)
    assert float(np.mean(model.errors(model.widths == 8))) < 0.01
