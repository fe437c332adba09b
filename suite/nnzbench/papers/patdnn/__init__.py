"""PatDNN (ASPLOS 2020): convolutions whose 3x3 kernels are pruned to a few patterns."""

from __future__ import annotations

PAPER = "PatDNN (ASPLOS 2020)"
