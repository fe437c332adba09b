"""GPUs side by side: which kernels, types, baselines and GPUs enter a number, in records with known answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import fake_records
import numpy as np
import pandas as pd
import pytest

from nnzbench.core.gpus import Peaks, sheet_peaks
from nnzbench.data.problems import tables
from nnzbench.papers.nnzbench import dlmc_n512
from nnzbench.report import published
from nnzbench.results.records.record import Record
from nnzbench.site.generations import comparison, models, page, summary
from nnzbench.site.generations import published as printed

T4, H100, H200 = "tesla-t4", "nvidia-h100-80gb-hbm3", "nvidia-h200"
NAME = "01_64x256x3136_90_dlmc"
PEAKS = {"copy_gbs": 4000.0, "l2_gbs": 8000.0, "fp32_tflops": 64.0, "f16_tflops": 750.0, "l2_bytes": 50 << 20}


def timed(kernel: str, us: float, variant: str = "v", **changes: object) -> Record:
    return fake_records.timed(kernel, us, variant, **{"problem": NAME, **changes})


def put(root: Path, made: Iterable[Record], gpu: str = H200, experiment: str = "sparsert_table1") -> None:
    rows = [dataclasses.replace(one, gpu=gpu, experiment=experiment) for one in made]
    fake_records.write(root / gpu / experiment, rows, {"peaks": PEAKS, "gpu": {"name": gpu.upper()}})


def compared(root: Path) -> summary.Summary:
    sets = comparison.load_sets(root)
    frame = comparison.tabulate(sets)
    return summary.compare(frame, page.names_of(frame, sets))


def facts(root: Path, fact: str) -> pd.DataFrame:
    found = compared(root).facts
    return found[found["fact"] == fact]


def measured(root: Path) -> pd.DataFrame:
    frame = comparison.tabulate(comparison.load_sets(root))
    return frame[frame["kind"] == "measured"]


def best(root: Path) -> list[str]:
    found = measured(root)
    return list(found[found["role"] == "best"]["kernel"])


DENSE = timed("cublas", 8.0, "f32_default_nn")


def test_candidates_that_one_of_two_like_gpus_did_not_try_are_no_gain_of_the_other(tmp_path):
    old, new = timed("sputnik", 4.0, "old"), timed("sputnik", 2.0, "new")
    put(tmp_path, [DENSE, old, new])
    put(tmp_path, [DENSE, dataclasses.replace(old, median_us=5.0)], H100)
    put(tmp_path, [dataclasses.replace(one, arch="sm_75") for one in (DENSE, new)], T4)
    found = measured(tmp_path).query("kernel == 'sputnik'").set_index("gpu")["time_us"]
    assert dict(found) == {H200: 4.0, H100: 5.0, T4: 2.0}


def test_a_kernel_that_one_of_two_like_gpus_did_not_run_on_a_problem_is_no_gain_of_the_other(tmp_path):
    both, alone = timed("sputnik", 4.0), timed("row_stream", 2.0)
    put(tmp_path, [DENSE, both])
    put(tmp_path, [DENSE, dataclasses.replace(both, median_us=5.0), alone], H100)
    assert best(tmp_path) == ["sputnik", "sputnik"]
    (gain,) = facts(tmp_path, "sparse")["ratio"]
    assert gain == pytest.approx(5 / 4)


def test_a_library_that_one_of_two_like_gpus_did_not_tune_is_compared_at_what_both_tried_and_marked(tmp_path):
    sparse = timed("sputnik", 1.0)
    put(tmp_path, [DENSE, timed("cublas", 2.0, "f32_algorithm7_nn"), sparse])
    put(tmp_path, [timed("cublas", 9.0, "f32_default_nn_unpruned"), sparse], H100)
    fake_records.tuned(tmp_path / H200 / "sparsert_table1", lambda _: ["all"])
    fake_records.tuned(tmp_path / H100 / "sparsert_table1", lambda row: ["first" if row.kernel == "cublas" else "all"])
    found = measured(tmp_path).query("kernel == 'cublas'").set_index("gpu")
    assert dict(found["time_us"]) == {H200: 8.0, H100: 9.0}  # over the pruned matrix and over the unpruned one
    gains = compared(tmp_path).facts.set_index("fact")
    assert gains.loc["dense", "ratio"] == pytest.approx(9 / 8)
    assert dict(gains.loc[["dense", "sparse"], "tuned"]) == {"dense": False, "sparse": True}
    assert list(gains.loc["speed-up", "tuned"]) == [True, False, False]  # the T4's is printed


def test_a_part_of_a_network_is_no_kernel_that_competes_with_the_whole(tmp_path):
    block = {"op": "gemm", "dtype": "f16", "policy": "stream"}
    put(tmp_path, [timed("dense_block", 9.0, **block), timed("block_steps", 1.0, **block)], experiment="decoder_block")
    assert set(measured(tmp_path)["kernel"]) == {"dense_block"}


def test_sizes_that_are_there_to_be_checked_compare_no_gpus(tmp_path):
    for name in ("sparsert_table1", "awkward_sizes"):
        put(tmp_path, [DENSE, timed("sputnik", 4.0)], experiment=name)
    assert set(measured(tmp_path)["experiment"]) == {"sparsert_table1"}


def test_the_best_sparse_kernel_is_in_the_arithmetic_of_its_baseline(tmp_path):
    put(tmp_path, [DENSE, timed("sputnik", 4.0), timed("ring", 0.1, "f16_x", dtype="f16")])
    assert best(tmp_path) == ["sputnik"]


def test_a_dense_product_beside_no_sparse_one_in_its_arithmetic_is_no_baseline(tmp_path):
    put(tmp_path, [DENSE, timed("cublas", 2.0, "f16_x", dtype="f16"), timed("tensor_spmm", 1.0, dtype="f16")])
    assert best(tmp_path) == ["tensor_spmm"]
    assert set(measured(tmp_path)["baseline"]) == {"cublas-f16"}


def test_a_dense_library_is_no_sparse_kernel_however_fast(tmp_path):
    put(tmp_path, [DENSE, timed("cublaslt", 6.0, "f32_algo1"), timed("cusparse", 100.0, "csr_alg2")])
    assert best(tmp_path) == ["cusparse"]


def test_without_a_published_kernel_among_the_measured_all_kernels_are_like(tmp_path):
    """The paper's cuSPARSE of these layers was measured nowhere, so the fastest sparse kernel is compared."""
    name = tables.rows("eie_table4")[0].name
    rows = [timed("cublas", 8.0, "f32_default_nn", problem=name), timed("row_stream", 2.0, problem=name)]
    put(tmp_path, rows, experiment="eie_table4")
    found = measured(tmp_path)
    assert list(found[found["alike"]]["kernel"]) == ["row_stream"]
    put(tmp_path / "b", [*rows, timed("cusparse", 4.0, "csr_alg2", problem=name)], experiment="eie_table4")
    found = measured(tmp_path / "b")
    assert list(found[found["alike"]]["kernel"]) == ["cusparse"]


