"""The answer of a device that is here: kernels checked and timed within a budget, each outcome a recorded row.

Who is timed first follows from records of like problems. Layers of one kind (sizes, type, density, how uneven rows are)
share one search: the others are checked and timed with its choice alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from nnzbench.advise.answer import Answer, Entry, Width, ranked
from nnzbench.advise.estimate import beside
from nnzbench.advise.layer import EXPERIMENT, Layer, Question
from nnzbench.advise.operators.arrays import stored_bytes, weights_bytes
from nnzbench.advise.recorded import Recorded, load, usual_folders
from nnzbench.bench.attempts import Attempts
from nnzbench.bench.search import Search
from nnzbench.bench.session import Session
from nnzbench.bench.subject import Subject
from nnzbench.bench.timing import BEHIND, StoppingRule
from nnzbench.bench.trial import Outcome
from nnzbench.core.plan import Candidate
from nnzbench.core.progress import RunProgress, Within
from nnzbench.data.problems.experiment import OF_MODELS, USUAL, Policy
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import DType, Problem, name_of
from nnzbench.kernels.registry import about, baselines, with_variant
from nnzbench.papers.predict.estimator import Sizes
from nnzbench.results.crossover import WIDEST, crossing
from nnzbench.results.records.folder import Results
from nnzbench.results.records.record import Record, RecordError

ALIKE_NONZEROS, ALIKE_SPREAD = 0.03, 0.1
"""Layers of one kind differ by so much at most: in their nonzeros relatively, in the row lengths' coefficient of
variation absolutely."""
PACKING_S_PER_NONZERO = 4e-8
"""For one width, of a layer like one that was searched; beside an H200, 16 processors took 5e-8."""
LEAST_SEARCH = 0.25
"""Share of the time for searches, however much is to be packed."""
MOST_EXTRA = 8
"""Widths that it looks at unasked."""


def known_times(session: Session, without: frozenset[str] = frozenset()) -> Recorded | None:
    """What is recorded of this GPU, or tells of it, but for those sources; None where nothing does, and on the
    processor."""
    if session.device.timer is None:
        return None
    try:
        return load(session.device.gpu, usual_folders(), without)
    except RecordError:
        return None


def kinds(layers: Sequence[Layer]) -> list[list[Layer]]:
    """The layers in groups that one search is enough for, each with its first layer in front."""
    found: list[list[Layer]] = []
    firsts: list[tuple[object, int, float]] = []
    for layer in layers:
        matrix = layer.matrix
        fixed = (layer.shape, layer.dtype, layer.kind)
        spread = float(matrix.row_lengths.std() / max(matrix.nnz / max(matrix.m, 1), 1e-9))
        for (other, nnz, like), group in zip(firsts, found, strict=True):
            alike = abs(matrix.nnz - nnz) <= ALIKE_NONZEROS * nnz and abs(spread - like) <= ALIKE_SPREAD
            if fixed == other and alike:
                group.append(layer)
                break
        else:
            found.append([layer])
            firsts.append((fixed, matrix.nnz, spread))
    return found


def answers(
    layers: Sequence[Layer], question: Question, session: Session, results: Results, progress: RunProgress
) -> Iterator[tuple[Layer, Answer]]:
    """The answer for each layer, those of a kind after one another, with the kind's first answer for a first choice.

    Each kind's search has an even share of the time that is left, without what packing the others takes. Raises as
    `answer` does.
    """
    groups = kinds(layers) if session.device.timer is not None else [[one] for one in layers]
    known, left = known_times(session), question.budget_s
    if question.packs:
        weights = sum(one.matrix.nnz for _, *others in groups for one in others)
        left = max(LEAST_SEARCH * left, left - PACKING_S_PER_NONZERO * weights * len(question.ns))
    if many := len(layers) > 1:
        progress.start(f"{len(layers)} layers of {len(groups)} kinds", len(layers))
    within = Within(progress) if many else progress
    for at, (first, *others) in enumerate(groups):
        begun = session.clock()
        share = replace(question, budget_s=max(0.0, left) / (len(groups) - at))
        found = answer(first, share, session, results, within, known)
        left -= session.clock() - begun
        for layer in (first, *others):
            same = layer is first
            yield layer, found if same else _like(layer, first.title, found, question, session, results, within)
            if many:
                progress.advance()


def _like(
    layer: Layer, first: str, found: Answer, question: Question, session: Session, results: Results, within: RunProgress
) -> Answer:
    """The answer for a layer of the kind of one of that name, whose fastest sparse kernels are checked and timed on it.

    What is dense takes as long as there, as it does not depend on the zeros.
    """
    shared = "choice and times" if question.packs else "choice and dense times"
    note = " ".join(filter(None, (layer.note, f"Of the kind of {found.label}, whose {shared} it has.")))
    found = replace(found, label=layer.title, nnz=layer.matrix.nnz, note=note, like=first)
    if question.packs:
        return found
    widths, problems = [], []
    for width in found.widths:
        there = [one for one in width.entries if one.dense or not one.us]
        if chosen := width.sparse(found.dtype):
            name = chosen.kernel
            problem = unrecorded(layer.problem(question.op, width.n, found.dtype, question.image), results)
            only = replace(session, kernels={name: with_variant(session.kernels[name], chosen.variant)})
            asked = Asked(width.n, problem, layer, [name], only, results, within, {})
            with asked.search:
                asked.search.go(math.inf)
            there += asked.width().entries
            problems.append(problem.name)
        widths.append(replace(width, entries=ranked(there), tried=int(chosen is not None)))
    return replace(found, widths=tuple(widths), problems=tuple(problems))


def answer(
    layer: Layer,
    question: Question,
    session: Session,
    results: Results,
    progress: RunProgress,
    known: Recorded | None = None,
) -> Answer:
    """Checks (and on a GPU times) the kernels on one layer. Rows are on disk as they come.

    Raises `MatrixError` where the layer poses no such problem, `DeviceLost`.
    """
    dtype = question.dtype or layer.dtype
    names = kernel_names(question, dtype, session)
    timed = session.device.timer is not None
    looks_further = question.crossover and timed and question.op == "spmm"
    ends = session.clock() + question.budget_s
    widths: list[Width] = []
    problems: list[str] = []

    def ask(n: int, seconds: float, under_way: ExitStack) -> Asked:
        problem = unrecorded(layer.problem(question.op, n, dtype, question.image), results)
        problems.append(problem.name)
        progress.start(f"{layer.label}, N = {n}", len(names))
        sizes = Sizes(problem.m, problem.k, problem.n, layer.matrix.nnz, layer.kind)
        expected = known.expected(question.op, dtype, sizes) if known else {}
        asked = Asked(n, problem, layer, names, session, results, progress, expected)
        under_way.enter_context(asked.search)
        asked.search.go(seconds)
        return asked

    def share(widths_left: int) -> float:
        """An even share of what is left: what one width does not need is the others'."""
        return (ends - session.clock()) / (widths_left + looks_further)

    with ExitStack() as under_way:
        asked = [ask(n, share(len(question.ns) - at), under_way) for at, n in enumerate(question.ns)]
        # programs that took longer than a width's share have been compiled during the others'
        late = [one for one in asked if one.search.compiling]
        for at, one in enumerate(late):
            progress.start(f"{layer.label}, N = {one.n}, compiled since", len(names))
            one.search.settle(share(len(late) - at))
        widths += [one.width() for one in asked]
        if known is not None and question.op == "spmm" and not question.packs:
            widths = [replace(one, beside=beside(layer, question, dtype, known, one.n)) for one in widths]
    points = _points(widths, dtype)
    if looks_further:
        for _ in range(MOST_EXTRA):
            further, left = next_width(points), ends - session.clock()
            if further is None or left <= 0:
                break
            with ExitStack() as under_way:
                found = _points([ask(further, left / 2, under_way).width()], dtype)
            if not found:
                break
            points += found
    return Answer(
        layer.title, question.op, dtype, layer.matrix.m, layer.matrix.k, layer.matrix.nnz, session.device.gpu,
        False, tuple(widths), crossing(points) if question.op == "spmm" else None, layer.note,
        tuple(sorted(points)), tuple(problems),
    )  # fmt: skip


