"""Candidates on a pretended GPU and on a real one, and what each of them must do."""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
from on_cpu import spmm_operands, spmm_problem

from nnzbench.bench.trial import Conditions, Outcome, enumerate_candidates, try_candidate
from nnzbench.core.plan import Candidate, Prepared, Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.operands import Operands, round_to
from nnzbench.data.problems.problem import DType, Problem
from nnzbench.data.problems.reference import reference
from nnzbench.devices import Device
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.registry import candidates, kernels


def every(kernel: str, problem: Problem, operands: Operands, device: GpuDevice) -> dict[str, Candidate]:
    """The candidates by variant."""
    return {one.variant: one for one in candidates(kernels()[kernel], problem, operands, device)}


def every_of(kernel: str) -> Callable[[Problem, Operands, GpuDevice], dict[str, Candidate]]:
    """`every` of one kernel."""
    return partial(every, kernel)


def product(matrix: CSR, n: int, dtype: DType = "f32") -> tuple[Problem, Operands]:
    """The problem and operands of `matrix` times a random B of `n` columns."""
    data = spmm_operands(matrix, n).cast(dtype)
    return spmm_problem(data, dtype), data


def check_all(found: Iterable[Candidate], problem: Problem, operands: Operands) -> None:
    """Each is right after poisoning its output, integers to the bit; and again over a copy of its weights."""
    own = reference(problem, operands)
    for candidate in found:
        expected = candidate.truth() if candidate.truth else own
        prepared = candidate.prepare()
        prepared.poison()
        poisoned = prepared.read()
        whole = poisoned.dtype == np.int32
        assert (poisoned == 2**31 - 1).all() if whole else np.isnan(poisoned.astype(np.float32)).all()
        prepared.run()
        error = relative_error(prepared.read(), expected)
        assert error == 0 if whole else passes(error, candidate.math), f"{candidate.variant}: {error}"
        assert prepared.capturable
        if prepared.copied is not None:
            check_a_copy(prepared)
        prepared.close()


def check_a_copy(prepared: Prepared) -> None:
    """The result over a copy of the weights is the same while those themselves are zeros."""
    first = prepared.read()
    again, kept = prepared.copied(tuple(prepared.arrays)), {name: one.read() for name, one in prepared.arrays.items()}
    values = list(prepared.arrays)[-1]  # zeros in place of the structure would be another matrix
    prepared.arrays[values].write(np.zeros_like(kept[values]))
    prepared.poison()
    again()
    assert np.array_equal(prepared.read(), first)
    prepared.arrays[values].write(kept[values])


def outcomes(
    device: Device, kernel: str, problem: Problem, operands: Operands, most: int
) -> Iterator[tuple[str, Outcome]]:
    """Variant and outcome of the likeliest candidates, untimed; of what stopped them coming, without a variant."""
    truth = functools.cache(partial(reference, problem, operands))
    for found in enumerate_candidates(kernels()[kernel], problem, operands, device, most):
        if isinstance(found, Candidate):
            yield found.variant, try_candidate(found, None, truth, Conditions(()), lambda run: None)
        else:
            yield "", found


def check_on_gpu(
    device: GpuDevice, kernel: str, problem: Problem, operands: Operands, exact: bool = False
) -> Counter[str]:
    """Candidates by outcome: `ok`, `unsupported`, or `no graph` of those that run in none; a wrong result fails.

    Each runs twice and then in a graph: what adds to its output must not see an earlier run's. `exact`: to the bit.
    """
    own, outcomes = reference(problem, operands), Counter[str]()
    for candidate in enumerate_candidates(kernels()[kernel], problem, operands, device):
        try:
            if not isinstance(candidate, Candidate):
                assert candidate.status == "unsupported", candidate.reason
                raise Unsupported(candidate.reason)
            prepared = candidate.prepare()
        except Unsupported as reason:
            outcomes["unsupported"] += 1
            print(f"{kernel}: {reason}")
            continue
        expected = candidate.truth() if candidate.truth else own
        for at in range(3 if prepared.capturable else 2):
            prepared.poison()
            if at < 2:
                prepared.run()
            else:
                device.timer.elapsed_us(device.timer.capture(prepared.run, 3))
            result = prepared.read()
            if exact:
                rounded = round_to(expected.value.astype(np.float32), "f16" if problem.dtype == "f8" else problem.dtype)
                assert np.array_equal(result, rounded), f"{candidate.variant}, run {at}"
            else:
                error = relative_error(result, expected)
                assert passes(error, candidate.tolerance or candidate.math), f"{candidate.variant}, run {at}: {error}"
        prepared.close()
        outcomes["ok" if prepared.capturable else "no graph"] += 1
    return outcomes