def test_a_dense_sddmm_executes_all_of_its_outputs_and_a_whole_network_has_no_count(tmp_path):
    sizes = {"m": 64, "k": 16, "n": 32, "nnz": 128, "flops": 4096.0, "op": "sddmm"}
    put(tmp_path, [timed("cublas", 8.0, "f32_default_nn", **sizes), timed("sputnik_sddmm", 4.0, **sizes)])
    executed = measured(tmp_path).set_index("kernel")["flops"]
    assert executed.to_dict() == {"cublas": 4096.0 * 64 * 32 / 128, "sputnik_sddmm": 4096.0}
    network = {"op": "mobilenet", "shape": "mobilenet", "problem": "dense_w1_1x1x1_0_uniform"}
    put(tmp_path / "b", [timed("dense_mobilenet", 8.0, "f32_x", **network)], experiment="whole_networks")
    assert measured(tmp_path / "b")["share_of_flops"].isna().all()


def test_speedups_over_other_baselines_are_not_compared(tmp_path):
    half = [timed("cublas", 8.0, "f16_default_nn", dtype="f16"), timed("sputnik", 4.0, "f16_x", dtype="f16")]
    put(tmp_path, [DENSE, timed("sputnik", 4.0)])
    put(tmp_path, half, T4)
    assert (T4, "measured") not in set(facts(tmp_path, "speed-up")["gpu"])
    put(tmp_path / "b", [DENSE, timed("sputnik", 4.0)])
    put(tmp_path / "b", [DENSE, timed("sputnik", 2.0)], T4)
    assert list(facts(tmp_path / "b", "speed-up")["gpu"]).count((T4, "measured")) == 1


