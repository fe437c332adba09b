"""Whether a kernel takes a matrix: asked of the kernel itself, which packs it, before its time is told."""

from __future__ import annotations

from dataclasses import replace

from nnzbench.advise.answer import Entry, ranked
from nnzbench.advise.layer import Layer
from nnzbench.kernels.registry import Kernel, about, kernels
from nnzbench.operators.binding import weights_bytes
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import DType, Problem


def that_run(
    entries: list[Entry], layer: Layer, problem: Problem, arch: str, able: dict[tuple[str, int], str], every: bool
) -> list[Entry]:
    """The entries, those that refuse this matrix at this width with the reason in place of times.

    Without `every`, kernels are asked in the order of their times until one takes it, and all that need a pattern of
    their own. `able` remembers the reasons by kernel and width (empty: it takes the matrix).
    """
    found: list[Entry] = []
    settled = False
    operands: Operands | None = None
    for entry in ranked(entries):
        skipped = settled and not every and not about(entry.kernel).pattern
        if entry.us is None or entry.dense or skipped:
            found.append(entry)
            continue
        key = (entry.kernel, problem.n)
        if key not in able:
            operands = operands or layer.operands(problem)
            able[key], size = _asked(entry, layer, problem, operands, arch, able)
            entry = replace(entry, memory_bytes=size)
        if able[key]:
            entry = Entry(entry.kernel, entry.math, reason=able[key])
        else:
            settled = True
        found.append(entry)
    return found


def _asked(
    entry: Entry, layer: Layer, problem: Problem, operands: Operands, arch: str, able: dict[tuple[str, int], str]
) -> tuple[str, int | None]:
    """Why the kernel refuses the matrix (empty where it takes it), and the bytes that it keeps."""
    kernel = kernels()[entry.kernel]
    coded = about(entry.kernel).weights_in_code
    if coded and any(name == entry.kernel and not reason for (name, _), reason in able.items()):
        return "", entry.memory_bytes  # writing the program again for another width is slow, and tells nothing new
    try:
        if entry.kernel in _CHECKS:
            _CHECKS[entry.kernel](layer, problem.dtype)
        elif isinstance(kernel, Kernel):
            plan = next(iter(kernel.plans(problem, operands, arch)), None)
            if plan is None:
                raise Unsupported("no plan for this matrix")
            if plan.language == "cuda":  # generated code holds its weights, and is not compiled here
                return "", weights_bytes(plan, operands)
    except Unsupported as error:
        return str(error), None
    return "", entry.memory_bytes


def _cusparselt(layer: Layer, dtype: DType) -> None:
    from nnzbench.kernels.vendor.cusparselt import require_pattern

    require_pattern(layer.matrix, dtype)


_CHECKS = {"cusparselt": _cusparselt}
