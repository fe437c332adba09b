"""The experiments under pytest-benchmark: device-side samples in its statistics, one test per kernel and problem.

pytest-benchmark times with host clocks, which know nothing of a GPU. So a kernel is first measured by this package and
its samples are then replayed: `cuda_events` is a timer whose consecutive differences are exactly those samples.
The conftest files of the checkout import the hooks below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from nnzbench import devices
from nnzbench.bench.attempts import CHECK, Tried
from nnzbench.bench.session import Session
from nnzbench.bench.steps import Step
from nnzbench.bench.sweep import Choice, Run, plan_work
from nnzbench.core.plan import Unsupported
from nnzbench.core.progress import RunProgress
from nnzbench.data.problems.experiment import Policy
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.registry import kernels
from nnzbench.papers.catalogue import EXPERIMENTS, experiment
from nnzbench.results.records.folder import Kept
from nnzbench.results.records.record import is_fault

PARAMETERS = ("experiment", "problem", "dtype", "kernel", "policy")
"""What the benchmark function takes beside `benchmark` and `bench`; `--benchmark-group-by=param:problem` works."""

CHECKED_CANDIDATES = 2
"""Variants per kernel and problem on the processor, where each is slow."""

MOST_PRODUCTS = 5e7
"""Largest problem that is checked on the processor, in multiplications: some seconds per variant."""

_readings: Iterator[float] = iter(())


def cuda_events() -> float:
    """The timer of every benchmark: 0, then the sample in seconds, for each round."""
    return next(_readings)


def _replay(samples_us: tuple[float, ...]) -> None:
    global _readings
    _readings = iter([reading for us in samples_us for reading in (0.0, float(us) * 1e-6)])


@dataclass(frozen=True)
class Case:
    """One test: a kernel on a problem (in its dtype) under a policy, or None where it is only checked."""

    problem: Problem
    kernel: str
    policy: Policy | None

    @property
    def parameters(self) -> tuple[str, ...]:
        """The `PARAMETERS` by name: unique, and fit for the JSON."""
        return (self.problem.experiment, self.problem.name, self.problem.dtype, self.kernel, self.policy or CHECK)


class Bench:
    """Runs cases on the session's device; what one problem and kernel share between tests is kept meanwhile."""

    def __init__(self, session: Session, no_gpu: str) -> None:
        self.session = session
        self.no_gpu = no_gpu
        """Why there is no GPU; empty where there is one."""
        self._choice = Choice(quick=True, candidates=CHECKED_CANDIDATES) if no_gpu else Choice()
        self._cases: dict[tuple[str, ...], Case] = {}
        self._tuned: tuple[Problem, str, list[Tried]] | None = None

    def cases(self, name: str) -> list[Case]:
        """The cases of an experiment: all of it on a GPU, the smallest problems on the processor."""
        one = experiment(name)
        policies: tuple[Policy | None, ...] = (None,) if self.no_gpu else one.policies

        def small(one: Problem) -> bool:
            return not self.no_gpu or one.m * one.k * one.n * (1 - one.sparsity) <= MOST_PRODUCTS

        cases = [
            Case(problem, kernel, policy)
            for problem, names in plan_work(one, self.session.kernels, self._choice, small)
            for kernel in names
            for policy in policies
        ]
        self._cases.update((case.parameters, case) for case in cases)
        return cases

    def run(self, benchmark: Any, *parameters: str) -> None:
        """Runs a case by its `Case.parameters`.

        Fails where a variant computes something wrong, skips where none runs, else reports the fastest.
        """
        case = self._cases[parameters]
        tried = self._try(case)
        bad = [one for one in tried if is_fault(one.outcome.status, case.kernel)]
        if bad:
            pytest.fail("\n".join(f"{one.variant}: {one.outcome.status}: {one.outcome.reason}" for one in bad))
        good = [one for one in tried if one.outcome.status == "ok"]
        if case.policy is not None:
            good = [one for one in good if case.policy in one.outcome.measurements]
        if not good:
            pytest.skip("; ".join(dict.fromkeys(one.outcome.reason for one in tried)) or "no candidate")
        if case.policy is not None:
            _report(benchmark, case, case.policy, good)

    def _try(self, case: Case) -> list[Tried]:
        """All candidates of a kernel, tried once for its tests under every policy."""
        if self._tuned is None or self._tuned[:2] != (case.problem, case.kernel):
            one = experiment(case.problem.experiment)
            run = Run(one, self.session, Kept(), self._choice)
            run.attempts.tried = tried = list[Tried]()
            run.perform(Step(one.name, one.paper, case.problem, (case.kernel,)), RunProgress())
            self._tuned = (case.problem, case.kernel, tried)
        return self._tuned[2]