def test_a_gpu_without_a_name_is_no_older_one(tmp_path):
    name = next(one.name for one in tables.rows("balanced_models") if "conv1_1_balanced" in one.name)
    at = {"problem": name, "source": "balanced:0"}
    put(
        tmp_path,
        [timed("cublas", 8.0, "f32_default_nn", **at), timed("balanced", 4.0, "paper_w8", **at)],
        experiment="balanced_models",
    )
    assert {gpu for gpu, _ in facts(tmp_path, "speed-up")["gpu"]} == {printed.UNNAMED, H200}
    assert facts(tmp_path, "quotient").empty


def test_the_table_of_arithmetic_is_of_fp32_kernels_over_the_fastest_dense_product(tmp_path):
    put(tmp_path, [DENSE, timed("cublaslt", 6.0, "f32_algo1"), timed("sputnik", 4.0)])
    assert facts(tmp_path, "arithmetic")["ratio"].tolist() == [pytest.approx(1.5)]
    half = [timed("cublas", 8.0, "f16_default_nn", dtype="f16"), timed("sputnik", 4.0, "f16_x", dtype="f16")]
    put(tmp_path / "b", half)
    assert facts(tmp_path / "b", "arithmetic").empty


def test_operands_are_counted_as_in_l2_where_they_fit(tmp_path):
    """7 MiB are more than a T4's L2 holds and less than an H200's."""
    for gpu in (T4, H200):
        put(tmp_path, [timed("cublas", 8.0, "f32_default_nn", bytes=7e6), timed("sputnik", 4.0, bytes=7e6)], gpu)
    shares = compared(tmp_path).shares
    measured = shares[(shares["role"] == "best") & (shares["policy"] == "hot")]
    fit = {
        key[0]: count
        for key, count in zip(measured["gpu_key"], measured["fit_l2"], strict=True)
        if key[1] == "measured"
    }
    assert fit == {T4: 0, H200: 1}


def test_shares_of_a_group_are_those_of_brute_force():
    rng = np.random.default_rng(7)
    fits = sheet_peaks(H200).l2_bytes
    choices = {"group": ["a", "b"], "policy": ["hot", "cold"], "role": ["", "best", "dense"]}
    choices |= {"untuned": ["", "", "ring"], "bytes": [fits - 1, fits, fits + 1], "time_us": [1.0, 2.0, 7.0, np.nan]}
    points = pd.DataFrame({name: rng.choice(np.array(some, object), 90) for name, some in choices.items()})
    points = points.astype({"bytes": float, "time_us": float}).assign(gpu=H200, gpu_key=[(H200, "measured")] * 90)
    kinds = ("bandwidth", "flops", "limit")
    shares = {f"share_of_{one}": np.where(rng.random(90) < 0.1, np.nan, rng.uniform(0.1, 0.9, 90)) for one in kinds}
    points = points.assign(floor_us=rng.uniform(0.1, 0.9, 90), **shares)
    found = summary._shares(points)
    for row in found.itertuples():
        alike = (points["group"] == row.group) & (points["policy"] == row.policy) & (points["role"] == row.role)
        mine = points[alike & points["time_us"].notna()]
        means = [np.exp(np.log(mine[f"share_of_{one}"].dropna()).mean()) for one in kinds]
        assert [row.of_bandwidth, row.of_flops, row.of_roofline] == pytest.approx(means)
        assert (row.count, row.fit_l2) == (len(mine), sum(mine["bytes"] <= fits))
        assert row.launch_overhead == pytest.approx(np.median(mine["floor_us"] / mine["time_us"]))
        assert row.tuned == ("ring" not in set(mine["untuned"]))
    assert len(found) == 2 * 2 * 2
    sheet = Peaks(copy_gbs=1000.0, l2_gbs=9000.0, fp32_tflops=10.0, f16_tflops=100.0, l2_bytes=1e9)
    rows = pd.DataFrame({"flops": [1e9, 1e9, 1e6], "bytes": [1e3, 1e3, 1e6], "math": ["f32", "f16", "f32"]})
    assert summary._least(rows, sheet) == pytest.approx([100.0, 10.0, 1.0])


