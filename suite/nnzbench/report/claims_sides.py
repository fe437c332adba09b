"""What rules of claims are written in: sides that several papers compare, and the ways to judge one claim."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nnzbench.report.claims_quantities import How, Quantity, Ratio, Side, Unmeasured


@dataclass(frozen=True)
class Way:
    """A quantity and whose kernel it judges."""

    kernel: str
    quantity: Quantity


@dataclass(frozen=True)
class Rule:
    """Ways in order of preference, the paper's own kernel first; the first with a number counts."""

    ways: tuple[Way, ...]
    beside: tuple[tuple[str, Quantity], ...] = ()
    """Numbers told beside the verdict, which judge nothing."""


CUBLAS = Side("cuBLAS", ("cublas",), math="dense")
"""cuBLAS's default algorithm, the faster layout of the weights."""
DENSE_BEST = Side("the best algorithm of cuBLAS and cuBLASLt", ("cublas", "cublaslt"), math="dense")
CUDNN = Side("cuDNN", ("cudnn",), math="dense")
CUSPARSE = Side("the best of cuSPARSE", ("cusparse",))
OURS = Side("the best kernel of this project", ())


def speedup(experiment: str, scope: str, cases: str, subject: Side, rival: Side, how: How = "geometric mean") -> Ratio:
    """The ratio of two sides on the same problems."""
    return Ratio(experiment, scope, (replace(subject, cases=cases),), (replace(rival, cases=cases),), how)


def judged(kernel: str, quantity: Quantity, *beside: tuple[str, Quantity]) -> Rule:
    """A rule with one way."""
    return Rule((Way(kernel, quantity),), beside)


def unmeasured(experiment: str, reason: str) -> Rule:
    """A claim that no record of this project can judge."""
    return judged("none", Unmeasured(experiment, reason))
