"""The prediction: its laws on invented times with known answers, and its errors on the published ones."""

import json
import math

import fake_records
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from nnzbench.cli import main
from nnzbench.papers.nnzbench import four_gpus
from nnzbench.predict import holdouts, page
from nnzbench.predict.model import FEWEST, Work, calibrate, gpu, listed, refused, scaled, slower
from nnzbench.predict.records import NEVER_FLOOR_US, cannot, predict
from nnzbench.records.record import RecordError
from nnzbench.records.selection import select

H200, T4, A100 = "nvidia-h200", "tesla-t4", "nvidia-a100-sxm4-40gb"


def work(nnz=1e5, m=512, k=512):
    return Work(2 * nnz * 512, 1e6, nnz, m, k)


def test_gpus_are_found_by_slug_or_by_words_and_told_apart():
    assert gpu("tesla-t4") == gpu("T4") == gpu("Tesla T4") == listed()["tesla-t4"]
    assert gpu("rtx 4090").arch == "sm_89"
    with pytest.raises(RecordError, match="may be any of tesla-v100-sxm2-16gb, tesla-v100-sxm2-32gb"):
        gpu("v100")
    with pytest.raises(RecordError, match=r"no GPU 'h20' in datasets/gpus\.csv"):
        gpu("h20")


def test_sparse_times_follow_issue_slots_and_loads_dense_ones_what_bounds_them():
    t4, a100 = gpu(T4), gpu(A100)
    clocks = (108 * 1.41) / (40 * 1.59)
    assert slower("sparse", work(), a100, t4) == pytest.approx(clocks * math.sqrt(2))  # Turing loads half of it
    computing, moving = Work(1e12, 1.0, 1, 1, 1), Work(1.0, 1e9, 1, 1, 1)
    assert slower("dense_f32", computing, a100, t4) == pytest.approx(19.5 / 8.1)
    assert slower("dense_f16", computing, a100, t4) == pytest.approx(312 / 65)
    assert slower("dense_f32", moving, a100, t4) == pytest.approx(1555 / 320)
    assert scaled("dense_f32", moving, 12.0, a100, t4, 2.0, 5.0) == pytest.approx(5 + 10 * 1555 / 320)
    assert scaled("sparse", work(), 1.0, a100, t4, 2.0, 5.0) == 5.0  # nothing but launch
    assert scaled("sparse", work(), 9.0, a100, a100, 2.0, 2.0) == pytest.approx(9.0)
    assert refused(14.9, 5.0)
    assert not refused(15.1, 5.0)


def test_calibration_finds_the_law_that_the_times_follow():
    rng = np.random.default_rng(1)
    sizes = rng.integers(64, 2048, 30).tolist()
    works = [work(nnz, m) for nnz, m in zip(rng.uniform(1e4, 1e6, 30).tolist(), sizes, strict=True)]
    us = rng.uniform(10, 200, 30).tolist()
    power = [3 * t**0.8 for t in us]
    fitted = calibrate(us[:20], works[:20], power[:20])
    assert fitted.weights == pytest.approx([0.8, 0, 0, 0], abs=1e-4)
    assert fitted.error < 1e-4
    assert fitted(us[20:], works[20:]) == pytest.approx(power[20:], rel=1e-4)
    rich = [t * one.rows**0.3 for t, one in zip(us, works, strict=True)]
    fitted = calibrate(us[:20], works[:20], rich[:20])
    assert fitted.weights[2] == pytest.approx(0.3, abs=0.05)
    assert fitted(us[20:], works[20:]) == pytest.approx(rich[20:], rel=0.02)
    with pytest.raises(ValueError, match="7 calibration problems are too few"):
        calibrate(us[: FEWEST - 1], works[: FEWEST - 1], power[: FEWEST - 1])


