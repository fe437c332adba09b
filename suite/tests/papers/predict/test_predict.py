"""The prediction: its laws on invented times with known answers, and its errors on the published ones."""

import json
import math

import fake_records
import pandas as pd
import pytest
from click.testing import CliRunner

from nnzbench.cli import main
from nnzbench.core import paths
from nnzbench.papers.nnzbench import dlmc_n512
from nnzbench.papers.predict import holdouts, launching, page, published
from nnzbench.papers.predict.records import UNJUDGED, cannot, predict
from nnzbench.results.records.record import RecordError
from nnzbench.results.result_set import load

H200, T4, A100 = "nvidia-h200", "tesla-t4", "nvidia-a100-sxm4-40gb"
V100 = "tesla-v100-sxm2-16gb"
WAYS_LONGER = (("hot", 0.0), ("loop", 1.0), ("pair", 6.0))


def written(reports, slug, scale, count=30):
    rows = [
        fake_records.timed(kernel, scale * (20 + 3 * at), variant, problem=f"{at:02}_64x256x3136_90_dlmc", floor_us=1.0,
                           gpu=slug, nnz=1000 * (at + 1))
        for at in range(count)
        for kernel, variant in (("sputnik", "y4"), ("cublas", "f32_default_nn"))
    ]  # fmt: skip
    fake_records.write(reports / slug / "sparsert_table1", rows)


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


def test_gpus_without_a_product_predict_none_of_each_other(tmp_path):
    row = fake_records.timed("sputnik_sddmm", 10.0, "s32", op="sddmm", gpu=H200)
    fake_records.write(tmp_path / H200 / "sparsert_table1", [row])
    assert holdouts.recorded(tmp_path) is None


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
