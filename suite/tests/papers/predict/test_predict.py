"""The prediction: its laws on invented times with known answers, and its errors on the published ones."""

import json
import math

import fake_records
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from nnzbench.cli import main
from nnzbench.core import paths
from nnzbench.core.gpus import gpu
from nnzbench.papers.nnzbench import dlmc_n512
from nnzbench.papers.predict import holdouts, launching, page, published
from nnzbench.papers.predict.model import MEMORY, bound, calibrate, transfer
from nnzbench.papers.predict.records import SAME_CHIP, UNJUDGED, cannot, predict
from nnzbench.results.records.record import RecordError
from nnzbench.results.result_set import load

H200, T4, A100 = "nvidia-h200", "tesla-t4", "nvidia-a100-sxm4-40gb"
V100 = "tesla-v100-sxm2-16gb"
WAYS_LONGER = (("hot", 0.0), ("loop", 1.0), ("pair", 6.0))
T4_LIKE = "nvidia-geforce-rtx-2080-ti"


def work(**more):
    rows = {"problem": ["p"], "gpu": H200, "kind": "dense", "math": "f16", "m": 4096, "k": 4096, "n": 512, "us": 50.0}
    rows |= {"flops": 2.0 * 4096 * 4096 * 512, "bytes": 1e6, "launch_us": 0.0}
    return pd.DataFrame(rows | more)


def test_a_bound_is_what_the_data_sheet_lets_the_work_take():
    t4, a100 = gpu(T4), gpu(A100)
    few = {"bytes": 1.0, "flops": 1e13}
    assert bound(work(math="f32", **few), t4)[0] == pytest.approx(1e13 / 8.1e6, rel=1e-3)
    cores = bound(work(**few), a100)[0] * a100.sustained
    assert cores == pytest.approx(1e13 / 312e6, rel=1e-3)
    assert bound(work(bytes=1e10, flops=1.0), a100)[0] == pytest.approx(1e7 / (MEMORY * 1555), rel=1e-3)
    assert bound(work(bytes=1e6, flops=1.0), a100)[0] < 1e3 / (MEMORY * 1555)  # from L2
    assert np.isinf(bound(work(math="f8"), a100)[0])
    sparse = {"kind": "sparse", "math": "f16", "m": 40 * 108, "n": 64, **few}
    clocks = (108 * 1.41) / (40 * 1.59)
    ratio = bound(work(**sparse), t4)[0] / bound(work(**sparse), a100)[0]
    assert ratio == pytest.approx(clocks * math.sqrt(2), rel=0.01)  # Turing loads half as much from L1 in a clock
    whole, one_more = (bound(work(**(sparse | {"m": rows})), a100)[0] for rows in (4 * 108, 4 * 109))
    assert one_more / whole == pytest.approx(2 * 108 / 109, rel=0.01)  # one block more is a second round
    geforce, server = gpu("rtx 4090"), gpu("tesla-v100-sxm2-16gb")
    assert geforce.rate("f16_sums") == 2 * geforce.rate("f16")
    assert server.rate("f16_sums") == server.rate("f16")


def test_times_come_from_gpus_alike_first_and_launches_are_the_target_s():
    target = gpu(A100)
    same = work(gpu="nvidia-a100-sxm4-80gb")
    other = work(gpu=T4)
    both = pd.concat([same, other, work(gpu=A100, us=1e9)])  # its own is not looked at
    alone = {one["gpu"].iloc[0]: float(transfer(one, target).iloc[0]) for one in (same, other)}
    together = float(transfer(both, target).iloc[0])
    logs = {name: math.log(us) for name, us in alone.items()}
    assert math.log(together) == pytest.approx((9 * logs["nvidia-a100-sxm4-80gb"] + logs[T4]) / 10)
    launched = transfer(pd.concat([one.assign(launch_us=5.0, us=55.0) for one in (same, other)]), target, 7.0)
    assert float(launched.iloc[0]) == pytest.approx(together + 7.0)


def test_calibration_finds_a_factor_and_a_slope():
    rng = np.random.default_rng(1)
    n = rng.integers(64, 4096, 400)
    rows = work(problem=range(400), n=n, us=0.0)
    predicted = rng.uniform(10, 200, 400)
    some, rest = rows.iloc[:20], rows.iloc[20:]
    found = calibrate(predicted[:20], some, 3 * predicted[:20], predicted[20:], rest)
    assert found == pytest.approx(3 * predicted[20:])
    sloped = predicted * n**0.2
    before = predicted[20:] * np.exp(np.mean(np.log(n[:20] ** 0.2)))
    after = calibrate(predicted[:20], some, sloped[:20], predicted[20:], rest)
    assert np.abs(after / sloped[20:] - 1).mean() < 0.5 * np.abs(before / sloped[20:] - 1).mean()


