"""Where one page shows several operations or types, marks and notes are of what each figure and table shows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import fake_records
import pytest
from matplotlib.figure import Figure
from sputnik_records import Timed, records, sddmm, spmm

from nnzbench.problems import tables
from nnzbench.problems.problem import Problem
from nnzbench.records.record import Record
from nnzbench.records.selection import select
from nnzbench.facts.results import load
from nnzbench.report.text.pages import Page

RNN: tuple[Timed, ...] = (
    ("sputnik", "y2_x64", spmm(lambda p: 10.0)),
    ("cusparse", "csr_alg2_row", spmm(lambda p: 40.0)),
    ("sputnik_sddmm", "s16", sddmm(lambda p: 10.0)),
    ("cusparse", "sddmm_default_col", sddmm(lambda p: 5.0)),
    ("cusparse", "sddmm_alg2_col", sddmm(lambda p: 4.0)),
)
HALF: tuple[Timed, ...] = (("cublas", "f16_rowmajor", spmm(lambda p: 5.0)), ("ring", "n32", spmm(lambda p: 8.0)))
Cut = Callable[[Record], bool]


def page_of(folder: Path, rows: Sequence[Record], cut: Cut = lambda _: False, workers: Sequence[str] = "x") -> Page:
    """The page of these rows; `cut` were not tuned; `workers` are the GPUs of the environments in their order."""
    fake_records.write(folder, rows)
    for at, worker in enumerate(workers, 1):
        path = folder / ("environment.json" if at == 1 else f"environment-{at}.json")
        path.write_text(json.dumps({"source": {"commit": "1"}, "worker": worker}), encoding="utf-8")
    fake_records.tuned(folder, lambda row: ("first",) if cut(row) else ("all",))
    page, _ = fake_records.drawn(load(folder))
    return page


def legend_of(figure: Figure) -> set[str]:
    return {text.get_text() for legend in figure.legends for text in legend.get_texts()}


def gru(problem: Problem) -> bool:
    return "gru2k" in problem.label


def test_what_was_tuned_for_one_operation_has_no_mark_there(tmp_path: Path, figures: dict[str, Figure]) -> None:
    rows = records("sputnik_rnn", RNN, keep=gru)
    page = page_of(tmp_path / "r", rows, lambda row: (row.op, row.kernel) == ("sddmm", "cusparse"))
    forward, backward = ("\n".join(section.tables) for section in page.sections)
    assert "†" not in forward + "".join(legend_of(figures["spmm"]))
    assert "cuSPARSE, best† |" in backward
    assert "cuSPARSE, default†" not in backward
    assert "1× = cuSPARSE, best†" in legend_of(figures["sddmm"])
    assert [section.marked for section in page.sections] == [False, True]


def test_a_table_of_one_level_is_marked_by_its_own_problems(tmp_path: Path, figures: dict[str, Figure]) -> None:
    rows = records("sputnik_rnn", RNN, keep=gru)
    page = page_of(tmp_path / "r", rows, lambda row: row.kernel == "sputnik" and row.sparsity == 0.8)
    marked = {
        table.partition(":")[0]: "| sputnik† |" in table for table in page.sections[0].tables if "% zeros:\n" in table
    }
    assert marked == {"70 % zeros": False, "80 % zeros": True, "90 % zeros": False}


def test_figures_of_one_type_do_not_count_the_gpus_of_another(tmp_path: Path, figures: dict[str, Figure]) -> None:
    """SDDMM of one level mixes GPUs in fp32, SpMM only if its fp16 rows are counted too."""
    rows = records("sputnik_rnn", RNN, keep=gru) + records("sputnik_rnn", HALF, dtype="f16", keep=gru)
    other = {("spmm", "f16", kernel) for kernel in ("cublas", "ring")} | {("sddmm", "f32", "cusparse")}
    rows = [
        dataclasses.replace(row, environment="environment-2.json")
        if (row.op, row.dtype, row.kernel) in other and (row.op == "spmm" or row.sparsity == 0.7)
        else row
        for row in rows
    ]
    forward, backward = page_of(tmp_path / "r", rows, workers=("x", "y")).sections
    assert forward.note == ""
    assert backward.note.startswith("On 2 of 6 problems the rows compared here are of several GPUs")


def test_notes_on_quartiles_name_what_the_figure_shows(tmp_path: Path, figures: dict[str, Figure]) -> None:
    rows = [
        dataclasses.replace(row, q3_us=2 * row.q1_us) if (row.op, row.kernel) == ("spmm", "sputnik") else row
        for row in records("sputnik_rnn", RNN, keep=gru)
    ]
    forward, backward = page_of(tmp_path / "r", rows).sections
    assert "more than 1.1× the first: sputnik on 2k: 6144×2048×32" in forward.note
    assert backward.note == ""


DLMC: tuple[Timed, ...] = (
    ("sputnik", "y2_x64", spmm(lambda p: 10.0)),
    ("cusparse", "csr_alg2_row", spmm(lambda p: 40.0)),
    ("cublas", "rowmajor", spmm(lambda p: 20.0)),
    ("sputnik_sddmm", "s16", sddmm(lambda p: 10.0)),
    ("cusparse", "sddmm_default_col", sddmm(lambda p: 5.0)),
)


def first(problem: Problem) -> bool:
    return problem.source.partition(":")[2] == next(e.path for e in tables.dlmc_sample() if e.model == "rn50")


def test_the_collection_is_marked_kind_by_kind(tmp_path: Path, figures: dict[str, Figure]) -> None:
    rows = records("sputnik_dlmc", DLMC, keep=first)
    page = page_of(tmp_path / "r", rows, lambda row: row.kernel == "sputnik" and row.dtype == "f32")
    table1, forward, backward, half, classes = page.sections[0].tables
    assert "| SpMM, fp32: best† | SpMM, fp32: sputnik† | the paper, V100 | SDDMM, fp32: best |" in table1
    assert table1.count("†") == 2
    assert "| sputnik, best tile† | cuSPARSE, best |" in forward
    assert "†" not in backward + half
    lines = {line.partition(" |")[0]: line for line in classes.splitlines() if line.startswith("| S")}
    assert {name: "×**† (" in line for name, line in lines.items()} == {
        "| SpMM, fp32": True, "| SDDMM, fp32": False, "| SpMM, fp16 data and fp32 sums": False
    }  # fmt: skip
    legend = legend_of(figures["collection"])
    assert {"Sputnik's kernel, best tile†", "cuBLAS, in the type of the data", "cuSPARSE, best"} <= legend


def test_its_legend_marks_the_dense_products_too(tmp_path: Path, figures: dict[str, Figure]) -> None:
    page_of(tmp_path / "r", records("sputnik_dlmc", DLMC, keep=first), lambda row: row.kernel == "cublas")
    assert "cuBLAS, in the type of the data†" in legend_of(figures["collection"])
    assert "Sputnik's kernel, best tile" in legend_of(figures["collection"])


def test_a_whole_step_is_of_the_gpus_of_its_parts(tmp_path: Path, figures: dict[str, Figure]) -> None:
    """Each problem is of one GPU, and every step at 90 % zeros adds problems of two."""

    def us(problem: Problem) -> float | None:
        return 10.0 if problem.op == "spmm" else None

    timed: tuple[Timed, ...] = (
        ("sputnik", "y2", lambda p: us(p) if p.label.endswith("forward") else None),
        ("sputnik_transposed", "y2", lambda p: us(p) if p.label.endswith("input") else None),
        ("sputnik_sddmm", "y2", lambda p: 10.0 if p.op == "sddmm" else None),
        ("cublas", "f32_rowmajor", lambda p: 20.0 if p.op != "sddmm" else None),
    )
    rows = [
        dataclasses.replace(row, environment="environment-2.json")
        if row.sparsity == 0.9 and "_forward_" in row.problem
        else row
        for row in records("training_step", timed)
    ]
    (section,) = page_of(tmp_path / "r", rows, workers=("x", "y")).sections
    assert section.note == "On 10 of 30 steps the rows compared here are of several GPUs ([sessions](#sessions))."


def convolutions(problem: Problem, math: str) -> dict[tuple[str, str], float]:
    """A time of each of the figure's curves, and both of cuDNN's layouts."""
    paper = {("direct_conv", f"paper_sbs{images}"): 300.0 + images for images in (2, 4, 8)}
    ours = {("direct_conv", "staged_r86_1x4x32_c32_b4"): 100.0}
    return paper | ours | {("cudnn", f"{math}_{form}_plan01_eng1"): 400.0 for form in ("nchw", "nhwc")}


@pytest.mark.parametrize(
    ("variants", "cut", "uncut"),
    [
        ("paper", "the paper's method, padded input given", "best of this project's kernels"),
        ("staged", "best of this project's kernels", "the paper's method, padded input given"),
    ],
)
def test_legend_and_table_of_direct_convolution_mark_the_same_names(
    tmp_path: Path, figures: dict[str, Figure], variants: str, cut: str, uncut: str
) -> None:
    """Of a layer the run had time for one mapping's first choice alone, which is all that it recorded of it."""
    rows = [
        fake_records.timed(
            kernel, us, variant, experiment=p.experiment, problem=p.name, op=p.op, m=p.m, k=p.k, n=p.n,
            sparsity=p.sparsity, source=p.source, shape=p.shape, dtype=p.dtype,
        )
        for p in tables.load("direct_conv_table6", None)
        for (kernel, variant), us in convolutions(p, p.dtype).items()
    ]  # fmt: skip
    layer = next(row.problem for row in rows if "_equal" in row.problem and row.dtype == "f32")
    rows = [
        row
        for row in rows
        if row.problem != layer
        or row.kernel == "cudnn"
        or (row.variant.startswith(variants) and "sbs4" not in row.variant)
    ]
    selected = select(rows)
    page = page_of(tmp_path / "r", selected, lambda row: (row.problem, row.kernel) == (layer, "direct_conv"))
    legend = legend_of(figures["speedup"])
    assert f"{cut}†" in legend
    assert uncut in legend
    equal, stages, uniform, others = page.sections[0].tables
    paper = "| the paper's method, padded input given"
    assert (f"{paper}† |" in stages, f"{paper}† |" in others) == (variants == "paper", False)
    assert ("| ours fp32† |" in equal, "| ours fp32† |" in uniform) == (variants == "staged", False)
    assert "ours fp16†" not in equal
