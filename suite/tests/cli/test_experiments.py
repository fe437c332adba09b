from typing import get_args

import fake_records
import pytest
from draft_figures import figures_in_draft, pages_alone  # noqa: F401
from html_reports import rendered

from nnzbench.core import paths
from nnzbench.data.problems.experiment import POLICIES, Experiment, UnknownExperiment
from nnzbench.data.problems.problem import DType
from nnzbench.data.problems.tables import experiments_with_tables
from nnzbench.kernels.registry import VendorKernel, kernels
from nnzbench.papers.catalogue import EXPERIMENTS, experiment, page_of
from nnzbench.site.build import build

RUN = [name for name, one in EXPERIMENTS.items() if one.kernels]


def test_every_problem_table_is_an_experiment_that_runs():
    assert set(RUN) == set(experiments_with_tables())


def test_every_line_of_the_table_is_an_experiment_of_its_own_with_types_and_policies_that_there_are():
    lines = (paths.datasets() / "experiments.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(EXPERIMENTS) + 1
    for name, one in EXPERIMENTS.items():
        assert all((one.title, one.paper, one.figure)), name
        assert set(one.only) <= set(one.kernels), name
        assert {*one.policies} <= {*POLICIES}, name
        assert {dtype for dtypes in one.kernels.values() for dtype in dtypes} <= {*get_args(DType)}, name


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_page_that_is_declared_is_there(name):
    page = page_of(name)
    assert page is not None
    names = [one.name for one in page.figures]
    assert names == list(dict.fromkeys(names))


def test_an_experiment_without_a_page_gets_the_generic_one(monkeypatch, tmp_path):
    later = Experiment("later", "Soon", "Somebody (2030)", "Table 1", {"sputnik": ()})
    monkeypatch.setitem(EXPERIMENTS, "later", later)
    rows = [
        fake_records.record(experiment="later", problem="p_90", kernel=kernel, variant=variant)
        for kernel, variant in (("sputnik", "v"), ("cublas", "f32_default_nn"))
    ]
    fake_records.write(tmp_path / "nvidia-h200" / "later", rows)
    assert page_of("later") is None
    with pages_alone():
        (built,) = build(tmp_path, ["later"])
    assert (built.experiment, built.status) == ("later", "built")
    assert built.page.read_text().startswith("# later on ")
    assert "Somebody (2030), Table 1" in rendered(tmp_path)
    assert page_of("never heard of") is None


def test_the_report_goes_through_the_catalogue_and_draws_what_runs_nothing(tmp_path):
    with pages_alone():
        built = build(tmp_path)
    assert [one.experiment for one in built] == list(EXPERIMENTS)
    assert {one.experiment for one in built if one.status == "built"} == set(EXPERIMENTS) - set(RUN)


@pytest.mark.parametrize("name", sorted(set(RUN) - {"sputnik_dlmc"}))
def test_every_problem_is_computed_by_a_kernel_that_is_named_for_it(name):
    """A typing error in a kernel's name would leave an experiment without its rows."""
    one, known = EXPERIMENTS[name], kernels()
    ready = [known[kernel] for kernel in one.kernels if kernel in known]
    if len(ready) < len(one.kernels):
        pytest.skip("some of its kernels are not in this version")
    problems = one.problems(real=False)
    assert problems
    for problem in problems:
        assert any(problem.op in kernel.ops for kernel in ready), problem.name


def test_awkward_sizes_are_for_kernels_of_this_suite_in_every_type_that_they_have():
    own = {name: one for name, one in kernels().items() if not isinstance(one, VendorKernel) and name != "untuned"}
    declared = EXPERIMENTS["awkward_sizes"].kernels
    assert len(declared) > 20
    assert {name: set(dtypes or ("f32",)) for name, dtypes in declared.items()} == {
        name: set(one.dtypes) for name, one in own.items() if name in declared
    }


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UnknownExperiment, match="choose from sparsert_ablation, "):
        experiment("nosuch")
    with pytest.raises(UnknownExperiment, match=r"did you mean sparsert_table.*\?$"):
        experiment("sparsert")


def test_a_kernel_that_repeats_others_runs_beside_them_alone():
    """What is chosen without measuring says something beside what was chosen by it."""
    for name, one in EXPERIMENTS.items():
        if "untuned" in one.kernels:
            assert {"row_stream", "ring", "sputnik"} & set(one.kernels), name