def written(reports, slug, scale, count=30):
    rows = []
    for at in range(count):
        for kernel, variant in (("sputnik", "y4"), ("cublas", "f32_default_nn")):
            us = scale * (20 + 3 * at)
            more = {
                "problem": f"{at:02}_64x256x3136_90_dlmc",
                "median_us": us,
                "q1_us": us,
                "q3_us": us,
                "floor_us": 1.0,
            }
            more |= {"gpu": slug, "nnz": 1000 * (at + 1)}
            rows.append(fake_records.record(kernel=kernel, variant=variant, **more))
    fake_records.write(reports / slug / "sparsert_table1", select(rows))


def test_records_of_one_gpu_become_times_of_another_and_its_own_calibrate(tmp_path):
    written(tmp_path, H200, 1.0)
    made = predict(tmp_path, "sparsert_table1", "A100-SXM4-40GB")
    first = made.rows[made.rows["kernel"] == "sputnik"].iloc[0]
    by = slower("sparse", work(), gpu(H200), gpu(A100))
    assert first["predicted_us"] == pytest.approx(19.0 * by + NEVER_FLOOR_US)
    assert set(made.rows["how"]) == {"scaled"}
    written(tmp_path, A100, 2.0, count=10)
    rows = predict(tmp_path, "sparsert_table1", A100).rows
    assert (rows["how"] == "measured").sum() == 20
    rest = rows[rows["how"].str.startswith("calibrated")]
    assert len(rest) == 40
    assert rest["predicted_us"].to_numpy() == pytest.approx(2 * rest["source_us"].to_numpy(), rel=0.02)


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
    told = run.invoke(main, ["predict", "sparsert_table1", "--gpu", "T4", "--reports", str(tmp_path)])
    assert told.exit_code == 0, told.output
    assert "60 times, " in told.output
    assert "too near the cost of a launch" in told.output
    asked = ["predict", "sparsert_table1", "--gpu", "T4", "--reports", str(tmp_path), "--json", "--kernel", "sputnik"]
    found = json.loads(run.invoke(main, asked).output)
    assert (found["source"], found["target"], len(found["rows"])) == (H200, T4, 30)
    assert found["rows"][0]["predicted_us"] is None
    for arguments, reason in (
        (["--gpu", "h20"], "no GPU 'h20'"),
        (["--gpu", "H200"], "has no records of sparsert_table1 on another GPU than nvidia-h200"),
        (["--gpu", "T4", "--from", "RTX 4090"], "there are some of nvidia-h200"),
        (["--gpu", "H200", "--from", "H200"], "there are none of another GPU"),
        (["--gpu", "T4", "--kernel", "sputnk"], "'sputnk': choose from cublas, sputnik"),
        (["--gpu", "T4", "--policy", "warm"], "'warm' is not one of 'hot', 'cold'"),
    ):
        refusal = run.invoke(main, ["predict", "sparsert_table1", *arguments, "--reports", str(tmp_path)])
        assert refusal.exit_code == 2
        assert reason in " ".join(refusal.output.split())


def test_a_run_on_the_processor_is_no_gpu_to_predict_from(tmp_path):
    written(tmp_path, "cpu", 1.0)
    words = ["predict", "sparsert_table1", "--gpu", "T4", "--reports", str(tmp_path)]
    refusal = CliRunner().invoke(main, words)
    assert refusal.exit_code == 2
    said = " ".join(refusal.output.split())
    assert "on another GPU than tesla-t4 to predict from (there are some of cpu: no GPU whose rates" in said
    written(tmp_path, H200, 0.05)
    assert CliRunner().invoke(main, words).exit_code == 0  # beside a GPU's it is passed over


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    reports = tmp_path_factory.mktemp("reports")
    return reports, holdouts.errors(reports)


def test_sputnik_is_within_its_bar_on_every_pair_of_gpus(errors):
    found = errors[1]
    judged = found[(found["kernel"] == "sputnik") & (found["calibration"] == 0)]
    assert len(judged) == 12
    assert (judged["count"] + judged["refused"] == 28).all()
    assert (judged["mean"] < holdouts.WITHOUT).all()
    assert (judged["p90"] >= judged["mean"]).all()
    assert (found[found["calibration"] == 20]["count"] == 8 * holdouts.DRAWS).all()


