"""Every own kernel that takes any pattern against float64 on a real GPU, over the real matrices of the collection."""

import functools
from dataclasses import replace

import pytest
from vendor_candidates import outcomes

from nnzbench.data.matrices.formats import MatrixError
from nnzbench.data.problems import tables
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import DType, Op

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cache_dir")]

COLUMNS = {"delta_spmv": 1, "tensor_spmm": 40, "tensor_spmm_tf32": 40}
"""Of the dense operand where it is not the network's: few, since what these kernels do with A depends on A alone."""
TILES = 3
"""The likeliest tiles of a kernel, which are those that a user runs; sweeps check all of them before they time one."""
WORK: list[tuple[Op, DType, tuple[str, ...]]] = [
    ("spmm", "f32", ("sputnik", "sputnik_transposed", "row_stream", "ring", "merge_spmm")),
    ("spmm", "f16", ("sputnik", "sputnik_transposed", "row_stream", "ring")),
    ("spmm", "f16", ("tensor_spmm",)),
    ("spmm", "bf16", ("tensor_spmm",)),
    ("spmm", "f32", ("tensor_spmm_tf32",)),
    ("spmm", "f16", ("delta_spmv",)),
    ("spmm", "bf16", ("delta_spmv",)),
    ("sddmm", "f32", ("sputnik_sddmm", "ring_sddmm")),
    ("sddmm", "f16", ("sputnik_sddmm",)),
    ("sparse_softmax", "f32", ("sparse_softmax",)),
    ("sparse_softmax", "f16", ("sparse_softmax",)),
]


@functools.cache
def real_problems():
    """Each real matrix on disk once, at its inference batch."""
    found = [p for p in tables.load("sputnik_dlmc", full=True) if p.op == "spmm" and p.name.endswith("_dlmc")]
    return list({problem.source: problem for problem in found if "_b1_" in problem.name}.values())


def as_op(problem, op, dtype):
    """The same pattern under another op: for sddmm the output's, for softmax the scores'."""
    if op == "sddmm":
        return replace(problem, op=op, dtype=dtype, k=problem.n, n=problem.k)
    return replace(problem, op=op, dtype=dtype)


@pytest.mark.parametrize(
    ("op", "dtype", "names"), WORK, ids=lambda value: value if isinstance(value, str) else "+".join(value)
)
def test_right_on_every_real_matrix(gpu, op, dtype, names):
    problems = real_problems()
    if not problems:
        pytest.skip("no matrix of the collection is on disk; set NNZBENCH_DATA to a folder that holds some")
    wrong, right = [], dict.fromkeys(names, 0)
    for problem in (as_op(one, op, dtype) for one in problems):
        problem = replace(problem, n=COLUMNS.get(names[0], problem.n))
        try:
            operands = make_operands(problem)
        except MatrixError as error:  # the others are still tried
            wrong.append(str(error))
            continue
        for name in names:
            for variant, outcome in outcomes(gpu, name, problem, operands, TILES):
                right[name] += bool(variant) and outcome.status == "ok"
                if outcome.status not in ("ok", "unsupported"):
                    wrong.append(f"{name} {problem.name}: {outcome.status} {outcome.reason}")
    print(f"{op} {dtype}: {len(problems)} matrices; right: {right}")
    assert not wrong, "\n".join(wrong)
    assert all(count >= len(problems) // 2 for count in right.values()), right
