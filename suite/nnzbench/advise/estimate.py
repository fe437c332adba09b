"""The answer without the GPU: times estimated from what was recorded on it, with the error that such estimates have.

Each kernel's time follows from its own recorded rows of that op, type and policy (`model.Model`), and from what the
trial of `best` measured of it. The interval beside it holds nine in ten times of problems whose layer sizes were held
out. A kernel that is recorded too little has the times of a problem of the same sizes, or none and the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from nnzbench.advise.answer import FEW_ZEROS, MOST_ROWS, Answer, Beside, Entry, Near, Width, ranked
from nnzbench.advise.layer import Layer, Question
from nnzbench.advise.operators.arrays import stored_bytes, weights_bytes
from nnzbench.advise.recorded import FEWEST, LEAST_CERTAIN, Recorded, same
from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.experiment import OF_MODELS, USUAL
from nnzbench.data.problems.problem import DType, Problem
from nnzbench.kernels.registry import Kernel, about, baselines, kernels
from nnzbench.papers.predict.estimator import FAR_OCTAVES, Floats, Model, Sizes
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
_ROWS = 64
"""Of a matrix that are enough to tell whether a kernel takes a width."""
_FEWER_BITS: dict[str, DType] = {"f8": "f8", "i4": "f16"}
"""Arithmetics of weights in fewer bits, and the type of the problems that they are recorded as."""
_TYPES: tuple[DType, ...] = ("f32", "f16", "bf16")
_WIDTHS = tuple(sorted({round(2 ** (step / 2)) for step in range(1 + round(2 * math.log2(WIDEST)))}))
"""Widths that the crossover is looked for at."""


def answer(layer: Layer, question: Question, recorded: Recorded, every: bool = True) -> Answer:
    """The estimate for one layer. Raises `RecordError` where too little of its kind is recorded.

    With `every`, each kernel is asked whether it takes this matrix, which packs it, and how far off it is; else those
    that an answer names.
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


def beside(layer: Layer, question: Question, dtype: DType, recorded: Recorded, n: int) -> tuple[Beside, ...]:
    """What fewer bits of the layer take, for an answer that is measured."""
    asked = _Asked(layer, question, dtype, recorded, False)
    problem = layer.problem(question.op, n, dtype, question.image)
    sizes = Sizes(problem.m, problem.k, problem.n, layer.matrix.nnz, layer.kind)
    return asked.beside("stream", problem, sizes)


