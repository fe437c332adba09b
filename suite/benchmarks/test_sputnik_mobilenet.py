"""Sputnik (SC 2020), table IV, figure 12: The layers of MobileNetV1."""

from __future__ import annotations

EXPERIMENT = "sputnik_mobilenet"


def test_sputnik_mobilenet(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
