"""Layers packed to be taken along: of each answer the kernels that won, for rows of tokens, or dense where that won."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from nnzbench.advise.answer import FEW_ZEROS, Answer, Entry, Width
from nnzbench.advise.layer import Layer, Question
from nnzbench.advise.operators.archive import (
    Archive,
    Facts,
    Key,
    Packing,
    Saved,
    canonical,
    choices_folder,
    keep,
    recall,
)
from nnzbench.advise.operators.arrays import OperatorError
from nnzbench.advise.operators.make import alike, draft, make
from nnzbench.bench.session import Session
from nnzbench.core.progress import RunProgress
from nnzbench.data.matrices.formats import CSR, MatrixError
from nnzbench.data.problems.operands import Operands, operands_of
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.registry import Kernel, kernels

LEAST_ZEROS = 0.25
"""Share of zeros from which on a layer counts as pruned."""
_CLOSE = 1.3
"""Times the fastest kernel's time up to which another is tried for rows of tokens too: these may cost it less."""
_GAIN = 0.9
"""Share of the next wider choice's time below which a narrower one is worth the memory of its packed weights."""
SECONDS = 5.0
"""Most for one width's choice among kernels that were timed already."""

Make = Callable[[Problem, Operands, list[str]], Saved]
"""An operator's choice out of named kernels. Raises `OperatorError`."""


def prunable(layers: Iterable[Layer]) -> tuple[list[Layer], list[Layer]]:
    """The matrices of linear layers that are pruned, and those that stay dense: what has other axes is neither.

    Raises `MatrixError` where none is pruned, or two have one name.
    """
    linear = [one for one in layers if len(one.shape) == 2]
    names = [one.title for one in linear]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise MatrixError(f"two layers are named '{twice}', and one file can't hold both.")
    pruned = [one for one in linear if one.matrix.sparsity >= LEAST_ZEROS]
    if not pruned:
        raise MatrixError(f"no matrix of a linear layer has {100 * LEAST_ZEROS:.0f} % zeros: nothing is to be packed.")
    return pruned, [one for one in linear if one.matrix.sparsity < LEAST_ZEROS]


def unpruned(layer: Layer) -> Packing:
    """What is kept of a layer that stays dense without being asked about."""
    return Packing(layer.matrix.m, layer.matrix.k, layer.dtype, "", {})


def measured(session: Session) -> Make:
    """Choices by the times that operators take on this device, which checks them."""

    def made(problem: Problem, operands: Operands, names: list[str]) -> Saved:
        operator = make(problem, operands, session, RunProgress(), names, SECONDS, "tokens")
        operator.close()
        return operator.packed.saved

    return made


def drafted(arch: str) -> Make:
    """Choices for a GPU that is not here: each kernel's first plan."""
    return lambda problem, operands, names: draft(problem, operands, names, arch, kernels())


@dataclass
class Packer:
    """Packs layers one after another. What was chosen for a layer by measuring is kept on disk, and taken again."""

    gpu: str
    arch: str
    driver: str
    made: Make
    keeps: bool = False
    """Whether choices are kept: those by all kernels' times on a GPU."""
    layers: dict[str, Packing] = field(default_factory=dict)
    weights: dict[str, CSR] = field(default_factory=dict)
    recalled: int = 0
    """Layers whose choice was made before."""
    hurried: int = 0
    """Layers of which no sparse kernel was timed at some width: there they stay dense, and the choice is not kept."""

    def recall(self, layer: Layer, question: Question) -> bool:
        """Whether a choice for this layer and question is known; then it is taken."""
        if not (self.keeps and choices_folder().exists()):  # a large layer's key takes a while
            return False
        weights = canonical(layer.matrix, question.dtype or layer.dtype)
        found = recall(self._key(weights, layer, question))
        if found is not None:
            self._take(layer, found, weights)
            self.recalled += 1
        return found is not None

    def add(self, layer: Layer, question: Question, answer: Answer) -> None:
        """Packs the layer by its answer. Raises `OperatorError` where no kernel can be tried and dense is not timed."""
        found, weights = pack(layer, answer, self.made)
        lacking = [width for width in answer.widths if not width.sparse(answer.dtype)]  # the time was too short
        self.hurried += any(width.timed() for width in lacking)
        if self.keeps and not lacking:
            keep(self._key(weights, layer, question), found)
        self._take(layer, found, weights)

    def add_alike(
        self, firsts: Mapping[str, Sequence[Layer]], question: Question, session: Session, progress: RunProgress
    ) -> None:
        """Packs layers by what was chosen for the first one of their kind, by whose name they are given; one that is
        not right so stays dense."""
        progress.start("packing layers of these kinds", sum(map(len, firsts.values())))
        for name, layers in firsts.items():
            first = self.layers[name]
            chosen = [(n, facts) for n, facts in first.widths.items() if facts is not None]
            found = alike(
                [(facts, one.matrix) for one in layers for _, facts in chosen], session.device, session.kernels
            )
            for layer in layers:
                progress.step(layer.title)
                saved = {n: next(found) for n, _ in chosen}
                weights = next((one.matrix for one in saved.values() if one), layer.matrix)
                widths = {n: one.facts if (one := saved.get(n)) else None for n in first.widths}
                made = replace(first, pattern=weights.pattern_hash(), widths=widths)
                if self.keeps and all(saved.values()):
                    keep(self._key(weights, layer, question), made)
                self._take(layer, made, weights)
                progress.advance()

    def archive(self) -> Archive:
        """All that was packed."""
        return Archive(self.gpu, self.arch, self.driver, self.layers, self.weights)

    def _take(self, layer: Layer, found: Packing, weights: CSR) -> None:
        self.layers[layer.title], self.weights[layer.title] = found, weights

    def _key(self, weights: CSR, layer: Layer, question: Question) -> Key:
        tokens, dtype = tuple(sorted(set(question.ns))), question.dtype or layer.dtype
        return Key(weights.pattern_hash(), weights.m, weights.k, dtype, tokens, self.gpu, self.driver)


