"""Problem tables and published results: complete, consistent, and refused with file, line and column where wrong."""

import functools
import hashlib
import itertools
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from realdata import find

from nnzbench.core import paths
from nnzbench.data.matrices import index
from nnzbench.data.matrices.checkpoints import load_array
from nnzbench.data.problems import tables
from nnzbench.data.problems.sources import find_real, load_sparse, shape_of
from nnzbench.data.problems.tables import TableError
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.results.result_set import geometric_mean

KEPT = {
    "awkward_sizes": "dc78a23d", "balanced_figure1": "673853f8", "balanced_figure4": "ea6d4ca6",
    "balanced_models": "d5a93f8b", "direct_conv_codebook": "4887c2c9", "direct_conv_table6": "da18cbbc",
    "direct_conv_table7": "2d0da0d7", "direct_conv_table8": "ea08ba1f", "direct_conv_table9": "b40af785",
    "dlmc_n512": "2ab0525f", "eie_format": "b45ccb2c", "eie_table4": "2abd4cb2", "ese_lstm": "be93fb90",
    "llm_layers": "4f16f506", "fp8_layers": "078595b3", "gemm_2to4": "a0891257", "granularity": "da0d31a4",
    "macko_spmv": "36d1e6f4", "nm_sparsity": "3bbe5dd5", "opt_layers": "be1e95f1", "pays_map": "b3cb563d",
    "sparsert_ablation": "0d1a3bd9", "sparsert_table1": "ab82b6b5", "sparsert_table3": "7394c021",
    "spmm_scaling": "3dcb46d0", "sputnik_ablation": "a2ffc177", "sputnik_attention": "5ab40724",
    "sputnik_dlmc": "93b5ed4f", "sputnik_figure1": "f45adcae", "sputnik_figure7": "3beaadd6",
    "sputnik_mobilenet": "0f5b8ab5", "sputnik_rnn": "59035339", "training_step": "6dbf811f", "vnm_layers": "3e5cbafb",
    "whole_networks": "3b58bf6d", "sample": "3b79d66a",
}  # fmt: skip
"""Digests of the problems of each table as stand-ins, and of its sample of the collection's matrices."""


def digest(found: Iterable[object]) -> str:
    return hashlib.sha256("\n".join(map(str, found)).encode()).hexdigest()[:8]


@pytest.fixture(autouse=True)
def no_real_data(monkeypatch, tmp_path):
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NNZBENCH_DATA", raising=False)


def test_every_experiment_has_its_table():
    assert set(KEPT) - {"sample"} <= set(tables.experiments_with_tables()) <= set(EXPERIMENTS)


@pytest.mark.parametrize("experiment", KEPT)
def test_problems_are_those_kept_under_names_of_their_own(experiment):
    """A new table needs no line here."""
    if experiment == "sample":
        assert digest(one.path for count in (60, 61, 600) for one in tables.dlmc_sample(count)) == KEPT["sample"]
        return
    problems = tables.load(experiment)
    said = [(p.name, p.op, p.m, p.k, p.n, p.sparsity, p.source, p.dtype, p.conv, p.count) for p in problems]
    assert digest(said) == KEPT[experiment]
    assert len({p.name for p in problems}) == len(problems)
    for p in problems:
        assert p.experiment == experiment
        assert min(p.m, p.k, p.n) >= 1
        assert not p.source.startswith(("dlmc:", "weights:"))  # nothing real is on disk here
        assert (p.conv is not None) == (p.op.startswith("conv") or p.op == "depthwise")
        assert not set(p.name) & set(" /\\,")


def test_a_table_may_name_its_sample():
    some, every = tables.load("llm_layers"), tables.load("llm_layers", full=True)
    assert len(every) == 876
    assert set(some) < set(every)
    assert {p.n for p in every} == {1, 8, 16, 32, 64, 128, 256}
    matrices = [(p.m, p.k, p.sparsity, p.source, p.dtype) for p in every]
    changes = sum(one != other for one, other in itertools.pairwise(matrices)) + 1
    assert changes == len(set(matrices))  # problems of one matrix follow one another


