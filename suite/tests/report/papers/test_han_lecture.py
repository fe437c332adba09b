"""Facts of the pages of 2:4 sparsity and granularities on invented records with known answers."""

from __future__ import annotations

import dataclasses
import fnmatch
from pathlib import Path

import pytest
from sputnik_records import Timed, drawn, records, view_of

from nnzbench.data.problems import tables
from nnzbench.data.problems.problem import Problem
from nnzbench.papers import han_lecture
from nnzbench.papers.catalogue import experiment
from nnzbench.report.tables import marks
from nnzbench.results.records.record import Record
from nnzbench.results.selector import INT8, kernel
from nnzbench.results.table import Comparison


def products(math: str, dtype: str) -> list[Record]:
    """cuBLAS 100 us, cuBLASLt 90; cuSPARSELt 60 by default and 45 after its search, 30 of the largest product."""
    timed: list[Timed] = [
        ("cublas", f"{math}_rowmajor", lambda _: 100.0),
        ("cublaslt", f"{math}_rowmajor_algo00", lambda _: 90.0),
        ("cusparselt", f"{math}_rowmajor_default", lambda _: 60.0),
        ("cusparselt", f"{math}_colmajor_search", lambda p: 30.0 if p.k == 10240 else 45.0),
    ]
    timed += [("cublas", "f32_rowmajor", lambda _: 1.0)] * (math == "tf32")
    return records("nm_sparsity", timed, keep=lambda problem: problem.dtype == dtype)


def test_2to4_stands_against_the_best_dense_product_in_the_same_arithmetic(tmp_path: Path) -> None:
    rows = [row for math, dtype in (("i8", "i8"), ("f16", "f16"), ("tf32", "f32")) for row in products(math, dtype)]
    view, facts = drawn(tmp_path, "nm_sparsity", rows)
    figure3, bert, cubes = (group.label for group in (han_lecture.FIGURE3, han_lecture.BERT, han_lecture.CUBES))
    for math in ("INT8", "fp16"):
        searched, dense = f"cuSPARSELt {math}", f"best dense {math}"
        assert facts[figure3, searched, dense] == pytest.approx((2**3 * 3) ** 0.25, rel=1e-5)  # the mean is geometric
        assert facts[figure3, f"{searched}, its default", dense] == pytest.approx(1.5)
        assert facts[cubes, searched, f"cuBLAS {math}"] == pytest.approx(100 / 45, rel=1e-5)
    assert facts[bert, "cuSPARSELt TF32", "best dense TF32"] == pytest.approx(2.0)
    assert (figure3, "cuSPARSELt TF32", "best dense TF32") not in facts.index
    assert len(han_lecture._printed_figure3(view)) == 4  # of figure 3 in INT8 alone


def test_pairs_at_clocks_apart_are_told(tmp_path: Path) -> None:
    rows = [
        dataclasses.replace(row, sm_clock_mhz=1665.0 if row.problem.startswith("cube_2048") else 1950.0)
        if row.kernel == "cusparselt"
        else row
        for row in products("i8", "i8")
    ]
    view = view_of(tmp_path, "nm_sparsity", rows)
    found = view.compare(Comparison((kernel("cusparselt", "i8"),), (INT8,), by=("size",)))
    assert found.loc[found["apart"], "size"].tolist() == ["2048×2048×2048"]
    told = {one.size: one for one in found.itertuples()}
    apart = told["2048×2048×2048"]
    assert marks(apart._replace(ratio=1.05)) == marks(apart._replace(ratio=0.95)) == "‡"
    assert marks(apart._replace(ratio=1.5)) == "", "which clocks do not turn round"
    others = [marks(one._replace(ratio=1.05)) for one in told.values() if one is not apart]
    assert set(others) == {""}


def test_peaks_are_doubled_where_there_are_sparse_tensor_cores() -> None:
    found = han_lecture.peaks().set_index("GPU")
    assert found.loc["NVIDIA A100-SXM4-40GB"].tolist() == [19.5, 156.0, 312.0, 624.0, 312.0, 624.0, 1248.0]
    assert found.loc["Tesla T4", "fp16"] == 65.0
    assert found.loc["Tesla T4"].isna().sum() == 4


def test_every_granularity_stands_against_one_time_of_the_whole_layer(tmp_path: Path) -> None:
    """Dense 40 us beside single weights and 80 beside others, 20 with fewer channels; nothing computes blocks."""

    def dense(problem: Problem) -> float:
        return {"channel": 20.0, "unstructured": 40.0}.get(problem.label.partition("_")[0], 80.0)

    timed: tuple[Timed, ...] = (
        ("cublas", "f16_rowmajor", lambda p: None if p.conv else dense(p)),
        ("tensor_spmm", "v", lambda p: 10.0 if p.op == "spmm" and not p.label.startswith("block") else None),
        ("cudnn", "f16_nchw_plan01", lambda p: dense(p) if p.conv else None),
        ("direct_conv", "staged_r64", lambda p: 16.0 if p.conv and dense(p) > 20 else None),
    )
    _, facts = drawn(tmp_path, "granularity", records("granularity", timed, "f16"))
    product, convolution, listed = "best sparse product fp16", "best sparse convolution fp16", "the layer as listed"
    for level in ("50", "75", "87.5"):
        at = f"{level} % zeros"
        for grain in ("unstructured", "vector", "kernel", "balanced", "nm", "column"):
            assert facts[f"products, {grain}, {at}", product, "best dense fp16"] == 4.0
        assert facts[f"products, channel, {at}", f"best dense fp16, {listed}", "best dense fp16"] == 2.0
        assert facts[f"convolutions, kernel, {at}", convolution, "best cuDNN fp16"] == 2.5
        assert facts[f"convolutions, channel, {at}", f"best cuDNN fp16, {listed}", "best cuDNN fp16"] == 2.0
        assert (f"products, block, {at}", product, "best dense fp16") not in facts.index
        assert (f"convolutions, channel, {at}", convolution, "best cuDNN fp16") not in facts.index
    assert facts["SpMM of rows of kernels at 87.5 % zeros", product, "best dense fp16"] == 8.0  # beside itself
    assert facts[han_lecture.CHANNELS.label, "the smaller dense product fp16", "best dense fp16"] == 2.0


def test_sparse_convolutions_run_at_75_and_87_5_percent_as_the_page_says() -> None:
    for one in tables.load("granularity"):
        if one.conv and not one.label.startswith("channel"):
            runs = fnmatch.fnmatchcase(one.label, experiment("granularity").only["direct_conv"])
            assert runs == one.label.endswith(("_75", "_87.5")), one.label
