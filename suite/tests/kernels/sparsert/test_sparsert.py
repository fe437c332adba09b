import numpy as np
import pytest
from on_cpu import execute
from on_cpu import matrix as random_matrix
from sparsert_programs import CONVOLUTIONS, POINTWISE, STAGED, assembled, conv_plan, interpret, right, spmm_plan, truth

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.check import relative_error
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import ConvShape, Problem
from nnzbench.kernels.sparsert import spmm as sparsert
from nnzbench.kernels.sparsert.emit import immediates
from nnzbench.kernels.sparsert.program import ImagePixels, MatrixColumns, divide
from nnzbench.kernels.sparsert.schedule import Tiling
from nnzbench.kernels.sparsert.spmm import MAX_NONZEROS, Planner, check

TILINGS = [
    Tiling(8),
    Tiling(8, parts=2, depth=4),
    Tiling(16, parts=4, column_tiles=2),
    Tiling(4, parts=8, row_tiles=2),
    Tiling(8, row_tiles=4, staged=True),
    Tiling(16, parts=4, staged=True, row_tiles=2),
    Tiling(8, parts=3, loop=2),
    Tiling(8, loop=3),
    Tiling(8, parts=2, row_tiles=2, column_tiles=2),
]


@pytest.mark.parametrize("tiling", TILINGS, ids=lambda t: t.name)
@pytest.mark.parametrize(("m", "k", "n"), [(37, 29, 68), (70, 64, 49), (5, 17, 7), (1, 40, 1)])
def test_emitted_ptx_multiplies(tiling, m, k, n):
    matrix = random_matrix(m, k, 0.2 if m < 50 else 0.08)
    try:
        plan, b = spmm_plan(matrix, n, tiling)
    except Unsupported as error:
        pytest.skip(str(error))
    assert right(interpret(plan), truth(matrix, b))
    if tiling.warps > 1 and n == 68:  # another order of warps exposes a missing barrier
        assert right(interpret(plan, backward=True), truth(matrix, b))


def test_staging_without_asynchronous_copies():
    matrix = random_matrix(37, 48, 0.2)
    for n in (100, 49):
        plan, b = spmm_plan(matrix, n, Tiling(8, row_tiles=4, staged=True), arch="sm_75")
        assert "cp.async" not in plan.source
        assert right(interpret(plan), truth(matrix, b))


def degenerate():
    dense = np.zeros((40, 30), np.float32)
    one_row = dense.copy()
    one_row[17] = 1.5
    gaps = random_matrix(40, 30, 0.3).to_dense()
    gaps[::3] = 0
    gaps[:, ::4] = 0
    return {"empty": CSR.from_dense(dense), "one dense row": CSR.from_dense(one_row), "gaps": CSR.from_dense(gaps)}


@pytest.mark.parametrize("name", degenerate())
@pytest.mark.parametrize("tiling", [Tiling(8), Tiling(8, parts=4), Tiling(8, row_tiles=2, parts=2)])
def test_empty_rows_and_columns(name, tiling):
    matrix = degenerate()[name]
    plan, b = spmm_plan(matrix, 33, tiling)
    assert relative_error(interpret(plan), truth(matrix, b)) <= 1e-6


def test_constants_keep_their_bits():
    bits = [0x80000000, 0x00000001, 0x807FFFFF, 0x7F61B1E6, 0x7F7FFFFF, 0x3DCCCCCD]
    values = np.array(bits, np.uint32).view(np.float32)
    assert immediates(values) == [f"0f{b:08X}" for b in bits]
    matrix = CSR(6, 6, np.arange(7, dtype=np.int32), np.arange(6, dtype=np.int32), values)
    for values_in in ("code", "buffer"):
        planner = Planner(matrix, MatrixColumns(3), "sm_90")
        plan = sparsert.make_plan(planner, Tiling(8), np.ones((6, 3), np.float32), "sm_90", (6, 3), values=values_in)
        assert np.array_equal(interpret(plan), np.repeat(values[:, None], 3, axis=1) + np.float32(0))
    assert "0f80000000" in plan.source or values_in == "buffer"


@pytest.mark.parametrize("tiling", [Tiling(8), Tiling(8, parts=4), Tiling(8, parts=2, row_tiles=2, staged=True)])
def test_values_in_a_buffer_change_without_new_code(tiling):
    matrix = random_matrix(37, 29, 0.3)
    other = matrix.with_values((matrix.values * 3 + 1).astype(np.float32))
    plan, b = spmm_plan(matrix, 40, tiling, values="buffer")
    again, _ = spmm_plan(other, 40, tiling, values="buffer")
    assert plan.source == again.source
    assert right(interpret(plan), truth(matrix, b))
    assert right(interpret(again), truth(other, b))


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("tiling", [Tiling(8), Tiling(8, parts=3), Tiling(4, parts=2, row_tiles=2, column_tiles=2)])
def test_convolution_by_virtual_im2col(shape, tiling):
    plan, expected = conv_plan(shape, tiling)
    assert right(interpret(plan), expected)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("shape", POINTWISE, ids=str)