class _Asked:
    def __init__(self, layer: Layer, question: Question, dtype: DType, recorded: Recorded, every: bool) -> None:
        self._layer, self._question, self._dtype, self._recorded, self._every = layer, question, dtype, recorded, every
        self._names = baselines(question.op) if question.kernels is None else question.kernels
        self._takers = Takers(layer, recorded.arch)
        self._kind = layer.kind
        self._unjudged: set[tuple[str, str]] = set()
        self._streamed: set[int] = set()
        """Widths whose times are ranked as streamed."""
        found = recorded.models(question.op, dtype)
        self._lacking = {key[:2]: self._lacks(*key[:2]) for key in found if key[0] in self._names}
        self.models: Models = {key: model for key, model in found.items() if not self._lacking.get(key[:2], "no name")}

    def _lacks(self, kernel: str, math_class: str) -> str:
        """Why a GPU without records has no time of the kernel; empty where it has, or has records."""
        if (carry := self._recorded.carry(kernel, math_class)) is None:
            return ""
        from nnzbench.papers.predict.records import UNJUDGED  # loads the papers' pages

        if reason := self._recorded.cannot(kernel, math_class):
            return reason
        self._unjudged |= {(kernel, math_class)} if math.isnan(carry.within) else set()
        return UNJUDGED if math.isnan(carry.within) else ""

    def width(self, n: int) -> Width:
        """The answer for one width."""
        problem = self._problem(n)
        sizes = Sizes(problem.m, problem.k, problem.n, self._layer.matrix.nnz, self._kind)
        models = self._one_column(sizes) if n == 1 else self.models
        policy = self._policy(models, sizes)
        self._streamed |= {n} if policy == "stream" else set()
        entries = self._finished(models, policy, problem, sizes)
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
                entries.append(self._taken_by(self._same(key, problem, sizes, rows, reason), problem))
        entries += [one for one in map(self._unknown, self._names) if one and one.kernel not in known]
        pruned, beside = self._pruned(problem, sizes), self.beside(policy, problem, sizes)
        return Width(n, ranked(entries), pruned=pruned, beside=beside)

    def _policy(self, models: Models, sizes: Sizes) -> str:
        """What times are ranked by: streamed, as a model sees its weights, where both sides are known so; else hot."""
        known = [key[0] for key, one in models.items() if key[1:] == (self._dtype, "stream") and not one.guess(sizes)]
        return "stream" if len({about(kernel).work == "dense" for kernel in known}) == 2 else "hot"

    def _finished(self, models: Models, policy: str, problem: Problem, sizes: Sizes) -> list[Entry]:
        """An entry for each kernel with a model, the fastest first: how far off it is and whether it takes the matrix
        is found of those that an answer names, as that is slow, and of the others with `every`."""
        rough = []
        for key in dict.fromkeys(key[:2] for key in models):
            hot, cold = (models.get((*key, one)) for one in USUAL)
            ruling = models.get((*key, policy))
            if ruling is None or (policy == "stream" and ruling.guess(sizes)):
                ruling = hot or cold
            if ruling is not None:
                rough.append((ruling.policy != policy, float(ruling.at([sizes])[0]), key, ruling))
        entries: list[Entry] = []
        found: set[bool] = set()
        more = max(2, MOST_ROWS // len(self._question.ns)) - 2  # rows of a table beside both sides' fastest
        for *_, key, ruling in sorted(rough, key=lambda one: one[:3]):
            dense, exact = about(key[0]).work == "dense", key[1] == self._dtype
            named = self._every or (exact and dense not in found) or more > 0
            more -= 0 if exact and dense not in found else 1
            every_pattern = not dense and bool(about(key[0]).pattern)  # such kernels refuse most matrices
            entry = self._estimated(key, problem, sizes, models, ruling, named or not self._question.crossover)
            if named or every_pattern or entry.us is None:
                entry = self._taken_by(entry, problem, named or every_pattern, self._every or not found)
            certain = entry.us is not None and not entry.guess and (entry.within or 0.0) <= LEAST_CERTAIN
            found |= {dense} if exact and certain else set()
            entries.append(entry)
        return entries

    def _taken_by(self, entry: Entry, problem: Problem, asked: bool = True, whole: bool = False) -> Entry:
        """The entry; with the reason in place of times where its kernel refuses this matrix at this width."""
        if entry.dense or not asked or not (entry.us or entry.unestimated):
            return entry
        reason, size = self._takers.asked(entry.kernel, problem, whole)
        if reason:
            return Entry(entry.kernel, entry.math, reason=reason)
        return entry if size is None or entry.us is None else replace(entry, memory_bytes=size)

    def _rival(self, unknown: set[tuple[str, str]], sizes: Sizes) -> tuple[tuple[str, str] | None, str]:
        """Of sparse kernels without a time here, the one that is fastest on the recorded GPU if it beats dense there,
        and that GPU's name."""
        if not unknown or self._recorded.source is None or self._layer.matrix.sparsity < FEW_ZEROS:
            return None, ""
        there = self._recorded.on_source.models(self._question.op, self._dtype)
        hot = {key[:2]: model for key, model in there.items() if key[1:] == (self._dtype, "hot")}
        asked = {key: one for key, one in hot.items() if key in unknown or about(key[0]).work == "dense"}
        us = {key: float(model.at([sizes])[0]) for key, model in asked.items() if not model.guess(sizes)}
        dense = min((one for key, one in us.items() if about(key[0]).work == "dense"), default=0.0)
        sparse = [key for key in sorted(unknown) if about(key[0]).work != "dense"]
        ahead = {key: us[key] for key in sparse if us.get(key, dense) < dense}
        return (min(ahead, key=ahead.__getitem__), self._recorded.source.name) if ahead else (None, "")

    def _pruned(self, problem: Problem, sizes: Sizes) -> Entry | None:
        """cuSPARSELt's time for weights pruned 2:4 in place of these, where it is no guess."""
        model = self.models.get(("cusparselt", self._dtype, "hot"))
        halved = replace(sizes, nnz=problem.m * problem.k // 2, kind="2:4")
        if model is None or not self._layer.matrix.sparsity or model.guess(halved):
            return None
        if not model.held_out_error(halved.kind) <= LEAST_CERTAIN:
            return None
        us, within = float(model.at([halved])[0]), model.within(halved.kind)
        return Entry("cusparselt", self._dtype, hot_us=us, within=within)

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
            usable = usable and not self._recorded.cannot(*key[:2])
            if key[0] in self._names and key[0] in baselines(op) and usable:
                nearer = key not in own or model.remoteness(sizes) < own[key].remoteness(sizes)
                found |= {key: model} if nearer else {}
        return found

    def _estimated(
        self, key: tuple[str, str], problem: Problem, sizes: Sizes, models: Models, ruling: Model, named: bool
    ) -> Entry:
        """The entry by the model that it is ranked by; the rest of it where it is `named`."""
        hot, cold = (models.get((*key, policy)) for policy in USUAL)
        guess, as_width = ruling.guess(sizes), ruling.widened(sizes)
        us = {one.policy: float(one.at([sizes])[0]) for one in (ruling, *((hot, cold) if named else ())) if one}
        times = [us.get(policy) for policy in OF_MODELS]
        entry = Entry(
            *key, "", times[0], times[1], self._bytes(key[0], problem), stream_us=times[2],
            as_width=None if guess else as_width, guess=guess,
        )  # fmt: skip
        if not named:
            return entry
        if not (off := ruling.held_out_error(self._kind)) <= LEAST_CERTAIN:
            reason = f"estimates of it are off by {100 * off:.0f} % on average, from {len(ruling.rows)} rows"
            rows = pd.concat([one.rows for one in (hot, cold) if one] or [ruling.rows])
            return self._same(key, problem, sizes, rows, reason)
        there = ruling.near(sizes)
        nearest = next((row for _, row in there if row["variant"]), there[0][1])  # a trial's rows name none
        found = {(row["experiment"], row["problem"]): octaves for octaves, row in reversed(there)}
        nearby = sorted(found.items(), key=lambda one: one[1])[:NEAR_SHOWN]
        return replace(
            entry,
            variant=str(nearest["variant"]),
            packing_ms=packing_ms(key[0], ruling.rows, sizes),
            within=None if guess or as_width else ruling.within(self._kind),
            near=tuple(Near(*name, octaves) for name, octaves in nearby),
        )

    def _same(self, key: tuple[str, str], problem: Problem, sizes: Sizes, rows: pd.DataFrame, reason: str) -> Entry:
        """The times of a recorded problem of the same sizes, where there is one; else the reason why there is none."""
        dense = about(key[0]).work == "dense"
        by_policy = same(rows[rows["policy"].isin(USUAL)], sizes, dense)
        if not by_policy:
            return Entry(*key, reason=reason, unestimated=True)
        row = by_policy["hot"] if "hot" in by_policy else by_policy["cold"]
        hot, cold = (float(by_policy[one]["median_us"]) if one in by_policy else None for one in USUAL)
        costs = () if dense else ("prepare_ms", "compile_ms")
        once = [float(row[name]) for name in costs if not pd.isna(row[name])]
        memory = self._bytes(key[0], problem)
        near = Near(str(row["experiment"]), str(row["problem"]), 0.0)
        packing = sum(once) if once else None
        return Entry(*key, str(row["variant"]), hot, cold, memory, packing, recorded=True, near=(near,))

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

    def beside(self, policy: str, problem: Problem, sizes: Sizes) -> tuple[Beside, ...]:
        """What fewer bits take: of fp32 the fastest of either side in fp16, of all dense weights in FP8 and INT4."""
        if self._question.op != "spmm" or self._question.kernels is not None:
            return ()
        found: list[Beside] = []
        sheet, zeros = self._recorded.sheet, self._zeros(policy, sizes)
        if self._dtype == "f32":
            halves = self._recorded.models("spmm", "f16")
            (us, by), (sparse, _) = (self._least(halves, "f16", policy, dense, sizes) for dense in (True, False))
            found += [Beside("f16", us, by, sparse if sparse < math.inf else None)] if by else []
        for math_class, dtype in _FEWER_BITS.items():
            if math_class != "f8" or sheet is None or sheet.rate("f8"):
                us, by = self._least(self._recorded.models("spmm", dtype), math_class, policy, True, sizes)
                found += [Beside(math_class, us, by, zeros=zeros(us))] if by else []
        if sheet is not None and policy == "stream":  # of INT4 no fast kernel is recorded
            moved = problem.m * problem.k / 2 + 2 * problem.n * (problem.m + problem.k)
            us = max(moved * 1e-3 / sheet.bandwidth_gbs, self._recorded.least_us(policy))
            found.append(Beside("i4", us, zeros=zeros(us)))
        return tuple(found)

    def _least(self, models: Models, math_class: str, policy: str, dense: bool, sizes: Sizes) -> tuple[float, str]:
        """The least time of a side's kernels that is no guess, and whose; infinity and no name where there is none."""
        side = [
            (float(model.at([sizes])[0]), key[0])
            for key, model in models.items()
            if key[1:] == (math_class, policy) and (about(key[0]).work == "dense") == dense
            if not model.guess(sizes) and (dense or about(key[0]).takes(sizes.kind))
        ]
        return min(side, default=(math.inf, ""))

    def _zeros(self, policy: str, sizes: Sizes) -> Callable[[float], float | None]:
        """The share of zeros from which on the fastest sparse kernel takes no longer than a time, 1 where at none; None
        where no times of one are known."""
        shares = np.arange(FEW_ZEROS, 1.0, 0.01)
        asked = [replace(sizes, nnz=round((1 - share) * sizes.m * sizes.k)) for share in shares]
        fastest = cache(lambda: self._fastest(policy, asked, (False,))[0])

        def from_zeros(us: float) -> float | None:
            known = np.flatnonzero(fastest() < math.inf)
            slower = known[fastest()[known] > us]
            first = known[known > slower[-1]] if slower.size else known
            return None if not known.size else float(shares[first[0]]) if first.size else 1.0

        return from_zeros

    def _fastest(self, policy: str, asked: list[Sizes], sides: tuple[bool, ...]) -> list[Floats]:
        """The least estimates of each side (dense or not) at sizes near recorded ones, infinity where there are none.

        Whether a kernel is estimated well enough is asked of those that are the fastest somewhere: it takes long.
        """
        found = []
        steps = np.array([one.n for one in asked])
        for dense in sides:
            times: dict[str, Floats] = {}
            for (kernel, maths, known), model in self.models.items():
                if known == policy and maths == self._dtype and (about(kernel).work == "dense") == dense:
                    recorded = (model.widths.min() <= steps) & (steps <= model.widths.max())
                    if kernel in self._takers.refused:
                        recorded = np.isin(steps, self._taken(kernel, model))
                    near = recorded & (model.distances(asked) <= FAR_OCTAVES) & model.knows(self._kind)
                    times[kernel] = np.where(near, model.at(asked), math.inf)
            while True:
                least = np.min([*times.values(), np.full(len(asked), math.inf)], axis=0)
                first = [one for one, us in times.items() if ((us == least) & (us < math.inf)).any()]
                models = {one: self.models[one, self._dtype, policy] for one in first}
                doubtful = [one for one in first if not models[one].held_out_error(self._kind) <= LEAST_CERTAIN]
                if not doubtful:
                    break
                times = {kernel: us for kernel, us in times.items() if kernel not in doubtful}
            found.append(least)
        return found

    def curve(self, widths: tuple[Width, ...]) -> tuple[Point, ...]:
        """Fastest dense and fastest sparse estimates at the widths near which both sides have recorded problems.

        At the widths that were asked about, they are those of the answer. Streamed where all of these are.
        """
        matrix = self._layer.matrix
        policy = "stream" if self._streamed.issuperset(width.n for width in widths) else "hot"
        asked = [Sizes(matrix.m, matrix.k, n, matrix.nnz, self._kind) for n in _WIDTHS]
        sides = self._fastest(policy, asked, (True, False))
        points = {n: (n, float(a), float(b)) for n, a, b in zip(_WIDTHS, *sides, strict=True)}

        def time(one: Entry) -> float:
            return (one.stream_us if policy == "stream" else one.hot_us) or math.inf

        for width in widths:
            sure = [one for one in width.exact(self._dtype) if time(one) < math.inf and not one.guess]
            dense_us = min((time(one) for one in sure if one.dense), default=math.inf)
            others = [one for one in sure if not one.dense]
            certain = (time(one) for one in others if one.as_width is None or one.doubt * time(one) <= dense_us)
            points[width.n] = (width.n, dense_us, min(certain, default=math.inf))
        return tuple(points[n] for n in sorted(points) if max(points[n][1:]) < math.inf)

    def _taken(self, kernel: str, model: Model) -> list[float]:
        """The recorded widths of a kernel that takes some widths alone; none where it takes this matrix at none."""
        refused, _ = self._takers.asked(kernel, self._problem(int(model.widths.min())))
        return [] if refused else np.unique(model.widths).tolist()


class Takers:
    """What kernels say of one layer, each asked once for a width: of the whole matrix, which packs it, until it takes
    that, then (unless its bytes are needed) of its first rows; the whole again where these are refused."""

    def __init__(self, layer: Layer, arch: str) -> None:
        self._layer, self._arch = layer, arch
        matrix, first = layer.matrix, layer.matrix.offsets[: _ROWS + 1]
        rows = CSR(first.size - 1, matrix.k, first, matrix.indices[: first[-1]], matrix.values[: first[-1]])
        self._part = replace(layer, matrix=rows, shape=(rows.m, *layer.shape[1:]))
        self._known: dict[tuple[str, int], tuple[str, int | None]] = {}
        self._took: dict[str, int | None] = {}
        """Kernels that took the whole matrix, and their bytes at the width that was asked first."""

    @property
    def refused(self) -> frozenset[str]:
        """Kernels that refused the matrix at some width."""
        return frozenset(kernel for (kernel, _), (reason, _) in self._known.items() if reason)

    def asked(self, kernel: str, problem: Problem, whole: bool = False) -> tuple[str, int | None]:
        """Why the kernel refuses the matrix (empty where it takes it), and the bytes that it keeps where it tells."""
        key = (kernel, problem.n)
        if key not in self._known:
            reason, size = "not asked", None
            before = next((one for (name, _), (one, _) in self._known.items() if name == kernel and one), "")
            if before and about(kernel).pattern:  # which no width changes
                return before, None
            if kernel in self._took and not whole and problem.op in ("spmm", "spmv"):
                reason, _ = self._ask(kernel, self._part, replace(problem, m=self._part.matrix.m))
                size = self._took[kernel]
            if reason:
                reason, size = self._ask(kernel, self._layer, problem)
            if not reason:
                self._took.setdefault(kernel, size)
            self._known[key] = reason, size
        return self._known[key]

    def _ask(self, name: str, layer: Layer, problem: Problem) -> tuple[str, int | None]:
        kernel, refuses = kernels()[name], about(name).refuses
        if about(name).weights_in_code and any(one == name and not self._known[one, n][0] for one, n in self._known):
            return "", None  # writing the program again for another width is slow, and tells nothing new
        try:
            if refuses:
                refuses(problem, layer.matrix)
            elif isinstance(kernel, Kernel):
                operands = layer.operands(problem)
                plan = next(iter(kernel.plans(problem, operands, self._arch)), None)
                if plan is None:
                    raise Unsupported("no plan for this matrix")
                if plan.language == "cuda":  # generated code holds its weights, and is not compiled here
                    return "", weights_bytes(plan, operands)
        except Unsupported as error:
            return str(error), None
        return "", None
