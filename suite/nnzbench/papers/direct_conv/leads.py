"""What the pages of direct sparse convolution are asked, and by which ratios they answer."""

from __future__ import annotations

from nnzbench.facts.groups import Group
from nnzbench.report.text import lead
from nnzbench.report.text.lead import Lead, own, side

_SUB_BATCHES = "paper_sbs[248]$"
"""The published method: it fills every channel up to the longest, and somebody else pads the image."""
PAPER = side("direct_conv", variants=_SUB_BATCHES, words="the paper's mapping")
PAPER_F16 = side("direct_conv", "f16", _SUB_BATCHES, "the paper's mapping")
RIVALS = (lead.CUDNN_DEFAULT, *lead.CONVOLUTIONS)
"""First what the paper calls: cuDNN as it chooses by itself."""
SIDES = (PAPER, own(), PAPER_F16, own("f16"))
EQUAL = Group(words="with equal counts per channel", like="*_equal")
UNIFORM = Group(words="with zeros anywhere", like="*_uniform")

TABLE6 = Lead(
    "Is a pruned 3x3 convolution of VGG-16 faster than cuDNN's dense one?",
    sides=SIDES,
    rivals=RIVALS,
    groups=(Group(words="with equal counts per channel in the last layers", like="08_equal"), EQUAL, UNIFORM),
    claims=("direct-vgg-last",),
    answered=3,
    drawn_over=lead.CUDNN,
    also_over=lead.CUDNN,
)
TABLE7 = Lead(
    "Is a pruned 1x1 convolution of ResNet-50 faster than cuDNN's dense one?",
    sides=SIDES,
    rivals=RIVALS,
    groups=(Group(words="with equal counts per channel on images of 32x32", like="*_32_equal"), EQUAL, UNIFORM),
    claims=("direct-pointwise",),
    answered=3,
    drawn_over=lead.CUDNN,
    also_over=lead.CUDNN,
)
TABLE8 = Lead(
    "Is a pruned 1-D convolution faster than cuDNN's dense one?",
    sides=SIDES,
    rivals=RIVALS,
    groups=(
        Group(words="with equal counts and a filter of two", like="filter2", level=83),
        Group(words="with equal counts and a filter of three", like="filter3", level=83),
        Group(words="with equal counts and a filter of two", like="filter2"),
        Group(words="with equal counts and a filter of three", like="filter3"),
        Group(words="with zeros anywhere", like="filter?_uniform"),
    ),
    claims=("direct-1d-2-83", "direct-1d-3-83"),
    drawn_over=lead.CUDNN,
    also_over=lead.CUDNN,
)
