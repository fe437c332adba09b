import numpy as np
import pytest
from on_cpu import execute, fresh_cache  # noqa: F401
from on_cpu import matrix as random_matrix
from sparsert_programs import CONVOLUTIONS, POINTWISE, STAGED, conv_plan, interpret, right, spmm_plan, truth

from nnzbench.kernels.codegen.schedule import Tiling


@pytest.mark.parametrize(
    ("tiling", "options"),
    [
        (Tiling(8), {}),
        (Tiling(16, parts=4, column_tiles=2), {}),
        (Tiling(8, row_tiles=4, staged=True), {}),
        (Tiling(8, parts=3, loop=2), {"values": "buffer"}),
        (Tiling(8, parts=4, columns_per_thread=2), {"element": 2}),
    ],
    ids=["plain", "parts", "staged", "pattern", "half"],
)
def test_the_cpp_form_multiplies(tiling, options):
    matrix = random_matrix(37, 48, 0.2)
    plan, b = spmm_plan(matrix, 100, tiling, arch="sm_80", **options)
    if "element" in options:
        matrix = matrix.with_values(matrix.values.astype(np.float16).astype(np.float32))
        plan, b = spmm_plan(matrix, 100, tiling, arch="sm_80", **options)
    assert right(execute(plan), truth(matrix, b), plan.math)


@pytest.mark.parametrize("shape", [CONVOLUTIONS[1], CONVOLUTIONS[3]], ids=str)
def test_the_cpp_form_convolves(shape):
    plan, expected = conv_plan(shape, Tiling(8, parts=3), "sm_80")
    assert right(execute(plan), expected)


@pytest.mark.parametrize(
    ("shape", "tiling", "dtype"),
    [(POINTWISE[0], STAGED[3], "f16"), (POINTWISE[1], STAGED[0], "f32"), (POINTWISE[2], STAGED[2], "f16")],
    ids=["vectors", "odd", "parts"],
)
def test_the_cpp_form_stages_several_images(shape, tiling, dtype):
    plan, expected = conv_plan(shape, tiling, "sm_80", dtype)
    on_cpu = execute(plan)
    assert right(on_cpu, expected, dtype)
    np.testing.assert_allclose(on_cpu, interpret(plan), rtol=1e-3 if dtype == "f16" else 1e-6, atol=1e-6)