def kernel_names(question: Question, dtype: DType, session: Session) -> list[str]:
    """The kernels that were asked for by name, else all that compute the op in that type and are no studies."""
    if question.kernels is not None:
        return list(question.kernels)
    return [name for name in baselines(question.op) if dtype in session.kernels[name].dtypes]


def unrecorded(problem: Problem, results: Results) -> Problem:
    """The problem under a name that has no row yet: times are compared within one run alone, and none is replaced."""
    taken = {key[1] for key in results.done}
    label, number = problem.label, 1
    while problem.name in taken:
        number += 1
        problem = replace(problem, label=f"{label}.r{number}")
        problem = replace(problem, name=name_of(problem))
    return problem


@dataclass
class _Sizes:
    """Bytes of the weights by kernel and variant, of the candidates that have a plan."""

    operands: Operands
    known: dict[tuple[str, str], int] = field(default_factory=dict)

    def __call__(self, kernel: str, candidate: Candidate, outcome: Outcome) -> None:
        plan = candidate.plan
        if plan is not None and (plan.language != "ptx" or outcome.resources):  # code whose length is not known
            self.known[kernel, candidate.variant] = weights_bytes(plan, self.operands, outcome.resources)


class Asked:
    """What is asked about one width, by a search that is to be entered: what compiles ends with the `with` block."""

    def __init__(
        self,
        n: int,
        problem: Problem,
        layer: Layer,
        names: Sequence[str],
        session: Session,
        results: Results,
        progress: RunProgress,
        expected: Mapping[str, float],
    ) -> None:
        self.n, self._problem = n, problem
        self._operands = layer.operands(problem)
        self.rows: list[Record] = []
        # what a model sees decides; who is clearly behind there is not asked for more
        policies: tuple[Policy, ...] = ("stream", *USUAL) if session.device.timer is not None else ()
        rule = StoppingRule()
        self.attempts = Attempts(EXPERIMENT, session, results, policies, rule, kept=self.rows, refused_behind=BEHIND)
        subject = Subject(problem, self._operands)
        self._sizes = _Sizes(self._operands)
        self.search = Search(subject, self._operands, names, self.attempts, progress, self._sizes, expected=expected)

    def width(self) -> Width:
        """The answer so far; records which kernels were not reached."""
        self.search.record_unreached()
        entries = ranked(_entries(self.rows, self._problem, self._operands, self._sizes))
        found = self.search.found
        return Width(self.n, entries, sum(found.tried.values()), found.unfinished, tuple(found.missed.items()))


