"""A search on a GPU: what compiles beside it changes no time, and it ends when its time is over."""

import math
import time

import numpy as np
import pytest

from nnzbench.advise import api, layer
from nnzbench.bench.attempts import Attempts
from nnzbench.bench.search import Search
from nnzbench.bench.subject import Subject
from nnzbench.bench.timing import StoppingRule
from nnzbench.core.progress import RunProgress
from nnzbench.data.problems.experiment import POLICIES
from nnzbench.results.records.folder import Kept

pytestmark = pytest.mark.gpu
KERNELS = ("cublas", "sparsert", "row_stream", "sputnik", "ring")


def searched(seconds):
    """Hot medians by kernel and variant, in the order of measuring, and the seconds it took."""
    session = api._session(None)
    (one,) = layer.load(["512x512@0.9"])
    problem = one.problem("spmm", 64, "f32")
    operands = one.operands(problem)
    rows = []
    attempts = Attempts("mine", session, Kept(), POLICIES, StoppingRule(), kept=rows)
    subject = Subject(problem, operands)
    started = time.monotonic()
    with Search(subject, operands, KERNELS, attempts, RunProgress()) as under_way:
        under_way.go(seconds)
        under_way.record_unreached()
    took = time.monotonic() - started
    assert not [row for row in rows if row.status not in ("ok", "unsupported", "timeout")]
    return {(row.kernel, row.variant): row.median_us for row in rows if row.policy == "hot" and row.median_us}, took


def test_times_beside_compilations_are_those_of_an_idle_host(gpu, tmp_path, monkeypatch):
    searched(math.inf)  # the clock is up
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path))
    busy, _ = searched(math.inf)
    idle, _ = searched(math.inf)
    assert busy.keys() == idle.keys()
    assert {kernel for kernel, _ in busy} == set(KERNELS)
    ratios = np.array([busy[one] / idle[one] for one in busy])
    assert abs(np.log(ratios).mean()) < 0.01, ratios
    assert np.quantile(np.abs(ratios - 1), 0.9) < 0.03, ratios


def test_it_ends_when_its_time_is_over(gpu, tmp_path, monkeypatch):
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path))
    _, took = searched(3.0)
    assert took < 4.0
