"""What Balanced Sparsity's pages are asked, and by which ratios they answer."""

from __future__ import annotations

from nnzbench.facts.groups import Group
from nnzbench.report.text import lead
from nnzbench.report.text.lead import Lead, own, side

SIDES = (side("balanced", variants="paper", words="the paper's mapping"), own())
RIVALS = (lead.CUBLAS, lead.TF32, lead.CUSPARSE)

FIGURE1 = Lead(
    "Is a layer whose zeros are balanced faster than one with as many zeros anywhere?",
    sides=SIDES,
    rivals=RIVALS,
    groups=(
        Group(words="of balanced zeros", like="balanced*"),
        Group(words="of balanced zeros", like="balanced*", level=80),
    ),
    claims=("", "balanced-ptb-dense"),
    claim_words="on PTB's whole LSTM",
)
FIGURE4 = Lead(
    "Is a large matrix with balanced zeros faster than the dense one, from half zeros to a thirtieth left?",
    sides=SIDES,
    rivals=RIVALS,
    groups=(
        Group(words="of balanced zeros at batch one", like="balanced_b1_*"),
        Group(words="of balanced zeros at batch eight", like="balanced_b8_*"),
    ),
    claims=("balanced-always", "balanced-always"),
    claim_words="is faster at this share of the sparsities from 50 to 97 %",
)
MODELS = Lead(
    "Are layers of VGG-16, of a language model and of a speech model faster with balanced zeros than dense?",
    sides=SIDES,
    rivals=RIVALS,
    groups=(
        Group(words="of PTB's LSTM", like="ptb_balanced"),
        Group(words="of all layers of VGG-16 together", like="vgg16_*_balanced", baseline_like="vgg16_*_balanced"),
        Group(words="of VGG-16, each layer once", like="vgg16_*_balanced"),
    ),
    claims=("balanced-ptb-dense", "balanced-vgg-dense"),
    claim_words="on the whole model",
)
