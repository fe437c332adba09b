"""cuSPARSELt against float64, over a library that computes in NumPy."""

import re

import numpy as np
import pytest
from fake_cusparse import FakeCusparse
from fake_cusparselt import FakeCusparseLt
from fake_gpu import FACTS, open_fake

from nnzbench.devices.gpu import LaunchError
from nnzbench.devices.gpu_backend import GpuFacts
from nnzbench.kernels.registry import candidates, kernels
from nnzbench.kernels.vendor import cusparselt as vendor_cusparselt
from nnzbench.kernels.vendor import support as vendor_support
from nnzbench.kernels.vendor.cusparselt import require_pattern
from nnzbench.matrices.formats import CSR
from nnzbench.matrices.prune import n_of_m
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.check import passes, relative_error
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem
from nnzbench.problems.reference import reference


@pytest.fixture
def gpu(monkeypatch):
    device = open_fake()
    device.lt = FakeCusparseLt(device.backend)
    libraries = {"cusparseLt": device.lt, "cusparse": FakeCusparse(device.backend)}
    monkeypatch.setattr(vendor_cusparselt, "load_bindings", libraries.__getitem__)
    return device


def make(m, k, n, dtype="f16", keep=(2, 4)):
    rng = np.random.default_rng(m + n)
    weights = rng.standard_normal((m, k)).astype(np.float32)
    matrix = n_of_m(weights, *keep) if keep else CSR.from_dense(weights)
    b = rng.standard_normal((k, n)).astype(np.float32)
    problem = Problem("t", "p", "spmm", m, k, n, 0.5, "nm:2:4:0", dtype)
    return problem, Operands(matrix, {"b": b}, matrix.pattern_hash()).cast(dtype)


def every(problem, operands, device):
    return {one.variant: one for one in candidates(kernels()["cusparselt"], problem, operands, device)}


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
    for candidate in found.values():
        prepared = candidate.prepare()
        prepared.poison()
        assert np.isnan(prepared.read().astype(np.float32)).all()
        prepared.run()
        assert passes(relative_error(prepared.read(), reference(problem, operands)), candidate.math)
        prepared.close()
    assert list(gpu.lt.live.values()) == ["handle"]
    # b in both layouts, and for each candidate the flag of the library's check
    assert sum(step[0] == "upload" for step in gpu.backend.log) == 2 + len(found)
    del candidate, found, prepared
    assert len(gpu.backend.memory) == kept


def test_integers_are_multiplied_exactly_where_the_library_takes_their_layout(gpu):
    problem, operands = make(8, 32, 16, "i8")
    found = every(problem, operands, gpu)
    with pytest.raises(Unsupported, match="i8_rowmajor_default: CUSPARSE_STATUS_NOT_SUPPORTED"):
        found["i8_rowmajor_default"].prepare()
    prepared = found["i8_colmajor_search"].prepare()
    prepared.poison()
    assert (prepared.read() == 2**31 - 1).all()
    prepared.run()
    assert prepared.read().dtype == np.int32
    assert relative_error(prepared.read(), reference(problem, operands)) == 0


def test_fp8_is_multiplied_in_the_layout_that_hopper_takes(gpu):
    problem, operands = make(8, 32, 16, "f8")
    found = every(problem, operands, gpu)
    assert list(found) == ["f8_colmajor_default", "f8_colmajor_search"]
    for candidate in found.values():
        prepared = candidate.prepare()
        prepared.poison()
        prepared.run()
        assert passes(relative_error(prepared.read(), reference(problem, operands)), "f8")
        prepared.close()


def test_the_search_comes_before_the_first_run_and_only_where_asked_for(gpu):
    found = every(*make(8, 16, 4), gpu)
    found["f16_rowmajor_default"].prepare()
    assert "search" not in gpu.lt.calls
    gpu.lt.calls.clear()
    found["f16_rowmajor_search"].prepare()
    assert gpu.lt.calls[0] == "search"
    assert gpu.lt.calls.count("search") == 1


def test_another_pattern_is_refused_with_the_reason(gpu):
    with pytest.raises(Unsupported, match="needs 2:4 sparsity for f16: in row 0 more of columns 0 to 3 are nonzero"):
        every(*make(8, 16, 4, keep=None), gpu)
    with pytest.raises(
        Unsupported, match=r"needs 1:2 sparsity for f32: in row \d more of columns \d to \d+ are nonzero"
    ):
        every(*make(8, 16, 4, "f32"), gpu)
    problem, operands = make(8, 18, 4, keep=None)
    with pytest.raises(Unsupported, match="a k that is a multiple of 4, not 18"):
        every(problem, operands, gpu)
    gpu.lt.fails_check = True
    with pytest.raises(Unsupported, match="fails cusparselt's own check"):
        every(*make(8, 16, 4), gpu)["f16_rowmajor_default"].prepare()
    assert list(gpu.lt.live.values()) == ["handle"]


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
    assert list(gpu.lt.live.values()) == ["handle"]


@pytest.mark.parametrize(("status", "raised"), [(10, Unsupported), (7, LaunchError)])
def test_a_status_without_its_name_is_a_refusal_where_its_number_says_so(status, raised):
    class cuSPARSELtError(Exception):  # noqa: N801
        pass

    def call():
        raise cuSPARSELtError(f"cuSPARSELtError ({status})")

    with pytest.raises(raised, match=rf"cusparselt i8: cuSPARSELtError \({status}"):
        vendor_support.refusing("cusparselt i8", call)


def test_older_gpus_have_no_sparse_tensor_cores(gpu):
    gpu.backend.facts = GpuFacts(**{**FACTS.__dict__, "compute_capability": (7, 5)})
    with pytest.raises(Unsupported, match="start with sm_80, this GPU is sm_75"):
        every(*make(8, 16, 4), gpu)


def test_a_missing_library_says_what_to_install(gpu):
    def missing():
        raise RuntimeError("Failure finding libcusparseLt.so")

    gpu.lt.init = missing
    with pytest.raises(Unsupported, match=r"can't be loaded \(Failure finding.*pip install 'nnzbench\[vendor13\]'"):
        every(*make(8, 16, 4), gpu)["f16_rowmajor_default"].prepare()


CALLS = {
    "init": 0,
    "structured_descriptor_init": 8,
    "dense_descriptor_init": 7,
    "matmul_descriptor_init": 8,
    "matmul_alg_selection_init": 3,
    "matmul_plan_init": 3,
    "sp_mma_prune_check": 5,
    "sp_mma_compressed_size": 2,
    "sp_mma_compress": 6,
    "matmul_get_workspace": 2,
    "matmul": 11,
    "matmul_search": 11,
    "mat_descriptor_destroy": 1,
    "matmul_descriptor_destroy": 1,
    "matmul_alg_selection_destroy": 1,
    "matmul_plan_destroy": 1,
}


def test_the_installed_bindings_take_the_arguments_and_values_that_we_pass():
    pytest.importorskip("nvmath")
    bindings = vendor_support.load_bindings("cusparseLt")
    for name, count in CALLS.items():
        parameters = re.match(rf"{name}\((.*?)\)", getattr(bindings, name).__doc__)[1]
        assert len([p for p in parameters.split(",") if p.strip()]) == count, name
    for enum in (FakeCusparseLt.ComputeType, FakeCusparseLt.MatmulAlg, FakeCusparseLt.Sparsity):
        for member in enum:
            assert getattr(bindings, enum.__name__)[member.name] == member
