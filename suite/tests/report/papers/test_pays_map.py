"""The map of where sparsity pays and its page, on invented records with known winners."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import fake_records
import pandas as pd
import pytest
from draft_figures import figures_in_draft  # noqa: F401
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from sputnik_records import Timed, records

from nnzbench.data.problems.problem import Problem
from nnzbench.papers.nnzbench import pays_map
from nnzbench.report.draw import maps, style
from nnzbench.report.page import Map, View
from nnzbench.results.records.record import Record
from nnzbench.results.result_set import load

FIGURE = Map("map", "Where sparsity pays")


def dense_us(problem: Problem) -> float:
    return problem.m / 100


def sparse_us(problem: Problem) -> float:
    """From 4.6 times as fast, half at each eightfold width."""
    return dense_us(problem) * (1 - problem.sparsity) * 2.2 * problem.n ** (1 / 3)


TIMED: tuple[Timed, ...] = (
    ("cublas", "f16_default_nn", dense_us),
    ("tensor_spmm", "n16", sparse_us),
    ("delta_spmv", "d", lambda p: sparse_us(p) / 1.5 if p.n == 1 else None),
)


def rows() -> list[Record]:
    """Of two layers, without 4 columns of the large one."""
    found = records("pays_map", TIMED, keep=lambda p: p.label != "small" and (p.label, p.n) != ("large", 4))
    fp32 = [
        dataclasses.replace(one, problem=one.problem.removesuffix("_f16"), dtype="f32", variant="f32_default_nn",
                            median_us=5 * (one.median_us or 0))
        for one in found
        if one.kernel == "cublas"
    ]  # fmt: skip
    return [*found, *fp32]


@pytest.fixture(name="folder")
def recorded(tmp_path: Path) -> Path:
    return fake_records.write(tmp_path / "reports" / "nvidia-h200" / "pays_map", rows())


def panels(folder: Path) -> list[Axes]:
    with style.styled():
        drawn = maps.draw(FIGURE, View(load(folder)), "Title")
    assert drawn is not None
    return [axis for axis in drawn.axes if axis.get_title(loc="left")]


def squares(axis: Axes) -> dict[tuple[float, float], Rectangle]:
    return {one.get_xy(): one for one in axis.patches if isinstance(one, Rectangle)}


def test_each_measured_cell_is_drawn_and_no_other(folder: Path) -> None:
    large, middle = panels(folder)
    assert large.get_title(loc="left") == "large layer, 8192×8192"
    assert (len(squares(large)), len(squares(middle))) == (60, 66)
    assert (2 - 0.5, -0.5) not in squares(large)


def test_colours_and_the_line_part_what_is_faster_from_what_is_not(folder: Path) -> None:
    _, middle = panels(folder)
    blue, orange = maps.COLOURS[4:], maps.COLOURS[:4]
    shades = {place: style.mpl.colors.to_hex(one.get_facecolor()) for place, one in squares(middle).items()}
    level_90 = [shades[across - 0.5, 3.5] for across in range(11)]
    wins = [1 / (0.1 * 2.2 * 2 ** (across / 3)) for across in range(1, 11)]
    assert [one in blue for one in level_90[1:]] == [one >= 1 for one in wins]
    assert set(shades.values()) <= {*blue, *orange}
    faster = {place for place, shade in shades.items() if shade in blue}
    edges = sum(((x + 1, y) in shades) and (((x + 1, y) in faster) != ((x, y) in faster)) for x, y in shades)
    edges += sum(((x, y + 1) in shades) and (((x, y + 1) in faster) != ((x, y) in faster)) for x, y in shades)
    assert len(middle.lines) == edges > 0


def test_each_region_has_its_winners_name_where_it_fits(folder: Path) -> None:
    for axis in panels(folder):
        texts = {one.get_text().split()[0]: one for one in axis.texts}
        assert set(texts) - {"up", "is"} == {"tensor_spmm", "delta_spmv", "dense"}
        assert texts["delta_spmv"].get_position()[0] == 0
        assert texts["delta_spmv"].get_rotation() == 90


def test_what_is_not_tuned_is_hatched(folder: Path) -> None:
    fake_records.tuned(folder, lambda row: ["first"] if row.n == 16 else ["first", "all"])
    for axis in panels(folder):
        assert {x for (x, _), one in squares(axis).items() if one.get_hatch()} == {4 - 0.5}


def test_no_cell_is_no_map(tmp_path: Path) -> None:
    folder = fake_records.write(tmp_path / "sparsert_table1", fake_records.table1(policies=["hot"]))
    assert maps.draw(FIGURE, View(load(folder)), "Title") is None


def test_the_page_has_every_cell_in_facts(folder: Path) -> None:
    text = fake_records.written(folder).read_text()
    facts = pd.read_csv(folder / "facts.csv")
    cells = facts[(facts["subject"] == pays_map.BEST.label) & (facts["baseline"] == "best dense fp16")]
    single = cells[cells["group"].str.contains("% zeros, ")]
    assert len(single) == 126
    assert text.index("large layer (8192×8192) at 90 % zeros with 16 columns") < text.index("map.svg")
