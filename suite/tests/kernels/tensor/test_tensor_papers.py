"""Papers' tensor-core SpMMs against float64 on the processor, and what they refuse."""

import numpy as np
import pytest
from kernel_problems import assert_exact, whole
from on_cpu import execute, matrix
from on_cpu import spmm_operands as operands
from on_cpu import spmm_problem as problem

from nnzbench.kernels.registry import Kernel, about, kernels
from nnzbench.matrices.formats import CSR
from nnzbench.plans.architectures import architecture, block_shared_bytes
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.check import passes, relative_error
from nnzbench.problems.operands import make_operands
from nnzbench.problems.reference import reference

BUILDS = (("asan", "backward"), ("tsan", "forward"), ("plain", "random:5"))
# kernel, m, k, n, density, parts of k: each form, k in one part, in equal ones and with a short last one
CASES = (
    ("flash_llm", 256, 64, 8, 0.45, 1),
    ("flash_llm", 512, 320, 8, 0.2, 3),
    ("flash_llm", 256, 192, 32, 0.3, 2),
    ("flash_llm", 384, 128, 64, 0.4, 2),
    ("flash_llm", 128, 128, 128, 0.3, 1),
    ("flash_llm", 128, 64, 256, 0.2, 1),
    ("spinfer", 64, 64, 8, 1.0, 1),
    ("spinfer", 128, 320, 8, 0.2, 3),
    ("spinfer", 192, 192, 32, 0.6, 2),
    ("spinfer", 64, 128, 64, 0.4, 2),
    ("spinfer", 128, 128, 128, 0.3, 1),
    *((name, 256, 192, 8, 0.3, 2, *how) for name in ("flash_llm", "spinfer") for how in BUILDS),
)
NAMES = tuple(dict.fromkeys(case[0] for case in CASES))


def planned(name, data, parts=1, arch="sm_90"):
    kernel = kernels()[name]
    assert isinstance(kernel, Kernel)
    return next(p for p in kernel.plans(problem(data), data, arch) if p.variant.endswith(f"_s{parts}"))


def product(name, sparse, n, parts=1, build="plain", order="forward"):
    data = whole(sparse, n)
    assert_exact(planned(name, data, parts), problem(data), data, build, order)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_sum_is_right_in_any_order_and_under_sanitizers(case):
    name, m, k, n, density, *how = case
    product(name, matrix(m, k, density, empty=(0, m - 1), full=m // 2), n, *how)


@pytest.mark.parametrize("name", NAMES)
def test_empty_matrices_and_one_dense_row(name):
    dense = np.zeros((256, 128), dtype=np.float32)
    product(name, CSR.from_dense(dense), 8, 2)
    dense[130] = 1
    product(name, CSR.from_dense(dense), 8)


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
