"""What the pages of direct sparse convolution's tables 6 to 8 have in common."""

from __future__ import annotations

from nnzbench.facts.groups import Group
from nnzbench.facts.selector import (
    CUDNN,
    CUDNN_DEFAULT,
    CUDNN_F16,
    CUDNN_TF32,
    Selector,
    kernel,
    own,
    word,
)
from nnzbench.facts.table import Comparison
from nnzbench.problems.experiment import dtypes_of
from nnzbench.report.pages.page import Answer, Dots, Page, Pivot, Printed, Published, RatioTable

KERNELS = dtypes_of("direct_conv", "sparsert_conv", "cudnn")
_SUB_BATCHES = "paper_sbs[248]"


def mapping(math: str = "f32") -> Selector:
    """The published method: it fills every channel up to the longest, and somebody else pads the image."""
    return kernel("direct_conv", math, f"{_SUB_BATCHES}$", "the paper's mapping")


def _parts(math: str) -> tuple[Selector, ...]:
    """What its times contain, and cuDNN by layout."""
    words = "fp32" if math == "f32" else "fp16"
    return (
        own(math),
        mapping(math),
        kernel("direct_conv", math, "paper_counts_sbs[248]$", "with a count per channel"),
        kernel("direct_conv", math, f"{_SUB_BATCHES}_padding_timed$", "padding timed"),
        *(Selector(f"cuDNN {words}, {form.upper()}", ("cudnn",), math, word(form)) for form in ("nchw", "nhwc")),
    )


def page_of(
    question: str, intro: str, attributes: str, answers: tuple[Answer, ...], groups: tuple[Group, ...],
    printed: dict[str, Printed], published: str, title: str, x: str = "layer", panels: str = "pattern",
) -> Page:  # fmt: skip
    """One table's page; `answers` and `groups` are its own, `printed` the paper's gains by arithmetic."""
    sides = (mapping(), own(), mapping("f16"), own("f16"))
    return Page(
        question=question,
        intro=f"{intro} With equal counts every output channel keeps as many weights, as the method assumes; with "
        "random positions it fills every channel up to the longest. Ours and the paper's method read and write NCHW; "
        "cuDNN's NHWC times start from an image already in that layout. The paper's method takes a padded input: "
        "`padding timed` has that pass in its time. cuDNN chooses tensor cores by itself; whether a plan of its fp16 "
        "uses them is not recorded.",
        attributes=attributes,
        answers=answers,
        comparison=Comparison(sides, (CUDNN_TF32, CUDNN_F16, CUDNN, CUDNN_DEFAULT), groups),
        figures=(
            Dots("speedup", f"{title}: fp32 over best cuDNN fp32", (own(), mapping(), CUDNN_TF32), CUDNN, x=x,
                 panels=panels, printed=printed["f32"]),
            Dots("speedup_f16", f"{title}: fp16 over best cuDNN fp16", (own("f16"), mapping("f16"), CUDNN_TF32),
                 CUDNN_F16, x=x, panels=panels, printed=printed["f16"]),
        ),
        tables=(
            RatioTable("Over the paper's mapping", Comparison((own(),), (mapping(),), groups)),
            RatioTable("cuDNN's fp16 over its TF32", Comparison((CUDNN_F16,), (CUDNN_TF32,), groups)),
            Pivot("µs of each layer, batch 128", (own(), own("f16"), mapping(), mapping("f16"), CUDNN, CUDNN_TF32,
                                                  CUDNN_F16), rows=("layer", "pattern", "level")),
            Pivot("What those times contain in fp32, µs", _parts("f32"), rows=("layer", "pattern", "level")),
            Pivot("The same in fp16, µs", _parts("f16"), rows=("layer", "pattern", "level")),
            Published("The paper's times, V100 with cuDNN 8.2.2, ms", published),
        ),
        baseline=CUDNN,
    )  # fmt: skip


def answer(group: Group, claim: str = "") -> Answer:
    """The paper's mapping over cuDNN on tensor cores, ours beside it, the paper's baseline second."""
    return Answer(group, mapping(), CUDNN_TF32, (own(), own("f16")), CUDNN_DEFAULT, claim)
