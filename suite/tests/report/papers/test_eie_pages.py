"""Facts of EIE's and ESE's pages on invented records with known answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sputnik_records import Timed, drawn, records

from nnzbench.data.problems import tables
from nnzbench.data.problems.problem import Problem
from nnzbench.papers import eie
from nnzbench.report import published


def at(us: float, keep: Callable[[Problem], bool] = lambda _: True) -> Callable[[Problem], float | None]:
    return lambda problem: us if keep(problem) else None


def test_each_batch_of_eies_layers_is_a_group(tmp_path: Path) -> None:
    timed: tuple[Timed, ...] = (
        ("cublas", "f32_rowmajor", at(64.0)),
        ("cusparse", "spmv_csr_default", at(48.0, lambda p: p.n == 1)),
        ("cusparse", "spmv_coo_alg1", at(32.0, lambda p: p.n == 1)),
        ("cusparse", "csr_alg1_row", at(128.0, lambda p: p.n == 64)),
        ("row_stream", "w8", at(8.0, lambda p: p.n == 64)),
    )
    _, facts = drawn(tmp_path, "eie_table4", timed)
    one, many = (f"layers at batch {batch}" for batch in (1, 64))
    assert facts[one, "best cuSPARSE fp32", "cuBLAS fp32"] == pytest.approx(2.0)
    assert facts[one, "cuSPARSE's column-major default fp32", "cuBLAS fp32"] == pytest.approx(64 / 48, rel=1e-5)
    assert facts[many, "best cuSPARSE fp32", "cuBLAS fp32"] == pytest.approx(0.5)
    assert facts[many, "best of ours", "cuBLAS fp32"] == pytest.approx(8.0)
    assert (one, "best of ours", "cuBLAS fp32") not in facts.index


def test_published_batch_times_are_per_image() -> None:
    """Of a whole batch they would need many times what the GPU computes."""
    paper = published.read("eie_table4_us", ("time_us",)).query(
        "platform == 'GPU' and batch == 64 and matrix == 'dense'"
    )
    (us,) = paper[paper["layer"] == "alexnet_fc6"]["time_us"]
    (one,) = (p for p in tables.load("eie_table4") if p.label == "alexnet_fc6_b64")
    assert 2e-6 * one.m * one.k * one.n / us > 10 * 6.6  # peak of a Titan X


def test_the_papers_ratio_stands_at_its_layer_and_batch() -> None:
    found = eie._printed_table4(None).set_index(["layer", "batch"])["value"]  # type: ignore[arg-type]
    assert found["alexnet_fc6", 1] == pytest.approx(541.5 / 134.8)
    assert found["alexnet_fc6", 64] == pytest.approx(19.8 / 94.6)
    assert len(found) == 18


def test_a_step_of_eses_lstm_is_the_sum_of_both_products(tmp_path: Path) -> None:
    timed: tuple[Timed, ...] = (
        ("cublas", "f32_rowmajor", lambda p: 8.0 if p.label.startswith("gates") else 2.0),
        ("cusparse", "csr_alg1", lambda p: 4.0 if p.label.startswith("gates") else 6.0),
        ("sputnik", "x32", lambda p: None if p.n == 1 else 7.0 if p.label.startswith("gates") else 1.0),
        ("row_stream", "w8", at(1.0, lambda p: p.label == "gates_b32")),
    )
    _, facts = drawn(tmp_path, "ese_lstm", timed)
    many, one = (f"both products of a step at batch {batch} (total)" for batch in (32, 1))
    assert facts[many, "best cuSPARSE fp32", "cuBLAS fp32"] == pytest.approx(1.0)
    assert facts[many, "sputnik", "cuBLAS fp32"] == pytest.approx(1.25)
    assert facts[many, "best sparse fp32", "cuBLAS fp32"] == pytest.approx(5.0)  # each product in its fastest kernel
    assert facts[one, "best sparse fp32", "cuBLAS fp32"] == pytest.approx(1.0)
    assert (many, "best of ours", "cuBLAS fp32") not in facts.index  # the projection is not recorded


def test_eies_format_stands_beside_kernels_of_either_arithmetic_on_the_same_matrix(tmp_path: Path) -> None:
    def twin(problem: Problem) -> bool:
        return problem.source.startswith("codebook_balanced")

    half: tuple[Timed, ...] = (
        ("cublas", "f16_rowmajor", at(40.0)),
        ("cusparse", "spmv_csr_alg1", at(24.0)),
        ("balanced", "bulk_w16_f16", at(12.0, twin)),
        ("eie", "l32_w32x1_f16", lambda p: 8.0 if p.label.startswith("nt") or twin(p) else 4.0),
    )
    full: tuple[Timed, ...] = (
        ("cusparse", "spmv_csr_alg2", at(16.0)),
        ("eie", "l32_w32x1", at(5.0, lambda p: not twin(p))),
    )
    rows = records("eie_format", half, "f16") + records("eie_format", full, "f32")
    _, facts = drawn(tmp_path, "eie_format", rows)
    either, others = "EIE's format, fp32 or fp16", "best other sparse kernel, fp32 or fp16"
    mean = (16 / 4) ** (6 / 9) * (16 / 5) ** (3 / 9)
    assert facts["layers at batch 1", either, others] == pytest.approx(mean, rel=1e-5)
    assert facts["layers of over 3 million nonzeros at batch 1", either, others] == pytest.approx(4.0)
    assert facts["balanced twins of the layers at batch 1", "EIE's format fp16", "balanced, fp32 or fp16"] == 1.5
    assert facts["layers at batch 8", "EIE's format fp16", "best dense fp16"] == pytest.approx(
        10 ** (6 / 9) * 5 ** (3 / 9), rel=1e-5
    )


def test_an_entry_of_eies_format_takes_a_byte_and_breaks_of_long_runs_more() -> None:
    assert [round(eie.expected_bytes(zeros), 2) for zeros in (0.91, 0.75, 0.96)] == [1.28, 1.01, 2.09]


def test_skipped_inputs_and_evenly_pruned_matrices(tmp_path: Path) -> None:
    timed: tuple[Timed, ...] = (
        ("eie", "l32", lambda _: 6.0),
        (
            "eie_columns",
            "s256",
            lambda p: 3.0 if p.label.startswith(("alexnet", "vgg")) and "a100" not in p.label else 12.0,
        ),
    )
    _, facts = drawn(tmp_path / "one", "eie_activations", timed)
    skipped, full = eie.SKIPPED.label, eie.FULL.label
    assert facts[skipped, eie.COLUMNS.label, eie.READ.label] == pytest.approx(2.0)
    assert facts[full, eie.COLUMNS.label, eie.READ.label] == pytest.approx(0.5)
    assert "depth 8" in eie._queues("eie_activations", None)
    timed = (("cusparse", "csr_alg1", lambda p: {"whole": 6.0, "balanced": 3.0}.get(p.label.partition("_")[0], 1.0)),)
    _, facts = drawn(tmp_path / "two", "ese_lstm", timed)
    whole = f"{eie.SPARSE.label} on the latter"
    assert facts[eie.PRUNED[0].label, eie.SPARSE.label, whole] == pytest.approx(2.0)