def written(reports, slug, scale, count=30):
    rows = [
        fake_records.timed(kernel, scale * (20 + 3 * at), variant, problem=f"{at:02}_64x256x3136_90_dlmc", floor_us=1.0,
                           gpu=slug, nnz=1000 * (at + 1))
        for at in range(count)
        for kernel, variant in (("sputnik", "y4"), ("cublas", "f32_default_nn"))
    ]  # fmt: skip
    fake_records.write(reports / slug / "sparsert_table1", rows)


def test_records_of_one_gpu_become_times_of_another_and_its_own_calibrate(tmp_path):
    written(tmp_path, H200, 1.0)
    made = predict(tmp_path, "sparsert_table1", "A100-SXM4-40GB").rows
    assert set(made["how"]) == {"scaled"}
    assert (made["predicted_us"] > made["source_us"]).all()
    assert (made["within"] > 0.05).all()
    written(tmp_path, A100, 2.0, count=10)
    rows = predict(tmp_path, "sparsert_table1", A100).rows
    assert (rows["how"] == "measured").sum() == 20
    assert rows.loc[rows["how"] == "measured", "within"].isna().all()
    rest = rows[rows["how"] == "calibrated with 10 problems"]
    assert len(rest) == 40
    assert rest["predicted_us"].to_numpy() == pytest.approx(2 * rest["source_us"].to_numpy(), rel=0.1)
    same = predict(tmp_path, "sparsert_table1", "nvidia-h100-80gb-hbm3").rows
    assert set(same["within"]) == {SAME_CHIP}


def test_what_nothing_tells_the_error_of_is_not_predicted(tmp_path):
    row = fake_records.record(
        problem="01_64x256x3136_90_dlmc", kernel="flash_llm", variant="f16", dtype="f16", gpu=H200
    )
    fake_records.write(tmp_path / H200 / "llm_layers", [row])
    predicted = predict(tmp_path, "llm_layers", A100).rows
    assert predicted["predicted_us"].isna().all()
    assert set(predicted["how"]) == {UNJUDGED}


def test_what_a_gpu_can_not_run_has_no_time_there():
    assert cannot("sputnik", "f32", "sm_75") == ""
    assert cannot("cublas", "f32", "sm_75") == ""
    assert cannot("cublas", "tf32", "sm_75") == "sm_75 has no tensor cores of tf32"
    assert cannot("cusparselt", "f16", "sm_75") == "sm_75 has no tensor cores of 2:4 sparsity"
    assert cannot("tensor_spmm", "f16", "sm_75") == "tensor cores of sm_75 do not multiply 2:4 tiles"
    assert cannot("tensor_spmm", "f16", "sm_89") == ""


def test_the_command_tells_times_refusals_and_bad_input(tmp_path):
    written(tmp_path, H200, 0.05)
    run = CliRunner()
    predicted = run.invoke(main, ["predict", "sparsert_table1", "--gpu", "T4", "--reports", str(tmp_path)])
    assert predicted.exit_code == 0, predicted.output
    assert "60 times, 0 of them not predicted" in predicted.output
    assert " ± 2" in predicted.output
    asked = ["predict", "sparsert_table1", "--gpu", "T4", "--reports", str(tmp_path), "--json", "--kernel", "sputnik"]
    found = json.loads(run.invoke(main, asked).output)
    assert (found["source"], found["target"], len(found["rows"])) == (H200, T4, 30)
    assert found["rows"][0]["predicted_us"] > found["rows"][0]["source_us"]
    for arguments, reason in (
        (["--gpu", "h20"], "no GPU 'h20'"),
        (["--gpu", "H200"], "has no records of sparsert_table1 on another GPU than nvidia-h200"),
        (["--gpu", "T4", "--from", "RTX 4090"], "there are some of nvidia-h200"),
        (["--gpu", "H200", "--from", "H200"], "there are none of another GPU"),
        (["--gpu", "T4", "--kernel", "sputnk"], "'sputnk': choose from cublas, sputnik"),
        (["--gpu", "T4", "--policy", "warm"], "'warm' is not one of 'hot', 'cold'"),
        (["--gpu", "T4", "--policy", "stream"], "no stream time of"),
    ):
        refusal = run.invoke(main, ["predict", "sparsert_table1", *arguments, "--reports", str(tmp_path)])
        assert refusal.exit_code == 2
        assert reason in " ".join(refusal.output.split())


