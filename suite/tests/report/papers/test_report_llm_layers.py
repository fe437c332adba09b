"""The page of `llm_layers` from invented records with known answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fake_records
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sputnik_records import Timed, apart, records

from nnzbench.facts.results import load
from nnzbench.kernels.tensor.work import words_per_weight
from nnzbench.papers.own import llm_data, llm_layers, llm_limits
from nnzbench.problems.problem import Problem
from nnzbench.records.record import Record
from nnzbench.report.page_spec import assemble

EXPERIMENT = "llm_layers"


def dense_us(p: Problem) -> float | None:
    """A microsecond per 4 million weights, in fp16 and bf16."""
    return p.m * p.k / 4e6 * (1 if p.dtype != "f32" else 2)


def sparse_us(p: Problem) -> float | None:
    """Four times the share of nonzeros: as fast as dense at 75 % zeros, later on wider products."""
    return dense_us(p) * 4 * (1 - p.sparsity) * (1.0 if p.n <= 16 else 1.5) if p.dtype != "f32" else None


def scaled(us: Callable[[Problem], float | None], factor: float) -> Callable[[Problem], float | None]:
    def at(p: Problem) -> float | None:
        time = us(p)
        return None if time is None else factor * time

    return at


TIMED: tuple[Timed, ...] = (
    ("cublas", "f16_rowmajor", lambda p: scaled(dense_us, 1.3)(p) if p.dtype == "f16" else None),
    ("cublaslt", "f16_colmajor_bcol_algo01", lambda p: dense_us(p) if p.dtype == "f16" else None),
    ("cublas", "bf16_rowmajor", lambda p: dense_us(p) if p.dtype == "bf16" else None),
    ("cublas", "tf32_rowmajor", lambda p: dense_us(p) if p.dtype == "f32" else None),
    ("tensor_spmm", "n16", sparse_us),
    ("row_stream", "x", scaled(sparse_us, 5.0)),
    ("cusparselt", "f16_rowmajor_search", lambda p: dense_us(p) / 1.6 if p.source.startswith("nm") else None),
)


def both_policies(rows: list[Record], slower: float = 1.0) -> list[Record]:
    """The same rows hot, and cold with sparse products slower by that factor."""
    cold = []
    for r in rows:
        factor = slower if r.kernel == "tensor_spmm" else 1.0
        us = factor * (r.median_us or 0)
        cold.append(replace(r, policy="cold", median_us=us, q1_us=us, q3_us=us))
    return [*rows, *cold]


def some(p: Problem) -> bool:
    return p.n in (16, 64, 256)


def few(p: Problem) -> bool:
    return p.label.startswith("llama_70b_qo")


def drawn_of(tmp_path: Path, rows: list[Record]) -> tuple[str, pd.DataFrame]:
    """The page's own text and what it draws, without the pages round it."""
    folder = fake_records.write(tmp_path / "nvidia-h200" / EXPERIMENT, rows)
    page, drawn = assemble(llm_layers.PAGE, folder, load(folder))
    assert isinstance(drawn, pd.DataFrame)
    words = [page.intro, *(text for one in page.sections for text in (f"## {one.heading}", *one.tables)), *page.gaps]
    return "\n\n".join(words), drawn


def crossing(drawn: pd.DataFrame, **where: object) -> float:
    rows = drawn[drawn["row"] == "crossover"].fillna({"layer": ""})
    for column, value in where.items():
        rows = rows[rows[column] == value]
    (found,) = rows["sparsity"]
    return float(found)


def test_where_sparse_becomes_faster(tmp_path: Path, figures: dict[str, Figure]) -> None:
    page, drawn = drawn_of(tmp_path, both_policies(records(EXPERIMENT, TIMED, keep=some), slower=1.2))
    for layer in ("", "llama_70b_qo"):
        assert crossing(drawn, policy="hot", layer=layer, n=16, pattern="uniform") == pytest.approx(0.75, abs=1e-4)
        assert crossing(drawn, policy="cold", layer=layer, n=64, pattern="uniform") == pytest.approx(
            1 - 0.25 / 1.8, abs=1e-4
        )
    first = page[: page.index("## ")]
    assert "| 16 | 75.0 % | 79.2 % |" in first
    assert "| 256 | 83.3 % (1 of 7 layers) | 86.1 % (1 of 7 layers) |" in first
    assert "8192×8192" in first
    assert "4096×4096," not in first  # 32 MB
    assert "| 256 | 83.3 % (1 of 7 layers) | 86.1 % (1 of 7 layers) | 83.3 % | 86.1 % |" in first
    assert "8192×8192 alone, which has the most levels" in first
    assert "over layers of 32 MB, hot / cold:\n\n| N | 70 % | 80 % | 90 % |" in page
    assert page.index("## Sparse over dense") < page.index("## By layer, hot policy")
    assert "| 8192×8192 | 75.0 % / 79.2 % |" in page
    times = drawn[(drawn["row"] == "time") & (drawn["series"] == "best") & (drawn["policy"] == "hot")].set_index(
        "problem"
    )
    best = times.loc["llama_70b_qo_8192x8192x16_90_uniform_f16"]
    assert best["kernel"] == "tensor_spmm"
    assert best["speedup"] == pytest.approx(2.5, rel=1e-4)  # over cuBLASLt, not over cuBLAS
    assert {"speedup", "layers", "layers_cold"} <= set(figures)
    for axis in figures["speedup"].axes:
        assert list(axis.get_lines()[-1].get_ydata()) == [1.4, 1.7, 2.1]
    legend = [text.get_text() for text in figures["speedup"].legends[0].get_texts()]
    assert legend[-1] == "Flash-LLM's authors, A100, N = 8 to 64"
    for figure in figures.values():
        apart(figure)