def _report(benchmark: Any, case: Case, policy: Policy, good: list[Tried]) -> None:
    """Feeds the fastest variant's samples to pytest-benchmark; other arithmetic classes go to `extra_info`."""

    def median(one: Tried) -> float:
        return one.outcome.measurements[policy].median

    own = [one for one in good if one.math == case.problem.dtype] or good
    best = min(own, key=median)
    measured = best.outcome.measurements[policy]
    benchmark.extra_info.update(
        kernel=case.kernel, variant=best.variant, math=best.math, policy=policy, problem=case.problem.name,
        source=case.problem.source, relative_error=best.outcome.error, sm_clock_mhz=measured.sm_clock_mhz,
        throttled=list(measured.throttled), stable=measured.stable, candidates=len(good),
        **{f"{math}_us": min(median(one) for one in good if one.math == math) for math in {one.math for one in good}},
    )  # fmt: skip
    _replay(measured.samples_us)
    benchmark.pedantic(lambda: None, rounds=len(measured.samples_us), iterations=1, warmup_rounds=0)


_BENCH = pytest.StashKey[Bench]()


def bench_of(config: pytest.Config) -> Bench:
    """The session's bench, opened when it is first needed: on the device asked for (`--device`), else the GPU, else the
    processor. Raises `UsageError`.
    """
    if _BENCH not in config.stash:
        asked = getattr(config.option, "nnzbench_device", None)
        try:
            device, reasons = devices.open_any(*([asked] if asked else ("cupy", "pycuda", "cpu")))
        except Unsupported as error:
            raise pytest.UsageError(f"no device to run on ({error})") from None
        no_gpu = "" if device.timer is not None else "; ".join(reasons) or f"--device {asked}"
        config.stash[_BENCH] = Bench(Session(device, kernels()), no_gpu)
        config.add_cleanup(device.close)
    return config.stash[_BENCH]


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Bench:
    """Runs cases on this machine's device."""
    return bench_of(request.config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes one test per case of every experiment, grouped by problem and policy."""
    if not set(PARAMETERS) <= set(metafunc.fixturenames):
        return
    if not wanted(metafunc.config):
        skip = pytest.mark.skip(reason="add --benchmark to run it")
        metafunc.parametrize(PARAMETERS, [pytest.param(*PARAMETERS, marks=skip)])
        return
    metafunc.parametrize(
        PARAMETERS,
        [
            pytest.param(*case.parameters, id="-".join(case.parameters), marks=_mark(case))
            for name in EXPERIMENTS
            for case in bench_of(metafunc.config).cases(name)
        ],
    )


def _mark(case: Case) -> pytest.MarkDecorator:
    if case.policy is None:
        return pytest.mark.filterwarnings("ignore:Benchmark fixture was not used")
    return pytest.mark.benchmark(group=f"{case.problem.name} {case.policy}", timer=cuda_events)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Adds the GPU, so that comparing runs of two GPUs warns."""
    if wanted(config):
        device = bench_of(config).session.device
        machine_info["gpu"] = device.gpu
        machine_info["gpu_arch"] = device.arch
        machine_info["gpu_library"] = device.name


def wanted(config: pytest.Config) -> bool:
    """Whether this session runs benchmarks (`--benchmark`) or tests."""
    return bool(getattr(config.option, "nnzbench_run", False))


def configure(config: pytest.Config) -> None:
    """Refuses what benchmarks can't run with. Raises `UsageError`."""
    option = config.option
    if not hasattr(option, "benchmark_only"):
        raise pytest.UsageError("--benchmark needs pytest-benchmark: pip install 'nnzbench[test]'")
    if getattr(option, "dist", "no") != "no" or getattr(option, "numprocesses", None):
        raise pytest.UsageError("--benchmark can't run under pytest-xdist (-n): kernels would disturb each other")


def header(config: pytest.Config) -> str:
    """One line that says what will run, and where there is no GPU, why and what happens instead."""
    found = bench_of(config)
    device = found.session.device
    if not found.no_gpu:
        return f"benchmarks: {device.gpu} ({device.arch}) through {device.name}, times from CUDA events"
    return (
        f"benchmarks: no GPU ({found.no_gpu}); every kernel is checked against float64 on the processor instead, "
        "on the smallest problems and without times"
    )
