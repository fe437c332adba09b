"""What rules of claims are written in: sides that several papers compare, and the ways to judge one claim."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nnzbench.report.claims.quantities import How, Quantity, Ratio, Side, Unmeasured


@dataclass(frozen=True)
class Rule:
    """Whose kernel a claim is judged by, and by which quantity."""

    kernel: str
    """The paper's method as published, or a library where the claim is about one; never this project's own design."""
    quantity: Quantity
    """As the paper compares: with the rival that it had."""
    today: Quantity | None = None
    """The same against the best of today's algorithms; None where the paper's rival is that already."""
    beside: tuple[tuple[str, Quantity], ...] = ()
    """Numbers told beside the verdicts, which judge nothing."""


CUBLAS = Side("cuBLAS's default algorithm", ("cublas",), math="dense")
"""In the faster layout of the weights."""
DENSE_BEST = Side("the best algorithm of cuBLAS and cuBLASLt", ("cublas", "cublaslt"), math="dense")
CUDNN = Side("the best of cuDNN's engines", ("cudnn",), math="dense")
CUDNN_DEFAULT = Side("cuDNN's own choice in NCHW", ("cudnn",), variant=r"[a-z0-9]+_nchw_.*_default$", math="dense")
CUSPARSE = Side("the best of cuSPARSE", ("cusparse",))
OURS = Side("the best kernel of this project", ())


def speedup(experiment: str, scope: str, cases: str, subject: Side, rival: Side, how: How = "geometric mean") -> Ratio:
    """The ratio of two sides on the same problems."""
    return Ratio(experiment, scope, (replace(subject, cases=cases),), (replace(rival, cases=cases),), how)


def judged(kernel: str, quantity: Quantity, *beside: tuple[str, Quantity], today: Quantity | None = None) -> Rule:
    """A rule, with `today` where the paper's rival is weaker than the best of today."""
    return Rule(kernel, quantity, today, beside)


def unmeasured(experiment: str, reason: str) -> Rule:
    """A claim that no record of this project can judge."""
    return judged("none", Unmeasured(experiment, reason))
