"""Making an operator: the fastest kernel found within a time, checked, packed and compiled.

A `Family` has one layer's operators for several numbers of tokens, and knows which of them multiplies how many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from nnzbench.advise.operators.archive import Facts, Packed, Packing, Saved, Step, canonical, digest_of
from nnzbench.advise.operators.arrays import OperatorError, require_inputs, weights_bytes
from nnzbench.advise.operators.operator import Operator
from nnzbench.advise.operators.tokens import BIAS, Layout, kernels_for, rows_at
from nnzbench.bench.attempts import Attempts
from nnzbench.bench.search import Search
from nnzbench.bench.session import Session
from nnzbench.bench.subject import Subject
from nnzbench.bench.timing import BEHIND, StoppingRule
from nnzbench.bench.trial import Outcome
from nnzbench.core.architectures import Part, sm_count
from nnzbench.core.plan import Array, Candidate, Plan, Unsupported
from nnzbench.core.progress import RunProgress
from nnzbench.data.matrices.formats import CSR, MatrixError, require_memory
from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.experiment import Policy
from nnzbench.data.problems.operands import Operands, operands_of
from nnzbench.data.problems.parts import limit
from nnzbench.data.problems.problem import DType, Problem
from nnzbench.data.problems.reference import Reference, reference
from nnzbench.devices import Device
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.registry import AnyKernel, Kernel, baselines, with_variant
from nnzbench.results.records.folder import Kept

Given = TypeVar("Given")
Made = TypeVar("Made")
TOGETHER, THREADS = 4, 2
"""Operators that the host packs at once, and threads of each: with 16 these wait a quarter longer for the interpreter's
lock on 16 processors."""


def make(
    problem: Problem,
    operands: Operands,
    session: Session,
    progress: RunProgress,
    names: Sequence[str] | None,
    seconds: float,
    layout: Layout = "columns",
) -> Operator:
    """The operator of the fastest kernel written here. Raises `OperatorError` where none runs or is right."""
    device, session = session.device, replace(session, kernels=kernels_for(layout, session.kernels))
    names = list(names) if names is not None else _candidates(problem, session.kernels, device)
    best: list[tuple[float, str, Plan, Outcome]] = []  # one at most: the fastest whose operand a caller can replace
    refused: list[str] = []
    kept = Kept()

    def told(kernel: str, candidate: Candidate, outcome: Outcome) -> None:
        us = min((one.median for one in [*outcome.measurements.values()][:1]), default=0.0)  # streamed, else hot
        if candidate.plan is None or (best and us >= best[0][0]):
            return
        try:
            require_inputs(candidate.plan, operands, layout == "tokens")
        except Unsupported as error:
            refused.append(str(error))
        else:
            best[:] = [(us, kernel, candidate.plan, outcome)]

    policies: tuple[Policy, ...] = ("stream", "hot") if device.timer else ()
    attempts = Attempts("operator", session, kept, policies, StoppingRule(), refused_behind=BEHIND)
    tried = Subject(problem, operands)
    for some in [names] if device.timer else [[name] for name in names]:  # untimed: the first right one
        with Search(tried, operands, some, attempts, progress, told) as under_way:
            under_way.go(seconds)
            under_way.record_unreached()
        if best:
            break
    if not best:
        reasons = dict.fromkeys([*(f"{row.kernel}: {row.reason}" for row in kept.records if row.reason), *refused])
        raise OperatorError(f"no kernel runs this problem: {'; '.join(list(reasons)[:5]) or 'none was asked'}")
    _, kernel, plan, outcome = best[0]
    facts = _facts(problem, operands, kernel, plan, device.arch, layout, outcome)
    return Operator(_packed(_saved(facts, operands, plan), plan, device), device)


def draft(
    problem: Problem, operands: Operands, names: Sequence[str], arch: str, known: Mapping[str, AnyKernel]
) -> Saved:
    """The first plan, for rows of tokens, of the first kernel that takes the weights: neither run nor checked here.

    Raises `OperatorError` where none takes them.
    """
    reasons, able = [], kernels_for("tokens", known)
    for name in names:
        kernel = able.get(name)
        try:
            for plan in kernel.plans(problem, operands, arch) if isinstance(kernel, Kernel) else ():
                facts = _facts(problem, operands, name, plan, arch, "tokens")
                return _saved(facts, operands, plan)
        except Unsupported as error:
            reasons.append(f"{name}: {error}")
    raise OperatorError(f"no kernel takes these weights: {'; '.join(reasons) or 'none was asked'}")


def _candidates(problem: Problem, known: Mapping[str, AnyKernel], device: Device) -> list[str]:
    """Kernels written here for the op and type; on the processor those that take any matrix first."""
    able = [
        name
        for name in baselines(problem.op)
        if name in known and isinstance(known[name], Kernel) and problem.dtype in known[name].dtypes
    ]
    return able if device.timer else sorted(able, key=lambda name: name not in ("sputnik", "row_stream", "tensor_spmm"))


def _facts(
    problem: Problem,
    operands: Operands,
    kernel: str,
    plan: Plan,
    arch: str,
    layout: Layout,
    outcome: Outcome | None = None,
) -> Facts:
    """Raises `Unsupported` as `require_inputs` does."""
    bound = require_inputs(plan, operands, layout == "tokens")
    error, resources = (outcome.error or 0.0, outcome.resources) if outcome else (None, None)
    hot = outcome.measurements.get("hot") if outcome else None
    return Facts(
        kernel, plan.variant, problem.op, problem.m, problem.k, problem.n, problem.dtype, arch, bound["b"],
        plan.output, error, weights_bytes(plan, operands, resources, bound), hot.median if hot else None,
        layout, sms=sm_count(arch),
    )  # fmt: skip


def _kept(plan: Plan, facts: Facts) -> dict[str, Array]:
    """The buffers that are the operator's own."""
    return {name: array for name, array in plan.buffers.items() if name not in (facts.input, facts.output, BIAS)}


