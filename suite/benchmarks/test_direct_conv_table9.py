"""Direct sparse convolution (2021), table 9: Sub-batch sizes."""

from __future__ import annotations

EXPERIMENT = "direct_conv_table9"


def test_direct_conv_table9(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
