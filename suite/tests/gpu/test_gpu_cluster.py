"""Workers that share real GPUs: all rows once, a snapshot per GPU, and the times of one process alone."""

import pytest
from fakes import Silent

from nnzbench.bench.cluster import engine
from nnzbench.bench.cluster.run import ClusterRun
from nnzbench.bench.costs import Costs
from nnzbench.bench.session import Session
from nnzbench.bench.sweep import Choice, run_experiment
from nnzbench.core.host import visible_gpus
from nnzbench.kernels.registry import kernels
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.results.records.record import frame_of, read_records
from nnzbench.results.result_set import each
from nnzbench.results.runs import compare

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cache_dir")]

CHOICE = Choice(kernels=("sputnik", "cublas"), problems=("1?_*",), candidates=4)


def test_workers_that_share_gpus_measure_what_one_process_does(gpu, tmp_path):
    pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    one = EXPERIMENTS["sparsert_table1"]
    with engine.connected("local", 2 * len(visible_gpus()), timed=True) as client:
        every = ClusterRun(client, [one], CHOICE, kernels(), lambda gpu, name: tmp_path / name, None, Costs(), Silent())
        every.run()
    run_experiment(one, Session(gpu, kernels()), tmp_path / "alone", CHOICE, Silent())
    shared, alone = (read_records(tmp_path / name / "records.csv") for name in (one.name, "alone"))
    assert len(shared) == len({row.key for row in shared})
    assert {row.key for row in shared} == {row.key for row in alone}
    assert {row.status for row in shared} == {"ok"}
    assert 1 <= len({row.environment for row in shared}) <= len(visible_gpus())
    result = compare(frame_of(alone), frame_of(shared)).rows
    different = [
        (row.problem, row.kernel, row.variant, row.verdict, row.ratio) for row in each(result) if row.verdict != "SAME"
    ]
    assert not [one for one in different if one[3] != "UNCLEAR"], different
    assert len(different) <= len(alone) // 10, different
