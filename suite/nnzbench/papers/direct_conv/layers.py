"""What direct sparse convolution's tables 6 to 8 consist of: their layers, their columns and the published times."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from nnzbench.facts.results import each, percent
from nnzbench.problems import tables as problem_tables
from nnzbench.problems.problem import ConvShape
from nnzbench.report.data import published
from nnzbench.report.data.series import Series, word
from nnzbench.report.text.fastest import time_of

PUBLISHED_GPU = "V100"
_PAPER = re.compile(r"paper_sbs(2|4|8)$")


def _columns() -> dict[str, Series]:
    found = []
    for dtype, text in (("f32", "fp32"), ("f16", "fp16")):
        paper, tuned = f"the paper's method {text}", r"paper_sbs[248]"
        found += [
            Series(f"ours_{dtype}", f"this project's kernels {text}", (), dtype, roles=frozenset({"own"})),
            Series(f"paper_{dtype}", paper, ("direct_conv",), dtype, f"{tuned}$"),
            Series(
                f"paper_counts_{dtype}",
                f"{paper} with a count per channel",
                ("direct_conv",),
                dtype,
                r"paper_counts_sbs[248]$",
            ),
            Series(
                f"paper_padding_{dtype}",
                f"{paper} with its padding",
                ("direct_conv",),
                dtype,
                f"{tuned}_padding_timed$",
            ),
            Series(f"cudnn_{dtype}", f"cuDNN {text}", ("cudnn",), dtype),
        ]
        for form in ("nchw", "nhwc"):
            found.append(Series(f"cudnn_{form}_{dtype}", f"cuDNN {text} {form.upper()}", ("cudnn",), dtype, word(form)))
    found.append(Series("cudnn_tf32", "cuDNN TF32", ("cudnn",), "tf32"))
    return {series.key: series for series in found}


COLUMNS = _columns()
"""Where the times of each column come from. The published mapping's input has been padded by somebody else."""
PADDED = ("paper_padding_f32", "paper_padding_f16")
"""Columns that only layers with padding have."""


def sub_batch_of(variant: str) -> str:
    """Images per block of a published variant."""
    found = _PAPER.match(variant)
    return found[1] if found else ""


def padding_us(rows: Mapping[str, pd.DataFrame], layer: Layer, dtype: str) -> float:
    """What the fastest padded variant takes longer than the fastest one that is given a padded input."""
    problem = layer.problem(dtype)
    return time_of(rows[f"paper_padding_{dtype}"], problem) - time_of(rows[f"paper_{dtype}"], problem)


@dataclass(frozen=True)
class Layer:
    """One row of a table: a convolution with one kind of pattern, in each type."""

    shape: ConvShape
    level: float
    pattern: str
    """First word of the source."""
    label: str
    group: str
    problems: Mapping[str, str]
    """Recorded names by type."""

    @property
    def padded(self) -> bool:
        """Whether the image needs padding."""
        return bool(self.shape.pad_h or self.shape.pad_w)

    def problem(self, dtype: str) -> str:
        """Its recorded name, empty where the table has none of that type."""
        return self.problems.get(dtype, "")

    def text(self, dtype: str) -> str:
        """In words."""
        kind = "equal counts" if self.pattern == "equal_rows" else "random positions"
        return f"{self.label} at {percent(self.level)}, {kind}, {dtype.replace('f', 'fp')}"


@dataclass(frozen=True)
class Table:
    """What differs between the three tables."""

    experiment: str
    number: int
    title: str
    heading: str
    """Of the first column."""
    intro: str

    @staticmethod
    def of(experiment: str) -> Table:
        """The table of an experiment's name."""
        return next(table for table in _TABLES if table.experiment == experiment)


