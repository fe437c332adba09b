"""The pages of 2:4 sparsity and of granularities on records with known answers."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from pathlib import Path

import fake_records
import pytest
from matplotlib.figure import Figure

from nnzbench.facts.results import load
from nnzbench.papers import han_lecture
from nnzbench.papers.han_lecture import granularity
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


@pytest.mark.figures(kind="svg")
def test_both_pages_are_drawn_twice_with_the_same_bytes(tmp_path: Path) -> None:
    for experiment, times in (("granularity", grains),):
        _, folder = page_of(tmp_path, experiment, records(experiment, times))
        first = {path.name: path.read_bytes() for path in folder.iterdir()}
        page_of(tmp_path, experiment, [])
        assert first == {path.name: path.read_bytes() for path in folder.iterdir()}


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
    (experiment,) = (one for one in han_lecture.EXPERIMENTS if one.name == "granularity")
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