def test_the_smaller_patterns_of_every_table_can_be_made():
    for experiment in KEPT.keys() - {"sample"}:
        for p in tables.load(experiment)[:60:7]:
            rows, columns = shape_of(p)
            if rows * columns > 1 << 18:
                continue
            matrix = load_sparse(p)
            assert (matrix.m, matrix.k) == (rows, columns)
            slack = 0.05 if p.source.startswith(("balanced", "standin", "block")) else 1.0 / columns
            assert abs(matrix.sparsity - p.sparsity) <= slack, p.name


def test_real_matrices_are_preferred_where_they_are(monkeypatch, tmp_path):
    real = tables.load("sparsert_table1", real=True)[0]
    path = tmp_path / "data" / "dlmc" / real.source.removeprefix("dlmc:")
    path.parent.mkdir(parents=True)
    path.write_text("1, 1, 0\n0 0 \n\n")
    monkeypatch.setenv("NNZBENCH_DATA", str(tmp_path / "data"))
    first, second = tables.load("sparsert_table1")[:2]
    assert (first.source, first.name) == (real.source, real.name)
    assert second.source.startswith("standin:")
    assert tables.load("sparsert_table1", real=False)[0].name == "01_64x256x3136_90_standin"
    uniform = tables.as_uniform(first)
    assert (uniform.name, uniform.source, uniform.m) == ("01_64x256x3136_90_uniform", "uniform:0", 64)


@functools.cache
def collection():
    """Every problem of the collection by its name."""
    return {p.name: p for p in tables.load("sputnik_dlmc", full=True)}


def test_the_collection_is_sputniks():
    entries = tables.dlmc_selection()
    assert (len(entries), len(index.dlmc())) == (3012, 3846)
    assert len({e.group for e in index.dlmc().values()}) == 49  # the paper's "49 models"
    assert len(collection()) == 3012 * 2 * 3
    name = "rn50.magnitude_pruning.0.9.bottleneck_1_block_group4_1_1_b1_512x2048x52_90_standin"
    assert collection()[name].n == 52  # 49 positions in multiples of four


HEADER = "label,op,m,k,n,sparsity,matrix"
GOOD = "a,spmm,8,16,4,0.5,uniform:0"
CONVOLUTION = "label,op,m,sparsity,matrix,batch,channels,height,width,filters,r,s\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("label,op,m,k,n,sparsity\n", "line 1: column 'matrix' is missing"),
        (f"{HEADER},colour\n{GOOD},red\n", "line 1: unknown column 'colour'"),
        (f"{HEADER},dtype\n{GOOD},f64\n", "column 'dtype'"),
        (f"{HEADER},count\n{GOOD},0\n", "column 'count'"),
        (f"{CONVOLUTION}a,conv2d,9,0.5,uniform:0,1,4,8,8,8,3,3\n", "'m': 9 contradicts the convolution's 8"),
        *((f"{HEADER}\n{GOOD}\n{line}\n", says) for line, says in (
            ("a,spmm,8,x,4,0.5,uniform:0", "line 3, column 'k': 'x' is not a whole number"),
            ("a,spmm,0,16,4,0.5,uniform:0", "line 3, column 'm': '0'"),
            ("a,spmm,8,16,99999999999,0.5,uniform:0", "column 'n'"),
            ("a,magic,8,16,4,0.5,uniform:0", "column 'op': 'magic' is not one of spmm"),
            ("a,spmm,8,16,4,1.5,uniform:0", "column 'sparsity'"),
            ("a,spmm,8,16,4,nan,uniform:0", "column 'sparsity'"),
            ("a,spmm,8,16,4,,uniform:0", "column 'sparsity'"),
            ("a,spmm,8,16,4,0.5,magic:0", "column 'matrix': 'magic:0'"),
            ("a,spmm,8,16,4,0.5,", "column 'matrix': ''"),
            ("a b,spmm,8,16,4,0.5,uniform:0", "column 'label'"),
            ("a,spmm,8,16,4,0.5", "not as many columns"),
            (f"{GOOD},7", "not as many columns"),
            ("a,conv2d,8,16,4,0.5,uniform:0", "column 'batch'"),
        )),
        (b"\xff\xfe\x00", "is not a readable CSV table"),
    ],
)  # fmt: skip
def test_wrong_tables_name_the_place(tmp_path, text, says):
    path = tmp_path / "mine.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TableError, match=rf"mine\.csv.*{says}"):
        tables.read_table(path)


