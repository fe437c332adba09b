"""SparseRT (PACT 2020), figure 8: Unrolling, load balancing and tuning, one left out at a time."""

from __future__ import annotations

EXPERIMENT = "sparsert_ablation"


def test_sparsert_ablation(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
