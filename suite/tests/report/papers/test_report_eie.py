"""The pages of EIE's GPU rows and of 2:4 sparsity on records with known answers."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fake_records
import pytest
from matplotlib.figure import Figure

from nnzbench.facts.results import load
from nnzbench.papers import lecture
from nnzbench.papers.eie import table4 as eie_table4
from nnzbench.papers.lecture import granularity
from nnzbench.problems import tables
from nnzbench.problems.problem import Problem
from nnzbench.records.record import Record
from nnzbench.records.selection import select

Times = Callable[[Problem], dict[tuple[str, str], float]]


def records(experiment: str, times: Times, policies=("hot",)) -> list[Record]:
    rows = []
    for policy in policies:
        for one in tables.load(experiment):
            common = {
                "experiment": experiment, "problem": one.name, "op": one.op, "m": one.m, "k": one.k, "n": one.n,
                "sparsity": one.sparsity, "source": one.source, "policy": policy, "dtype": one.dtype,
            }  # fmt: skip
            for (kernel, variant), us in times(one).items():
                rows.append(fake_records.timed(kernel, us, variant, limit_us=us, **common))
    return select(rows)


def page_of(tmp_path: Path, experiment: str, rows: list[Record]) -> tuple[str, Path]:
    folder = tmp_path / "nvidia-h200" / experiment
    if not folder.exists():
        fake_records.write(folder, rows)
    path = fake_records.written(folder)
    return path.read_text() + path.with_name("summary.md").read_text(), folder


def line_of(page: str, start: str, place: int = 0) -> list[str]:
    found = [line for line in page.splitlines() if line.startswith(start)]
    return [cell.strip() for cell in found[place].split("|")[1:-1]]


def layers(one: Problem) -> dict[tuple[str, str], float]:
    """Dense 64 us whatever the batch, sparse 32 (default 48); at batch 64 sputnik 16 and row_stream 8."""
    times = {
        ("cublas", "f32_rowmajor"): 64.0,
        ("cublas", "tf32_rowmajor"): 60.0,
        ("cublaslt", "f32_rowmajor_algo00"): 62.0,
        ("cusparse", "spmv_csr_default" if one.n == 1 else "csr_default_row"): 48.0,
        ("cusparse", "spmv_coo_alg1" if one.n == 1 else "csr_alg1_row_preprocess"): 32.0,
    }
    return times if one.n == 1 else times | {("sputnik", "x32"): 16.0, ("row_stream", "w8"): 8.0}


def test_eie_rows_are_per_image_beside_the_titan_x(tmp_path: Path) -> None:
    page, folder = page_of(tmp_path, "eie_table4", records("eie_table4", layers, ("hot", "cold")))
    sparse = "| NVIDIA H200 | sparse: cuSPARSE, best |"
    assert line_of(page, sparse)[2:] == ["32.00"] * 9 + ["**2.00**"]
    assert line_of(page, sparse, 1)[2:] == ["0.50"] * 9 + ["**2.00**"]
    assert line_of(page, "| NVIDIA H200 | sparse: cuSPARSE, its default |")[2] == "48.00"
    assert line_of(page, "| NVIDIA H200 | sparse: row_stream |")[2] == "0.12"
    assert line_of(page, "| Titan X (published) | dense |")[2:4] == ["541.5", "243.0"]
    assert line_of(page, "| Titan X (published) | sparse |", 1)[2:4] == ["94.6", "51.5"]
    assert "At batch 1 the best cuSPARSE algorithm is 2.00× as fast as cuBLAS fp32 on NVIDIA H200" in page
    assert "dense: cuBLASLt TF32, best at batch 64 (hot, cold) is recorded for any row." in page
    assert "sputnik at batch 1" not in page
    assert "`sputnik` and `row_stream` have no product with a single vector, and so no mark at batch 1." in page
    assert {"speedup.svg", "speedup_cold.svg", "summary.csv"} <= {p.name for p in folder.iterdir()}


def test_published_batch_times_are_per_image() -> None:
    """Of a whole batch they would need many times what the GPU computes."""
    paper, found = eie_table4.paper_times(), eie_table4.problems()
    one = found[64, "alexnet_fc6"]
    tflops = 2e-6 * one.m * one.k * one.n / paper["dense", 64, "alexnet_fc6"]
    assert tflops > 10 * 6.6  # peak of a Titan X


def test_eie_with_one_layer_recorded_names_the_others(tmp_path: Path) -> None:
    some = [r for r in records("eie_table4", layers) if r.problem.startswith("nt_we_b1")]
    page, _ = page_of(tmp_path, "eie_table4", some)
    assert line_of(page, "| NVIDIA H200 | dense: cuBLAS fp32 |")[8] == "64.00"
    assert "in geometric mean over 1 of 9 layers" in page
    assert "is recorded for AlexNet fc6, AlexNet fc7, " in page


def products(one: Problem) -> dict[tuple[str, str], float]:
    """cuBLAS 100 us, cuBLASLt 90; cuSPARSELt 60 by default and 50 after its search."""
    math = {"f32": "tf32"}.get(one.dtype, one.dtype)
    times = {
        ("cublas", f"{math}_rowmajor"): 100.0,
        ("cublaslt", f"{math}_rowmajor_algo00"): 90.0,
        ("cusparselt", f"{math}_rowmajor_default"): 60.0,
        ("cusparselt", f"{math}_colmajor_search"): 50.0,
    }
    return times | ({("cublas", "f32_rowmajor"): 500.0} if math == "tf32" else {})


def test_nm_compares_with_the_best_dense_product_in_the_same_arithmetic(tmp_path: Path) -> None:
    page, folder = page_of(tmp_path, "nm_sparsity", records("nm_sparsity", products, ("hot", "cold")))
    first = line_of(page, "| m = n = 10240 (figure 3) | 10240×1280×10240 |")
    assert first[2:] == ["100.00", "90.00", "60.00", "50.00", "2.00", "1.80", "nearly 2"]
    assert line_of(page, "| layers of BERT-large | qkv 1024×1024×256 |", 2)[2] == "100.00"  # TF32, not fp32
    assert "|  | INT8, 2:4 | fp16, 2:4 | TF32, 1:2 |" in page
    figure3, bert, _ = (
        line_of(page, f"| {group} | **") for group in ("m = n = 10240 (figure 3)", "layers of BERT-large", "cubes")
    )
    assert figure3[1:] == ["**1.80×** (1.80 to 1.80, 4 products)"] * 2 + ["–"]
    assert bert[3] == "**1.80×** (1.80 to 1.80, 6 products)"
    assert {"speedup.svg", "speedup_cold.svg", "summary.csv"} <= {p.name for p in folder.iterdir()}


def test_nm_without_the_library_names_the_gap(tmp_path: Path) -> None:
    rows = [
        fake_records.failed(r, "unsupported", "cusparselt is not installed") if r.kernel == "cusparselt" else r
        for r in records("nm_sparsity", products)
    ]
    page, _ = page_of(tmp_path, "nm_sparsity", rows)
    assert "cuSPARSELt, best of its search (fp16, 2:4) (hot) is recorded for any row." in page
    assert "cusparselt is not installed" in page


@pytest.mark.figures(kind="svg")
def test_both_pages_are_drawn_twice_with_the_same_bytes(tmp_path: Path) -> None:
    for experiment, times in (("eie_table4", layers), ("nm_sparsity", products)):
        _, folder = page_of(tmp_path, experiment, records(experiment, times))
        first = {path.name: path.read_bytes() for path in folder.iterdir()}
        page_of(tmp_path, experiment, [])
        assert first == {path.name: path.read_bytes() for path in folder.iterdir()}


def formats(one: Problem) -> dict[tuple[str, str], float]:
    """Dense fp16 40 us, cuSPARSE 20, balanced 12 on its twin, eie 8."""
    return {
        ("cublas", "f16_rowmajor"): 40.0,
        ("cublas", "f32_rowmajor"): 80.0,
        ("cusparse", "spmv_csr_alg1"): 20.0,
        ("balanced", "bulk_w16_f16"): 12.0,
        ("eie", "l32_w32x1_f16"): 8.0,
    }


def test_eies_format_is_beside_the_next_best_sparse_kernel_and_dense_fp16(tmp_path: Path) -> None:
    rows = [
        replace(r, dtype="f16") if "f16" in r.variant else r
        for r in records("eie_format", formats, ("hot", "cold"))
        if r.kernel != "balanced" or r.source.startswith("codebook_balanced")
    ]
    page, folder = page_of(tmp_path, "eie_format", rows)
    assert "At batch 1, cold, EIE's format is on NVIDIA H200 2.50× as fast as the next best sparse kernel on" in page
    assert "1.50× as fast as `balanced` on the layers' balanced twins, both on the twin" in page
    assert "1.50 and 1.50× where there are over 3 million nonzeros" in page
    assert "5.00× as fast as dense fp16 (faster on 9 of 9)" in page
    assert line_of(page, "| balanced rows: balanced fp16 |")[1:] == ["12.00"] * 9 + ["**3.33**"]
    assert line_of(page, "| EIE's chip (published) |")[1] == "30.3"
    assert line_of(page, "| bytes of W per nonzero, EIE's format, expected |")[1:5] == ["1.28", "1.28", "1.01", "2.09"]
    assert "`mbv1_pw06_weight`" in page
    assert {"speedup.svg", "speedup_cold.svg", "summary.csv"} <= {p.name for p in folder.iterdir()}


def test_eies_format_with_nothing_but_a_library_recorded_names_what_is_missing(tmp_path: Path) -> None:
    some = [r for r in records("eie_format", formats) if r.kernel == "cusparse"]
    _, folder = page_of(tmp_path, "eie_format", some)
    assert "EIE's format: eie, fp16 inputs at batch 1" in (folder / "summary.md").read_text(encoding="utf-8")


def grains(one: Problem) -> dict[tuple[str, str], float]:
    """Dense 40 us (20 with fewer channels), sparse kernels of a product 10, of a convolution 16; none of blocks."""
    dense = 20.0 if one.label.startswith("channel") else 40.0
    if one.conv:
        return {("cudnn", "f32_nchw"): dense} | ({("direct_conv", "t1"): 16.0} if dense == 40 else {})
    if one.op == "gemm":
        return {("cublas", "f32_rowmajor"): dense}
    return {("cublas", "f32_rowmajor"): 40.0} | ({} if one.label.startswith("block") else {("ring", "x32"): 10.0})


def test_granularities_are_ranked_at_equal_sparsity(tmp_path: Path) -> None:
    page, folder = page_of(tmp_path, "granularity", records("granularity", grains, ("hot",)))
    assert (
        "Speed-up of each granularity's best kernel, in the better form, over the dense layer on NVIDIA H200, hot"
        in page
    )
    assert line_of(page, "| single weights | **")[1] == "**4.00×** ring"
    assert line_of(page, "| patterns, 4 of 9 (PatDNN) | –")[1:3] == ["–", "**4.00×** ring"]
    assert line_of(page, "| channels: smaller dense | 2")[1] == "2.00× cuDNN"
    assert "best first" not in page
    assert "†" not in page
    assert line_of(page, "| single weights | product |")[2:5] == ["10.00", "4.00", "`ring`"]
    assert line_of(page, "| blocks 32×32 | product |")[2:5] == ["–", "–", "–"]
    assert line_of(page, "| patterns, 4 of 9 (PatDNN) | conv |")[2:8] == [
        "–",
        "–",
        "–",
        "16.00",
        "2.50",
        "`direct_conv`",
    ]
    assert line_of(page, "| the whole dense layer | conv |")[2] == "40.00"
    assert "blocks 32×32 at 50 %, blocks 32×32 at 75 %" in page
    assert ": the experiment runs sparse convolutions at 75 and 87.5 % alone." in page
    assert {"speedup.svg", "summary.csv"} <= {p.name for p in folder.iterdir()}


def test_the_levels_of_sparse_convolutions_are_those_that_the_experiment_runs() -> None:
    (experiment,) = (one for one in lecture.EXPERIMENTS if one.name == "granularity")
    for one in tables.load("granularity"):
        if one.conv and not one.label.startswith("channel"):
            level = float(one.label.rpartition("_")[2])
            runs = fnmatch.fnmatchcase(one.label, experiment.only["direct_conv"])
            assert runs == (level in granularity.CONVOLVED), one.label


def test_what_was_not_tuned_of_a_granularity_is_marked_there_alone(tmp_path: Path, figures: dict[str, Figure]) -> None:
    rows = records("granularity", grains, ("hot",))
    folder = fake_records.write(tmp_path / "granularity", rows)
    fake_records.tuned(
        folder, lambda row: ("first",) if (row.kernel, row.sparsity) == ("direct_conv", 0.875) else ("all",)
    )
    page, _ = fake_records.drawn(load(folder))
    overview, fp32, _ = page.sections[0].tables
    assert line_of(overview, "| patterns, 4 of 9 (PatDNN) |")[3] == "**4.00×** ring"
    conv = line_of(fp32, "| patterns, 4 of 9 (PatDNN) | conv |")
    assert (conv[6], conv[9]) == ("2.50", "2.50†")
    assert "†" not in line_of(fp32, "| channels: smaller dense | conv |") + line_of(
        fp32, "| single weights | product |"
    )
    legend = {text.get_text() for text in figures["speedup"].legends[0].get_texts()}
    assert legend == {"as a convolution†", "as a product (im2col not included)"}


def steps(one: Problem) -> dict[tuple[str, str], float]:
    """Gates take 8 us dense and 4 sparse, the projection 2 and 1."""
    us = 8.0 if one.label.startswith("gates") else 2.0
    times = {("cublas", "f32_rowmajor"): us, ("cusparse", "spmv_csr_alg1"): us}
    return times if one.n == 1 else times | {("sputnik", "x32"): us / 2}


def test_a_step_of_eses_lstm_is_beside_the_published_ones(tmp_path: Path) -> None:
    page, folder = page_of(tmp_path, "ese_lstm", records("ese_lstm", steps, ("hot",)))
    assert "dense and 5.00 µs sparse in fp32 on NVIDIA H200, each in its fastest kernel: sparse is 2.00×" in page
    assert "On the paper's GPU it is 0.84× in cuSPARSE over cuBLAS (ESE itself: 82.7 µs)." in page
    assert line_of(page, "| NVIDIA H200 | sparse: sputnik fp32 |")[2:6] == ["4.00", "1.00", "5.00", "2.00"]
    assert line_of(page, "| GPU (published) | sparse |")[4:] == ["287.4", "0.84", "136"]
    assert line_of(page, "| ESE (published) | sparse |")[4] == "82.7"
    assert "sputnik fp32 at batch 1" not in page
    assert {"speedup.svg", "summary.csv"} <= {p.name for p in folder.iterdir()}


def test_peaks_are_doubled_where_there_are_sparse_tensor_cores(tmp_path: Path) -> None:
    page, _ = page_of(tmp_path, "nm_sparsity", records("nm_sparsity", products))
    assert line_of(page, "| NVIDIA A100-SXM4-40GB |")[1:] == [
        "19.5",
        "156.0",
        "312.0",
        "624.0",
        "312.0",
        "624.0",
        "1248.0",
    ]
    assert line_of(page, "| Tesla T4 |")[1:] == ["8.1", "–", "65.0", "130.0", "–", "–", "–"]


def convolutions(one: Problem) -> dict[tuple[str, str], float]:
    """Dense 40 us, the paper's method 20, with a codebook 16; the unified count's rival and ours are not shown."""
    return {
        ("cudnn", "f32_nchw"): 40.0,
        ("direct_conv", "paper_sbs4"): 20.0,
        ("direct_conv", "codebook_sbs4"): 16.0,
        ("direct_conv", "paper_counts_sbs4"): 1.0,
        ("direct_conv", "t1"): 1.0,
    }


def test_four_bit_weights_are_beside_the_weights_themselves(tmp_path: Path) -> None:
    page, folder = page_of(tmp_path, "direct_conv_codebook", records("direct_conv_codebook", convolutions))
    assert "In fp32 the paper's convolution is 1.25× as fast with indices into a codebook" in page
    assert line_of(page, "| fp32 | the same, indices into a codebook |")[2:] == ["16.00"] * 4 + ["**2.50**"]
    assert "the same, indices into a codebook (fp16) (hot)" in page
    assert {"speedup.svg", "summary.csv"} <= {p.name for p in folder.iterdir()}
