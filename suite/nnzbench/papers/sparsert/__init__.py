"""SparseRT (PACT 2020): its experiments, their pages and its claims."""

from __future__ import annotations

PAPER = "SparseRT (PACT 2020)"
