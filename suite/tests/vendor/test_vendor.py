"""Vendor kernels against float64, over libraries that follow their documentation but compute in NumPy."""

import re
from dataclasses import replace

import numpy as np
import pytest
from fake_cusparse import FakeCusparse
from fake_cusparselt import FakeCusparseLt
from fake_gpu import FACTS, FakeCublas, FakeCublasLt
from vendor_candidates import check_all, every, product

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.devices.gpu import LaunchError
from nnzbench.kernels.vendor import support as vendor_support
from nnzbench.kernels.vendor.cublas import ALGORITHMS, FURTHER
from nnzbench.kernels.vendor.support import dense_weights

FIRST = {"cublas": "f32_rowmajor", "cublaslt": "f32_rowmajor_algo00_unpruned", "cusparse": "csr_default_row"}
SHAPES = [(8, 16, 4), (7, 5, 1), (33, 17, 49), (1, 64, 7)]


def make(m, k, n, dtype="f32", density=0.3, empty=True):
    rng = np.random.default_rng(m * n)
    dense = rng.standard_normal((m, k)).astype(np.float32) * (rng.random((m, k)) < density)
    if empty:
        dense[m // 2] = 0.0  # a row without a nonzero
    return product(CSR.from_dense(dense), n, dtype)


FORMS = [(kernel, dtype) for kernel in ("cublas", "cublaslt", "cusparse") for dtype in ("f32", "f16", "bf16")]
FORMS += [("cublas", "i8"), ("cublaslt", "i8"), ("cublaslt", "f8")]
RESULT = {"i8": np.int32, "f16": np.float16, "f8": np.float16}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("kernel", "dtype"), FORMS)
def test_every_variant_computes_the_product(kernel, dtype, shape, gpu):
    problem, operands = make(*shape, dtype)
    found = every(kernel, problem, operands, gpu)
    found.pop("blocks", None)  # no size fits these shapes
    assert len(found) >= (8 if dtype == "i8" else 1)
    check_all(found.values(), problem, operands)
    assert next(iter(found.values())).prepare().read().dtype == RESULT.get(dtype, np.float32)


