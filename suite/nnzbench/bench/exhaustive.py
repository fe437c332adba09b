"""Exhaustive autotuning of the generated kernels (SparseRT, section 3.7): every feasible tiling is measured."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress

from nnzbench.bench.phases import Phases
from nnzbench.bench.timing import QUICK, measure, warm_up
from nnzbench.bench.trial import fresh_result
from nnzbench.core.plan import Plan, Unsupported
from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import reference
from nnzbench.devices import Device
from nnzbench.devices.build.cache import Compiled, Job
from nnzbench.devices.build.pool import TIMEOUT_S, compile_many
from nnzbench.kernels.sparsert.schedule import Tiling, Tuned, remember, search_name
from nnzbench.kernels.sparsert.spmm import make_plan, planned

BATCH = 64
"""Candidates generated, assembled and measured at a time, which bounds the memory their texts take."""
Progress = Callable[[int, int, float], None]
"""Called with candidates done, candidates in all, and the best time so far (microseconds; infinity at first)."""


def tune(
    problem: Problem,
    operands: Operands,
    device: Device,
    progress: Progress = lambda done, total, best: None,
    timeout_s: float = TIMEOUT_S,
    workers: int | None = None,
    limit: int | None = None,
) -> Tuned:
    """Measures every feasible tiling, or the `limit` most promising ones, and remembers the fastest correct one.

    Assembly is parallel, each candidate within `timeout_s`; one that fails, is late or computes something wrong is
    no candidate. Raises `Unsupported` where the matrix is beyond sensible code size, the device has no timer, or
    nothing ran.
    """
    if device.timer is None:
        raise Unsupported(f"tuning needs a GPU: the times of the {device.name} device mean nothing for one")
    planner, dense, output = planned(problem, operands, device.arch)
    truth = reference(problem, operands)
    tilings = sorted(planner.grid(), key=planner.cycles)[:limit]
    phases = Phases()
    best: tuple[float, Tiling] | None = None
    correct = 0
    for start in range(0, len(tilings), BATCH):
        plans: list[tuple[Tiling, Plan]] = []
        with phases.of("planning"):
            for tiling in tilings[start : start + BATCH]:
                with suppress(Unsupported):
                    plans.append((tiling, make_plan(planner, tiling, dense, device.arch, output)))
        with phases.of("compiling"):
            made = dict(compile_many([Job.of(plan, device.arch) for _, plan in plans], workers, timeout_s))
        with phases.of("hot"):
            for i, (tiling, plan) in enumerate(plans):
                if not isinstance(made[i], Compiled):
                    continue
                with closing(device.prepare(plan)) as prepared:
                    if not passes(relative_error(fresh_result(prepared), truth), plan.math):
                        continue
                    if best is None:
                        warm_up(device.timer, prepared.run)
                    correct += 1
                    median = measure(device.timer, prepared.run, "hot", QUICK).median
                if best is None or median < best[0]:
                    best = median, tiling
        progress(min(start + BATCH, len(tilings)), len(tilings), best[0] if best else float("inf"))
    if best is None:
        raise Unsupported(f"none of {len(tilings)} tilings assembled in time and computed the right result")
    took = (phases.seconds[phase] for phase in ("planning", "compiling", "hot"))
    found = Tuned(best[1], best[0], len(tilings), correct, *took)
    remember(search_name(operands.pattern, problem, device.arch), found)
    return found
