"""Direct sparse convolution (2021), table 8: 1-D convolutions."""

from __future__ import annotations

EXPERIMENT = "direct_conv_table8"


def test_direct_conv_table8(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