def _saved(facts: Facts, operands: Operands, plan: Plan) -> Saved:
    return Saved(replace(facts, digest=digest_of(plan, facts.arch, _kept(plan, facts))), operands.sparse)


def _packed(saved: Saved, plan: Plan, device: Device) -> Packed:
    kept, rows = _kept(plan, saved.facts), rows_at(plan)
    if not isinstance(device, GpuDevice):
        return Packed(saved, kept, plan=replace(plan, buffers=kept, unpermute=None), rows_at=rows)
    cubins, launches = device.compiled(plan)
    steps = tuple(Step(number, replace(launch, source="", defines={})) for number, launch in launches)
    return Packed(saved, kept, steps, cubins, rows_at=rows)


def remake(found: Saved, device: Device, known: Mapping[str, AnyKernel], trust: bool = False) -> Operator:
    """The operator again: its kernel packs the weights, and this project's sources are compiled.

    Raises `OperatorError` where the weights can't be packed so and, unless `trust`, where what runs is not what was
    checked when it was saved.
    """
    return Operator(_finished(_planned(found, device.arch, known, False), device, trust), device)


def alike(asked: Sequence[tuple[Facts, CSR]], device: Device, known: Mapping[str, AnyKernel]) -> Iterator[Saved | None]:
    """What was chosen for other weights of the same sizes and about as many zeros, for these: packed and checked.

    None where it can't be, or is wrong. The host packs several at once.
    """

    def planned(one: tuple[Facts, CSR]) -> _Planned | None:
        with suppress(OperatorError):
            facts, matrix = one
            return _planned(Saved(facts, canonical(matrix, facts.dtype)), device.arch, known, True, exact=False)
        return None

    for one in _together(planned, asked):
        saved: Saved | None = None
        with suppress(OperatorError):
            saved = _finished(one, device, False).saved if one else None
        yield saved


def _together(work: Callable[[Given], Made], given: Sequence[Given]) -> Iterator[Made]:
    """What `work` makes of each, made a few ahead of who takes them: all would not fit in memory."""
    with ThreadPoolExecutor(TOGETHER, initializer=limit, initargs=(THREADS,)) as pool:
        ahead = deque(pool.submit(work, one) for one in given[:TOGETHER])
        for at in range(len(given)):
            made = ahead.popleft().result()
            ahead.extend(pool.submit(work, one) for one in given[at + TOGETHER : at + TOGETHER + 1])
            yield made


@dataclass(frozen=True)
class _Planned:
    """All of an operator that needs no device."""

    saved: Saved
    plan: Plan
    as_saved: bool
    """Whether it is what was checked when it was saved."""
    truth: Reference | None
    """What it is to be checked against, where it is."""


def _planned(found: Saved, arch: str, known: Mapping[str, AnyKernel], check: bool, exact: bool = True) -> _Planned:
    facts, kernel = found.facts, known.get(found.facts.kernel)
    if kernel is None or not isinstance(kernel, Kernel):
        raise OperatorError(f"there is no kernel '{facts.kernel[:60]}' here that packs weights: register yours first")
    if facts.arch != arch:
        raise OperatorError(f"this operator is made for {facts.arch[:20]}, and this device is {arch}")
    kernel = kernels_for(facts.layout, {facts.kernel: with_variant(kernel, facts.variant, exact)})[facts.kernel]
    arch = Part(arch, facts.sms) if exact else arch
    level = round(found.matrix.sparsity, 4)
    problem = Problem("operator", "operator", "spmm", facts.m, facts.k, facts.n, level, "file:operator", facts.dtype)
    try:
        require_memory("a product", 16 * (facts.k + facts.m) * facts.n)
        operands = operands_of(problem, found.matrix, found.matrix.pattern_hash())
        plan = next(kernel.plans(problem, operands, arch), None)
        bound = require_inputs(plan, operands, facts.layout == "tokens") if plan else {}
    except (Unsupported, MatrixError) as error:
        raise OperatorError(f"{facts.kernel} does not take this operator's weights: {error}") from error
    if plan is None:
        raise OperatorError(f"{facts.kernel} has no variant '{facts.variant[:60]}' for this operator's weights")
    if exact:
        facts = replace(facts, input=bound["b"], output=plan.output)
    else:
        facts = replace(_facts(problem, operands, facts.kernel, plan, arch, facts.layout), hot_us=facts.hot_us)
    saved = _saved(facts, operands, plan)
    same = saved.facts.digest == found.facts.digest
    checked = check and (facts.relative_error is None or not same)
    return _Planned(saved, plan, same, reference(problem, operands) if checked else None)


