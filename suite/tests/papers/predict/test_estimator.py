"""Times from sizes: what an estimate may be carried to, and what not."""

import math
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from nnzbench.advise.estimate import packing_ms
from nnzbench.advise.recorded import LEAST_CERTAIN, certain_hot
from nnzbench.core.gpus import gpus
from nnzbench.papers.predict.estimator import Carry, Model, Sizes, quantile


def modelled(widths, law, dense=False, library=False, **more):
    """A model of rows that follow a law of their sizes."""
    rows = [
        {"m": m, "k": k, "n": n, "nnz": m * k // 10, "median_us": law(m, k, n, m * k // 10), "source": "uniform:0"}
        for m, k, n in product((256, 512, 1024), (256, 1024), widths)
    ]
    return Model(pd.DataFrame(rows), dense, False, 4, library=library, **more)


def packed(kernel, sizes, rows):
    """Packing of a kernel whose rows are (m, k, n, variant, milliseconds)."""
    named = [
        {"m": m, "k": k, "n": n, "nnz": m * k // 10, "variant": variant, "prepare_ms": ms, "compile_ms": 0.0}
        for m, k, n, variant, ms in rows
    ]
    return packing_ms(kernel, pd.DataFrame(named), sizes)


def test_a_dense_product_packs_nothing():
    """Its rows tell how long a dense array took to make out of a sparse matrix, or values before pruning to invent."""
    rows = [(512, 512, n, f"f32_rowmajor{end}", 60.0) for n in (1, 8, 64) for end in ("", "_unpruned")]
    assert packed("cublas", Sizes(512, 512, 8, 26214), rows) is None


def test_packing_follows_the_nonzeros_and_is_not_that_of_one_odd_row():
    rows = [(512, 512, n, "v", 9.0 if n == 8 else 2.0) for n in (4, 8, 16, 32, 64)]
    assert packed("sputnik", Sizes(512, 512, 8, 26214), rows) == pytest.approx(2.0)
    assert packed("sputnik", Sizes(512, 1024, 8, 52428), rows) == pytest.approx(4.0, rel=0.01)
    assert packed("sputnik", Sizes(8, 8, 8, 6), rows) == 2.0
    assert packed("sputnik", Sizes(8, 8, 8, 6), [(8, 8, 8, "", float("nan"))]) is None


def test_a_kernel_is_certain_by_its_hot_times_in_the_types_own_arithmetic():
    errors = {
        ("ring", "f32", "hot"): LEAST_CERTAIN,
        ("sputnik", "f32", "hot"): LEAST_CERTAIN + 0.01,
        ("merge_spmm", "f32", "cold"): 0.1,
        ("cublas", "tf32", "hot"): 0.1,
        ("aspt", "f32", "hot"): float("nan"),
    }
    models = {
        key: SimpleNamespace(held_out_error=lambda kind, error=error: error, knows="2:4".__eq__)
        for key, error in errors.items()
    }
    assert [kernel for kernel, _ in certain_hot(models, "f32", "2:4")] == ["ring"]
    assert not list(certain_hot(models, "f32", "balanced"))


@pytest.fixture
def uneven():
    """A model whose held-out errors are known: of plain rows 0.1, of a kind of pattern with 30 rows 0.3."""
    model = modelled((1, 2, 4, 8, 16, 32, 64, 128, 256, 512), lambda m, k, n, nnz: 2 + 1e-5 * nnz * n)
    model.kinds = np.where(np.arange(60) < 30, "unstructured", "2:4")
    model.__dict__["_held_out"] = np.log(np.where(np.arange(60) < 30, 1.1, 1.3))
    return model


def test_the_error_of_an_estimate_is_the_larger_of_its_kind_of_pattern_and_of_all(uneven):
    assert uneven.held_out_error("2:4") == pytest.approx(0.3)
    assert uneven.held_out_error("unstructured") == pytest.approx(0.2)  # all together
    assert uneven.within("2:4") == uneven.within("unstructured") == pytest.approx(0.3)
    some = np.arange(60) < 30
    assert uneven.within("unstructured", some) == pytest.approx(0.1)


def test_an_interval_holds_nine_in_ten_and_of_few_all():
    off = np.arange(1, 101) / 100
    assert 0.9 <= np.mean(off <= quantile(off)) < 0.95
    assert quantile(off[:5]) == off[4]


def test_an_interval_on_another_gpu_joins_the_errors_of_both(uneven):
    carry = Carry(gpus()["nvidia-h200"], gpus()["nvidia-a100-sxm4-40gb"], 1.0, 0.5)
    uneven._carry = carry
    assert math.log1p(uneven.within("2:4")) == pytest.approx(math.hypot(math.log(1.3), math.log(1.5)))