def _entries(rows: Iterable[Record], problem: Problem, operands: Operands, sizes: _Sizes) -> Iterable[Entry]:
    """One entry per kernel and arithmetic, with the fastest time under each policy; one per kernel that has none."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for row in rows:
        groups.setdefault((row.kernel, row.math), []).append(row)
    worked = {kernel for (kernel, _), group in groups.items() if any(row.status == "ok" for row in group)}
    for (kernel, math_name), group in groups.items():
        right = [row for row in group if row.status == "ok"]
        if not right:
            if kernel not in worked or any(row.status == "wrong" for row in group):
                worst = next((row for row in group if row.status == "wrong"), group[0])
                yield Entry(kernel, math_name, worst.variant, reason=worst.reason, wrong=worst.status == "wrong")
            continue
        best = {policy: _least([row for row in right if row.policy == policy]) for policy in OF_MODELS}
        chosen = best["stream"] or best["hot"] or best["cold"] or right[0]
        own = operands.sparse
        size = sizes.known.get((kernel, chosen.variant))
        yield Entry(
            kernel,
            math_name,
            chosen.variant,
            best["hot"].median_us if best["hot"] else None,
            best["cold"].median_us if best["cold"] else None,
            stored_bytes(kernel, problem, own.m, own.k, own.nnz) if size is None else size,
            None if about(kernel).work == "dense" else (chosen.prepare_ms or 0.0) + (chosen.compile_ms or 0.0),
            chosen.relative_error,
            stream_us=best["stream"].median_us if best["stream"] else None,
        )


def _least(rows: Sequence[Record]) -> Record | None:
    return min((row for row in rows if row.median_us is not None), key=lambda row: row.median_us or 0.0, default=None)


def _points(widths: Iterable[Width], dtype: DType) -> list[tuple[int, float, float]]:
    """(width, fastest dense, fastest sparse time) of the widths that have both."""
    found = []
    for width in widths:
        dense, sparse = width.baseline(dtype), width.sparse(dtype)
        if dense is not None and sparse is not None and dense.us and sparse.us:
            found.append((width.n, dense.us, sparse.us))
    return found


def next_width(points: Sequence[tuple[int, float, float]]) -> int | None:
    """Where to look next for the crossover: beyond the widths known, or between the two that enclose it."""
    ordered = sorted(points)
    if not ordered:
        return None
    ahead = [n for n, dense, sparse in ordered if dense >= sparse]
    if not ahead:
        least = ordered[0][0]
        return least // 2 if least > 1 else None
    behind = [n for n, _, _ in ordered if n > ahead[-1]]
    if not behind:
        return ahead[-1] * 2 if ahead[-1] * 2 <= WIDEST else None
    low, high = ahead[-1], behind[0]
    if high - low < 16 or high < 1.25 * low:
        return None
    middle = round(math.sqrt(low * high) / 8) * 8
    return middle if low < middle < high else None
