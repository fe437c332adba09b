"""What figures share: marks that hide no other, titles that fit, which series and groups of problems are drawn."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nnzbench.report.data.series import BEST, DEFAULT, Series
from nnzbench.report.draw import dots, layout, style
from nnzbench.report.draw.figures import few


def _panel(rows: int, curves: int = 3) -> dots.Panel:
    names = tuple(f"row {at}" for at in range(rows))
    kinds = ("sputnik", "cusparse", "ring", "balanced")
    drawn = tuple(
        dots.Curve(kind, tuple(1.5 for _ in names), dots.marker_of(kind)) for kind in itertools.islice(kinds, curves)
    )
    return dots.Panel("panel", names, ("all",) * rows, drawn, "speed-up (log)")


@pytest.mark.parametrize("rows", [1, 4, 9, 24])
def test_equal_values_of_a_row_stand_side_by_side(rows):
    (axis,) = dots.figure([_panel(rows)], "title", "caption").axes
    marks = [line.get_xdata() for line in axis.get_lines() if line.get_marker() in "ovpP"]
    assert len(marks) == 3
    for row in range(rows):
        places = [float(xs[row]) for xs in marks]
        assert len(set(places)) == len(places)
        assert all(abs(place - row) < 0.5 for place in places)
        assert sum(places) / len(places) == pytest.approx(row)


def test_two_panels_of_few_rows_stand_side_by_side():
    left, right = dots.figure([_panel(4), _panel(4)], "title", "caption").axes
    assert left.get_position().y0 == right.get_position().y0
    assert left.get_position().x1 < right.get_position().x0
    above, below = dots.figure([_panel(4), _panel(dots.FEW + 1)], "title", "caption").axes
    assert above.get_position().y0 > below.get_position().y1


@pytest.mark.parametrize("letters", [20, 117, 150])
def test_a_found_title_fits_its_figure(letters):
    with style.styled():
        figure = layout.headed(3.0, "title", "caption")
        layout.retitle(figure, "title", "W" * 5 + "n" * (letters - 5), "")
    assert _right(figure) <= figure.bbox.x1
    assert (figure.texts[0].get_fontsize() == 12) == (letters == 20)
    assert figure.texts[1].get_text().startswith("title. caption")


def _right(figure: Figure) -> float:
    return float(figure.texts[0].get_window_extent(FigureCanvasAgg(figure).get_renderer()).x1)


def test_the_choice_that_a_title_speaks_of_is_drawn():
    kernels = ("sputnik", "merge_spmm", "row_stream", "ring")
    series = [BEST, *(Series(name, name, (name,)) for name in kernels)]
    series.append(Series("sputnik-default", "sputnik, its heuristic", ("sputnik",), "f32", DEFAULT))
    rows = [("p", one.key, float(at + 1)) for at, one in enumerate(series)]
    points = pd.DataFrame(rows, columns=["problem", "series", "median_us"])
    plain = {one.key for one in few(series, points, 5)}
    told = {one.key for one in few(series, points, 5, "sputnik")}
    assert (plain - told, told - plain) == ({"sputnik"}, {"sputnik-default"})
    assert [one.key for one in few(series, points, 3, "sputnik")] == ["best", "merge_spmm", "sputnik-default"]
    assert [one.key for one in few(series, points, 2, told="ring")] == ["best", "ring"]
