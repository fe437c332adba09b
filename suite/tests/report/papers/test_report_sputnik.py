"""Sputnik's tables III and IV from invented records with known answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fake_records
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sputnik_records import Timed, apart, draw, records, report

from nnzbench.facts.results import load
from nnzbench.papers import sputnik
from nnzbench.problems import tables
from nnzbench.problems.problem import Problem
from nnzbench.records import memory

# table IV and figure 12


def pointwise(us: float, sparse: bool = False) -> Callable[[Problem], float | None]:
    return lambda p: us if p.op == "pointwise" and (p.sparsity > 0 or not sparse) else None


MOBILENET: tuple[Timed, ...] = (
    ("depthwise_conv", "o4", lambda p: 2.0 if p.op == "depthwise" else None),
    ("cublas_bias_relu", "f32_rowmajor", pointwise(10.0)),
    ("cublas_bias_relu", "tf32_rowmajor", pointwise(3.0)),
    ("sputnik_bias_relu", "heuristic_y4", pointwise(5.0, sparse=True)),
    ("row_stream_bias_relu", "n64", pointwise(4.0, sparse=True)),
)


def test_mobilenet_sums_the_chain(tmp_path: Path) -> None:
    page, drawn = report(tmp_path, records("sputnik_mobilenet", MOBILENET))
    fps = drawn.set_index(["curve", "model", "width"])["frames_per_second"]
    assert fps["dense", "dense", 1.4] == pytest.approx(1e6 / (13 * 2 + 13 * 10), rel=1e-5)
    assert fps["dense_tf32", "dense", 1.0] == pytest.approx(1e6 / (13 * 2 + 13 * 3), rel=1e-5)
    assert fps["sparse", "sparse", 1.8] == pytest.approx(1e6 / (13 * 2 + 10 + 12 * 4), rel=1e-5)
    assert fps["sparse_sputnik", "sparse", 1.3] == pytest.approx(1e6 / (13 * 2 + 10 + 12 * 5), rel=1e-5)
    assert fps["paper", "sparse", 1.8] == 2095
    assert "| dense 1.4, sparse 1.8 | 1.86 | 1.62 | 0.77 | 1.21 |" in page  # 156/84, 156/96, 65/84, 2095/1729
    (line,) = (line for line in page.splitlines() if line.startswith("| sparse | 1.8 |"))
    assert "| 31 % |" in line  # 26 of 84 in depthwise layers


def test_mobilenets_title_is_of_networks_and_its_widths_stand_once(tmp_path: Path, figures: dict[str, Figure]) -> None:
    alone = [one for one in MOBILENET if one[0] != "row_stream_bias_relu"]  # both sparse curves are then the same
    draw("sputnik_mobilenet", tmp_path, records("sputnik_mobilenet", alone))
    title = "At equal accuracy sparse MobileNetV1 is 1.62× as fast as dense fp32 and 0.68× as fast as dense TF32"
    assert figures["accuracy"].texts[0].get_text() == title  # 156/96 and 65/96
    assert [text.get_text() for text in figures["accuracy"].axes[0].texts] == ["1", "1.4", "1", "1.4", "1.3", "1.8"]
    apart(figures["accuracy"])


def test_mobilenet_names_networks_with_a_layer_missing(tmp_path: Path, figures: dict[str, Figure]) -> None:
    rows = records("sputnik_mobilenet", MOBILENET, keep=lambda p: p.label != "sparse_w1.8_pw06")
    page, drawn = fake_records.drawn(load(fake_records.write(tmp_path / "r", rows)))
    assert any("no speed at widths 1.8 (1 layers), whose layers lack times: first pw06." in gap for gap in page.gaps)
    assert isinstance(drawn, pd.DataFrame)
    lost = drawn[drawn["us"].isna()]
    assert set(zip(lost["model"], lost["width"], strict=True)) == {("sparse", 1.8)}
    ours, theirs = figures["accuracy"].axes
    assert {line.get_label() for line in theirs.get_lines()} == {"dense: the paper, V100", "sparse: the paper, V100"}
    assert ours.get_ylim() == theirs.get_ylim()
    apart(figures["accuracy"])


# table III

ATTENTION: tuple[Timed, ...] = (
    ("dense_attention", "f32", lambda p: 900.0 if p.op == "attention" else None),
    ("dense_attention", "tf32", lambda p: 300.0 if p.op == "attention" else None),
    ("sparse_attention", "heuristic_s32", lambda p: 200.0 if p.label == "attention" else None),
    ("sparse_attention", "s32_w32", lambda p: 150.0 if p.label == "attention" else None),
    ("sputnik_sddmm", "heuristic_s32", lambda p: 60.0 if p.op == "sddmm" else None),
    ("sparse_softmax", "w1", lambda p: 10.0 if p.op == "sparse_softmax" else None),
)


def test_attention_compares_time_and_memory(tmp_path: Path) -> None:
    page, drawn = report(tmp_path, records("sputnik_attention", ATTENTION))
    rows = drawn[drawn["what"] == "attention"].set_index(["kernel", "math"])
    assert rows["us"]["sparse_attention", "f32"] == 150  # the faster variant
    tokens = rows["tokens_per_second"]["sparse_attention", "f32"]
    assert tokens == pytest.approx(12288 / (24 * 150e-6), rel=1e-5)  # 3 layers of 8 heads
    assert "6.00 times as fast" in page
    assert "Against TF32 tensor cores it is 2.00 times as fast" in page
    assert "times less memory (counted)" in page
    assert "| the paper's sparse transformer, whole model, V100 | – | 67857 | – | 734 | 2.09 | 12.8 |" in page
    assert "No time of the step context (hot)." in page
    assert "No time of dense, fused, cuDNN fp16 attention (hot)." in page
    assert "Memory of sparse, fp32 attention is not measured (hot)." in page


FUSED: tuple[Timed, ...] = (
    ("cudnn_attention", "f16_bias_plan00", lambda p: 240.0 if p.label == "attention" else None),
    ("cudnn_attention", "f16_causal_plan00", lambda p: 60.0 if p.label == "causal" else None),
    ("sparse_attention", "s32_w32", lambda p: 90.0 if p.label == "attention" else None),
)


def test_attention_is_held_against_fused_attention_in_time_and_measured_memory(
    tmp_path: Path, figures: dict[str, Figure]
) -> None:
    rows = records("sputnik_attention", ATTENTION) + records("sputnik_attention", FUSED, "f16")
    folder = fake_records.write(tmp_path / "r", rows)
    sizes = {"dense_attention": 618, "sparse_attention": 103, "f16_bias_plan00": 320, "f16_causal_plan00": 12}
    for one in rows:
        if size := sizes.get(one.kernel, sizes.get(one.variant)):
            key = (one.problem, one.dtype, one.kernel, one.variant, one.device)
            memory.add(folder / memory.FILE, memory.Memory(*key, 5 << 20, (5 + size) << 20, 5 << 20))
    page, _ = fake_records.drawn(load(folder))
    text = page.sections[0].text
    assert "6.00 times as fast in 6.0 times less memory (measured)" in text
    assert (
        "(cuDNN, fp16, every key up to the query) takes 60 µs: 2.50 times as fast as sparse attention in fp32" in text
    )
    assert "and 1.50 times as fast as in fp16, in 8.6 times less memory than in fp32 (measured)." in text
    (fused,) = (line for line in page.sections[0].tables[0].splitlines() if line.startswith("| dense, fused, cuDNN"))
    assert fused.endswith("| 60.0 | 8533333 | 12.0 | 12.0 | 15.00 | 51.5 |")
    assert not [gap for gap in page.gaps if "attention" in gap]
    apart(figures["attention"])


def test_attention_without_a_dense_time_states_no_ratio(tmp_path: Path, figures: dict[str, Figure]) -> None:
    rows = records("sputnik_attention", [timed for timed in ATTENTION if timed[0] != "dense_attention"])
    page, _ = fake_records.drawn(load(fake_records.write(tmp_path / "r", rows)))
    assert "no speed-up is stated" in page.sections[0].text
    assert "No time of dense, cuBLAS fp32 attention (hot)." in page.gaps
    apart(figures["attention"])


def test_the_attention_mask_is_drawn_to_scale(tmp_path: Path, figures: dict[str, Figure]) -> None:
    page, _ = fake_records.drawn(load(fake_records.write(tmp_path / "r", records("sputnik_attention", ATTENTION))))
    assert "768 tokens and a band of 16 for 12,288 and 256" in page.sections[-1].text
    dense, sparse = (axis.images[0].get_array() for axis in figures["mask"].axes)
    assert dense.sum() == 768 * 769 // 2
    assert not sparse[~dense].any()  # nothing above the diagonal
    assert all(sparse[row, max(0, row - 15) : row + 1].all() for row in (0, 5, 400, 767))  # the whole band
    assert 0.085 < sparse.sum() / dense.sum() < 0.1
    apart(figures["mask"])


# all pages

EVERY = {
    "sputnik_attention": ATTENTION,
}


@pytest.mark.figures(kind="svg")
@pytest.mark.parametrize("experiment", EVERY)
def test_drawing_twice_gives_the_same_bytes(experiment: str, tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        folder = tmp_path / name / "nvidia-h200" / experiment
        fake_records.write(folder, records(experiment, EVERY[experiment]))
        fake_records.drawn(load(folder))
        found.append({path.name: path.read_bytes() for path in sorted(folder.iterdir())})
    assert found[0] == found[1]
    assert any(name.endswith(".svg") for name in found[0])


@pytest.mark.parametrize("experiment", [one.name for one in sputnik.EXPERIMENTS if one.kernels])
def test_records_without_times_make_a_page(experiment: str, tmp_path: Path) -> None:
    problem = tables.load(experiment, real=False)[0]
    row = fake_records.record(
        experiment=experiment, problem=problem.name, op=problem.recorded_op, m=problem.m, k=problem.k, n=problem.n,
        shape=problem.shape, sparsity=problem.sparsity, source=problem.source,
    )  # fmt: skip
    page, _ = report(tmp_path, [fake_records.failed(row, "timeout", "took too long")])
    assert "took too long" in page