def _finished(one: _Planned, device: Device, trust: bool) -> Packed:
    facts, made = one.saved.facts, _packed(one.saved, one.plan, device)
    if one.truth is not None:
        facts = replace(facts, relative_error=_error(one.plan, one.truth, device))
        return replace(made, saved=replace(one.saved, facts=facts))
    if not one.as_saved and not trust:
        raise OperatorError(
            f"what {facts.kernel} makes of these weights is not what was checked when this operator was saved: make it "
            "again, or give trust=True to run this version's program unchecked"
        )
    return made


def _error(plan: Plan, truth: Reference, device: Device) -> float:
    """The error of a run. Raises `OperatorError` where it is outside the tolerance of its arithmetic."""
    prepared = device.prepare(plan)
    try:
        prepared.poison()
        prepared.run()
        error = relative_error(prepared.read(), truth)
    finally:
        prepared.close()
    if not passes(error, plan.math):
        raise OperatorError(f"{plan.variant} computes something else than float64 does here (error {error:.2g})")
    return error


def choice(widths: Sequence[int], rows: int) -> int | None:
    """The narrowest of `widths` (ascending) that takes so many rows; None: they are more than any takes."""
    return next((n for n in widths if n >= rows), None)


@dataclass(eq=False)
class Family:
    """A layer's operators by the most tokens that each takes; None where dense is chosen. A copy is the same one."""

    m: int
    k: int
    operators: Mapping[int, Operator | None]
    widths: tuple[int, ...] = field(init=False)
    packed: tuple[int, ...] = field(init=False)
    """Widths that have an operator."""

    def __post_init__(self) -> None:
        self.widths = tuple(sorted(self.operators))
        self.packed = tuple(n for n in self.widths if self.operators[n] is not None)
        if not self.packed:
            raise OperatorError("nothing of this layer is packed: it stays dense")

    def __deepcopy__(self, memo: Any) -> Family:
        return self

    @property
    def dtype(self) -> DType:
        """Type of weights and tokens."""
        return next(one.facts.dtype for one in self.operators.values() if one is not None)

    def dense(self, rows: int) -> bool:
        """Whether dense is chosen for so many tokens: where that was faster, and for more than any choice is for."""
        n = choice(self.widths, rows)
        return n is None or n not in self.packed

    def pieces(self, rows: int) -> Iterator[tuple[Operator, int, int]]:
        """Operators with the first and last row of tokens that each multiplies: one, or many of the widest."""
        start = 0
        while start < rows:
            n = choice(self.packed, rows - start) or self.packed[-1]
            operator = self.operators[n]
            assert operator is not None
            yield operator, start, min(rows, start + n)
            start += n

    @property
    def weights_bytes(self) -> int:
        """Device memory of all operators, which share arrays that are one on the host."""
        arrays = {id(one): one for each in self.operators.values() if each for one in each.packed.buffers.values()}
        return sum(one.nbytes for one in arrays.values())

    def close(self) -> None:
        """Frees the device memory, once the GPU is idle."""
        for one in self.operators.values():
            if one is not None:
                one.close()


def family(layer: Packing, saved: Mapping[int, Saved], device: Device, known: Mapping[str, AnyKernel]) -> Family:
    """The layer's operators, packed and compiled on this device, and checked where that was not done there before.

    `saved` is `Archive.saved`. Raises `OperatorError` for a layer that stays dense, and as `remake` does.
    """
    return next(families([(layer, lambda: saved)], device, known))


def families(
    given: Sequence[tuple[Packing, Callable[[], Mapping[int, Saved]]]], device: Device, known: Mapping[str, AnyKernel]
) -> Iterator[Family]:
    """`family` of each layer; what reads its weights is called when they are packed, those of a few layers at once."""

    def planned(one: tuple[Packing, Callable[[], Mapping[int, Saved]]]) -> dict[int, _Planned]:
        return {n: _planned(saved, device.arch, known, True) for n, saved in one[1]().items()}

    for (layer, _), found in zip(given, _together(planned, given), strict=True):
        made = {n: Operator(_finished(one, device, False), device) for n, one in found.items()}
        yield Family(layer.m, layer.k, {n: made.get(n) for n in layer.widths})