def test_a_run_on_the_processor_is_no_gpu_to_predict_from(tmp_path):
    written(tmp_path, "cpu", 1.0)
    with pytest.raises(RecordError, match=r"GPU than tesla-t4 to predict from \(there are some of cpu"):
        predict(tmp_path, "sparsert_table1", "T4")
    written(tmp_path, H200, 0.05)
    assert len(predict(tmp_path, "sparsert_table1", "T4").rows)  # beside a GPU's it is passed over


@pytest.fixture(scope="module")
def errors():
    return holdouts.errors(paths.reports().parent / "no records")


def test_held_out_gpus_are_told_from_the_others_alone():
    times = published.strata("sputnik")
    predicted = holdouts.strata("sputnik")
    assert len(predicted) == 4 * 28
    spoilt = times.assign(us=times["us"].where(times["gpu"] != T4_LIKE, 1e6))
    mine = holdouts.held_out(spoilt).query("gpu == @T4_LIKE")
    assert mine["predicted"].to_numpy() == pytest.approx(predicted.query("gpu == @T4_LIKE")["predicted"].to_numpy())


def test_errors_and_bars_are_recomputed_by_hand(errors):
    predicted = holdouts.products(sparse=False)
    mine = predicted[(predicted["gpu"] == "nvidia-b200") & (predicted["math"] == "f8")]
    row = errors[(errors["target"] == "NVIDIA B200") & (errors["math"] == "f8") & (errors["kernel"] == "cublaslt")]
    row = row[row["calibration"] == 0].iloc[0]
    quotients = (mine["predicted"] / mine["us"]).to_numpy()
    assert (row["count"], row["mean"]) == (len(mine), pytest.approx(np.mean(np.abs(quotients - 1))))
    others = predicted[(predicted["gpu"] != "nvidia-b200") & (predicted["math"] == "f8")]["off"].abs()
    assert row["within"] == pytest.approx(math.expm1(np.quantile(others, holdouts.ASKED)))
    assert row["inside"] == pytest.approx(np.mean(np.abs(np.log(quotients)) <= np.quantile(others, holdouts.ASKED)))


def test_aims_of_the_prediction_hold_where_they_are_met(errors):
    alone = errors[errors["calibration"] == 0]
    assert np.average(errors["inside"], weights=errors["count"]) > holdouts.INSIDE - 0.01
    sputnik = alone[alone["kernel"] == "sputnik"]
    assert len(sputnik) == 4
    assert (sputnik["mean"] < holdouts.AIM).all()
    assert alone.loc[alone["kernel"] == "cublas", "mean"].mean() < holdouts.AIMS["cublas"]
    helped = errors[(errors["calibration"] > 0) & (errors["data"] == holdouts.STRATA)]
    assert (helped["mean"] < 0.08).all()


def test_the_page_keeps_errors_by_matrix_and_counts_what_meets_its_aim(errors, tmp_path):
    single = errors.head(1).assign(data=holdouts.MATRICES, mean=0.3)
    page.write(tmp_path, pd.concat([single, errors]))
    text = page.write(tmp_path, errors).read_text()
    assert "matrix by matrix" in text.lower()
    rows = pd.concat([single, errors]).query("calibration == 0")
    assert f"{(rows['mean'] <= rows['aim']).sum()} of {len(rows)} hold-outs meet their aim" in text
    assert page.write(tmp_path, errors).read_text() == text


def test_a_program_slower_by_a_factor_is_divided_out_by_the_other_gpus(tmp_path, monkeypatch):
    theirs = dlmc_n512.printed(of_all=True)
    v100 = theirs[(theirs["gpu"] == "V100") & (theirs["library"] == "sputnik")]
    mine = v100.assign(kind="measured", gpu="NVIDIA H200", policy="hot", geomean_us=0.3 * v100["geomean_us"])
    monkeypatch.setattr(dlmc_n512, "by_gpu", lambda results: pd.concat([theirs, mine], ignore_index=True))
    monkeypatch.setattr(dlmc_n512, "complete", lambda results: True)
    row = fake_records.record(experiment="dlmc_n512", problem="x_1x1x512_50_dlmc", floor_us=0.5, gpu=H200)
    fake_records.write(tmp_path / H200 / "dlmc_n512", [row])
    once = holdouts.programs(tmp_path, "sputnik")
    mine["geomean_us"] *= 0.5
    twice = holdouts.programs(tmp_path, "sputnik")
    assert math.exp((once["raw"] - twice["raw"]).mean()) == pytest.approx(2, rel=0.1)
    assert twice["off"].to_numpy() == pytest.approx(once["off"].to_numpy(), abs=0.1)