def test_shares_are_of_the_baseline_and_of_the_best_sparse_kernel_alone(tmp_path):
    """Not of the paper's method, which is compared between GPUs though a design of this project is faster."""
    put(tmp_path, [DENSE, timed("sparsert_paper", 4.0), timed("ring", 2.0)])
    found = compared(tmp_path)
    assert list(found.points[found.points["alike"] & (found.points["kind"] == "measured")]["kernel"]) == [
        "sparsert_paper"
    ]
    assert set(found.shares["role"]) == {"dense", "best"}


def test_printed_times_are_of_the_level_of_their_column():
    table = published.read("direct_conv_table8_cnn1d", ("dtype", "kernel", "sparse_77_ms", "sparse_83_ms"))
    row = next(row for row in table.itertuples() if (row.dtype, row.kernel) == ("f32", "3x1"))
    found = {
        one.problem.sparsity: one.time_us
        for one in printed.rows()
        if one.problem.label.lstrip("0") == "filter3" and one.problem.dtype == "f32" and one.kernel == "direct_conv"
    }
    milliseconds = {0.77: row.sparse_77_ms, 0.83: row.sparse_83_ms, 0.875: row.sparse_875_ms}
    assert found == pytest.approx({level: 1e3 * ms for level, ms in milliseconds.items()})


def test_half_values_move_half_the_bytes():
    single = next(one for one in printed.rows() if one.problem.experiment == "direct_conv_table6")
    half, whole = (
        dataclasses.replace(single, kernel="cudnn", problem=dataclasses.replace(single.problem, dtype=dtype))
        for dtype in ("f16", "f32")
    )
    assert half.work.bytes == whole.work.bytes / 2


def test_means_over_collections_are_over_cusparse_alone():
    found = printed.collection_means()
    assert set(found["experiment"]) == {"sputnik_dlmc", "sputnik_rnn"}
    assert all(str(baseline).startswith("cuSPARSE") for baseline in found["baseline"])


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ((0.9, 1.5, 2.0), "from 90 % zeros (1.50×)"),
        ((1.0, 1.5, 2.0), "from 50 % zeros (1.00×)"),
        ((1.5, 0.95, 2.0), "from 98 % zeros (2.00×)"),
        ((1.5, 2.0, 0.95), "never (0.95× at 98 % zeros)"),
    ],
)
def test_pruning_pays_from_the_level_on_which_every_level_gains_when_hot(monkeypatch, gains, words):
    found = [
        {"gpu": "X", "policy": policy, "level": level, "library": "sputnik", "count": 1, "gain": by, "tuned": True}
        for policy in ("hot", "cold")
        for level, gain in zip((0.5, 0.9, 0.98), gains, strict=True)
        for by in [gain if policy == "hot" else gain / 100]
    ]
    monkeypatch.setattr(dlmc_n512, "gains", lambda sets: pd.DataFrame(found))
    assert models.pruned_model([]).words.endswith(f"**X** {words}.")


@pytest.mark.parametrize(
    ("levels", "groups"),
    [((80, 90, 95), {"own 80 %", "own 90 %", "own 95 %"}), ((70, 80, 90, 95), {"own 70–95 %"}), ((90,), {"own 90 %"})],
)
def test_levels_are_apart_where_they_are_few(tmp_path, levels, groups):
    rows = [
        timed(kernel, us, variant, problem=f"p{at}_8x8x8_{level}_uniform", sparsity=level / 100)
        for level in levels
        for at in range(3)
        for kernel, us, variant in (("cublas", 8.0, "f32_default_nn"), ("ring", 4.0, "v"))
    ]
    for gpu in (T4, H200):
        put(tmp_path, rows, gpu, experiment="own")
    found = facts(tmp_path, "speed-up")
    assert {group for group in found["group"] if group.startswith("own")} == groups
