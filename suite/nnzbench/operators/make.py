"""Making an operator: the fastest kernel found within a time, checked, packed and compiled."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nnzbench.devices import Device
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.registry import AnyKernel, Kernel, baselines
from nnzbench.matrices.formats import MatrixError, require_memory
from nnzbench.measure.attempts import Attempts, Subject
from nnzbench.measure.search import search
from nnzbench.measure.session import Session
from nnzbench.measure.timing import StoppingRule
from nnzbench.measure.trial import Outcome
from nnzbench.operators.arrays import OperatorError, require_inputs, weights_bytes
from nnzbench.operators.operator import Operator
from nnzbench.operators.packed import Facts, Packed, Saved, Step, digest
from nnzbench.plans.plan import Candidate, Plan, Unsupported
from nnzbench.problems.operands import Operands, operands_of
from nnzbench.problems.problem import Problem
from nnzbench.problems.reference import reference
from nnzbench.progress import RunProgress
from nnzbench.records.folder import Results, Scope
from nnzbench.records.memory import Memory
from nnzbench.records.record import Key, Record


class Unrecorded(Results):
    """Stands where a results folder is asked for, and keeps nothing."""

    def __init__(self) -> None:
        self.done: set[Key] = set()
        self.tuned: dict[tuple[str, ...], Scope] = {}

    @property
    def environment(self) -> str:
        return ""

    def add(self, records: Iterable[Record]) -> None:
        self.done.update(record.key for record in records)

    def add_memory(self, row: Memory) -> None:
        pass


@dataclass
class _Best:
    """The fastest right candidate whose dense operand a caller can replace."""

    operands: Operands
    us: float = float("inf")
    chosen: tuple[str, Plan, Outcome] | None = None
    refused: list[str] = field(default_factory=list)

    def __call__(self, kernel: str, candidate: Candidate, outcome: Outcome) -> None:
        if candidate.plan is None:
            return
        hot = outcome.measurements.get("hot")
        us = hot.median if hot else 0.0
        if self.chosen is not None and us >= self.us:
            return
        try:
            require_inputs(candidate.plan, self.operands)
        except Unsupported as error:
            self.refused.append(str(error))
            return
        self.us, self.chosen = us, (kernel, candidate.plan, outcome)


def make(
    problem: Problem,
    operands: Operands,
    session: Session,
    progress: RunProgress,
    names: Sequence[str] | None,
    seconds: float,
) -> Operator:
    """The operator of the fastest kernel written here. Raises `OperatorError` where none runs or is right."""
    device = session.device
    names = list(names) if names is not None else _candidates(problem, session.kernels, device)
    best = _Best(operands)
    attempts = Attempts("operator", session, Unrecorded(), ("hot",) if device.timer else (), StoppingRule(), kept=[])
    tried = Subject(problem, operands, functools.cache(lambda: reference(problem, operands)))
    for some in [names] if device.timer else [[name] for name in names]:  # untimed: the first right one
        search(tried, operands, some, attempts, seconds, progress, best)
        if best.chosen:
            break
    if best.chosen is None:
        reasons = dict.fromkeys(
            [*(f"{row.kernel}: {row.reason}" for row in attempts.kept or () if row.reason), *best.refused]
        )
        raise OperatorError(f"no kernel runs this problem: {'; '.join(list(reasons)[:5]) or 'none was asked'}")
    kernel, plan, outcome = best.chosen
    return Operator(_pack(problem, operands, kernel, plan, outcome, device), device)


def _candidates(problem: Problem, known: Mapping[str, AnyKernel], device: Device) -> list[str]:
    """Kernels written here for the op and type; on the processor those that take any matrix first."""
    able = [
        name
        for name in baselines(problem.op)
        if isinstance(known[name], Kernel) and problem.dtype in known[name].dtypes
    ]
    return able if device.timer else sorted(able, key=lambda name: name not in ("sputnik", "row_stream", "tensor_spmm"))


def _pack(problem: Problem, operands: Operands, kernel: str, plan: Plan, outcome: Outcome, device: Device) -> Packed:
    bound = require_inputs(plan, operands)
    facts = Facts(
        kernel, plan.variant, problem.op, problem.m, problem.k, problem.n, problem.dtype, device.arch, bound["b"],
        plan.output, outcome.error or 0.0, weights_bytes(plan, operands, outcome.resources),
        outcome.measurements["hot"].median if outcome.measurements else None,
    )  # fmt: skip
    return _packed(facts, operands, plan, device)


def _packed(facts: Facts, operands: Operands, plan: Plan, device: Device) -> Packed:
    kept = {name: array for name, array in plan.buffers.items() if name not in (facts.input, facts.output)}
    saved = Saved(facts, operands.sparse, digest(plan, device.arch, kept))
    if not isinstance(device, GpuDevice):
        return Packed(facts, kept, plan=replace(plan, buffers=kept, unpermute=None), saved=saved)
    cubins, launches = device.compiled(plan)
    steps = tuple(Step(number, replace(launch, source="", defines={})) for number, launch in launches)
    return Packed(facts, kept, steps, cubins, saved=saved)


def remake(found: Saved, device: Device, known: Mapping[str, AnyKernel], trust: bool = False) -> Operator:
    """The operator again: its kernel packs the weights, and this project's sources are compiled.

    Raises `OperatorError` where that is not what ran when it was saved and, unless `trust`, where anything differs.
    """
    facts, kernel = found.facts, known.get(found.facts.kernel)
    if not isinstance(kernel, Kernel):
        raise OperatorError(f"there is no kernel '{facts.kernel[:60]}' here that packs weights: register yours first")
    if facts.arch != device.arch:
        raise OperatorError(f"this operator is made for {facts.arch[:20]}, and this device is {device.arch}")
    level = round(found.matrix.sparsity, 4)
    problem = Problem("operator", "operator", "spmm", facts.m, facts.k, facts.n, level, "file:operator", facts.dtype)
    try:
        require_memory("a product", 16 * (facts.k + facts.m) * facts.n)
        operands = operands_of(problem, found.matrix, found.matrix.pattern_hash())
        plans = kernel.plans(problem, operands, device.arch)
        plan = next((one for one in plans if one.variant == facts.variant), None)
        bound = require_inputs(plan, operands) if plan else {}
    except (Unsupported, MatrixError) as error:
        raise OperatorError(f"{facts.kernel} does not take this operator's weights: {error}") from error
    if plan is None:
        raise OperatorError(f"{facts.kernel} has no variant '{facts.variant[:60]}' for this operator's weights")
    made = _packed(replace(facts, input=bound["b"], output=plan.output), operands, plan, device)
    if made.saved is None or (made.saved.digest != found.digest and not trust):
        raise OperatorError(
            f"what {facts.kernel} makes of these weights is not what was checked when this operator was saved: make it "
            "again, or give trust=True to run this version's program unchecked"
        )
    return Operator(made, device)