def test_duplicate_names_are_refused(tmp_path, monkeypatch):
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "mine.csv").write_text(f"{HEADER}\n{GOOD}\n{GOOD}\n")
    monkeypatch.setattr(paths, "datasets", lambda: tmp_path)
    with pytest.raises(TableError, match="problems 1 and 2 are both 'a_8x16x4_50_uniform'"):
        tables.load("mine")
    with pytest.raises(TableError, match="no problem table for 'none'"):
        tables.load("none")


def published(name):
    return pd.read_csv(paths.datasets() / "published" / name)


def test_published_tables_meet_their_problem_tables():
    speedups = published("sparsert_table1_spmm.csv").groupby("sparsity")["speedup"].agg(geometric_mean)
    assert speedups.to_dict() == pytest.approx({0.9: 3.42, 0.95: 5.41}, abs=0.005)  # the paper's means
    layers = set(published("eie_table4_us.csv")["layer"])
    assert {p.label.rsplit("_", 1)[0] for p in tables.load("eie_table4")} == layers
    vgg = published("balanced_table2_vgg16.csv").set_index("layer")
    assert {f"vgg16_{layer}_balanced" for layer in vgg.index[:-1]} <= {p.label for p in tables.load("balanced_models")}
    assert vgg["dense_us"].iloc[:-1].sum() == pytest.approx(vgg.loc["total", "dense_us"], rel=0.001)
    kept = set(published("balanced_figure4_digitised.csv")["kept_per_256"])
    assert {round(256 * (1 - p.sparsity)) for p in tables.load("balanced_figure4")} == kept


def test_gpus_are_consistent():
    table = pd.read_csv(paths.datasets() / "gpus.csv").set_index("slug")
    lanes = table["arch"].map(lambda arch: 64 if arch in ("sm_70", "sm_75", "sm_80") else 128)  # fp32, of an SM
    rates = table["sms"] * lanes * 2 * table["boost_mhz"] * 1e-6
    assert rates.to_numpy() == pytest.approx(table["fp32_tflops"].to_numpy(), rel=0.01)
    assert table["source"].notna().all()
    assert (table["bandwidth_gbs"] > 100).all()
    columns = ["fp32_tflops", "tf32_tflops", "fp16_tensor_tflops", "int8_tensor_tops"]
    known = table.loc["nvidia-a100-sxm4-40gb", columns]
    assert known.tolist() == [19.5, 156, 312, 624]  # table 1 of the paper on 2:4 sparsity
    assert {"nvidia-h200", "tesla-t4", "nvidia-l4", "nvidia-geforce-rtx-4090"} <= set(table.index)


def test_the_index_agrees_with_itself():
    for e in index.dlmc().values():
        assert e.path.startswith(f"{e.group}/")
        assert e.row_mean == pytest.approx(e.nnz / e.rows, rel=1e-4)
        assert len(e.sha256) == (64 if e.available else 0)
        assert len(e.git_blob_sha1) == 40


def test_real_files_are_those_of_the_index(monkeypatch):
    monkeypatch.undo()
    archive = find("real_weights.npz")
    for entry in index.weights().values():
        if entry.real:
            array = load_array(archive, entry.name)
            assert (len(array), array.size // len(array)) == (entry.rows, entry.cols)
            assert np.count_nonzero(array) == entry.nnz  # half of the zeros are -0.0


def test_filters_and_their_dlmc_pattern_are_one_matrix(monkeypatch):
    monkeypatch.undo()
    entry = index.weights()["rn50_conv3x3_g2_s95_weight"]
    find(f"dlmc/{entry.dlmc}")
    if find_real(f"weights:{entry.name}") is None or find_real(f"dlmc:{entry.dlmc}") is None:
        pytest.skip("real filters or pattern not under NNZBENCH_DATA")
    problem = next(p for p in tables.load("sparsert_table3", real=True) if p.source == f"weights:{entry.name}")
    values, pattern = load_sparse(problem), load_sparse(replace(problem, source=f"dlmc:{entry.dlmc}"))
    assert values.pattern_hash() == pattern.pattern_hash()
