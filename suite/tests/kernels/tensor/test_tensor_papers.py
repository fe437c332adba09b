"""Papers' tensor-core SpMMs against float64 on the processor, and what they refuse."""

import numpy as np
import pytest
from on_cpu import execute, matrix
from on_cpu import spmm_operands as operands
from on_cpu import spmm_problem as problem

from nnzbench.core.architectures import architecture, block_shared_bytes
from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.reference import reference
from nnzbench.kernels.registry import Kernel, about, kernels

NAMES = ("flash_llm", "spinfer")


def planned(name, data, parts=1, arch="sm_90"):
    kernel = kernels()[name]
    assert isinstance(kernel, Kernel)
    return next(p for p in kernel.plans(problem(data), data, arch) if p.variant.endswith(f"_s{parts}"))


@pytest.mark.parametrize("name", NAMES)
def test_random_values_are_within_their_tolerance(name):
    data = operands(matrix(256, 320, 0.3), 8).cast("f16")
    for parts in (1, 5):
        plan = planned(name, data, parts)
        assert plan.math == "f16"
        assert passes(relative_error(execute(plan), reference(problem(data), data)), "f16")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("m", "k", "n", "reason"),
    [
        (256, 128, 1, "columns of B"),
        (256, 128, 7, "columns of B"),
        (256, 128, 49, "columns of B"),
        (256, 128, 192, "columns of B"),
        (257, 128, 8, "rows of A"),
        (256, 100, 8, "columns of A"),
        (256, 0, 8, "size is 0"),
    ],
)
def test_sizes_that_are_no_multiples_of_tiles_are_refused(name, m, k, n, reason):
    with pytest.raises(Unsupported, match=reason):
        planned(name, operands(CSR.from_dense(np.zeros((m, k), np.float32)), n).cast("f16"))


@pytest.mark.parametrize("name", NAMES)
def test_older_tensor_cores_are_refused(name):
    data = operands(matrix(256, 128), 8).cast("f16")
    with pytest.raises(Unsupported, match="m16n8k16"):
        planned(name, data, arch="sm_75")


@pytest.mark.parametrize("name", NAMES)
def test_every_form_is_among_the_samples_and_fits_every_architecture(name):
    kernel = kernels()[name]
    assert isinstance(kernel, Kernel)
    forms = set()
    for sample in about(name).samples:
        data = make_operands(sample)
        for arch in ("sm_80", "sm_86", "sm_90", "sm_120"):
            assert architecture(arch).has("mma_f16_k16")
            for plan in kernel.plans(sample, data, arch):
                forms.add(tuple(plan.defines.items()))
                assert plan.launches[0].shared_bytes <= block_shared_bytes(arch)
    assert forms == {
        tuple(planned(name, operands(matrix(256, 64, 0.3), n).cast("f16")).defines.items())
        for n in (8, 16, 32, 64, 128, 256)
    }
