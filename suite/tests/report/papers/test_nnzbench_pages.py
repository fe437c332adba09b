"""Facts and tables of this project's own experiments on invented records with known answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import fake_records
import pandas as pd
import pytest
from sputnik_records import Timed, drawn, records, view_of

from nnzbench.data.problems import tables
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import Problem
from nnzbench.papers.catalogue import experiment, page_of
from nnzbench.papers.nnzbench import awkward_sizes, llm_layers, prune_or_quantise, spmm_scaling, training_step
from nnzbench.report import render
from nnzbench.report.page import View
from nnzbench.report.tables import markdown_of
from nnzbench.report.text import checks
from nnzbench.results.groups import Group
from nnzbench.results.result_set import load
from nnzbench.results.table import Comparison


def cost(picoseconds: float, launch_us: float = 0.0) -> Callable[[Problem], float | None]:
    """Microseconds at so much per nonzero and column, plus a launch."""
    return lambda p: launch_us + 1e-6 * picoseconds * round(0.1 * p.m * p.k) * p.n


# 104858 x 128 products at 0.1 ps take 1.3421824 us: as much again for the launch doubles the smallest cost
SCALING: tuple[Timed, ...] = (
    ("row_stream", "slow", cost(9.0)),
    ("row_stream", "fast", cost(0.1, launch_us=1.3421824)),
    ("ring", "n128", lambda p: cost({4096: 0.5, 16384: 0.6}.get(p.m, 0.55))(p)),
    ("cusparse", "csr_default_row", lambda p: cost(1.0)(p) if p.m == 1024 else None),
)


def test_the_rates_of_a_kernels_best_and_worst_size_are_those_of_its_costs(tmp_path: Path) -> None:
    rows = records("spmm_scaling", SCALING)
    cold = [dataclasses.replace(one, policy="cold", median_us=2 * (one.median_us or 0)) for one in rows]
    view, facts = drawn(tmp_path, "spmm_scaling", [*rows, *cold])
    assert facts["with 1024 columns", "ring", "best cuSPARSE fp32"] == pytest.approx(1 / 0.55, rel=1e-5)
    found = pd.DataFrame(spmm_scaling.spreads(view)).set_index(["columns", "kernel"])
    ring = found.loc[("128", "ring")]
    assert (ring["best at"], ring["worst at"]) == ("4096×4096×128", "16384×16384×128")
    assert (ring["best TFLOP/s"], ring["best over worst"]) == pytest.approx((2 / 0.5, 1.2), rel=1e-5)
    assert found.loc[("128", "row_stream"), "best over worst"] == pytest.approx(2.0, rel=2e-3)
    assert set(found.index.get_level_values("kernel")) == {"row_stream", "ring"}  # one size has no spread


def test_problems_of_one_label_are_told_apart_by_their_sizes(tmp_path: Path) -> None:
    view = view_of(tmp_path, "spmm_scaling", SCALING[:1])
    assert "square 1024×1024×128" in view.names().values()


def test_right_candidates_are_counted_by_kernel_operation_and_type(tmp_path: Path) -> None:
    rows = []
    for problem in ("column_33x70x1_70_uniform", "row_1x64x8_50_uniform"):
        told = {"experiment": "awkward_sizes", "problem": problem, "relative_error": 2e-7}
        rows += [fake_records.record(variant=variant, **told) for variant in ("a", "b")]
        rows.append(fake_records.failed(fake_records.record(kernel="ring", **told), "wrong", "relative error 2"))
        rows.append(fake_records.failed(fake_records.record(kernel="aspt", **told), "unsupported", "32 columns"))
    view, _ = drawn(tmp_path, "awkward_sizes", rows)
    counts = ["problems", "right", "failed", "unsupported"]
    found = checks(awkward_sizes.rows(view)).set_index(["kernel", "op", "inputs"])[counts].T
    assert found["sputnik", "spmm", "f32"].tolist() == [2, 4, 0, 0]
    assert found["ring", "spmm", "f32"].tolist() == [0, 0, 2, 0]
    assert found["aspt", "spmm", "f32"].tolist() == [0, 0, 0, 2]


def test_the_largest_error_is_of_right_candidates_and_problems_are_those_with_one() -> None:
    rows = [fake_records.record(problem=f"p{at}", relative_error=error) for at, error in enumerate((2e-7, 3e-6, 1e-7))]
    wrong = fake_records.failed(fake_records.record(problem="p9"), "wrong", "relative error 2")
    (found,) = checks([*rows, wrong]).to_dict("records")
    assert (found["problems"], found["right"], found["failed"]) == (3, 3, 1)
    assert found["largest_error"] == 3e-6


def part(step: str, us: float) -> Callable[[Problem], float | None]:
    """That time on the sparse problems of a part, halved at 90 % zeros."""

    def time(p: Problem) -> float | None:
        if not p.label.endswith(f"_{step}") or p.label.endswith("_dense_weights"):
            return None
        return us / 2 if p.sparsity == 0.9 else us

    return time


def dense(us: float) -> Callable[[Problem], float | None]:
    return lambda p: us if p.op == "spmm" or p.label.endswith("_dense_weights") else None


STEP: tuple[Timed, ...] = (
    ("sputnik", "heuristic_x", part("forward", 20.0)),
    ("sputnik", "y2", part("forward", 10.0)),
    ("sputnik_transposed", "heuristic_x", part("input", 14.0)),
    ("sputnik_sddmm", "heuristic_x", part("weights", 12.0)),
    ("ring_sddmm", "n128", part("weights", 6.0)),
    ("cusparse", "csr_default_row", lambda p: 60.0 if p.op in ("spmm", "sddmm") else None),
    ("cublas", "f32_rowmajor", dense(20.0)),
    ("cublas", "tf32_rowmajor", dense(5.0)),
)
STEPS_COMPARED = Comparison((training_step.FASTEST,), (training_step.DENSE,), training_step.STEPS)
BEST, SPUTNIK, DENSE = (one.label for one in (training_step.FASTEST, training_step.SPUTNIK, training_step.DENSE))


def test_a_step_is_the_sum_of_the_fastest_of_each_part(tmp_path: Path) -> None:
    view, facts = drawn(tmp_path, "training_step", STEP)
    found = {level: facts[f"whole steps at {level} % zeros", BEST, DENSE] for level in (70, 90)}
    assert found == pytest.approx({70: 60 / 30, 90: 60 / 15})
    assert facts["whole steps at 90 % zeros", BEST, "best dense TF32"] == pytest.approx(1.0)
    assert facts["whole steps at 70 % zeros", BEST, "best cuSPARSE fp32"] == pytest.approx(180 / 30)
    assert facts["whole steps at 70 % zeros", SPUTNIK, DENSE] == pytest.approx(60 / 36, rel=1e-5)
    assert facts["gradient of the weights at 90 % zeros", BEST, DENSE] == pytest.approx(20 / 3, rel=1e-5)
    assert not any(map(view.counted, training_step.STEPS))  # the weights' dense gradient has no zeros, and no level


def test_each_kernel_runs_the_part_that_it_is_for() -> None:
    one = experiment("training_step")
    parts = {name: [p.label for p in one.problems() if one.takes(name, p)] for name in ("sputnik", "cublas")}
    assert len(parts["cublas"]) == 100
    assert {label.rpartition("_")[2] for label in parts["sputnik"]} == {"forward"}


def test_the_input_gradient_has_the_transpose_of_the_layers_own_weights() -> None:
    forward, backward = (
        next(p for p in tables.load("training_step") if p.label == f"lstm1k_b32_{step}" and p.sparsity == 0.9)
        for step in ("forward", "input")
    )
    assert (backward.m, backward.k) == (forward.k, forward.m)
    one, other = make_operands(forward).sparse, make_operands(backward).sparse
    assert (other.to_dense() == one.to_dense().T).all()


def test_a_sparse_layer_is_beside_the_same_layer_in_every_arithmetic(tmp_path: Path) -> None:
    rows = records(
        "llm_layers",
        (
            ("tensor_spmm", "n16", lambda p: 10.0 if p.source.startswith("uniform") and p.dtype == "f16" else None),
            ("cublaslt", "f8_rowmajor", lambda p: 15.0 if p.dtype == "f8" else None),
            ("cusparselt", "i8_colmajor", lambda p: 5.0 if p.dtype == "i8" else None),
        ),
    )
    _, facts = drawn(tmp_path, "llm_layers", rows)
    group = llm_layers.against_all(90, 16).label
    assert facts[group, "best sparse kernel fp16", "best dense FP8"] == pytest.approx(1.5)
    assert facts[group, "best sparse kernel fp16", "cuSPARSELt INT8"] == pytest.approx(0.5)


def test_flash_llms_own_layers_are_compared_by_level(tmp_path: Path) -> None:
    rows = records(
        "opt_layers",
        (
            ("flash_llm", "split7", lambda p: 10.0 * (1.5 if p.sparsity == 0.7 else 1.0)),
            ("cublas", "f16_rowmajor", lambda _: 15.0),
            ("sputnik", "heuristic", lambda _: 30.0),
            ("tensor_spmm", "n8", lambda p: 5.0 if p.n == 8 else None),
        ),
    )
    view, facts = drawn(tmp_path, "opt_layers", rows)
    assert [
        facts[Group(level=level).label, "Flash-LLM fp16", "best dense fp16"] for level in (70, 90)
    ] == pytest.approx([1.0, 1.5])
    assert facts[Group(level=90).label, "Flash-LLM fp16", "sputnik fp16"] == pytest.approx(3.0)
    said = [*render.answers(page_of("opt_layers"), view)]
    assert said[0].startswith("About even: at 70 % zeros, Flash-LLM fp16 is **1.00×** as fast as best dense fp16")
    assert said[2].startswith("Faster: at 90 % zeros, ")
    assert said[2].endswith(", 1.50× over cuBLAS fp16; the paper: 2.1× on A100.")
    assert all(len(one.split()) <= render.WORDS for one in said)
    note = "† marks a ratio that tuning could turn round."
    assert note not in (tmp_path / "README.md").read_text(encoding="utf-8")
    fake_records.tuned(tmp_path, lambda row: ["first"] if row.kernel == "flash_llm" else ["all"])
    render.write(page_of("opt_layers"), load(tmp_path))
    assert note in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_macko_is_compared_by_level_and_beside_what_its_authors_print(tmp_path: Path) -> None:
    rows = records(
        "macko_spmv",
        (
            ("macko", "rows", lambda p: 40.0 * (1 - p.sparsity)),
            ("delta_spmv", "l32", lambda p: 20.0 * (1 - p.sparsity)),
            ("cublas", "f16_rowmajor", lambda _: 16.0),
        ),
    )
    view, facts = drawn(tmp_path, "macko_spmv", rows)
    found = [facts[Group(level=level).label, "MACKO fp16", "best dense fp16"] for level in (50, 90)]
    assert found == pytest.approx([0.8, 4.0])
    assert [*render.answers(page_of("macko_spmv"), view)][2].endswith(
        "; the paper: 3.5× on RTX 2080 Super, 3090 and 4090."
    )
    printed = llm_layers._macko_authors(view).set_index("GPU")
    assert printed["50 % zeros"].to_dict() == pytest.approx(
        {"RTX 2080 Super": 1.48, "RTX 3090": 1.48, "RTX 4090": 1.35}, abs=5e-3
    )


def test_a_mark_tells_what_tuning_gained_where_it_was_done(tmp_path: Path) -> None:
    rows = records(
        "opt_layers",
        (
            ("flash_llm", "split7", lambda _: 10.0),
            ("cublas", "f16_default", lambda _: 20.0),
            ("cublas", "f16_colmajor", lambda p: {8: 10.0, 16: 5.0}.get(p.n)),
        ),
    )
    few = {n: len({one.problem for one in rows if one.n == n}) for n in (8, 16)}
    assert few[8] == few[16]
    fake_records.write(tmp_path, rows)
    fake_records.tuned(tmp_path, lambda row: ["all" if row.n < 32 else "first"])
    chosen = {"cublas": "f16_default", "flash_llm": "split7"}
    header, *lines = (tmp_path / "tuning.csv").read_text(encoding="utf-8").splitlines()
    named = [f"{header},untuned", *(f"{line},{chosen[line.split(',')[2]]}" for line in lines), ""]
    (tmp_path / "tuning.csv").write_text("\n".join(named), encoding="utf-8")
    results = load(tmp_path)
    said = render.gains(results.frame)
    assert said == f"cuBLAS fp16 {8**0.5:.2f}× ({2 * few[8]})"  # 2 and 4 times; the other none
    render.write(page_of("opt_layers"), results)
    told = f"tuning could turn round. Where it was done, tuning gained (on so many problems): {said}.\n\n"
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert told in page
    assert render.gains(results.frame.assign(cut_short="")) == ""


def test_rounding_operands_costs_more_the_fewer_bits_are_left() -> None:
    found = llm_layers.rounding_errors()
    assert 0 < found["f16"] < found["bf16"] < found["i8"] < found["f8"] < 0.1
    assert found["bf16"] == pytest.approx(8 * found["f16"], rel=0.05), "three bits fewer"


def test_int4_weights_take_their_bytes_over_the_copys_bandwidth(tmp_path: Path) -> None:
    times: tuple[Timed, ...] = (("tensor_spmm", "n16", lambda p: 10.0 if p.dtype == "f16" else None),)
    rows = [dataclasses.replace(one, policy="stream") for one in records("llm_layers", times, keep=lambda p: p.n < 32)]
    results = load(fake_records.write(tmp_path, rows, {"peaks": {"copy_gbs": 4000.0}}))
    found = llm_layers._int4_floor(View(results, page_of("llm_layers").attributes))
    layer = found[(found["layer"] == "llama_70b_qo") & (found["columns"] == "16")]
    bytes_moved = (0.5 + 2 / 128) * 8192 * 8192 + 2 * 16 * (8192 + 8192)
    assert layer["INT4 by its bytes alone"].item() == pytest.approx(bytes_moved / 4000e9 * 1e6)
    assert layer["best sparse kernel fp16"].item() == 10.0


def test_who_wins_has_codes_of_other_sessions_beside_this_runs_streamed_times(tmp_path):
    """Of a code the newer session: Marlin took 17.3 us for one column of 8192x8192 on an H200, and before 17.0."""
    timed = (
        ("cublaslt", "f16_tn_algo00_unpruned", lambda p: 33.0 if p.dtype == "f16" else None),
        ("delta_spmv", "l32_b2", lambda p: 32.5 * (1 - p.sparsity) * p.n if p.n == 1 and p.dtype == "f16" else None),
        ("tensor_spmm", "n16", lambda p: 34.0 if p.n > 1 and p.dtype == "f16" else None),
    )
    rows = [dataclasses.replace(row, policy="stream") for row in records("prune_or_quantise", timed)]
    view = view_of(tmp_path / "nvidia-h200" / "prune_or_quantise", "prune_or_quantise", rows)
    found = prune_or_quantise._who_wins(view).set_index(["columns", "% zeros"])
    fastest = found["fastest, and within 5 %"]
    assert fastest[1, 50] == "Sparse-Marlin (another session)"
    assert set(found["Marlin (another session)"][1]) == {17.3318}
    assert fastest[1, 90] == "best sparse fp16"
    assert fastest[16, 80] == "Marlin (another session)"
    assert fastest[256, 90] == "best dense fp16, best sparse fp16"
    assert found.loc[(1, 90), "MACKO (another session)"] == 15.47
    assert found["MACKO (another session)"].notna().sum() == 4


def test_whole_blocks_stand_beside_zeros_anywhere_and_not_among_them(tmp_path):
    def csr(p):
        return 600.0 if "_blocks" in p.label else 60.0

    timed = (
        ("cublaslt", "f16_tn_algo00_unpruned", lambda p: 30.0),
        ("pytorch", "f16_csr", csr),
        ("pytorch", "f16_bsr16", lambda p: 20.0 if "_blocks" in p.label else None),
        ("pytorch", "f16_bsr64", lambda p: 10.0 * p.n if "_blocks" in p.label else None),
    )
    rows = [dataclasses.replace(row, policy="stream") for row in records("prune_or_quantise", timed)]
    view = view_of(tmp_path / "nvidia-h200" / "prune_or_quantise", "prune_or_quantise", rows)
    assert set(prune_or_quantise._who_wins(view)["PyTorch fp16, CSR"]) == {60.0}
    (shown,) = (one for one in prune_or_quantise.prune_or_quantise().tables if "Whole blocks" in one.title)
    cells = [line.split(" | ") for line in markdown_of(shown, view).splitlines() if "_blocks" in line]
    assert len(cells) == 3 * 2 * 3  # layouts, layers, levels
    of_one = {tuple(one[:1] + one[3:]) for one in cells if one[1] == "llama_70b_qo_blocks"}
    assert of_one == {
        ("| PyTorch fp16, BSR 16×16", "1.50", "1.50", "1.50 |"),
        ("| PyTorch fp16, BSR 64×64", "3.00", "0.19", "0.01 |"),
        ("| PyTorch fp16, CSR", "0.05", "0.05", "0.05 |"),
    }