def test_an_error_is_recomputed_by_hand():
    times = holdouts.strata("sputnik")
    names = sorted({four_gpus.stratum(f"{name}.x_1x1x512_50_dlmc") for name in ("magnitude_pruning.0.5",)})
    assert names == [("magnitude_pruning", 0.5)]
    floors = holdouts.floors()
    by = slower("sparse", times.works[0], gpu(holdouts.GPUS["A100"]), gpu(holdouts.GPUS["V100"]))
    assert by == pytest.approx(108 * 1.41 / (80 * 1.53))
    told = [max(us - floors["A100"], 0) * by + floors["V100"] for us in times.by_gpu["A100"]]
    off = [
        abs(one / truth - 1) for one, truth in zip(told, times.by_gpu["V100"], strict=True) if one >= 3 * floors["V100"]
    ]
    signed = [
        one / truth - 1 for one, truth in zip(told, times.by_gpu["V100"], strict=True) if one >= 3 * floors["V100"]
    ]
    row = next(r for r in holdouts._between("strata", times, "sputnik") if r[1:3] == ("A100", "V100") and r[5] == 0)
    assert row[6] == len(off)
    assert row[8] == pytest.approx(np.mean(off))
    assert row[10] == pytest.approx(math.exp(np.mean([math.log(1 + one) for one in signed])))


def test_the_page_tells_errors_bars_and_what_it_can_not_judge(errors):
    text = page.write(*errors).read_text()
    assert "12 of 12 hold-outs that have a bar meet it." in text
    assert "| sputnik | A100 → V100 | time | without calibration |" in text
    assert "do not trust it beyond 20 % for cublas, cusparse" in text
    assert "xuezy-mmi/SSpMM" in text
    assert page.write(*errors).read_text() == text
    single = errors[1].head(1).assign(data="matrices", mean=0.3)
    page.write(errors[0], pd.concat([single, errors[1]]))
    whole = page.write(errors[0], pd.concat([errors[1].head(1), single, errors[1].iloc[1:]])).read_text()
    kept = page.write(*errors).read_text()  # of single matrices, which these errors are not of
    assert kept == whole
    assert "Matrix by matrix" in kept
    assert "sputnik, V100 to RTX 2080 Ti, without calibration (matrices): 30.0 %, 10.0 points over the bar" in kept


def test_records_that_are_off_by_a_factor_are_all_bias_and_calibration_removes_it(tmp_path, monkeypatch):
    theirs = four_gpus.printed(of_all=True)
    a100 = theirs[(theirs["gpu"] == "A100") & (theirs["library"] == "sputnik")]
    mine = a100.assign(kind="measured", gpu="NVIDIA H200", policy="hot", geomean_us=0.3 * a100["geomean_us"])
    monkeypatch.setattr(four_gpus, "by_gpu", lambda results: pd.concat([theirs, mine], ignore_index=True))
    row = fake_records.record(experiment="dlmc_n512", problem="x_1x1x512_50_dlmc", floor_us=0.5)
    fake_records.write(tmp_path / H200 / "dlmc_n512", [row])
    found = {(line[2], line[5]): line for line in holdouts._recorded(tmp_path) if line[3] == "sputnik"}
    assert found["A100", 20][8] < 1e-3  # mean error with 20 problems
    assert found["A100", 0][8] > 0.3
    assert found["A100", 0][10] == pytest.approx(1 - found["A100", 0][8], abs=0.1)
    assert found["V100", 20][8] < 0.1


def test_a_file_that_is_not_the_published_table_is_refused(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(RecordError, match="not the table of four GPUs"):
        holdouts.by_matrix(tmp_path / "x.csv", "sputnik")
