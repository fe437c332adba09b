"""Whether a kernel takes a matrix: asked of the kernel itself, which packs it, before its time is told."""

from __future__ import annotations

from dataclasses import replace

from nnzbench.advise.answer import FEW_ZEROS, Entry, ranked
from nnzbench.advise.layer import Layer
from nnzbench.kernels.registry import Kernel, about, kernels
from nnzbench.operators.arrays import weights_bytes
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import DType, Problem


class Takers:
    """What kernels say of one layer, each asked once for a width.

    Without `every`, those are asked that are faster than dense, the first that takes the matrix if none is, and all
    that need a pattern of their own.
    """

    def __init__(self, layer: Layer, arch: str, every: bool) -> None:
        self._layer, self._arch, self._every = layer, arch, every
        self._known: dict[tuple[str, int], tuple[str, int | None]] = {}
        self._operands: tuple[Problem, Operands] | None = None

    @property
    def refused(self) -> frozenset[str]:
        """Kernels that refused the matrix at some width."""
        return frozenset(kernel for (kernel, _), (reason, _) in self._known.items() if reason)

    def that_run(self, entries: list[Entry], problem: Problem) -> list[Entry]:
        """The entries, those that refuse this matrix at this width with the reason in place of times."""
        found: list[Entry] = []
        taken, behind = self._layer.matrix.sparsity < FEW_ZEROS, False
        for entry in ranked(entries):
            behind = behind or (entry.dense and entry.us is not None and entry.math == problem.dtype)
            settled = (taken and behind) or entry.us is None
            skipped = settled and not self._every and not about(entry.kernel).pattern
            if entry.dense or skipped or not (entry.us or entry.unestimated):
                found.append(entry)
                continue
            reason, size = self.asked(entry.kernel, problem)
            if reason:
                entry = Entry(entry.kernel, entry.math, reason=reason)
            elif entry.us is not None:
                taken = True
                entry = entry if size is None else replace(entry, memory_bytes=size)
            found.append(entry)
        return found

    def asked(self, kernel: str, problem: Problem) -> tuple[str, int | None]:
        """Why the kernel refuses the matrix (empty where it takes it), and the bytes that it keeps where it tells."""
        key = (kernel, problem.n)
        if key not in self._known:
            self._known[key] = self._ask(kernel, problem)
        return self._known[key]

    def _ask(self, name: str, problem: Problem) -> tuple[str, int | None]:
        kernel = kernels()[name]
        if about(name).weights_in_code and any(one == name and not self._known[one, n][0] for one, n in self._known):
            return "", None  # writing the program again for another width is slow, and tells nothing new
        try:
            if name in _CHECKS:
                _CHECKS[name](self._layer, problem.dtype)
            elif isinstance(kernel, Kernel):
                operands = self._made(problem)
                plan = next(iter(kernel.plans(problem, operands, self._arch)), None)
                if plan is None:
                    raise Unsupported("no plan for this matrix")
                if plan.language == "cuda":  # generated code holds its weights, and is not compiled here
                    return "", weights_bytes(plan, operands)
        except Unsupported as error:
            return str(error), None
        return "", None

    def _made(self, problem: Problem) -> Operands:
        """The operands, kept while the same problem is asked about."""
        if self._operands is None or self._operands[0] != problem:
            self._operands = problem, self._layer.operands(problem)
        return self._operands[1]


def _cusparselt(layer: Layer, dtype: DType) -> None:
    from nnzbench.kernels.vendor.cusparselt import require_pattern

    require_pattern(layer.matrix, dtype)


_CHECKS = {"cusparselt": _cusparselt}
