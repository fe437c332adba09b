from __future__ import annotations

from pathlib import Path

import pytest

from nnzbench.experiments import EXPERIMENTS, UnknownExperiment, experiment
from nnzbench.kernel import kernels
from nnzbench.tables import experiments_with_tables

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def test_every_problem_table_is_an_experiment_with_a_benchmark_module():
    assert set(EXPERIMENTS) == set(experiments_with_tables())
    for name in EXPERIMENTS:
        assert f'EXPERIMENT = "{name}"' in (BENCHMARKS / f"test_{name}.py").read_text()


@pytest.mark.parametrize("name", sorted(set(EXPERIMENTS) - {"sputnik_dlmc"}))
def test_every_problem_is_computed_by_a_kernel_that_is_named_for_it(name):
    """A typing error in a kernel's name would leave an experiment without its rows."""
    one, known = EXPERIMENTS[name], kernels()
    ready = [known[kernel] for kernel in one.kernels if kernel in known]
    if len(ready) < len(one.kernels):
        pytest.skip("some of its kernels are not in this version")
    for problem in one.problems(real=False):
        assert any(problem.op in kernel.ops for kernel in ready), problem.name


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UnknownExperiment, match="sparsert_table1, "):
        experiment("sparsert")


def test_a_kernel_that_repeats_others_can_be_named_but_runs_in_no_experiment():
    assert "untuned" in kernels()
    assert not [name for name, one in EXPERIMENTS.items() if "untuned" in one.kernels]
