"""Direct sparse convolution (2021): its experiments and their pages."""

from __future__ import annotations

PAPER = "Direct sparse convolution (2021)"
