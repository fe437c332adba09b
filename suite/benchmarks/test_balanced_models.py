"""Balanced Sparsity (AAAI 2019), tables 1 to 3: Layers of VGG-16, PTB LSTM and CTC models."""

from __future__ import annotations

EXPERIMENT = "balanced_models"


def test_balanced_models(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
