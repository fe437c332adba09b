"""SparseRT (PACT 2020), table 1, figures 4 and 5: 1x1 convolutions and Transformer layers at 90 and 95 % sparsity."""

from __future__ import annotations

EXPERIMENT = "sparsert_table1"


def test_sparsert_table1(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
