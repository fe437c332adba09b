"""SparseRT (PACT 2020), table 3, figure 7: 3x3 convolutions of ResNet-50."""

from __future__ import annotations

EXPERIMENT = "sparsert_table3"


def test_sparsert_table3(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
