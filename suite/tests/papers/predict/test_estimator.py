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
from nnzbench.papers.predict.estimator import FAR, Carry, Model, Sizes, quantile
from nnzbench.papers.predict.model import MEMORY, bound, carried


def modelled(widths, law, dense=False, library=False, **more):
    """A model of rows that follow a law of their sizes."""
    rows = [
        {"m": m, "k": k, "n": n, "nnz": m * k // 10, "median_us": law(m, k, n, m * k // 10), "source": "uniform:0"}
        for m, k, n in product((256, 512, 1024), (256, 1024), widths)
    ]
    return Model(pd.DataFrame(rows), dense, False, 4, library=library, **more)


def at(model, n):
    return float(model.at([Sizes(512, 512, n, 26214)])[0])


@pytest.mark.parametrize("dense", [False, True])
def test_no_time_is_carried_below_the_narrowest_recorded_width(dense):
    model = modelled((32, 64, 128, 256), lambda m, k, n, nnz: 2 + 1e-5 * nnz * n, dense)
    assert at(model, 1) == at(model, 8) == at(model, 31) == at(model, 32)
    assert at(model, 64) > 1.3 * at(model, 32)


def test_a_narrower_time_is_no_guess_but_of_a_library_or_above_a_tile():
    def law(m, k, n, nnz):
        return 2 + 1e-5 * nnz * n

    one, far = Sizes(512, 512, 1, 26214), Sizes(1 << 20, 512, 1, 26214)
    model = modelled((32, 64, 128), law)
    assert (model.guess(one), model.widened(one)) == ("", 32)
    assert model.guess(far) == FAR
    assert model.widened(Sizes(512, 512, 32, 26214)) is None
    of_library = modelled((4, 64, 128), law, library=True)
    assert (of_library.guess(one), of_library.widened(one)) == ("is recorded from a width of 4 on", None)
    wide = modelled((49, 64, 128), law)
    assert (wide.guess(Sizes(512, 512, 32, 26214)), wide.widened(one)) == ("is recorded from a width of 49 on", None)


def test_below_wide_rows_a_time_is_carried_to_a_tile_of_columns():
    model = modelled((128, 256, 512), lambda m, k, n, nnz: 2 + 1e-6 * nnz * n)
    assert at(model, 1) == at(model, 32) < 0.7 * at(model, 128)
    assert at(model, 32) == pytest.approx(2 + 1e-6 * 26214 * 32, rel=0.3)


def test_where_narrow_rows_are_recorded_they_are_followed():
    model = modelled((1, 8, 32, 128), lambda m, k, n, nnz: 2 + 1e-5 * nnz * n)
    assert 1.5 * at(model, 1) < at(model, 8) < 0.5 * at(model, 32)


def test_a_dense_library_takes_whole_tiles_of_columns():
    model = modelled((1, 8, 32, 128), lambda m, k, n, nnz: 2 + 1e-6 * m * k * max(n, 32), dense=True)
    out = model.widths == 8
    assert np.abs(model.estimates(out) / model.rows.loc[out, "median_us"] - 1).mean() < 0.01


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


def test_an_estimate_on_another_gpu_is_what_the_record_of_one_problem_becomes_there():
    """The same rule as `nnzbench predict` has for a single recorded time."""
    source, target = gpus()["nvidia-h200"], gpus()["tesla-t4"]
    here = modelled((8, 32, 128), lambda m, k, n, nnz: 2 + 1e-5 * nnz * n)
    there = modelled((8, 32, 128), lambda m, k, n, nnz: 2 + 1e-5 * nnz * n, carry=Carry(source, target, 2.0, 0.1))
    sizes = Sizes(512, 1024, 32, 52428)
    us = here.at([sizes])
    work = there._work(*(np.array([float(one)]) for one in (512, 1024, 32, 52428)))
    assert there.at([sizes]) == pytest.approx(2 * carried(us, 0.0, work, source, target, "hot"))
    assert there.at([sizes]) > 2 * us


def test_cold_operands_come_from_memory_however_few_they_are():
    gpu = gpus()["nvidia-h200"]
    work = pd.DataFrame({"flops": [1.0], "bytes": [1e6], "m": [64], "n": [8], "kind": "sparse", "math": "f32"})
    assert bound(work, gpu, "cold")[0] == pytest.approx(1e3 / (MEMORY * gpu.bandwidth_gbs), rel=0.01)
    assert bound(work, gpu)[0] < bound(work, gpu, "cold")[0]
