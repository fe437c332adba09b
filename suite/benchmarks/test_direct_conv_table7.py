"""Direct sparse convolution (2021), table 7: 1x1 convolutions of ResNet-50."""

from __future__ import annotations

EXPERIMENT = "direct_conv_table7"


def test_direct_conv_table7(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
