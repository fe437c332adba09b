"""Which law each recorded row is predicted by, which times stand as they are, and what the hold-outs divide."""

import json
import math

import fake_records
import pandas as pd
import pytest
from click.testing import CliRunner

from nnzbench.cli import main
from nnzbench.papers.nnzbench import four_gpus
from nnzbench.predict import holdouts
from nnzbench.predict.model import FEWEST, Gpu, Work, calibrate, gpu, scaled, slower
from nnzbench.predict.records import NEVER_FLOOR_US, predict
from nnzbench.records.selection import select

H200, T4, A100 = "nvidia-h200", "tesla-t4", "nvidia-a100-sxm4-40gb"


def timed(kernel, us, variant="v", **changes):
    same = {"problem": "01_64x256x3136_90_dlmc", "gpu": H200, "floor_us": 1.0}
    return fake_records.timed(kernel, us, variant, **{**same, **changes})


def put(reports, *rows, experiment="sparsert_table1"):
    fake_records.write(reports / rows[0].gpu / experiment, select(rows))
    return reports


def predicted(reports, target, **which):
    rows = predict(reports, "sparsert_table1", target, H200).rows
    for name, value in which.items():
        rows = rows[rows[name] == value]
    return rows.iloc[0]


@pytest.mark.parametrize(
    ("math_class", "rates"), [("f32", (66.9, 19.5)), ("tf32", (989.4, 312)), ("f16", (989.4, 312))]
)
def test_a_dense_product_slows_by_the_rate_of_its_arithmetic_zeros_included(tmp_path, math_class, rates):
    sizes = {"m": 4096, "k": 4096, "n": 4096, "nnz": 1638, "dtype": "f16" if math_class == "f16" else "f32"}
    put(tmp_path, timed("cublas", 101.0, f"{math_class}_default_nn", **sizes))
    found = predicted(tmp_path, A100)
    assert found["predicted_us"] == pytest.approx(100 * rates[0] / rates[1] + NEVER_FLOOR_US)


def test_an_arithmetic_that_the_target_lacks_has_no_time_and_says_why(tmp_path):
    put(tmp_path, timed("cublas", 1000.0, "tf32_default_nn"), timed("cublas", 1000.0, "f32_default_nn"))
    found = predicted(tmp_path, T4, math="tf32")
    assert (math.isnan(found["predicted_us"]), found["how"]) == (True, "sm_75 has no tensor cores of tf32")
    assert predicted(tmp_path, T4, math="f32")["how"] == "scaled"


def test_a_measured_time_stands_however_short_and_floors_are_of_the_policy(tmp_path):
    names = ("01_64x256x3136_90_dlmc", "02_256x64x3136_90_dlmc")
    put(tmp_path, *(timed("sputnik", 500.0, problem=one, policy=how) for one in names for how in ("hot", "cold")))
    floors = {"hot": 0.5, "cold": 4.0}
    put(
        tmp_path,
        *(timed("sputnik", 0.1, problem=names[0], policy=how, floor_us=us, gpu=A100) for how, us in floors.items()),
    )
    for policy, floor in floors.items():
        short = predicted(tmp_path, A100, problem=names[0], policy=policy)
        assert (short["predicted_us"], short["how"]) == (0.1, "measured")
        other = predicted(tmp_path, A100, problem=names[1], policy=policy)
        by = slower("sparse", Work(1, 1, 1, 1, 1), gpu(H200), gpu(A100))
        assert other["predicted_us"] == pytest.approx(499 * by + floor)


def test_the_command_tells_the_times_of_one_policy(tmp_path):
    put(tmp_path, timed("sputnik", 500.0), timed("sputnik", 900.0, policy="cold"))
    for policy, us in (("hot", 500.0), ("cold", 900.0)):
        words = ["predict", "sparsert_table1", "--gpu", "T4", "--reports", str(tmp_path), "--policy", policy, "--json"]
        (row,) = json.loads(CliRunner().invoke(main, words).output)["rows"]
        assert (row["policy"], row["source_us"]) == (policy, us)