def test_cublas_offers_each_math_mode_in_every_layout(gpu):
    found = every("cublas", *make(4, 8, 4), gpu)
    half = [f"{layout}major{turn}" for turn in ("", "_bcol_ccol", "_bcol", "_ccol") for layout in ("row", "col")]
    names = ["f32_rowmajor", "f32_colmajor", *(f"tf32_{layout}" for layout in half)]
    assert list(found) == [name + of for name in names for of in ("_unpruned", "")]
    assert found["tf32_colmajor"].math == "tf32"
    for one in found.values():
        one.prepare().run()
    modes = [call[1] for call in gpu.cublas.calls if call[0] == "gemm"]
    assert {int(mode) for mode in modes[: len(modes) // 5]} == {68}  # IEEE fp32 first, TF32 only where it says so
    assert {int(mode) for mode in modes[len(modes) // 5 :]} == {77}
    assert list(every("cublas", *make(4, 8, 4, "f16"), gpu))[1::2] == [f"f16_{layout}" for layout in half]
    assert list(every("cublas", *make(4, 8, 4, "f16", density=1.1, empty=False), gpu)) == [f"f16_{one}" for one in half]


def test_unpruned_weights_are_those_of_the_pattern_and_have_no_zeros():
    _, operands = make(33, 17, 4, "bf16")
    matrix = operands.sparse
    whole, pruned = (dense_weights(matrix, "bf16", pruned=one) for one in (False, True))
    assert (whole != 0).all()
    assert np.array_equal(whole[pruned != 0], pruned[pruned != 0])


def test_one_cublas_handle_serves_all_and_has_its_workspace_after_its_stream(gpu):
    for one in every("cublas", *make(4, 8, 4), gpu).values():
        one.prepare()
    calls = [call for call in gpu.cublas.calls if isinstance(call, str)]
    assert calls == ["create", "set_stream", "set_workspace"]
    gpu.close()
    assert gpu.cublas.calls[-1] == "destroy"


def test_cublaslt_tries_every_algorithm_of_the_heuristic_and_frees_its_descriptors(gpu):
    found = every("cublaslt", *make(4, 8, 4), gpu)
    assert list(found)[:4] == [
        *(f"f32_rowmajor_algo0{at}_unpruned" for at in range(3)),
        "f32_colmajor_algo00_unpruned",
    ]
    assert len(found) == 6 + 8 * FURTHER
    library = gpu.cublasLt
    prepared = found["tf32_colmajor_algo02_unpruned"].prepare()
    assert library.run_with[-1] == (77, 1002)
    prepared.close()
    assert list(library.live.values()) == ["handle"]
    library.proposals = 100  # their number is bounded
    assert len(every("cublaslt", *make(4, 8, 4, "f16"), gpu)) == 2 * ALGORITHMS + 6 * FURTHER
    layouts = {name.partition("_algo")[0] for name in every("cublaslt", *make(4, 8, 4, "f8"), gpu)}
    assert layouts == {"f8_rowmajor_bcol", "f8_rowmajor_bcol_ccol"}


def test_a_mode_without_an_algorithm_is_a_row_with_a_reason(gpu):
    gpu.cublasLt.proposals = 0
    found = every("cublaslt", *make(4, 8, 4), gpu)
    assert list(found)[:4] == ["f32_rowmajor", "f32_colmajor", "tf32_rowmajor", "tf32_colmajor"]
    with pytest.raises(Unsupported, match="knows no tf32_colmajor algorithm"):
        found["tf32_colmajor"].prepare()


def test_cusparse_sweeps_algorithms_layouts_and_preprocessing(gpu):
    found = every("cusparse", *make(4, 8, 4), gpu)
    layouts = ["row", "col"]
    once = [f"csr_{name}_{layout}" for name in ("default", "alg1", "alg2", "alg3") for layout in layouts]
    once += [f"coo_alg{number}_{layout}" for number in (1, 2, 3, 4) for layout in layouts]
    again = [f"csr_{name}_{layout}_preprocess" for name in ("alg1", "alg3") for layout in layouts]
    assert sorted(found) == sorted([*once, *again, "blocks"])


def test_what_a_library_refuses_is_unsupported_and_frees_everything(gpu):
    library = gpu.cusparse
    library.refused = FakeCusparse.SpMMAlg.CSR_ALG3
    found = every("cusparse", *make(4, 8, 4), gpu)
    found["csr_alg2_row"].prepare().close()
    with pytest.raises(Unsupported, match=r"cusparse csr_alg3_row: CUSPARSE_STATUS_NOT_SUPPORTED"):
        found["csr_alg3_row"].prepare()
    assert list(library.live.values()) == ["handle"]


def test_a_library_failure_is_a_launch_error(gpu):
    gpu.cublas.fail = "CUBLAS_STATUS_EXECUTION_FAILED (13): the function failed to launch on the GPU"
    with pytest.raises(LaunchError, match=r"cublas f32.*: CUBLAS_STATUS_EXECUTION_FAILED"):
        every("cublas", *make(4, 8, 4), gpu)["f32_rowmajor"].prepare()


@pytest.mark.parametrize("kernel", ["cublas", "cublaslt", "cusparse"])
def test_memory_is_given_back(kernel, gpu):
    every(kernel, *make(8, 16, 4), gpu)[FIRST[kernel]].prepare().close()
    before = len(gpu.backend.memory)  # what the library's handle and the timer keep
    problem, operands = make(8, 16, 4)
    found = list(every(kernel, problem, operands, gpu).values())
    held = []
    for _ in range(2):
        for one in found:
            if one.variant != "blocks":
                one.prepare().close()
        held.append(len(gpu.backend.memory))
    assert held[0] == held[1] > before  # the inputs, for as long as there are candidates
    del one, found, operands  # the weights as long as their matrix
    assert len(gpu.backend.memory) == before


@pytest.mark.parametrize(("kernel", "uploads"), [("cublas", 6), ("cublaslt", 4), ("cusparse", 6)])
def test_each_form_of_an_input_is_uploaded_once_for_all_candidates(kernel, uploads, gpu):
    found = every(kernel, *make(8, 16, 4), gpu)
    found[FIRST[kernel]].prepare()  # opens the library and the timer
    gpu.backend.log.clear()
    found = every(kernel, *make(8, 16, 4), gpu)
    for one in found.values():
        if one.variant != "blocks":
            one.prepare()
    assert len(found) >= 4
    # cublas: weights, pruned or not, b in both layouts; cusparse: offsets or rows, columns, values, b in both layouts
    assert sum(step[0] == "upload" for step in gpu.backend.log) == uploads


@pytest.mark.parametrize(
    ("kernel", "dtype", "variant", "capability", "needs"),
    [
        ("cublas", "f32", "tf32_rowmajor", (7, 5), "tf32 needs sm_80 or later, this GPU is sm_75"),
        ("cublaslt", "f32", "tf32_rowmajor", (7, 5), "tf32 needs sm_80"),
        ("cusparse", "bf16", "csr_alg2_row", (7, 5), "bf16 needs sm_80"),
        ("cublaslt", "f8", "f8_rowmajor_bcol", (8, 0), "f8 needs sm_89"),
    ],
)
def test_arithmetic_is_refused_where_a_library_would_quietly_use_another(
    kernel, dtype, variant, capability, needs, gpu
):
    gpu.backend.facts = replace(FACTS, compute_capability=capability)
    found = {name: one for name, one in every(kernel, *make(8, 16, 4, dtype), gpu).items() if name.startswith(variant)}
    assert found
    for one in found.values():
        with pytest.raises(Unsupported, match=needs):
            one.prepare()
    if kernel == "cublas":
        every("cublas", *make(4, 8, 4), gpu)["f32_rowmajor"].prepare()


class NoGpu:
    name = "cpu"
    arch = "cpu"


@pytest.mark.parametrize("kernel", ["cublas", "cublaslt", "cusparse"])
def test_other_devices_are_unsupported(kernel):
    with pytest.raises(Unsupported, match=f"{kernel} needs a CUDA GPU, not the cpu device"):
        every(kernel, *make(4, 8, 4), NoGpu())


def test_missing_bindings_say_what_to_install(monkeypatch):
    def missing(name):
        raise ImportError(f"No module named '{name}'")

    monkeypatch.setattr(vendor_support.importlib, "import_module", missing)
    with pytest.raises(Unsupported, match=r"cusparse needs nvmath-python .*pip install 'nnzbench\[cuda13\]'"):
        vendor_support.load_bindings("cusparse")


def test_a_library_that_does_not_load_is_unsupported(gpu):
    class Broken(vendor_support.Handle):
        library = "cublas"

        def _create(self):
            raise RuntimeError("libcublas.so.13: cannot open\nshared object file")

    with pytest.raises(
        Unsupported, match=r"cublas can't be loaded \(libcublas.so.13: cannot open shared object file\)"
    ):
        Broken.of(gpu)


# ---------------------------------------------------------------- the real bindings, which import without a GPU

CALLS = {
    "cublas": "create 0 destroy 1 set_stream 2 set_workspace 3 gemm_ex 19 get_property 1",
    "cublasLt": (
        "matmul 16 matmul_algo_get_heuristic 10 matmul_desc_create 2 matmul_desc_set_attribute 4 "
        "matrix_layout_create 4 matmul_preference_create 0 matmul_preference_set_attribute 4"
    ),
    "cusparse": (
        "create_csr 10 create_coo 9 create_sliced_ell 12 create_bsr 13 create_blocked_ell 9 create_dn_vec 3 "
        "sp_mv_buffer_size 9 sp_mv_preprocess 10 sp_mv 10 sddmm_buffer_size 11 sddmm_preprocess 11 sddmm 11 "
        "destroy_dn_vec 1 create_dn_mat 6 sp_mm_buffer_size 10 sp_mm_preprocess 11 sp_mm 11 destroy_sp_mat 1 "
        "destroy_dn_mat 1 set_stream 2"
    ),
    "cusparseLt": (
        "init 0 structured_descriptor_init 8 dense_descriptor_init 7 matmul_descriptor_init 8 "
        "matmul_alg_selection_init 3 matmul_plan_init 3 sp_mma_prune_check 5 sp_mma_compressed_size 2 "
        "sp_mma_compress 6 matmul_get_workspace 2 matmul 11 matmul_search 11 mat_descriptor_destroy 1 "
        "matmul_descriptor_destroy 1 matmul_alg_selection_destroy 1 matmul_plan_destroy 1"
    ),
}
"""Functions of the bindings, and how many arguments each takes."""


@pytest.mark.parametrize("library", CALLS)
def test_the_installed_bindings_take_the_arguments_that_we_pass(library):
    pytest.importorskip("nvmath")
    bindings, words = vendor_support.load_bindings(library), CALLS[library].split()
    for name, count in zip(words[::2], map(int, words[1::2]), strict=True):
        parameters = re.match(rf"{name}\((.*?)\)", getattr(bindings, name).__doc__)[1]
        assert len([p for p in parameters.split(",") if p.strip()]) == count, name


@pytest.mark.parametrize(
    ("library", "fake"),
    [("cublas", FakeCublas), ("cublasLt", FakeCublasLt), ("cusparse", FakeCusparse), ("cusparseLt", FakeCusparseLt)],
)
def test_the_installed_bindings_have_the_values_that_the_fakes_have(library, fake):
    pytest.importorskip("nvmath")
    bindings = vendor_support.load_bindings(library)
    for enum in vars(fake).values():
        for member in getattr(enum, "__members__", {}).values():
            assert getattr(bindings, enum.__name__)[member.name] == member


def test_the_heuristic_result_starts_with_the_algorithm():
    pytest.importorskip("nvmath")
    dtype = vendor_support.load_bindings("cublasLt").matmul_heuristic_result_dtype
    assert (dtype.fields["algo"][1], dtype["algo"].itemsize) == (0, 64)
    assert "state" in dtype.fields
