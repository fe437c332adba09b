"""Dense and 2:4 products on ten GPUs: published, measured and predicted; every number is of the published file."""

import fake_records
import numpy as np
import pandas as pd
import pytest

from nnzbench.core import paths
from nnzbench.core.gpus import gpus
from nnzbench.papers.nnzbench import gemm_2to4
from nnzbench.papers.predict import holdouts, published
from nnzbench.report.draw import style
from nnzbench.results.result_set import load
from nnzbench.site.generations import products

H100 = "nvidia-h100-80gb-hbm3"


@pytest.fixture(scope="module")
def found():
    times = products.times([])
    return times, products.facts(times)


def test_ten_gpus_are_published_or_told_with_sixty_products_a_type(found):
    times, _ = found
    assert set(times["gpu"]) == set(products.GPUS)
    published = times[times["how"] == "published"]
    assert (published.groupby(["math", "gpu"])["dense_us"].count() >= 60).all()
    predicted = times[times["how"] == "predicted"]
    assert predicted["dense_within"].fillna(predicted["sparse_within"]).notna().all()
    assert set(predicted.loc[predicted["gpu"] == "tesla-v100-sxm2-16gb", "math"]) == {"f16"}
    assert predicted.loc[predicted["gpu"] == "tesla-t4", "sparse_us"].isna().all()  # no sparse tensor cores
    assert set(predicted.loc[predicted["gpu"] == H100, "dense_within"].dropna()) <= set(holdouts.bars().values())


def test_gains_recompute_from_the_published_file(found):
    rows = pd.read_csv(paths.datasets() / "published" / "gemm_2to4_six_gpus.csv")
    asked = gemm_2to4.six_gpus()
    sizes = set(zip(asked["dtype"], asked["m"], asked["k"], asked["n"], strict=True))
    rows = rows[(rows["gpu"] == "RTX 4090") & (rows["dtype"] == "bf16") & (rows["n"] == 1024)]
    rows = rows.drop_duplicates(["m", "k"])
    rows = rows[[key in sizes for key in zip(rows["dtype"], rows["m"], rows["k"], rows["n"], strict=True)]]
    by_hand = float(np.exp(np.log(rows["dense_us"] / rows["sparse_us"]).mean()))
    gains = found[1].query("gpu == 'nvidia-geforce-rtx-4090' and math == 'bf16' and tokens == 1024 and fact == '2:4'")
    assert (len(gains), int(gains["n"].iloc[0])) == (1, len(rows))
    assert gains["ratio"].iloc[0] == pytest.approx(by_hand, rel=1e-5)
    assert not found[1].duplicated(["subject", "baseline", "group"]).any()


def test_what_was_measured_stands_beside_what_was_published_and_is_told_no_more(tmp_path):
    sizes = {"m": 2048, "k": 2048, "n": 64, "dtype": "f16", "op": "gemm", "gpu": H100, "experiment": "gemm_2to4"}
    rows = []
    for kernel, label, us, nnz in (("cublaslt", "dense", 12.0, 2048**2), ("cusparselt", "2to4", 8.0, 2048**2 // 2)):
        name = f"{label}_llama_1b_2048x2048x64_{'0_uniform' if label == 'dense' else '50_nm'}_f16"
        predicted = sizes | {"kernel": kernel, "variant": "f16_rowmajor_algo00", "problem": name, "nnz": nnz}
        rows.append(fake_records.record(**predicted, sparsity=1 - nnz / 2048**2, median_us=us, q1_us=us, q3_us=us))
    fake_records.write(tmp_path / H100 / "gemm_2to4", rows)
    times = products.times([load(tmp_path / H100 / "gemm_2to4")])
    mine = times[(times["gpu"] == H100) & (times["math"] == "f16")]
    measured = mine[mine["how"] == "measured"]
    assert list(zip(measured["dense_us"], measured["sparse_us"], strict=True)) == [(12.0, 8.0)]
    told = mine[mine["how"] == "predicted"]
    assert len(told.drop_duplicates(["m", "k", "n"])) == len(told) == 65
    text = products.section(times, products.facts(times))
    assert "| H100 80GB HBM3 | **measured**, 1 of 66 | 12.00 → 8.00 **1.50×**" in text
    assert "predicted" in set(times.loc[(times["gpu"] == H100) & (times["math"] == "f8"), "how"])


def test_products_timed_on_a_gpu_calibrate_those_that_were_not():
    rows = published.products(sparse=False).query("math == 'f16'")
    gpu = gpus()["nvidia-b200"]
    mine = rows[rows["gpu"] == gpu.slug].drop_duplicates("problem")
    some = pd.concat([rows[rows["gpu"] != gpu.slug], mine.iloc[::3]], ignore_index=True)
    told = pd.concat(products._predicted(some, gpu, "cublaslt")).set_index("problem")
    assert not set(told.index) & set(mine.iloc[::3]["problem"])
    off = np.abs(np.log(told["us"] / mine.set_index("problem")["us"])).mean()
    alone = pd.concat(products._predicted(rows[rows["gpu"] != gpu.slug], gpu, "cublaslt")).set_index("problem")
    assert off < 0.8 * np.abs(np.log(alone["us"] / mine.set_index("problem")["us"])).mean()
    assert told["within"].iloc[0] < alone["within"].iloc[0]


def test_figures_are_narrow_and_tell_ways_of_knowing_apart(found):
    with style.styled():
        drawn = products.figure(found[1], "2:4", "2:4 over dense")
    assert drawn.get_figwidth() * 72 < 420
    marks = {line.get_marker() for axis in drawn.axes for line in axis.lines}
    assert marks >= {"o", "x"}
    assert [axis.get_title(loc="left") for axis in drawn.axes] == ["fp16", "bf16", "INT8", "FP8"]
    assert products.figure(found[1].iloc[:0], "2:4", "nothing") is None


def test_a_gain_of_a_search_cut_short_is_marked_and_gpus_that_nobody_timed_are_named(found):
    times = found[0].assign(sparse_tuned=found[0]["gpu"] != "nvidia-b200")
    gains = products.facts(times).query("fact == '2:4'")
    assert set(gains.loc[~gains["tuned"].astype(bool), "gpu"]) == {"nvidia-b200"}
    assert products.untimed(times) == "V100-SXM2-16GB, T4, RTX 2080 Ti, H100 80GB HBM3, H200"
