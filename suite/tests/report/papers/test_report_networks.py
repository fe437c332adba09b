"""The page of `whole_networks` from invented records with known answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fake_records
import pytest
from matplotlib.figure import Figure
from sputnik_records import Timed, apart, draw, records, report

from nnzbench.facts.results import load
from nnzbench.papers.catalogue import experiment
from nnzbench.papers.sputnik import busy, whole_networks
from nnzbench.problems.problem import Problem
from nnzbench.records import memory
from nnzbench.records.memory import Memory
from nnzbench.records.record import RecordError

EXPERIMENT = "whole_networks"


def of(label: str, us: float) -> Callable[[Problem], float | None]:
    return lambda p: us if p.label == label else None


def on(op: str, us: Callable[[Problem], float]) -> Callable[[Problem], float | None]:
    return lambda p: us(p) if p.op == op else None


def width(p: Problem) -> float:
    return float(p.label.partition("_w")[2])


TIMED: tuple[Timed, ...] = (
    ("sparse_transformer", "f32_heuristic", of("transformer", 100_000.0)),
    ("sparse_transformer", "f32_heuristic_together", of("transformer", 101_000.0)),
    ("dense_transformer", "f32_default", of("transformer", 250_000.0)),
    ("dense_transformer", "f32_default_together", of("transformer", 260_000.0)),
    ("dense_transformer", "tf32_default", of("transformer", 90_000.0)),
    *(("cublas", "f32_rowmajor", of(f"gemm_{name}", 100.0)) for name in ("project", "output", "up", "down")),
    ("sputnik_sddmm", "heuristic_s32", of("step_scores", 1000.0)),
    ("sputnik_sddmm", "s16", of("step_scores", 500.0)),
    ("sparse_softmax", "w32", of("step_softmax", 500.0)),
    ("sputnik", "heuristic_y4", of("step_context", 1500.0)),
    ("dense_attention", "f32", of("step_attention", 9000.0)),
    ("sparse_transformer", "tf32_heuristic", of("transformer", 60_000.0)),
    ("sparse_transformer", "f32_rule", of("transformer", 50_000.0)),
    ("sparse_mobilenet", "f32_rule", lambda p: 50 * width(p) if p.label.startswith("sparse_w") else None),
    ("sparse_mobilenet", "f32_heuristic", lambda p: 100 * width(p) if p.label.startswith("sparse_w") else None),
    ("dense_mobilenet", "f32_default", on("mobilenet", lambda p: 200 * width(p))),
    ("dense_mobilenet", "tf32_default", on("mobilenet", lambda p: 50 * width(p))),
)
LAYERS: tuple[Timed, ...] = (
    ("depthwise_conv", "o2_t128", on("depthwise", lambda p: 1.0)),
    ("sputnik_bias_relu", "heuristic_y4", lambda p: 2.0 if p.op == "pointwise" and p.sparsity else None),
    ("sputnik_bias_relu", "y2", lambda p: 1.0 if p.op == "pointwise" and p.sparsity else None),
    ("cublas_bias_relu", "f32_rowmajor", on("pointwise", lambda p: 4.0)),
)


def test_networks_stand_beside_their_steps_and_the_papers(tmp_path: Path) -> None:
    fake_records.write(tmp_path / "nvidia-h200" / "sputnik_mobilenet", records("sputnik_mobilenet", LAYERS))
    rows = records(EXPERIMENT, TIMED, keep=lambda p: p.label != "dense_w1.2")
    (tmp_path / "nvidia-h200" / EXPERIMENT).mkdir()
    (name,) = {row.problem for row in rows if row.shape == "transformer"}
    for kernel, variant, taken in (
        ("sparse_transformer", "f32_heuristic_together", 800_000_000),
        ("dense_transformer", "f32_default_together", 8_000_000_000),
    ):
        path = tmp_path / "nvidia-h200" / EXPERIMENT / memory.FILE
        memory.add(path, Memory(name, "f32", kernel, variant, "cupy", 10, 10 + taken, 10))
    inside = tmp_path / "nvidia-h200" / EXPERIMENT / busy.FILE
    sizes = f"{name},sparse_transformer,f32_heuristic,{{}},100500,100000\n"
    inside.write_text(",".join(busy.COLUMNS) + "\n" + sizes.format(7) + sizes.format(250))  # the later row counts
    page, drawn = report(tmp_path, rows)
    assert "passes 122,880 tokens per second, **2.50×** the dense one's 49,152, with Sputnik's kernels at its" in page
    assert "the paper reports 2.09× on a V100. With the dense products of both in TF32 it is 1.50×." in page
    assert "it takes 0.80 GB where the dense one takes 8.00, **10.0×** less (the paper: 12.8×, of a dense" in page
    # 72 + 24 + 3 + 3 products of 100 us and 24 heads of 3000 us: 82.2 ms
    assert "| sparse | `f32_heuristic` | 100.00 | 122,880 | – | 67,857 | 0.77 |" in page
    assert "| dense | `tf32_default` | 90.00 | 136,533 | – | 32,477 | 9.88 |" in page
    assert "| sparse | sparse | `f32_heuristic` | 100.00 | 100.50 | 100.00 | 250 | 2.00 | 82.20 |" in page
    assert "add up to 99.5% to 99.5% of the graph's: 2.00 µs per launch at most are between them" in page
    assert "1.54× at widths 1 and 1.3 (the paper 1.14×), 1.56× at widths 1.4 and 1.8" in page
    # 13 depthwise layers of 1 us, 12 sparse of 2 us, the first by cuBLAS 4 us
    assert "| sparse | 1.3 | sparse | `f32_heuristic` | 130.0 | 7,692 | – | 2,874 |" in page
    assert "| sparse 1.3 | sparse | `f32_heuristic` | 130.0 | – | – | – | – | 41.0 |" in page
    assert "| dense | 1 | dense | `f32_default` | 200.0 | 5,000 | – | 2,518 |" in page
    assert "| dense 1 | dense | `f32_default` | 200.0 | – | – | – | – | 65.0 |" in page
    assert set(drawn["network"]) == {"transformer", "mobilenet"}


def test_what_is_not_recorded_is_said(tmp_path: Path, figures: dict[str, Figure]) -> None:
    page, _ = report(tmp_path, records(EXPERIMENT, TIMED, keep=lambda p: p.label == "dense_w1"))
    assert "No time of the Transformer as a whole is recorded." in page
    assert "For how long kernels run within a network's graph is not recorded (busy.csv)." in page
    assert "`sputnik_mobilenet`, which is not recorded here" in page
    assert "No pair of networks of one accuracy has a checked time." in page


@pytest.mark.parametrize("row", ["a,b,c,0,1,1", "a,b,c,1,nan,1", "a,b,c,1,1", "a,b,c,one,1,1"])
def test_a_table_of_busy_times_that_is_none_is_refused(tmp_path: Path, row: str) -> None:
    (tmp_path / busy.FILE).write_text(",".join(busy.COLUMNS) + f"\n{row}\n")
    with pytest.raises(RecordError, match="not a table of busy times"):
        busy.read(tmp_path)


def test_the_figure_has_every_way_and_the_papers(tmp_path: Path, figures: dict[str, Figure]) -> None:
    draw(EXPERIMENT, tmp_path, records(EXPERIMENT, TIMED))
    (axis,) = figures["mobilenet"].axes
    assert [len(line.get_xdata()) for line in axis.lines] == [3, 3, 6, 6, 6, 3, 6]  # type: ignore[arg-type]
    apart(figures["mobilenet"])


def test_cublas_computes_the_dense_products_alone() -> None:
    one = experiment(EXPERIMENT)
    taken = [p for p in one.problems() if one.takes("cublas", p)]
    assert {p.op for p in taken} == {"gemm"}
    assert len(taken) == 4


def test_what_ran_within_a_graph_is_told_beside_the_hot_time_alone(tmp_path: Path) -> None:
    rows = records(EXPERIMENT, TIMED, keep=lambda p: p.label == "dense_w1")
    cold = [replace(row, policy="cold") for row in rows]
    folder = fake_records.write(tmp_path / "nvidia-h200" / EXPERIMENT, [*rows, *cold])
    one = rows[0]
    line = f"{one.problem},{one.kernel},{one.variant},10,100,90"
    (folder / busy.FILE).write_text(",".join(busy.COLUMNS) + f"\n{line}\n")
    lines = whole_networks.collect(load(folder)).lines
    known = lines[lines["busy_us"].notna()]
    assert list(zip(known["policy"], known["variant"], strict=True)) == [("hot", one.variant)]
