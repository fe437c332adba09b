"""Direct sparse convolution (2021), table 6: 3x3 convolutions of VGG-16."""

from __future__ import annotations

EXPERIMENT = "direct_conv_table6"


def test_direct_conv_table6(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
