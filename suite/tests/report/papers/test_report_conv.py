"""The pages of direct sparse convolution on records with known answers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import fake_records
import pytest

from nnzbench.papers.direct_conv.layers import Table, find_layers, published_ms
from nnzbench.problems import tables
from nnzbench.records.record import Record
from nnzbench.records.selection import select

OURS, METHOD, PADDED = "staged_r86_1x4x32_c32_b4", "paper_sbs4", "paper_sbs4_padding_timed"


def rows_of(problem, policy: str, times: dict[tuple[str, str], float]) -> list[Record]:
    common = {
        "experiment": problem.experiment, "problem": problem.name, "op": problem.op, "m": problem.m, "k": problem.k,
        "n": problem.n, "sparsity": problem.sparsity, "source": problem.source, "policy": policy,
        "shape": problem.shape, "dtype": problem.dtype,
    }  # fmt: skip
    return [fake_records.timed(kernel, us, variant, limit_us=us, **common) for (kernel, variant), us in times.items()]


def convolution(problem) -> dict[tuple[str, str], float]:
    """Ours 100 us and in fp16 60; the paper's method three times as long, its padding 20 us; cuDNN 400, 150 and 30."""
    half = problem.dtype == "f16"
    ours = 60.0 if half else 100.0
    times = {
        ("direct_conv", OURS): ours,
        ("direct_conv", "paper_sbs2"): 4 * ours,
        ("direct_conv", METHOD): 3 * ours,
        ("direct_conv", "paper_counts_sbs2"): 2.5 * ours,
        ("direct_conv", "paper_sbs8"): 5 * ours,
        ("direct_conv", "paper_sbs1"): 2 * ours,
        ("direct_conv", "paper_whole"): 6 * ours,
        ("sparsert_conv", "r64"): 1.5 * ours,
    }
    if problem.conv.pad_w:
        times["direct_conv", PADDED] = 3 * ours + 20
    if half:
        return times | {("cudnn", "f16_nchw_plan01_eng1"): 45.0, ("cudnn", "f16_nhwc_plan00_eng2_default"): 30.0}
    return times | {
        ("cudnn", "f32_nchw_plan03_eng6_winograd"): 400.0,
        ("cudnn", "f32_nchw_plan00_eng7_default"): 500.0,
        ("cudnn", "f32_nhwc_plan00_eng7_default"): 600.0,
        ("cudnn", "tf32_nhwc_plan00_eng67_default"): 150.0,
    }


def records(experiment: str, policies=("hot",), real: bool | None = None) -> list[Record]:
    problems = tables.load(experiment, real)
    return select([row for p in policies for one in problems for row in rows_of(one, p, convolution(one))])


def write(tmp_path: Path, experiment: str, rows: list[Record]) -> Path:
    return fake_records.write(tmp_path / "nvidia-h200" / experiment, rows)


def page_of(tmp_path: Path, experiment: str) -> str:
    """The page with the tables that it had no room for."""
    page = fake_records.written(tmp_path / "nvidia-h200" / experiment)
    beside = page.with_name("summary.md")
    return page.read_text() + (beside.read_text() if beside.is_file() else "")


def line_of(page: str, start: str) -> list[str]:
    return [
        cell.strip() for cell in next(line for line in page.splitlines() if line.startswith(start)).split("|")[1:-1]
    ]


def test_table6_has_the_papers_columns_and_ours(tmp_path: Path) -> None:
    folder = write(tmp_path, "direct_conv_table6", records("direct_conv_table6", ("hot", "cold")))
    page = page_of(tmp_path, "direct_conv_table6")
    first = line_of(page, "| 64×224×224×64 | 90 % |")
    assert first[2:7] == ["0.100", "0.060", "0.400", "0.150", "0.030"]
    assert first[7:10] == ["4.00", "1.50", "0.50"]
    assert first[10:] == ["60.730", "27.080", "19.070", "31.820", "0.31", "1.18"]
    assert "4.00× as fast as cuDNN fp32 in geometric mean (8 of 8 faster)" in page
    assert "0.50× as fast as cuDNN fp16 in geometric mean (0 of 8 faster)" in page
    assert "slower than its TF32 one" not in page
    assert "columns `paper` are published (V100)" in page
    assert {"speedup.svg", "speedup_cold.svg", "summary.csv"} <= {p.name for p in folder.iterdir()}


def test_padding_and_layout_stand_in_columns_of_their_own(tmp_path: Path) -> None:
    write(tmp_path, "direct_conv_table6", records("direct_conv_table6"))
    page = page_of(tmp_path, "direct_conv_table6")
    stages = line_of(page, "| 512×14×14×512, 92 % | fp32 |")
    assert stages[2:] == [f"direct_conv `{OURS}`", "0.100", "0.300", "4", "0.250", "0.020", "none", "0.400", "0.600"]


