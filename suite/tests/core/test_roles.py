"""Whose a kernel is decides what it counts for: nothing but its own word moves a cell, a headline or a limit."""

import dataclasses
import re

import fake_records
import numpy as np
import pytest
from draft_figures import figures_in_draft  # noqa: F401
from fake_records import select, to_frame
from fakes import FakeKernel

from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels import registry as kernel
from nnzbench.kernels.registry import OURS, RETIRED, About, about, kernels, known, register, role_of
from nnzbench.report.draw import style
from nnzbench.results.data import Data
from nnzbench.results.records.record import append
from nnzbench.results.result_set import load
from nnzbench.results.roofline import dense_work, row_work
from nnzbench.results.selector import CUBLAS, kernels_in, own, written_here
from nnzbench.results.table import Comparison, compare
from nnzbench.site.generations import comparison as generations
from nnzbench.site.index import headlines

LIBRARY = About("library", "MadeLib", frozenset({"f32", "tf32", "f16"}), "dense")


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    monkeypatch.setattr(kernel, "_registry", kernels())  # copies: what a test registers stays in them
    monkeypatch.setattr(kernel, "_about", dict(kernel._about))


def ten_times_cublas(name):
    """Rows that are ten times as fast as each of cuBLAS's."""
    out = []
    for row in fake_records.table1(policies=("hot",)):
        if row.kernel == "cublas" and row.median_us:
            fast = row.median_us / 10
            out.append(dataclasses.replace(row, kernel=name, median_us=fast, q1_us=fast, q3_us=fast))
    return out


def recorded(folder, more):
    folder = folder / "reports" / "nvidia-h200" / "sparsert_table1"
    append(folder / "records.csv", select([*fake_records.table1(policies=("hot",)), *more]))
    return load(folder)


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """Cells and headline of the rows alone."""
    results = recorded(tmp_path_factory.mktemp("without"), [])
    return best_cells(results), headline(results)


def headline(results):
    """README's, which has a line on these records."""
    text = headlines.headline(results.folder.parent)
    assert len(re.findall(r"\d× ?\(", text.replace("*", ""))) == 2
    return text


def best_cells(results):
    """Every ratio of the best of ours over cuBLAS, problem by problem, and the cells of the generations."""
    facts = compare(Data(results), Comparison((written_here(), own()), (CUBLAS,), by=("stem",)))
    out = list(facts[["group", "subject", "policy", "ratio"]].itertuples(index=False, name=None))
    across = generations.tabulate([results])
    marked = across[across["kind"].eq("measured") & across["role"].ne("")]
    columns = ["problem", "policy", "kernel", "time_us", "baseline", "role"]
    return out + list(marked[columns].itertuples(index=False, name=None))


def test_a_new_dense_library_moves_no_best_cell_and_no_headline(tmp_path, without):
    register(FakeKernel("madelib"), LIBRARY)
    beside = recorded(tmp_path, ten_times_cublas("madelib"))
    assert (best_cells(beside), headline(beside)) == without
    assert set(beside.frame.loc[beside.frame["kernel"] == "madelib", "role"]) == {"library"}
    assert "MadeLib" in [one.label for one in kernels_in(beside.frame)]


def test_external_kernels_are_drawn_and_take_no_best_cell(tmp_path, without):
    said = {"silent": None, "guest": About("guest"), "external": About("external")}
    for name, about_it in said.items():
        register(FakeKernel(name), about_it)
    beside = recorded(tmp_path, [row for name in said for row in ten_times_cublas(name)])
    assert best_cells(beside) == without[0]
    assert set(said) <= {one.label for one in kernels_in(beside.frame)}


@pytest.mark.parametrize("role", sorted(OURS))
def test_the_same_rows_of_a_kernel_of_ours_do_take_them(tmp_path, without, role):
    register(FakeKernel("mine"), About(role))
    beside = recorded(tmp_path, ten_times_cublas("mine"))
    assert best_cells(beside) != without[0]
    if role == "paper":  # which is no kernel of this project
        assert headline(beside) == without[1]


def test_a_dense_library_is_bounded_by_the_dense_product():
    dense = np.ones((64, 256), np.float32)
    problem = Problem("sparsert_table1", "p", "spmm", 64, 256, 8, 0.5, "uniform:0")
    operands = Operands(CSR.from_dense(np.triu(dense)), {"b": np.zeros((256, 8), np.float32)}, "")
    sparse = row_work("madelib", problem, operands)
    register(FakeKernel("madelib"), LIBRARY)
    assert row_work("madelib", problem, operands) == dense_work(problem, operands)
    assert sparse.flops < dense_work(problem, operands).flops


@pytest.mark.parametrize(
    ("name", "role", "variants"),
    [
        ("balanced", "paper", ("paper", "paper_w8")),
        ("balanced", "own", ("async2_w16x1_c4_r1_g16", "")),
        ("direct_conv", "paper", ("paper_sbs4_padding_timed", "paper_whole")),
        ("direct_conv", "own", ("staged_r12_1x7x7_c8_b1_grouped_l4",)),
        ("sparsert", "own", ("r8_g4_s2_w2_d32",)),
        ("sparsert_paper", "paper", ("mb128_nb1_gy1",)),
        ("sputnik", "paper", ("heuristic_y16_x8_w2_v4",)),
        ("cublas", "library", ("f32_rowmajor",)),
        ("panel", "own", ("m128_n128_k128_w16_v4_s3",)),
        ("nobody_knows_it", "external", ("v",)),
    ],
)
def test_every_row_belongs_to_one_role(name, role, variants):
    assert {role_of(name, variant) for variant in variants} == {role}
    rows = to_frame([fake_records.record(kernel=name, variant=variant) for variant in variants])
    assert set(rows["role"]) == {role}


def test_every_kernel_of_the_package_says_whose_it_is():
    for name, said in known().items():
        assert said.role != "external", name
        assert said.maths, name


def test_looks_are_of_kernels_that_there_are_in_colours_of_the_palette():
    assert set(style.LOOKS) <= set(known())
    assert {one.colour for one in style.LOOKS.values()} <= {*style.PALETTE, style.INK}


def test_a_retired_name_is_known_but_can_not_be_taken():
    for name in RETIRED:
        assert name not in kernels()
        assert about(name).role in OURS
        with pytest.raises(ValueError, match="retired"):
            register(FakeKernel(name))