def test_equal_problems_of_two_gpus_are_told_from_each_other(tmp_path):
    for slug, scale in ((H200, 1.0), ("nvidia-h100-80gb-hbm3", 1.1)):
        written(tmp_path, slug, scale)
    found = holdouts.held_out(holdouts.recorded(tmp_path))
    assert set(found["gpu"]) == {H200, "nvidia-h100-80gb-hbm3"}
    assert np.abs(np.expm1(found["off"])).mean() < 0.3
    assert holdouts.recorded(tmp_path / H200) is None


def test_a_sparse_product_is_told_by_the_same_program_on_the_same_matrix(tmp_path, monkeypatch):
    monkeypatch.setattr(holdouts, "FEWEST", 1)
    sizes = {"problem": "01_64x256x3136_90_dlmc", "nnz": 1000, "dtype": "f16"}
    for slug, timed in (
        (H200, {("p", "y4"): 10.0, ("p", "y8"): 30.0}),
        ("nvidia-h100-80gb-hbm3", {("p", "y8"): 31.0, ("p", "y16"): 1.0, ("q", "y4"): 2.0}),
    ):
        rows = [
            fake_records.timed("sputnik", us, variant, **sizes, pattern_hash=pattern, gpu=slug, floor_us=1.0)
            for (pattern, variant), us in timed.items()
        ]
        fake_records.write(tmp_path / slug / "sparsert_table1", rows)
    found = holdouts.recorded(tmp_path)
    assert sorted(zip(found["pattern_hash"], found["variant"], found["us"], strict=True)) == [
        ("p", "y8", 30.0), ("p", "y8", 31.0),
    ]  # fmt: skip


def test_recorded_products_are_held_out_beside_the_published_ones(tmp_path):
    theirs = published.products(sparse=False).query("gpu == 'nvidia-b200' and math == 'f16' and n == 1024")
    rows = [
        fake_records.record(
            kernel="cublaslt", variant="f16_rowmajor_algo00", dtype="f16", op="gemm", gpu=H200, experiment="gemm_2to4",
            problem=f"dense_x_{row.m}x{row.k}x{row.n}_0_uniform_f16", m=row.m, k=row.k, n=row.n, sparsity=0.0,
            nnz=row.m * row.k, median_us=2 * row.us, q1_us=row.us, q3_us=3 * row.us,
        )
        for row in theirs.itertuples()
    ]  # fmt: skip
    fake_records.write(tmp_path / H200 / "gemm_2to4", rows)
    found = holdouts.products_and_records(tmp_path, sparse=False)
    mine = found[found["gpu"] == H200]
    assert len(mine) == len(theirs)
    assert set(found["gpu"]) == {*published.SIX.values(), H200}
    assert holdouts.products_and_records(tmp_path, sparse=True)["gpu"].nunique() == len(published.SIX)


def test_a_recorded_2to4_product_that_was_not_tuned_is_no_time_beside_searched_ones(tmp_path):
    sizes = {"op": "gemm", "dtype": "f16", "m": 4096, "k": 4096, "sparsity": 0.5, "experiment": "gemm_2to4"}
    rows = [
        fake_records.timed("cusparselt", 9.0, "f16_default", problem=f"2to4_x_4096x4096x{n}_50_nm_f16", n=n, **sizes)
        for n in (64, 256)
    ]
    folder = fake_records.write(tmp_path / H200 / "gemm_2to4", rows)
    fake_records.tuned(folder, lambda row: ["all" if row.n == 64 else "first"])
    found = holdouts.recorded_products(load(folder), sparse=True)
    assert list(found["n"]) == [64]


def test_a_file_that_is_not_the_published_table_is_refused(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(RecordError, match="not the table of four GPUs"):
        published.by_matrix(tmp_path / "x.csv", "sputnik")


def test_ways_of_launching_are_read_for_the_page_and_another_table_is_refused(tmp_path):
    us = {"sputnik": 10.0, "sputnik_unscaled": 11.0, "sputnik_unsorted": 22.0, "cublas": 5.0, "cublas_f16_sums": 4.0}
    rows = [(f"p{at}", name, way, us[name] + more) for at in (1, 2) for name in us for way, more in WAYS_LONGER]
    path = tmp_path / "nvidia-h200" / launching.FOLDER / launching.FILE
    path.parent.mkdir(parents=True)
    pd.DataFrame(rows, columns=["problem", "program", "way", "us"]).to_csv(path)
    (told,) = page._launched(tmp_path)
    said = [told[name] for name in ("gpu", "longer", "both", "sputnik_unsorted")]
    assert said == ["NVIDIA H200", "6.00", "2.20", "2.00"]
    path.write_text("a,b\n1,2\n")
    with pytest.raises(RecordError, match="not the times of ways of launching"):
        list(page._launched(tmp_path))