def test_a_layer_without_padding_says_so(tmp_path: Path) -> None:
    write(tmp_path, "direct_conv_table7", records("direct_conv_table7"))
    page = page_of(tmp_path, "direct_conv_table7")
    assert line_of(page, "| 64×32×32×256, 90 % | fp16 |")[6:] == ["0.150", "none", "none", "0.045", "0.030"]
    assert "with its padding" not in page
    assert line_of(page, "| 64×56×56×256 | 90 % |")[10:] == ["–"] * 6
    assert line_of(page, "| 256×32×32×64 | 90 % |")[10:14] == ["0.310", "0.240", "0.370", "0.290"]


def test_table8_has_each_filter_at_each_level(tmp_path: Path) -> None:
    write(tmp_path, "direct_conv_table8", records("direct_conv_table8"))
    page = page_of(tmp_path, "direct_conv_table8")
    assert line_of(page, "| 2×1 | 87.5 % |")[10:] == ["0.102", "0.069", "0.192", "0.161", "1.88", "2.33"]
    assert line_of(page, "| 3×1 | 77 % |")[10:12] == ["0.236", "0.182"]


@pytest.mark.parametrize(("number", "expected"), [(6, 32), (7, 8), (8, 12)])
def test_every_published_time_has_its_layer(number: int, expected: int) -> None:
    table = Table.of(f"direct_conv_table{number}")
    layers = [layer for layer in find_layers(table) if layer.pattern == "equal_rows"]
    found = [published_ms(table, layer, dtype) for layer in layers for dtype in ("f32", "f16")]
    known = [time for one in found for time in one if time == time]
    assert len(known) == expected if number != 8 else len(known) == 2 * expected


def test_conv_gaps_are_named_together(tmp_path: Path) -> None:
    rows = [r for r in records("direct_conv_table8") if r.kernel != "cudnn" or r.dtype == "f16"]
    write(tmp_path, "direct_conv_table8", rows)
    page = page_of(tmp_path, "direct_conv_table8")
    assert (
        "No checked time of cuDNN fp32; cuDNN fp32 NCHW; cuDNN fp32 NHWC; cuDNN TF32 (hot) is recorded for any row."
        in page
    )


def test_a_page_says_where_cudnn_is_slower_in_fp16_than_in_tf32(tmp_path: Path) -> None:
    """Fast over such a rival is no fast fp16 kernel."""
    rows = [
        dataclasses.replace(r, median_us=300.0, q1_us=300.0, q3_us=300.0)
        if (r.kernel, r.dtype) == ("cudnn", "f16")
        else r
        for r in records("direct_conv_table6")
    ]
    write(tmp_path, "direct_conv_table6", rows)
    page = page_of(tmp_path, "direct_conv_table6")
    assert (
        "cuDNN's fastest fp16 plan is slower than its TF32 one here: it takes 2.00 times as long in geometric mean "
        "(slower on 8 of 8), and over its TF32 fp16 kernels are 2.50× as fast."
    ) in page


def test_empty_columns_of_a_type_have_their_reason(tmp_path: Path) -> None:
    """Table 8 has random positions in fp32 alone; tables 6 and 7 have both types of both."""
    write(tmp_path, "direct_conv_table8", records("direct_conv_table8"))
    page = page_of(tmp_path, "direct_conv_table8")
    assert (
        "- Random positions: the experiment has them in fp32 alone, so that measured columns of fp16 are empty" in page
    )
    assert "Nothing: every row has a checked time." not in page
    write(tmp_path, "direct_conv_table6", records("direct_conv_table6"))
    assert "the experiment has them in" not in page_of(tmp_path, "direct_conv_table6")


def test_variants_that_an_early_end_left_out_are_told_so(tmp_path: Path) -> None:
    rows = [r for r in records("direct_conv_table6") if r.dtype != "f16" or "counts" not in r.variant]
    folder = write(tmp_path, "direct_conv_table6", rows)
    fake_records.tuned(folder, lambda row: ("first",) if row.dtype == "f16" else ("all",))
    page = page_of(tmp_path, "direct_conv_table6")
    assert (
        "No checked time of the paper's method fp16 with a count per channel (hot) is recorded for any row: the run's "
        "time was over there after the first choices of `direct_conv`, before such variants." in page
    )


@pytest.mark.figures(kind="svg")
def test_conv_pages_are_drawn_twice_with_the_same_bytes(tmp_path: Path) -> None:
    folder = write(tmp_path, "direct_conv_table8", records("direct_conv_table8"))
    page_of(tmp_path, "direct_conv_table8")
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    page_of(tmp_path, "direct_conv_table8")
    assert first == {path.name: path.read_bytes() for path in folder.iterdir()}
