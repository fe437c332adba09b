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
from nnzbench.site.generations import headlines
from nnzbench.site.generations.figures import SHARE_ROWS, share_rows


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


SHARES = pd.DataFrame(
    [
        (f"g{at}", gpu, kind, "best", 0.9 - at / 100, at / 100)
        for at in range(30)
        for gpu, kind in (("new", "measured"), ("old", "published"))[: 2 if at == 29 else 1]
    ],
    columns=["group", "gpu", "kind", "role", "share_of_bandwidth", "share_of_flops"],
).assign(untuned=0)
NAMES = {("old", "published"): "Old", ("new", "measured"): "New"}


def test_shares_of_several_gpus_are_drawn_first_and_then_the_nearest_to_a_peak():
    drawn = share_rows(SHARES)
    assert len(drawn) == SHARE_ROWS
    assert drawn == [*(f"g{at}" for at in range(SHARE_ROWS - 1)), "g29"]
    assert (
        headlines.shares(SHARES, NAMES) == "Sparse kernels reach up to 90 % of New's bandwidth and 29 % of New's FLOP/s"
    )
    assert headlines.shares(SHARES.iloc[:0], NAMES) == "Share of each GPU's peaks"
    first = SHARES.assign(untuned=[int(group == "g0") for group in SHARES["group"]])
    assert headlines.shares(first, NAMES).endswith("90 % of New's bandwidth before tuning and 29 % of New's FLOP/s")


def test_titles_of_generations_count_what_they_draw():
    rows = [
        ("a", "old", "published", 1.0), ("a", "new", "measured", 2.0), ("a", "new", "measured", 0.6),
        ("b", "old", "published", 3.0), ("b", "new", "measured", 2.0),
        ("c", "new", "measured", 9.0),
    ]  # fmt: skip
    points = pd.DataFrame(rows, columns=["group", "gpu", "kind", "speedup"]).assign(compared=True, alike=True)
    points["speedup_untuned"] = points["group"] == "c"  # which is compared with no older GPU
    assert headlines.speedup(points, NAMES).endswith("on New than on an older GPU in 1 of 2 comparisons")
    cut = points.assign(speedup_untuned=True)
    assert headlines.speedup(cut, NAMES).endswith("in 1 of 2 comparisons, before tuning")
    assert headlines.speedup(points.iloc[:0], NAMES) == "Speed-up of sparse over dense, by GPU"
    gains = pd.DataFrame({"sparse_gain": [2.0, 3.0, None], "dense_gain": [3.0, 2.0, 1.0]})
    gains = gains.assign(untuned_dense=[0, 0, 1], untuned_sparse=0)
    assert headlines.gain(gains).endswith("in 1 of 2 groups")
    assert headlines.gain(gains.assign(untuned_sparse=[0, 2, 0])).endswith("in 1 of 2 groups, before tuning")
