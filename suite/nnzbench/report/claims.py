"""The papers' quantitative claims, each judged by the records of one GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """One claim beside what the records say of it. Numbers that are not known are NaN, words that are not are empty.

    `verdict*` is one of `reproduced`, `stronger`, `weaker`, `contradicted`, `not measurable`, or empty where the
    claim has no such baseline.
    """

    id: str
    paper: str
    where: str
    """Section, figure or table."""
    claim: str
    experiment: str
    unit: str
    published: float
    published_gpu: str
    measured: float
    """With the paper's own kind of baseline (fp32 where it is dense), hot policy."""
    measured_tf32: float
    """The same quantity with the dense baseline on TF32 tensor cores; NaN where the claim has no dense baseline."""
    measured_fp16: float
    """The same with the dense baseline on fp16 tensor cores."""
    measured_cold: float
    """As `measured`, with L2 overwritten before each launch."""
    verdict: str
    verdict_tf32: str
    verdict_fp16: str
    problems: str
    """`n of m`: how many of the claim's problems were recorded."""
    rule: str
    """How the number is computed, in words."""
    note: str
    """Why it is not measurable, or what its reader must know."""
