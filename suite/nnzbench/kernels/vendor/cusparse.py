"""cuSPARSE: SpMM, SpMV and SDDMM with every algorithm, format and layout that fits, preprocessing included."""

from __future__ import annotations

from collections.abc import Iterator

from nnzbench.devices import Device
from nnzbench.kernels.registry import register
from nnzbench.kernels.roles import TENSOR_CORES, About
from nnzbench.kernels.vendor.cusparse_sddmm import sddmm_candidates
from nnzbench.kernels.vendor.cusparse_spmm import spmm_candidates
from nnzbench.kernels.vendor.cusparse_spmv import spmv_candidates
from nnzbench.kernels.vendor.support import require_gpu
from nnzbench.plans.plan import Candidate
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem


class Cusparse:
    """The generic API of cuSPARSE."""

    name = "cusparse"
    paper = "NVIDIA cuSPARSE"
    ops = frozenset({"spmm", "spmv", "sddmm"})
    dtypes = frozenset({"f32", "f16", "bf16"})

    def candidates(self, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        """One per algorithm, format, layout and preprocessing. Raises `Unsupported` without a GPU."""
        gpu = require_gpu(device, self.name)
        matrix, dense = operands.sparse, operands.dense
        if problem.op == "sddmm":
            return sddmm_candidates(gpu, matrix, dense["a"], dense["b"], problem.dtype)
        make = spmv_candidates if problem.op == "spmv" else spmm_candidates
        return make(gpu, matrix, dense["b"], problem.dtype)


register(
    Cusparse(),
    About("library", "cuSPARSE", maths=TENSOR_CORES, reference=True, searched=True, rank=200),
)
