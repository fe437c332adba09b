"""PatDNN on a GPU: pattern-pruned 3x3 layers of VGG-16 and ResNet-50, step by step, beside CSR, 2:4 and cuDNN."""

from __future__ import annotations

from nnzbench.papers.patdnn import PAPER
from nnzbench.problems.experiment import AND_F16, Experiment

EXPERIMENT = Experiment(
    "patdnn",
    "Pattern-pruned convolutions, step by step",
    PAPER,
    "Figures 13 to 17, table 7",
    dict.fromkeys(("pattern_conv", "cudnn", "direct_conv", "sparsert_conv", "cusparselt"), AND_F16),
    only={"cudnn": "*_top8_b*", "direct_conv": "*[8m]_b*", "sparsert_conv": "rn50_[126]*[8m]_b1"},
)
