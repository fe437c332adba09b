"""What a training step of one sparse layer costs against a dense one: forward, gradients of input and weights."""

from __future__ import annotations

from nnzbench.report.page import Answer, Dots, Page
from nnzbench.results.groups import Group
from nnzbench.results.selector import CUSPARSE, DENSE, FP16, TF32, Selector
from nnzbench.results.table import Comparison

PARTS = {"forward": "forward", "input": "gradient of the input", "weights": "gradient of the weights"}
"""Of a step, as labels of problems end."""
LEVELS = (90, 80, 70)
STEPS = tuple(Group(words="whole steps", level=level, parts=tuple(PARTS)) for level in LEVELS)
OF_PARTS = tuple(Group(words=words, level=level, parts=(part,)) for part, words in PARTS.items() for level in LEVELS)
_SPUTNIK = ("sputnik", "sputnik_transposed", "sputnik_sddmm")
FASTEST = Selector("best sparse kernel per part fp32", (*_SPUTNIK, "merge_spmm", "ring_sddmm", "aspt_sddmm"))
SPUTNIK = Selector("Sputnik (its three kernels) fp32", _SPUTNIK)
SPUTNIK_F16 = Selector("Sputnik (its three kernels) fp16", _SPUTNIK, "f16")
SPARSE, BASELINES = (SPUTNIK_F16, FASTEST, SPUTNIK), (FP16, TF32, DENSE, CUSPARSE)


def training_step() -> Page:
    """Its page."""
    return Page(
        attributes=rf"(?P<layer>.+)_b(?P<batch>\d+)_(?:dense_)?(?P<part>{'|'.join(PARTS)})",
        answers=tuple(Answer(group, SPUTNIK_F16, FP16, (FASTEST,), DENSE) for group in STEPS),
        comparison=Comparison(SPARSE, BASELINES, STEPS),
        figures=tuple(
            Dots(f"step_{level}", f"A whole training step at {level} % zeros", (SPUTNIK_F16, FASTEST, TF32, FP16),
                 DENSE, x="layer", panels="batch", group=group)
            for level, group in zip(LEVELS, STEPS, strict=True)
        ),
        facts=(Comparison(SPARSE, BASELINES, OF_PARTS),),
        baseline=DENSE,
    )  # fmt: skip
