"""The answer without the GPU: times estimated from what was recorded on it, with the error that such estimates have.

Each kernel's time follows from its own recorded rows of that op, type and policy (`model.Model`), and from what the
trial of `best` measured of it. The interval beside it holds nine in ten times of problems whose layer sizes were held
out. A kernel that is recorded too little has the times of a problem of the same sizes, or none and the reason.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from nnzbench.advise.answer import FEW_ZEROS, Answer, Entry, Near, Width, ranked
from nnzbench.advise.layer import Layer, Question, unfit
from nnzbench.advise.operators.arrays import stored_bytes, weights_bytes
from nnzbench.advise.recorded import FEWEST, LEAST_CERTAIN, Recorded, certain_hot, same
from nnzbench.core.plan import Unsupported
from nnzbench.data.problems.experiment import USUAL
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import DType, Problem
from nnzbench.kernels.registry import Kernel, about, baselines, kernels
from nnzbench.papers.predict.estimator import FAR_OCTAVES, Model, Sizes
from nnzbench.results.crossover import WIDEST, crossing
from nnzbench.results.records.record import RecordError

ALIKE = 12
"""Rows of the nearest number of nonzeros whose median is taken: one packing alone may take twice another."""


def packing_ms(kernel: str, rows: pd.DataFrame, sizes: Sizes) -> float | None:
    """In proportion to the nonzeros, but no less than any recorded; None of a dense product, which packs nothing.

    So is the compilation of programs that hold the weights; another takes as long as that of other problems.
    """
    known = rows[rows["prepare_ms"].notna()]
    if known.empty or about(kernel).work == "dense":
        return None
    here = max(sizes.nnz, 1)
    there = known["nnz"].to_numpy(float).clip(min=1)
    alike = np.argsort(np.abs(np.log(there / here)), kind="stable")[:ALIKE]
    share = here / there[alike]

    def once(name: str, packed: bool) -> float:
        """The median of rows of about that many; what is packed in proportion to them."""
        ms = known[name].fillna(0.0).to_numpy(float)
        return max(float(np.median(ms[alike] * share)), float(ms.min())) if packed else float(np.median(ms[alike]))

    return once("prepare_ms", True) + once("compile_ms", about(kernel).weights_in_code)


Models = dict[tuple[str, str, str], Model]
Point = tuple[int, float, float]
NEAR_SHOWN = 3
_TYPES: tuple[DType, ...] = ("f32", "f16", "bf16")
_WIDTHS = tuple(sorted({round(2 ** (step / 2)) for step in range(1 + round(2 * math.log2(WIDEST)))}))
"""Widths that the crossover is looked for at."""


def answer(layer: Layer, question: Question, recorded: Recorded, every: bool = True) -> Answer:
    """The estimate for one layer. Raises `RecordError` where too little of its kind is recorded.

    With `every`, each kernel is asked whether it takes this matrix, which packs it; else those that an answer names.
    """
    dtype = question.dtype or layer.dtype
    asked = _Asked(layer, question, dtype, recorded, every)
    with threadpool_limits(limits=1, user_api="blas"):  # of small systems: threads spend most of it on each other
        widths = tuple(asked.width(n) for n in question.ns)
        curve = asked.curve(widths) if question.op == "spmm" else ()
    if not any(width.timed() for width in widths) and not asked.models:
        raise RecordError(_too_little(question, dtype, recorded, widths))
    crossover = crossing(curve) if layer.matrix.sparsity >= FEW_ZEROS else None
    return Answer(
        layer.title, question.op, dtype, layer.matrix.m, layer.matrix.k, layer.matrix.nnz, recorded.gpu, True, widths,
        crossover, " ".join(filter(None, (layer.note, recorded.note))), curve,
    )  # fmt: skip


def _too_little(question: Question, dtype: DType, recorded: Recorded, widths: tuple[Width, ...]) -> str:
    """Why nothing is estimated, in a sentence."""
    if question.kernels is not None:
        why = dict.fromkeys(f"{one.kernel}: {one.reason}" for width in widths for one in width.entries)
        return f"no {question.op} in {dtype} can be estimated for {recorded.gpu}: {'; '.join(why)}"
    enough = [name for name in _TYPES if recorded.models(question.op, name)]
    return (
        f"too little of {question.op} in {dtype} is recorded on {recorded.gpu} to estimate from (fewer than "
        f"{FEWEST} problems of every kernel)" + (f"; enough with --dtype {' or '.join(enough)}" if enough else "")
    )


class _Asked:
    def __init__(self, layer: Layer, question: Question, dtype: DType, recorded: Recorded, every: bool) -> None:
        self._layer, self._question, self._dtype, self._recorded = layer, question, dtype, recorded
        self._names = baselines(question.op) if question.kernels is None else question.kernels
        self._takers = Takers(layer, recorded.arch, every)
        self._kind = layer.kind
        self._unjudged: set[tuple[str, str]] = set()
        found = recorded.models(question.op, dtype)
        self._lacking = {key[:2]: self._lacks(*key[:2]) for key in found if key[0] in self._names}
        self.models: Models = {key: model for key, model in found.items() if not self._lacking.get(key[:2], "no name")}

    def _lacks(self, kernel: str, math_class: str) -> str:
        """Why a GPU without records has no time of the kernel; empty where it has, or has records."""
        if (carry := self._recorded.carry(kernel, math_class)) is None:
            return ""
        from nnzbench.papers.predict.records import UNJUDGED, cannot  # loads the papers' pages

        if reason := cannot(kernel, math_class, self._recorded.arch):
            return reason
        self._unjudged |= {(kernel, math_class)} if math.isnan(carry.within) else set()
        return UNJUDGED if math.isnan(carry.within) else ""

    def width(self, n: int) -> Width:
        """The answer for one width."""
        problem = self._problem(n)
        sizes = Sizes(problem.m, problem.k, problem.n, self._layer.matrix.nnz, self._kind)
        models = self._one_column(sizes) if n == 1 else self.models
        near: dict[tuple[str, str], tuple[Near, ...]] = {}
        entries = []
        for key in dict.fromkeys(key[:2] for key in models):
            hot, cold = (models.get((*key, policy)) for policy in USUAL)
            entry, near[key] = self._estimated(key, problem, sizes, hot, cold)
            entries.append(entry)
        known = {entry.kernel for entry in entries}
        rival, where = self._rival(self._unjudged, sizes)
        for key, reason in self._lacking.items():
            if reason:
                known.add(key[0])
                wins_on = where if key == rival else ""
                entries.append(Entry(*key, reason=reason, unestimated=key in self._unjudged, wins_on=wins_on))
        few = {} if self._recorded.target else self._recorded.few(self._question.op, self._dtype)
        for key, rows in few.items():
            if key[0] in self._names and (*key, "hot") not in models and (*key, "cold") not in models:
                known.add(key[0])
                count = rows["problem"].nunique()
                reason = f"recorded on {count} problem{'s' if count != 1 else ''} only"
                entry, near[key] = self._same(key, problem, sizes, rows, reason)
                entries.append(entry)
        entries += [one for one in map(self._unknown, self._names) if one and one.kernel not in known]
        entries = self._takers.that_run(entries, problem)
        best = next((one for one in ranked(entries) if one.us is not None and not one.dense), None)
        nearby = near[best.kernel, best.math] if best else ()
        return Width(n, ranked(entries), near=nearby, pruned=self._pruned(problem, sizes))

    def _rival(self, unknown: set[tuple[str, str]], sizes: Sizes) -> tuple[tuple[str, str] | None, str]:
        """Of sparse kernels without a time here, the one that is fastest on the recorded GPU if it beats dense there,
        and that GPU's name."""
        if not unknown or self._recorded.source is None or self._layer.matrix.sparsity < FEW_ZEROS:
            return None, ""
        there = self._recorded.on_source.models(self._question.op, self._dtype)
        hot = {key[:2]: model for key, model in there.items() if key[1:] == (self._dtype, "hot")}
        us = {key: float(model.at([sizes])[0]) for key, model in hot.items() if not model.guess(sizes)}
        dense = min((one for key, one in us.items() if about(key[0]).work == "dense"), default=0.0)
        ahead = {
            key: us[key] for key in sorted(unknown) if us.get(key, dense) < dense and about(key[0]).work != "dense"
        }
        return (min(ahead, key=ahead.__getitem__), self._recorded.source.name) if ahead else (None, "")

    def _pruned(self, problem: Problem, sizes: Sizes) -> Entry | None:
        """cuSPARSELt's time for weights pruned 2:4 in place of these, where it is no guess."""
        model = self.models.get(("cusparselt", self._dtype, "hot"))
        halved = replace(sizes, nnz=problem.m * problem.k // 2, kind="2:4")
        if model is None or not self._layer.matrix.sparsity or model.guess(halved):
            return None
        if not model.held_out_error(halved.kind) <= LEAST_CERTAIN:
            return None
        return Entry(
            "cusparselt",
            self._dtype,
            hot_us=float(model.at([halved])[0]),
            within=model.within(halved.kind),
        )

    def _problem(self, n: int) -> Problem:
        return self._layer.problem(self._question.op, n, self._dtype, self._question.image)

    def _one_column(self, sizes: Sizes) -> Models:
        """The models for one column, where a matrix times a matrix is a matrix times a vector.

        A kernel's rows of the other are taken where they are nearer, first of all in the kind of pattern. Where vectors
        are asked about, those of a library are not: it has another function for them, which may be much faster.
        """
        op, own = self._question.op, self.models
        if op not in ("spmm", "spmv"):
            return own
        others = self._recorded.models("spmv" if op == "spmm" else "spmm", self._dtype)
        found = dict(own)
        for key, model in others.items():
            usable = op == "spmm" or (about(key[0]).role != "library" and model.widths.min() == 1)
            if key[0] in self._names and key[0] in baselines(op) and usable:
                nearer = key not in own or model.remoteness(sizes) < own[key].remoteness(sizes)
                found |= {key: model} if nearer else {}
        return found

    def _estimated(
        self, key: tuple[str, str], problem: Problem, sizes: Sizes, hot: Model | None, cold: Model | None
    ) -> tuple[Entry, tuple[Near, ...]]:
        model = hot or cold
        assert model is not None
        if not (off := model.held_out_error(self._kind)) <= LEAST_CERTAIN:
            reason = f"estimates of it are off by {100 * off:.0f} % on average, from {len(model.rows)} rows"
            rows = pd.concat([one.rows for one in (hot, cold) if one])
            return self._same(key, problem, sizes, rows, reason)
        near = model.near(sizes)
        nearest = next((row for _, row in near if row["variant"]), near[0][1])  # a trial's rows name none
        guess, as_width = model.guess(sizes), model.widened(sizes)
        entry = Entry(
            *key,
            str(nearest["variant"]),
            float(hot.at([sizes])[0]) if hot else None,
            float(cold.at([sizes])[0]) if cold else None,
            self._bytes(key[0], problem),
            packing_ms(key[0], model.rows, sizes),
            within=None if guess or as_width else model.within(self._kind),
            as_width=None if guess else as_width,
            guess=guess,
        )
        found = {(row["experiment"], row["problem"]): octaves for octaves, row in reversed(near)}
        nearby = sorted(found.items(), key=lambda one: one[1])[:NEAR_SHOWN]
        return entry, tuple(Near(*name, octaves) for name, octaves in nearby)

    def _same(
        self, key: tuple[str, str], problem: Problem, sizes: Sizes, rows: pd.DataFrame, reason: str
    ) -> tuple[Entry, tuple[Near, ...]]:
        """The times of a recorded problem of the same sizes, where there is one; else the reason why there is none."""
        dense = about(key[0]).work == "dense"
        by_policy = same(rows, sizes, dense)
        if not by_policy:
            return Entry(*key, reason=reason, unestimated=True), ()
        row = by_policy["hot"] if "hot" in by_policy else by_policy["cold"]
        hot, cold = (float(by_policy[one]["median_us"]) if one in by_policy else None for one in USUAL)
        costs = () if dense else ("prepare_ms", "compile_ms")
        once = [float(row[name]) for name in costs if not pd.isna(row[name])]
        memory = self._bytes(key[0], problem)
        entry = Entry(*key, str(row["variant"]), hot, cold, memory, sum(once) if once else None, recorded=True)
        return entry, (Near(str(row["experiment"]), str(row["problem"]), 0.0),)

    def _unknown(self, name: str) -> Entry | None:
        """What is said of a kernel without any row; None of one that nobody would expect here."""
        kernel, maths = kernels()[name], about(name).maths
        math_name = self._dtype if self._dtype in maths else min(maths)
        op, dtype = self._question.op, self._dtype
        if op in kernel.ops and dtype in kernel.dtypes:
            return Entry(name, math_name, reason=f"not recorded on {self._recorded.gpu}", unestimated=True)
        if self._question.kernels is None:
            return None
        return Entry(name, math_name, reason=f"no {dtype} form" if op in kernel.ops else f"does not compute {op}")

    def _bytes(self, kernel: str, problem: Problem) -> int:
        matrix = self._layer.matrix
        return stored_bytes(kernel, problem, matrix.m, matrix.k, matrix.nnz)

    def curve(self, widths: tuple[Width, ...]) -> tuple[Point, ...]:
        """Fastest dense and fastest sparse estimates at the widths near which both sides have recorded problems.

        At the widths that were asked about, they are those of the answer.
        """
        matrix = self._layer.matrix
        steps = np.array(_WIDTHS)
        asked = [Sizes(matrix.m, matrix.k, n, matrix.nnz, self._kind) for n in _WIDTHS]
        sides = {dense: np.full(len(asked), math.inf) for dense in (True, False)}
        for kernel, model in certain_hot(self.models, self._dtype, self._kind):
            recorded = (model.widths.min() <= steps) & (steps <= model.widths.max())
            if kernel in self._takers.refused:
                recorded = np.isin(steps, self._taken(kernel, model))
            near = recorded & (model.distances(asked) <= FAR_OCTAVES)
            dense = about(kernel).work == "dense"
            sides[dense] = np.minimum(sides[dense], np.where(near, model.at(asked), math.inf))
        points = {n: (n, float(a), float(b)) for n, a, b in zip(_WIDTHS, sides[True], sides[False], strict=True)}
        for width in widths:
            sure = [one for one in width.exact(self._dtype) if one.hot_us and not one.guess]
            dense_us = min((one.hot_us or math.inf for one in sure if one.dense), default=math.inf)
            others = [(one.hot_us or math.inf, one) for one in sure if not one.dense]
            certain = (us for us, one in others if one.as_width is None or one.doubt * us <= dense_us)
            points[width.n] = (width.n, dense_us, min(certain, default=math.inf))
        return tuple(points[n] for n in sorted(points) if max(points[n][1:]) < math.inf)

    def _taken(self, kernel: str, model: Model) -> list[float]:
        """The recorded widths of a kernel that takes some widths alone; none where it takes this matrix at none."""
        refused, _ = self._takers.asked(kernel, self._problem(int(model.widths.min())))
        return [] if refused else np.unique(model.widths).tolist()


class Takers:
    """What kernels say of one layer, each asked once for a width.

    Without `every`, those are asked that are faster than dense, the first that takes the matrix if none is, and all
    that need a pattern of their own.
    """

    def __init__(self, layer: Layer, arch: str, every: bool) -> None:
        self._layer, self._arch, self._every = layer, arch, every
        self._known: dict[tuple[str, int], tuple[str, int | None]] = {}
        self._operands: tuple[Problem, Operands] | None = None

    @property
    def refused(self) -> frozenset[str]:
        """Kernels that refused the matrix at some width."""
        return frozenset(kernel for (kernel, _), (reason, _) in self._known.items() if reason)

    def that_run(self, entries: list[Entry], problem: Problem) -> list[Entry]:
        """The entries, those that refuse this matrix at this width with the reason in place of times."""
        found: list[Entry] = []
        taken, behind = self._layer.matrix.sparsity < FEW_ZEROS, False
        for entry in ranked(entries):
            behind = behind or (entry.dense and entry.us is not None and entry.math == problem.dtype)
            settled = (taken and behind) or entry.us is None
            skipped = settled and not self._every and not about(entry.kernel).pattern
            if entry.dense or skipped or not (entry.us or entry.unestimated):
                found.append(entry)
                continue
            reason, size = self.asked(entry.kernel, problem)
            if reason:
                entry = Entry(entry.kernel, entry.math, reason=reason)
            elif entry.us is not None:
                taken = True
                entry = entry if size is None else replace(entry, memory_bytes=size)
            found.append(entry)
        return found

    def asked(self, kernel: str, problem: Problem) -> tuple[str, int | None]:
        """Why the kernel refuses the matrix (empty where it takes it), and the bytes that it keeps where it tells."""
        key = (kernel, problem.n)
        if key not in self._known:
            self._known[key] = self._ask(kernel, problem)
        return self._known[key]

    def _ask(self, name: str, problem: Problem) -> tuple[str, int | None]:
        kernel = kernels()[name]
        if about(name).weights_in_code and any(one == name and not self._known[one, n][0] for one, n in self._known):
            return "", None  # writing the program again for another width is slow, and tells nothing new
        if name == "cusparselt":
            return unfit(self._layer.matrix, problem.dtype), None
        try:
            if isinstance(kernel, Kernel):
                operands = self._made(problem)
                plan = next(iter(kernel.plans(problem, operands, self._arch)), None)
                if plan is None:
                    raise Unsupported("no plan for this matrix")
                if plan.language == "cuda":  # generated code holds its weights, and is not compiled here
                    return "", weights_bytes(plan, operands)
        except Unsupported as error:
            return str(error), None
        return "", None

    def _made(self, problem: Problem) -> Operands:
        """The operands, kept while the same problem is asked about."""
        if self._operands is None or self._operands[0] != problem:
            self._operands = problem, self._layer.operands(problem)
        return self._operands[1]
