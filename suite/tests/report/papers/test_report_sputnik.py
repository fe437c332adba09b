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


# all pages

EVERY = {
    "sputnik_mobilenet": MOBILENET,
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