def test_means_are_of_layers_that_have_every_level(tmp_path: Path) -> None:
    _, drawn = drawn_of(tmp_path, records(EXPERIMENT, TIMED, keep=some))
    means = drawn[drawn["row"] == "mean of large layers"]
    large = [layer for layer in llm_data.layers() if layer.large]
    assert large[0].name in ("28672×8192", "8192×28672")
    assert len(large) == 7
    assert set(means["layers"]) == {1, 7}  # the sample has 256 columns of one layer alone
    assert set(means.loc[means["n"] == 16, "zeros"]) == {0.7, 0.8, 0.9}
    assert set(means.loc[means["n"] == 256, "zeros"]) == {0.5, 0.6, 0.7, 0.8, 0.9, 0.95}


def test_limits_beside_times(tmp_path: Path) -> None:
    page, _ = drawn_of(tmp_path, records(EXPERIMENT, TIMED, keep=few))
    limits = page[page.index("What bounds them, on 8192×8192.") :]
    assert limits.count("| dense | cuBLASLt |") == 3  # for 1, 16 and 128 columns, whatever the zeros
    assert "| 128 | 90 % | tensor_spmm |" in limits
    assert "| 8 |" not in limits
    frame = load(tmp_path / "nvidia-h200" / EXPERIMENT).frame
    row = next(r for r in frame.itertuples() if r.kernel == "tensor_spmm" and (r.m, r.k, r.n) == (8192, 8192, 128))
    operands = 2 * 128 * (8192 + 8192)  # in fp16, which are no bytes of the matrix
    assert f"| {(row.bytes - operands) / 8192**2:.2f} |" in limits


def test_what_decoding_takes_at_least() -> None:
    def least(kernel: str, n: int, density: float = 0.1) -> float:
        return llm_limits.decode_us(kernel, density, 8192 * 8192, n, "sm_90", 1980)

    assert least("spinfer", 16) == pytest.approx(8192 * 8192 / 1024 * 124 / (132 * 1980))
    assert least("spinfer", 128) == 2 * least("spinfer", 16, 0.5)
    wavefronts = 128 + 819.2 / 32 + 128  # cleared, placed, read back, of a tile
    assert least("flash_llm", 16) == pytest.approx(8192 * wavefronts / (132 * 1980))
    assert least("flash_llm", 64) - least("flash_llm", 16) == pytest.approx(8192 * 128 / (132 * 1980))
    assert 0 < least("tensor_spmm", 16) < least("delta_spmv", 1, 1.0)
    assert least("tensor_spmm", 16) == pytest.approx(8192 * 8192 * words_per_weight(0.1) / 32 / (132 * 1980))
    assert least("cublas", 16) != least("cublas", 16)  # not known


def test_one_level_of_a_second_layer_costs_no_levels_of_the_first() -> None:
    rows = [("a", 0.5, 1.0), ("a", 0.7, 1.5), ("a", 0.9, 2.0), ("b", 0.9, 8.0)]
    frame = pd.DataFrame(rows, columns=["layer", "zeros", "speedup"])
    assert llm_data._complete(frame)["speedup"].tolist() == [1.0, 1.5, 2.0]
    more = pd.concat([frame, pd.DataFrame([("b", 0.7, 4.0), ("c", 0.9, 9.0)], columns=frame.columns)])
    assert set(llm_data._complete(more)["layer"]) == {"a", "b"}
    assert set(llm_data._complete(more)["zeros"]) == {0.7, 0.9}
    even = pd.DataFrame([("a", 0.5, 1.0), ("a", 0.9, 2.0), ("b", 0.9, 3.0)], columns=frame.columns)
    assert llm_data._complete(even)["layer"].tolist() == ["a", "b"]  # of as many, more layers


def test_other_arithmetic_and_other_rivals(tmp_path: Path) -> None:
    page, drawn = drawn_of(tmp_path, both_policies(records(EXPERIMENT, TIMED, keep=few)))
    assert "| bf16 | 8192×8192 | 16 | 90 % | tensor_spmm | 6.7 (2.50) / 6.7 (2.50) |" in page
    assert "| 8192×8192 | cuSPARSELt | – | – | 1.60 / 1.60 |" in page
    assert "| Flash-LLM | A100 | 8 to 64 |" in page
    assert "| 8192×8192 | 16 | Flash-LLM, the authors' code |" in page
    assert "No row of " in page
    assert set(drawn.loc[drawn["row"] == "time", "math"]) == {"f16", "bf16", "tf32"}


def test_the_index_has_fp16_over_dense_fp16(tmp_path: Path) -> None:
    results = load(fake_records.write(tmp_path / "a", records(EXPERIMENT, TIMED, keep=few)))
    found = llm_data.table(results)
    points = found.points.set_index(["problem", "series"])["speedup"]
    assert points["llama_70b_qo_8192x8192x16_90_uniform_f16", "tensor_spmm-f16"] == pytest.approx(1.3 * 2.5)
    assert not any(name.endswith(("_bf16", "_uniform")) for name in found.problems["problem"])
    other = load(fake_records.write(tmp_path / "b", records(EXPERIMENT, TIMED[3:4], keep=few)))
    assert llm_data.table(other).baseline.math == "tf32"


def test_little_is_enough_for_a_page(tmp_path: Path) -> None:
    page, _ = drawn_of(tmp_path, records(EXPERIMENT, TIMED[:1]))
    assert "best sparse kernel of this project has a time on 0 of the" in page
    page, _ = drawn_of(tmp_path / "f32", records(EXPERIMENT, TIMED[3:4], keep=lambda p: p.dtype == "f32"))
    assert "has a time on 0 of the" in page