def test_arithmetic_without_a_rate_takes_for_ever():
    without = Gpu("x", "X", "sm_75", 40, 1.59, 8.1, 0.0, 320.0)
    assert slower("dense_f16", Work(1e9, 1e6, 1, 1, 1), gpu(T4), without) == math.inf


def test_a_calibrations_error_is_of_problems_that_it_has_not_seen():
    us = [10.0 + 7 * at for at in range(FEWEST + 2)]
    works = [Work(1e9, 1e6, 1e4 * (1 + at % 3), 64.0 * (1 + at % 4), 512) for at in range(len(us))]
    truth = [2 * time * (1.5 if at == 3 else 1) for at, time in enumerate(us)]
    off = []
    for at in range(len(us)):
        rest = [one for one in range(len(us)) if one != at]
        fitted = calibrate(*([values[one] for one in rest] for values in (us, works, truth)))
        off.append(abs(float(fitted([us[at]], [works[at]])[0]) / truth[at] - 1))
    assert calibrate(us, works, truth).error == pytest.approx(sum(off) / len(off))


def test_a_published_speedup_is_held_against_dense_over_sparse_time(tmp_path):
    sizes = {"m": 64, "k": 256, "n": 3136, "nnz": 1638, "bytes": 2e6, "flops": 2.0 * 1638 * 3136}
    put(tmp_path, timed("sparsert_paper", 11.0, **sizes), timed("cublas", 41.0, "f32_default_nn", **sizes))
    lines = {(line[2], line[3], line[4]): line for line in holdouts._papers(tmp_path)}
    line = lines["Tesla T4", "sparsert_paper", "speed-up"]
    elements = 64 * 256 / 1638
    dense = Work(sizes["flops"] * elements, 2e6, 1, 1, 1)
    ends = (gpu(H200), gpu(T4), 1.0, 1.0)
    told = scaled("dense_f32", dense, 41.0, *ends) / scaled("sparse", dense, 11.0, *ends)
    assert line[10] == pytest.approx(told / 4.3, rel=1e-6)  # the paper's on its first problem


def test_the_hold_outs_are_of_hot_records(tmp_path, monkeypatch):
    theirs = four_gpus.printed(of_all=True)
    a100 = theirs[(theirs["gpu"] == "A100") & (theirs["library"] == "sputnik")]
    mine = [
        a100.assign(kind="measured", gpu="NVIDIA H200", policy=policy, geomean_us=by * a100["geomean_us"])
        for policy, by in (("hot", 0.5), ("cold", 50.0))
    ]
    monkeypatch.setattr(four_gpus, "by_gpu", lambda results: pd.concat([theirs, *mine], ignore_index=True))
    put(tmp_path, timed("sputnik", 9.0, experiment="dlmc_n512", problem="x_1x1x512_50_dlmc"), experiment="dlmc_n512")
    found = {(line[2], line[3], line[5]): line for line in holdouts._recorded(tmp_path)}
    line = found["A100", "sputnik", 0]
    assert line[6] + line[7] == len(a100)
    assert line[10] < 10


def test_single_matrices_have_the_time_of_their_rate(tmp_path):
    rates = {f"{library}_{key}_gflops": 1024 for library in holdouts.LIBRARIES for key in holdouts.FILE_KEYS.values()}
    pd.DataFrame([{"rows": 64, "cols": 32, "nnz": 512, **rates}]).to_csv(tmp_path / "x.csv", index=False)
    sparse, dense = (holdouts.by_matrix(tmp_path / "x.csv", library) for library in ("sputnik", "cublas"))
    assert sparse.by_gpu["A100"] == dense.by_gpu["A100"] == pytest.approx([2 * 512 * 512 / 1024e9 * 1e6])
    assert (sparse.works[0].nnz, sparse.works[0].flops) == pytest.approx((512, 2 * 512 * 512))
    assert dense.works[0].flops == pytest.approx(2 * 64 * 32 * 512)