@pytest.mark.parametrize("tiling", [*STAGED, Tiling(8, columns_per_thread=2)], ids=lambda t: t.name)
def test_pointwise_convolution_of_several_images(tiling, shape, dtype):
    if tiling.columns_per_thread == 2 and shape.out_height * shape.out_width % 2:
        with pytest.raises(Unsupported, match="2 columns side by side"):
            conv_plan(shape, tiling, dtype=dtype)
        return
    for arch in ("sm_90", "sm_75") if tiling.staged else ("sm_90",):  # with and without asynchronous copies
        plan, expected = conv_plan(shape, tiling, arch, dtype)
        assert right(interpret(plan), expected, dtype)


SCATTERED = [
    ConvShape(2, 24, 6, 6, 21, 3, 3, 1, 1),
    ConvShape(2, 24, 6, 6, 21, 1, 1, stride=2),
    ConvShape(2, 24, 6, 6, 21, 1, 1, 1, 1),
]


@pytest.mark.parametrize("shape", SCATTERED, ids=str)
def test_columns_that_do_not_lie_side_by_side_are_not_copied_together(shape):
    with pytest.raises(Unsupported, match="staging needs columns side by side"):
        conv_plan(shape, Tiling(8, row_tiles=4, staged=True))
    with pytest.raises(Unsupported, match="2 columns side by side"):
        conv_plan(shape, Tiling(8, columns_per_thread=2))
    plan, expected = conv_plan(shape, Tiling(8, row_tiles=2))
    assert right(interpret(plan), expected)


def test_what_is_beyond_sensible_code_or_a_block_gets_a_reason():
    matrix = random_matrix(1024, 1024, 0.12)
    assert matrix.nnz > MAX_NONZEROS
    problem = Problem("t", "t", "spmm", 1024, 1024, 49, 0.9, "uniform:0")
    operands = Operands(matrix, {"b": np.zeros((1024, 49), np.float32)}, "p")
    with pytest.raises(Unsupported, match=r"straight-line code.*'row_stream' and 'ring'"):
        next(sparsert.sparsert.plans(problem, operands, "sm_90"))
    small = random_matrix(64, 64, 0.1)
    with pytest.raises(Unsupported, match="offsets beyond 2 GB"):
        check(small, MatrixColumns(2**23), 4)
    for n, tiling, words in ((64, Tiling(64, parts=32), "register file"), (49, Tiling(8, 1, 2), "multiple of 2")):
        with pytest.raises(Unsupported, match=words):
            spmm_plan(small, n, tiling)


def test_a_convolution_is_refused_only_beyond_the_largest_layer_of_the_papers():
    def checked(nonzeros):
        per_row = nonzeros // 512
        indices = np.tile(np.arange(per_row, dtype=np.int32), 512)
        matrix = CSR(512, 4608, np.arange(513) * per_row, indices, np.ones(indices.size, np.float32))
        check(matrix, ImagePixels(ConvShape(1, 512, 7, 7, 512, 3, 3, 1, 1)), 4)

    checked(213_000)
    with pytest.raises(Unsupported, match="filters are written into code up to 262144"):
        checked(270_000)


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 49, 196, 3136, 12544, 65537])
def test_division_by_a_constant_is_exact(divisor):
    lines = divide("%q", "%x", divisor)
    for x in [*range(200), *(divisor * j + d for j in (1, 5, 99, 2**20, 2**31 // divisor) for d in (-1, 0, 1))]:
        if x >= 2**31:
            continue
        if len(lines) == 1:
            got = x >> int(lines[0].split()[-1][:-1])
        else:
            factor, shift = int(lines[0].split()[-1][:-1]), int(lines[1].split()[-1][:-1])
            assert factor < 2**32
            got = (x * factor) >> shift
        assert got == x // divisor


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90"])
def test_ptx_assembles(arch):
    matrix = random_matrix(64, 64, 0.1)
    for tiling in (Tiling(16, parts=4, column_tiles=2, loop=2), Tiling(8, row_tiles=4, staged=True)):
        resources = assembled(spmm_plan(matrix, 100, tiling, arch=arch)[0].source, arch, "sparsert")
        assert resources.spill_bytes == 0
        assert resources.code_bytes >= 16 * matrix.nnz


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
