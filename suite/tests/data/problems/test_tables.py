"""Problem tables and published results: complete, consistent, and refused with file, line and column where wrong."""

import functools
import itertools
from collections import Counter
from dataclasses import replace
from statistics import median

import numpy as np
import pandas as pd
import pytest
from realdata import find

from nnzbench.core import paths
from nnzbench.data.matrices import index, prune
from nnzbench.data.matrices.checkpoints import load_array
from nnzbench.data.problems import tables
from nnzbench.data.problems.sources import find_real, load_sparse, shape_of
from nnzbench.data.problems.tables import TableError
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.results.result_set import geometric_mean

EXPECTED = {
    "awkward_sizes": 34, "balanced_figure1": 15, "balanced_figure4": 66, "balanced_models": 58,
    "direct_conv_codebook": 4, "direct_conv_table6": 32, "direct_conv_table7": 16, "direct_conv_table8": 18,
    "direct_conv_table9": 12, "dlmc_n512": 84, "eie_format": 36, "eie_table4": 18, "ese_lstm": 12, "llm_layers": 259,
    "fp8_layers": 44, "gemm_2to4": 592, "granularity": 40, "macko_spmv": 20, "nm_sparsity": 33, "opt_layers": 144,
    "pays_map": 198,
    "sparsert_ablation": 20, "sparsert_table1": 31, "sparsert_table3": 8, "spmm_scaling": 12, "sputnik_ablation": 720,
    "sputnik_attention": 5,
    "sputnik_dlmc": 360, "sputnik_figure1": 15, "sputnik_figure7": 11, "sputnik_mobilenet": 180, "sputnik_rnn": 156,
    "training_step": 100, "vnm_layers": 26, "whole_networks": 18,
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_real_data(monkeypatch, tmp_path):
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NNZBENCH_DATA", raising=False)


def test_every_experiment_has_its_table():
    assert set(EXPECTED) <= set(tables.experiments_with_tables()) <= set(EXPERIMENTS)  # a new one needs no line here


@pytest.mark.parametrize("experiment", EXPECTED)
def test_loads_with_unique_names(experiment):
    problems = tables.load(experiment)
    assert len(problems) == EXPECTED[experiment]
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
    for experiment in EXPECTED:
        for p in tables.load(experiment)[:60:7]:
            rows, columns = shape_of(p)
            if rows * columns > 1 << 18:
                continue
            matrix = load_sparse(p)
            assert (matrix.m, matrix.k) == (rows, columns)
            slack = 0.05 if p.source.startswith(("balanced", "standin", "block")) else 1.0 / columns
            assert abs(matrix.sparsity - p.sparsity) <= slack, p.name


def test_table1_is_the_papers():
    problems = tables.load("sparsert_table1", real=True)
    assert Counter(p.sparsity for p in problems) == {0.9: 20, 0.95: 11}
    sizes = published("sparsert_table1_spmm.csv")[["m", "k", "n", "sparsity"]]
    assert [(p.m, p.k, p.n, p.sparsity) for p in problems] == list(sizes.itertuples(index=False, name=None))
    assert problems[0].name == "01_64x256x3136_90_dlmc"
    assert Counter(p.source.partition(":")[0] for p in problems) == {"dlmc": 22, "weights": 8, "standin": 1}
    for p in problems:
        kind, _, name = p.source.partition(":")
        if kind == "dlmc":
            assert (index.dlmc()[name].rows, index.dlmc()[name].cols) == (p.m, p.k)
            assert index.dlmc()[name].n_single_image in (p.n, None)
    rows = tables.rows("sparsert_table1")
    assert sum(r.count for r in rows) == 257  # instances the paper counts


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


@pytest.mark.parametrize(
    ("experiment", "label", "sizes"),
    [
        ("sparsert_table3", "01", (64, 576, 3136)),
        ("direct_conv_table6", "01_equal", (64, 576, 128 * 224 * 224)),
        ("direct_conv_table8", "filter2", (100, 600, 128 * 63)),
        ("sputnik_rnn", "rnn1k_b32", (1024, 1024, 32)),
        ("sputnik_rnn", "gru2k_b128", (6144, 2048, 128)),
        ("sputnik_rnn", "lstm8k_b32", (32768, 8192, 32)),
        ("sputnik_rnn", "sddmm_lstm1k_b32", (4096, 32, 1024)),
    ],
)
def test_convolutions_and_cells_give_their_matrix_sizes(experiment, label, sizes):
    assert sizes in {(p.m, p.k, p.n) for p in tables.load(experiment) if p.label == label}


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


def test_the_ablation_stands_for_all_of_sputniks_matrices():
    """One matrix per shape and level: of the magnitude-pruned ones, where there are any, that of median variation."""
    strata: dict[tuple[str, int, int, str], list[index.DlmcEntry]] = {}
    for entry in tables.dlmc_selection():
        kind = "attn" if "attn" in entry.layer_kind else entry.layer_kind
        strata.setdefault((kind, entry.rows, entry.cols, entry.target_sparsity), []).append(entry)
    counted: Counter[tuple[str, bool]] = Counter()
    seen: Counter[tuple[str, bool, str]] = Counter()
    for problem in tables.rows("sputnik_ablation"):
        entry = index.dlmc()[problem.source.removeprefix("dlmc:")]
        kind = "attn" if "attn" in entry.layer_kind else entry.layer_kind
        alike = strata[kind, entry.rows, entry.cols, entry.target_sparsity]
        variations = [e.row_cov for e in alike if e.row_cov is not None]
        middle = median(variations) if variations else 0.0
        assert entry == min(
            alike,
            key=lambda e: (
                "magnitude" not in e.method, e.row_cov is None, abs((e.row_cov or 0.0) - middle), e.path
            ),
        )  # fmt: skip
        inference = problem.label.endswith("_b1")
        columns = tables.columns_of(entry, 1 if inference else 8 if entry.model == "transformer" else 256)
        sizes = (entry.rows, entry.cols, columns) if problem.op == "spmm" else (entry.rows, columns, entry.cols)
        assert (problem.m, problem.k, problem.n) == sizes
        assert (problem.count, problem.sparsity) == (len(alike), float(entry.target_sparsity))
        counted[problem.op, inference] += problem.count
        seen[problem.op, inference, problem.source] += 1
    assert len(strata) == 180
    assert counted == dict.fromkeys([(op, first) for op in ("spmm", "sddmm") for first in (True, False)], 3012)
    assert set(seen.values()) == {1}


def test_the_sample_has_its_share_of_every_stratum():
    chosen, everything = tables.dlmc_sample(), tables.dlmc_selection()
    assert len(chosen) == 60
    assert {e.group for e in chosen} == {e.group for e in everything}
    for share in (lambda e: e.model, lambda e: e.layer_kind):
        counts, expected = Counter(map(share, chosen)), Counter(map(share, everything))
        assert all(abs(counts[one] - expected[one] / 50.2) < 3 for one in expected)
    sizes = sorted(e.rows * e.cols for e in chosen)
    assert sizes[0] <= 1 << 14
    assert sizes[-1] >= 1 << 21
    assert {p.name for p in tables.load("sputnik_dlmc")} < set(collection())  # a full run goes on with the sample's


def test_a_larger_sample_holds_the_smaller_ones():
    smaller = {e.path for e in tables.dlmc_sample()}
    for count, most in ((61, 121), (600, 605), (2000, 3012)):
        larger = tables.dlmc_sample(count)
        assert count <= len(larger) <= most
        assert smaller < {e.path for e in larger}


def test_scaling_grows_fourfold_in_nonzeros_from_1e5_to_1e8():
    problems = tables.load("spmm_scaling")
    assert {(p.op, p.dtype, p.sparsity, p.source) for p in problems} == {("spmm", "f32", 0.9, "uniform:0")}
    counts = (104_858, 419_430, 1_677_722, 6_710_886, 26_843_546, 107_374_182)
    sides = (1024, 2048, 4096, 8192, 16384, 32768)
    for columns in (128, 1024):
        some = [p for p in problems if p.n == columns]
        assert [(p.m, p.k) for p in some] == [(side, side) for side in sides]
        assert tuple(prune.keep_count(p.m * p.k, p.sparsity) for p in some) == counts
    assert problems[0].name == "square_1024x1024x128_90_uniform"
    smallest = [p for p in problems if p.m == 1024]
    assert {load_sparse(p).nnz for p in smallest} == {counts[0]}


def test_mobilenet_widths_round_to_multiples_of_eight():
    problems = {p.label: p for p in tables.load("sputnik_mobilenet", real=True)}
    assert problems["sparse_w1.3_pw00"].recorded_op == "gemm"
    assert (problems["sparse_w1.3_pw05"].m, problems["sparse_w1.3_pw05"].k) == (664, 336)
    assert problems["sparse_w1_pw05"].source == "weights:mbv1_pw05_weight"
    assert {p.sparsity for p in problems.values() if p.recorded_op == "spmm"} == {0.9}
    for label, p in problems.items():  # the image that a depthwise layer writes is what its 1x1 convolution reads
        if p.op == "depthwise":
            assert (problems[label.replace("_dw", "_pw")].k, problems[label.replace("_dw", "_pw")].n) == (p.m, p.n)


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
