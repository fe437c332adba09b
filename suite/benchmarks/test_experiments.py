"""Every experiment of the catalogue: `pytest --benchmark -k NAME` runs one, a test per problem, kernel and policy."""

from __future__ import annotations


def test_experiment(benchmark, bench, experiment, problem, dtype, kernel, policy):
    bench.run(benchmark, experiment, problem, dtype, kernel, policy)
