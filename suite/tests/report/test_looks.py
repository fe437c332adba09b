"""Series of a figure are told apart: by kernel through their colour, within a kernel through filling and marker."""

from __future__ import annotations

import pytest

from nnzbench.report.draw import canvas
from nnzbench.report.draw.style import smaller
from nnzbench.results.selector import CUDNN, CUDNN_F16, CUDNN_TF32, CUSPARSE, CUSPARSE_F16, DEFAULT, kernel, own


@pytest.mark.parametrize(
    "series",
    [
        (kernel("sparsert_paper"), own(), kernel("sputnik", variants=DEFAULT), kernel("sputnik")),
        (kernel("eie", "f16"), kernel("eie"), CUSPARSE, CUSPARSE_F16, kernel("row_stream", "f16")),
        (kernel("cusparselt", "i8", DEFAULT, "its default"), kernel("cusparselt", "i8")),
        (kernel("direct_conv"), CUDNN, CUDNN_TF32, CUDNN_F16),
    ],
)
def test_kernels_differ_by_colour_and_variants_of_one_by_look(series):
    looks = canvas.looks(series)
    assert len(set(looks.values())) == len(series)
    for one in series:
        for other in series:
            if one.kernels != other.kernels:
                assert looks[one.label].colour != looks[other.label].colour
    variants = [looks[one.label].colour for one in series if one.kernels == series[-2].kernels and not one.dense]
    assert len(set(variants)) <= 1


def test_the_style_of_many_marks_is_said_once_and_each_mark_stays():
    mark = '<use xlink:href="#m" x="{}" y="2" style="fill: {}"/>'
    rows = [mark.format(x, "red") for x in range(12)] + [mark.format(x, "blue") for x in range(3)]
    small = smaller("\n".join(["<g>", *rows, "</g>"]))
    marks = [f'<use xlink:href="#m" x="{x}" y="2"/>' for x in range(12)]
    assert small.splitlines() == ["<g>", '<g style="fill: red">', *marks, "</g>", *rows[12:], "</g>"]
