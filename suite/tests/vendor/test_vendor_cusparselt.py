"""cuSPARSELt against float64, over a library that computes in NumPy."""

from dataclasses import replace

import numpy as np
import pytest
from fake_gpu import FACTS
from vendor_candidates import check_all, every_of, product

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.matrices.prune import n_of_m
from nnzbench.devices.gpu import LaunchError, short_of_memory
from nnzbench.kernels.vendor import support as vendor_support
from nnzbench.kernels.vendor.cusparselt import require_pattern

every = every_of("cusparselt")


def make(m, k, n, dtype="f16", keep=(2, 4)):
    rng = np.random.default_rng(m + n)
    weights = rng.standard_normal((m, k)).astype(np.float32)
    return product(n_of_m(weights, *keep) if keep else CSR.from_dense(weights), n, dtype)


@pytest.mark.parametrize(("dtype", "keep"), [("f16", (2, 4)), ("bf16", (2, 4)), ("f32", (1, 2))])
@pytest.mark.parametrize("shape", [(8, 16, 4), (24, 32, 7), (1, 64, 16)])
def test_every_variant_computes_the_product(dtype, keep, shape, gpu):
    problem, operands = make(*shape, dtype, keep)
    found = every(problem, operands, gpu)
    math = "tf32" if dtype == "f32" else dtype
    layouts = ("col", "row") if dtype == "f32" else ("row", "col")  # the one that works first
    assert list(found) == [f"{math}_{layout}major_{choice}" for layout in layouts for choice in ("default", "search")]
    next(iter(every(problem, operands, gpu).values())).prepare().close()
    kept = len(gpu.backend.memory)  # the library's handle, the timer, and the weights
    gpu.backend.log.clear()
    check_all(found.values(), problem, operands)
    assert list(gpu.cusparseLt.live.values()) == ["handle"]
    # b in both layouts, and for each candidate the flag of the library's check and what `check_a_copy` writes
    assert sum(step[0] == "upload" for step in gpu.backend.log) == 2 + 3 * len(found)
    del found
    assert len(gpu.backend.memory) == kept


def test_integers_are_multiplied_exactly_where_the_library_takes_their_layout(gpu):
    problem, operands = make(8, 32, 16, "i8")
    found = every(problem, operands, gpu)
    with pytest.raises(Unsupported, match="i8_rowmajor_default: CUSPARSE_STATUS_NOT_SUPPORTED"):
        found["i8_rowmajor_default"].prepare()
    check_all([found["i8_colmajor_search"]], problem, operands)
    assert found["i8_colmajor_search"].prepare().read().dtype == np.int32


def test_fp8_is_multiplied_in_the_layout_that_hopper_takes(gpu):
    problem, operands = make(8, 32, 16, "f8")
    found = every(problem, operands, gpu)
    assert list(found) == ["f8_colmajor_default", "f8_colmajor_search"]
    check_all(found.values(), problem, operands)


def test_the_search_comes_before_the_first_run_and_only_where_asked_for(gpu):
    found = every(*make(8, 16, 4), gpu)
    found["f16_rowmajor_default"].prepare()
    assert "search" not in gpu.cusparseLt.calls
    gpu.cusparseLt.calls.clear()
    found["f16_rowmajor_search"].prepare()
    assert gpu.cusparseLt.calls[0] == "search"
    assert gpu.cusparseLt.calls.count("search") == 1


@pytest.mark.parametrize(
    ("k", "dtype", "needs"),
    [
        (16, "f16", "needs 2:4 sparsity for f16: in row 0 more of columns 0 to 3 are nonzero"),
        (16, "f32", "needs 1:2 sparsity for f32"),
        (18, "f16", "a k that is a multiple of 4, not 18"),
    ],
)
def test_another_pattern_is_refused_with_the_reason(k, dtype, needs, gpu):
    with pytest.raises(Unsupported, match=needs):
        every(*make(8, k, 4, dtype, keep=None), gpu)


def test_weights_that_fail_the_librarys_own_check_are_refused(gpu):
    gpu.cusparseLt.fails_check = True
    with pytest.raises(Unsupported, match="fails cusparselt's own check"):
        every(*make(8, 16, 4), gpu)["f16_rowmajor_default"].prepare()
    assert list(gpu.cusparseLt.live.values()) == ["handle"]


@pytest.mark.parametrize("at", [(0, 0), (299, 12), (256, 4)])
def test_one_group_too_full_is_found(at):
    row, column = at
    dense = np.zeros((300, 16), np.float16)
    dense[:, ::4] = dense[:, 1::4] = 1
    require_pattern(CSR.from_dense(dense), "f16")
    dense[row, column + 3] = 1
    with pytest.raises(Unsupported, match=f"in row {row} more of columns {column} to {column + 3} are nonzero"):
        require_pattern(CSR.from_dense(dense), "f16")
    require_pattern(CSR.from_dense(np.zeros((3, 8), np.float16)), "f16")


def test_sizes_that_the_library_refuses_are_unsupported(gpu):
    candidate = every(*make(8, 24, 4), gpu)["f16_colmajor_search"]
    with pytest.raises(Unsupported, match="cusparselt f16_colmajor_search: CUSPARSE_STATUS_NOT_SUPPORTED"):
        candidate.prepare()
    assert list(gpu.cusparseLt.live.values()) == ["handle"]


@pytest.mark.parametrize(
    ("status", "raised"), [(10, Unsupported), (7, LaunchError), (2, LaunchError), (11, LaunchError)]
)
def test_a_status_without_its_name_is_a_refusal_where_its_number_says_so(status, raised):
    class cuSPARSELtError(Exception):  # noqa: N801
        pass

    def call():
        raise cuSPARSELtError(f"cuSPARSELtError ({status})")

    with pytest.raises(raised, match=rf"cusparselt i8: cuSPARSELtError \({status}") as caught:
        vendor_support.refusing("cusparselt i8", call)
    assert short_of_memory(caught.value) == (status in (2, 11))


def test_older_gpus_have_no_sparse_tensor_cores(gpu):
    gpu.backend.facts = replace(FACTS, compute_capability=(7, 5))
    with pytest.raises(Unsupported, match="start with sm_80, this GPU is sm_75"):
        every(*make(8, 16, 4), gpu)


def test_a_missing_library_says_what_to_install(gpu):
    def missing():
        raise RuntimeError("Failure finding libcusparseLt.so")

    gpu.cusparseLt.init = missing
    with pytest.raises(Unsupported, match=r"can't be loaded \(Failure finding.*pip install 'nnzbench\[vendor13\]'"):
        every(*make(8, 16, 4), gpu)["f16_rowmajor_default"].prepare()