_OF = "the paper on direct sparse convolution (V100, cuDNN 8.2.2): batch 128"
_TABLES = (
    Table(
        "direct_conv_table6",
        6,
        "3×3 convolutions of VGG-16",
        "C×H×W×D",
        f"The eight 3×3 convolutions of VGG-16 in table 6 of {_OF}, stride 1, padding 1, C channels of H×W pixels to D "
        "channels.",
    ),
    Table(
        "direct_conv_table7",
        7,
        "1×1 convolutions of ResNet-50",
        "C×H×W×D",
        f"The 1×1 convolutions of ResNet-50 in table 7 of {_OF}, no padding. The paper does not say how large the "
        "images are: 32×32 fits its times, which stand beside those rows; 56×56 is ImageNet's.",
    ),
    Table(
        "direct_conv_table8",
        8,
        "1-D convolutions",
        "filter",
        f"The 1-D convolutions of table 8 of {_OF}, no padding. 300 channels of length 64 and 100 filters are a "
        "choice: the paper says neither which of the two is the channels nor how many filters there are.",
    ),
)


def find_layers(table: Table) -> list[Layer]:
    """The layers of an experiment's problem table, those of equal counts first."""
    found: dict[tuple[str, ConvShape, float], dict[str, str]] = {}
    models: dict[ConvShape, str] = {}
    for row in problem_tables.rows(table.experiment):
        one = row.problem
        assert one.conv is not None
        key = (one.source.partition(":")[0], one.conv, one.sparsity)
        found.setdefault(key, {})[one.dtype] = one.name
        models[one.conv] = _group(table, one.conv)
    ordered = sorted(found, key=lambda key: key[0] != "equal_rows")
    return [
        Layer(shape, level, pattern, _label(table, shape), models[shape], found[pattern, shape, level])
        for pattern, shape, level in ordered
    ]


def _label(table: Table, s: ConvShape) -> str:
    return f"{s.s}×1" if table.number == 8 else f"{s.channels}×{s.height}×{s.width}×{s.filters}"


def _group(table: Table, s: ConvShape) -> str:
    return {7: f"{s.height}×{s.width} images", 8: f"filter {s.s}×1"}.get(table.number, "")


class Published(NamedTuple):
    """Milliseconds on the paper's GPU, NaN where it has none."""

    sparse: float
    cudnn: float


def published_ms(table: Table, layer: Layer, dtype: str) -> Published:
    """The paper's two times of a layer in one type."""
    return _PUBLISHED[table.number]().get((layer.shape, layer.level, dtype), Published(math.nan, math.nan))


_Key = tuple[ConvShape, float, str]


def _table6() -> dict[_Key, Published]:
    columns = ("in_channels", "height", "width", "out_channels", "sparsity", "batch", "filter")
    times = ("sparse_f32_ms", "sparse_f16_ms", "cudnn_f32_ms", "cudnn_f16_ms")
    out = {}
    for row in each(published.read("direct_conv_table6_vgg16", (*columns, *times))):
        shape = ConvShape(
            row.batch, row.in_channels, row.height, row.width, row.out_channels, row.filter, row.filter, 1, 1
        )
        out[shape, row.sparsity, "f32"] = Published(row.sparse_f32_ms, row.cudnn_f32_ms)
        out[shape, row.sparsity, "f16"] = Published(row.sparse_f16_ms, row.cudnn_f16_ms)
    return out


def _table7() -> dict[_Key, Published]:
    columns = ("dtype", "in_channels", "filter", "out_channels", "sparsity", "cudnn_ms", "sparse_ms", "batch")
    out = {}
    for row in each(published.read("direct_conv_table7_resnet50_1x1", columns)):
        shape = ConvShape(row.batch, row.in_channels, 32, 32, row.out_channels, row.filter, row.filter)
        out[shape, row.sparsity, row.dtype] = Published(row.sparse_ms, row.cudnn_ms)
    return out


def _table8() -> dict[_Key, Published]:
    levels = {0.77: "sparse_77_ms", 0.83: "sparse_83_ms", 0.875: "sparse_875_ms"}
    out = {}
    frame = published.read("direct_conv_table8_cnn1d", ("dtype", "kernel", "cudnn_ms", "batch", *levels.values()))
    for row in each(frame):
        shape = ConvShape(row.batch, 300, 1, 64, 100, 1, int(row.kernel.partition("x")[0]))
        for level, column in levels.items():
            out[shape, level, row.dtype] = Published(getattr(row, column), row.cudnn_ms)
    return out


_PUBLISHED = {6: _table6, 7: _table7, 8: _table8}
