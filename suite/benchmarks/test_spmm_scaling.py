"""nnzbench's own: time per nonzero from 1e5 to 1e8 nonzeros."""

from __future__ import annotations

EXPERIMENT = "spmm_scaling"


def test_spmm_scaling(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