def packer(session: Session, keeps: bool) -> Packer:
    """One for this device; `keeps` where all kernels are asked. Nothing is kept of a device that is not timed."""
    device, driver = session.device, str(session.environment.get("gpu", {}).get("driver") or "")
    return Packer(device.gpu, device.arch, driver, measured(session), keeps and device.timer is not None)


def pack(layer: Layer, answer: Answer, made: Make) -> tuple[Packing, CSR]:
    """The choices for a layer, by its answer, and the weights that they are for."""
    dtype = answer.dtype
    matrix = canonical(layer.matrix, dtype)
    pattern, own = matrix.pattern_hash(), replace(layer, matrix=matrix)
    found: dict[int, Facts | None] = {}
    wider: float | None = None  # time of the next wider choice
    for width in sorted(answer.widths, key=lambda one: -one.n):
        problem = own.problem("spmm", width.n, dtype)
        names, limit = _rivals(answer, width)
        saved: Saved | None = None
        us: float | None = None
        if names:
            with suppress(*([OperatorError] if limit else [])):  # then dense it is
                saved = made(problem, operands_of(problem, matrix, pattern), names)
        if saved is not None:
            us = saved.facts.hot_us or next((one.us for one in width.timed() if one.kernel == saved.facts.kernel), None)
        if saved is None or (us and limit and us >= limit):
            found[width.n], wider = None, None
        elif not (us and wider and us > _GAIN * wider):
            found[width.n], wider = saved.facts, us
    return Packing(matrix.m, matrix.k, dtype, pattern, dict(sorted(found.items()))), matrix


def _rivals(answer: Answer, width: Width) -> tuple[list[str], float | None]:
    """The kernels to choose from, none where dense is faster, and the hot time from which on dense would be.

    A model's weights come from memory at each step, so that streamed times decide where both sides have them, else
    cold ones.
    """
    known, dense = kernels(), width.baseline(answer.dtype)
    sparse = [one for one in width.exact(answer.dtype) if not one.dense and not one.guess]
    if not width.timed():  # what was right
        sparse = [one for one in width.entries if one.error is not None and not one.dense]
        return [one.kernel for one in sparse if isinstance(known[one.kernel], Kernel)], None
    sparse = [one for one in sparse if isinstance(known[one.kernel], Kernel)]
    if not sparse or (answer.estimated and (answer.sparsity < FEW_ZEROS or (dense is not None and dense.guess))):
        return [], None
    both = (*sparse, *([dense] if dense else []))
    streamed = all(one.stream_us and one.hot_us for one in both)
    cold = all(one.cold_us and one.hot_us for one in both)

    def time(one: Entry) -> float:
        return one.doubt * ((one.stream_us if streamed else one.cold_us if cold else one.us) or math.inf)

    sparse.sort(key=time)
    close = list(dict.fromkeys(one.kernel for one in sparse if time(one) <= _CLOSE * time(sparse[0])))
    if dense is None:
        return close, None
    saved = time(dense) - time(sparse[0])
    hot_us = sparse[0].hot_us or sparse[0].us or 0.0
    return (close, hot_us + saved) if saved > 0 else ([], None)
