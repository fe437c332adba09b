"""A library's candidates on a pretended GPU, and what each of them must do."""

from collections.abc import Iterable

import numpy as np

from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.registry import candidates, kernels
from nnzbench.plans.plan import Candidate
from nnzbench.problems.check import passes, relative_error
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem
from nnzbench.problems.reference import reference


def every(kernel: str, problem: Problem, operands: Operands, device: GpuDevice) -> dict[str, Candidate]:
    """The candidates by variant."""
    return {one.variant: one for one in candidates(kernels()[kernel], problem, operands, device)}


def check_all(found: Iterable[Candidate], problem: Problem, operands: Operands) -> None:
    """Each is right after poisoning its output; integers to the bit."""
    expected = reference(problem, operands)
    for candidate in found:
        prepared = candidate.prepare()
        prepared.poison()
        poisoned = prepared.read()
        whole = poisoned.dtype == np.int32
        assert (poisoned == 2**31 - 1).all() if whole else np.isnan(poisoned.astype(np.float32)).all()
        prepared.run()
        error = relative_error(prepared.read(), expected)
        assert error == 0 if whole else passes(error, candidate.math), f"{candidate.variant}: {error}"
        assert prepared.capturable
        prepared.close()
