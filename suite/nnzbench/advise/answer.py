"""What is answered about a layer, and the sentences that say it. Plain values; nothing here measures or estimates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nnzbench.advise.figures import times_text, us_text
from nnzbench.facts.widths import Crossover
from nnzbench.kernels.registry import about
from nnzbench.problems.problem import DType

ROLE_WORDS = {"paper": "a paper's", "own": "this project's", "library": "a library", "external": "an external kernel"}
_MATH_WORDS = {"f32": "fp32", "f16": "fp16", "tf32": "TF32", "bf16": "bf16", "winograd": "fp32 (Winograd)"}
FAR_OCTAVES = 3.0
"""With nothing recorded nearer, an estimate is a guess."""
FAR = f"is not recorded within {FAR_OCTAVES:g} octaves"
"""Why an estimate is a guess that nothing recorded is near, as what follows the kernel's name."""
_MUCH_LESS = 0.95
"""Share of a time from which on another is told as faster with less precision."""
_FREE_MATH = frozenset({"winograd"})
"""Classes that are as good as their problem's type, but for rounding."""


@dataclass(frozen=True)
class Entry:
    """One kernel in one arithmetic, at one width."""

    kernel: str
    math: str
    variant: str = ""
    hot_us: float | None = None
    cold_us: float | None = None
    memory_bytes: int | None = None
    """Of the weights as the kernel keeps them, with its workspace; not the dense operand or the result."""
    packing_ms: float | None = None
    """Inspecting and packing the weights, uploading them, and compiling: what is paid once."""
    error: float | None = None
    """Relative error of its check against float64."""
    reason: str = ""
    """Why it has no time (and no check), empty where it has."""
    wrong: bool = False
    """Whether it computed something else than float64 does; `reason` says how far off."""
    uncertainty: float | None = None
    """Of an estimate that is no guess: mean error of estimates of this kernel on problems that were held out."""
    guess: str = ""
    """Why an estimate is a guess, as what follows the kernel's name; empty where it is none."""
    recorded: bool = False
    """Whether these are the times of a recorded problem of the same sizes, and no estimates."""
    unestimated: bool = False
    """Whether it may be as fast as any, and has no time because too little of it is recorded."""

    @property
    def role(self) -> str:
        """Whose it is."""
        return about(self.kernel).role_of(self.variant)

    @property
    def dense(self) -> bool:
        """Whether every weight is multiplied, zeros included."""
        return about(self.kernel).work == "dense"

    @property
    def label(self) -> str:
        """Such as `cuBLAS fp16`."""
        return f"{about(self.kernel).label} {_MATH_WORDS.get(self.math, self.math)}"

    @property
    def us(self) -> float | None:
        """The time that it is ranked by: hot, or cold where only that is known."""
        return self.hot_us if self.hot_us is not None else self.cold_us


@dataclass(frozen=True)
class Near:
    """A recorded problem that an estimate leans on."""

    experiment: str
    problem: str
    octaves: float
    """How far it is: one for a factor of two in one size."""


@dataclass(frozen=True)
class Width:
    """The answer for one width (`n` columns; sddmm: length of the products; convolutions: images)."""

    n: int
    entries: tuple[Entry, ...]
    """Those with a time first, the fastest of them first, then those that were checked, then the others."""
    tried: int = 0
    """Candidates that were tried."""
    unfinished: tuple[str, ...] = ()
    """Kernels with candidates left when the time was over."""
    near: tuple[Near, ...] = ()

    def timed(self) -> list[Entry]:
        """Entries with a time, fastest first."""
        return [one for one in self.entries if one.us is not None]

    def exact(self, dtype: DType) -> list[Entry]:
        """Those that compute in the precision asked for: TF32 is another answer, and never wins fp32."""
        return [one for one in self.timed() if one.math == dtype or one.math in _FREE_MATH]

    def rival(self, dtype: DType) -> Entry | None:
        """What a sparse kernel must beat: the fastest dense library in that precision."""
        return next((one for one in self.exact(dtype) if one.dense), None)

    def sparse(self, dtype: DType) -> Entry | None:
        """The fastest that leaves zeros out."""
        return next((one for one in self.exact(dtype) if not one.dense), None)

    def guesses(self, dtype: DType) -> list[Entry]:
        """Of the two that the answer is made of, those whose times are guesses."""
        return [one for one in (self.sparse(dtype), self.rival(dtype)) if one is not None and one.guess]

    def all_estimated(self, dtype: DType) -> bool:
        """Whether no kernel of that precision is left out that may be as fast as those with a time."""
        return not any(one.unestimated and (one.math == dtype or one.math in _FREE_MATH) for one in self.entries)


@dataclass(frozen=True)
class Answer:
    """All that is said about one layer."""

    label: str
    op: str
    dtype: DType
    m: int
    k: int
    nnz: int
    where: str
    """GPU or device that it holds for."""
    estimated: bool
    widths: tuple[Width, ...]
    crossover: Crossover | None = None
    note: str = ""
    curve: tuple[tuple[int, float, float], ...] = ()
    """Width, time of the fastest dense, time of the fastest sparse kernel, microseconds: what the plot draws."""
    problems: tuple[str, ...] = field(default_factory=tuple)
    """Names of the problems that rows were recorded under."""

    @property
    def sparsity(self) -> float:
        """Share of zeros as counted."""
        return 1 - self.nnz / (self.m * self.k)

    def __str__(self) -> str:
        """The layer, and the answer for each width, in a sentence each."""
        return "\n".join([heading(self), *(sentence(self, width) for width in self.widths)])

    def wrong(self) -> list[Entry]:
        """Entries that computed something else than float64 does."""
        return [entry for width in self.widths for entry in width.entries if entry.wrong]


def ranked(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Timed ones by time, then checked ones, then those with a reason."""
    return tuple(
        sorted(entries, key=lambda one: (one.us is None, one.us or 0.0, one.error is None, about(one.kernel).rank))
    )


def heading(answer: Answer) -> str:
    """What is answered about: the layer, its sizes, the device."""
    sizes = f"{answer.m} x {answer.k}, {100 * answer.sparsity:.1f} % zeros, {answer.op} in {answer.dtype}"
    how = f"estimated for {answer.where}, not measured" if answer.estimated else f"on {answer.where}"
    return f"{answer.label}: {sizes}; {how}"


def sentence(answer: Answer, width: Width) -> str:
    """The answer for a width in one sentence."""
    sparse, rival = width.sparse(answer.dtype), width.rival(answer.dtype)
    lead = f"N = {width.n}{_guess_text(sparse, rival)}: "
    about_so, every = "about " if answer.estimated else "", width.all_estimated(answer.dtype)
    if sparse is None and rival is None:
        if answer.estimated:
            return f"{lead}no kernel is estimated"
        wrong = [one.label for one in width.entries if one.wrong]
        found = f"{checked(width)} checked against float64, none timed"
        return lead + found + (f"; WRONG: {', '.join(wrong)}" if wrong else "")
    if sparse is None or (rival is not None and (rival.us or 0.0) < (sparse.us or 0.0)):
        assert rival is not None
        of_those = "" if every else " of those estimated"
        text = f"{lead}dense is fastest{of_those}: {rival.label}, {about_so}{us_text(rival.us, answer.estimated)}"
        if sparse is not None:
            longer = times_text(sparse.us, rival.us, answer.estimated)
            best = "the best sparse kernel" if every else "the best sparse kernel estimated"
            text += f"; {best}, {sparse.label}, takes {about_so}{longer} as long"
        elif not every:
            text += "; no sparse kernel is estimated"
        return text + _reduced_text(answer, width) + _crossover_text(answer, width, sparse_ahead=False)
    text = f"{lead}fastest: {sparse.label} ({ROLE_WORDS[sparse.role]}), {about_so}"
    text += us_text(sparse.us, answer.estimated)
    if rival is not None:
        text += f", {about_so}{times_text(rival.us, sparse.us, answer.estimated)} the speed of {rival.label}"
        if sparse.hot_us is not None and sparse.cold_us and rival.cold_us:
            text += f" ({times_text(rival.cold_us, sparse.cold_us, answer.estimated)} cold)"
        if sparse.memory_bytes and rival.memory_bytes:
            text += f" in {100 * sparse.memory_bytes / rival.memory_bytes:.0f} % of the memory"
    else:
        text += "; nothing dense to compare with"
    text += _surest_text(answer, width, sparse)
    return text + _reduced_text(answer, width) + _crossover_text(answer, width, sparse_ahead=True)


def _guess_text(*named: Entry | None) -> str:
    """Why the answer that is made of these is a guess, in brackets."""
    found = [one for one in named if one is not None]
    if found and all(one.guess == FAR for one in found):
        return " (a guess: nothing near it is recorded)"
    why = "; ".join(f"{one.label} {one.guess}" for one in found if one.guess)
    return f" (a guess: {why})" if why else ""


def _surest_text(answer: Answer, width: Width, sparse: Entry) -> str:
    """Beside a winner that is a guess, the fastest that is none."""
    sure = next((one for one in width.exact(answer.dtype) if not one.guess), None)
    if not sparse.guess or sure is None or sure.dense:
        return ""
    return f"; of those recorded near, {sure.label} takes about {us_text(sure.us, answer.estimated)}"


def checked(width: Width) -> str:
    """How many kernels came out right, in words."""
    right = sum(one.error is not None for one in width.entries)
    return f"{right or 'no'} kernel{'s' if right != 1 else ''}"


def _reduced_text(answer: Answer, width: Width) -> str:
    """What is faster still, and computes in less than the precision asked for."""
    exact, fastest = width.exact(answer.dtype), width.timed()
    if not exact or (fastest[0].us or 0.0) > _MUCH_LESS * (exact[0].us or 0.0):
        return ""
    return f"; with less precision, {fastest[0].label} takes {us_text(fastest[0].us, answer.estimated)}"


def paid_back(entry: Entry, rival: Entry | None) -> float | None:
    """Launches until packing is paid back by what each saves against the rival; infinite where none saves anything."""
    if rival is None or entry is rival or entry.packing_ms is None or entry.us is None or rival.us is None:
        return None
    extra_us = 1e3 * max(0.0, entry.packing_ms - (rival.packing_ms or 0.0))
    saved = rival.us - entry.us
    return math.ceil(extra_us / saved) if saved > 0 else math.inf


def _crossover_text(answer: Answer, width: Width, sparse_ahead: bool) -> str:
    """Where dense becomes faster; empty where that, known of other kernels, contradicts a guess."""
    found = answer.crossover
    if found is None:
        return ""
    inside = found.least <= width.n <= found.most
    if found.n is not None:
        if sparse_ahead and width.n >= found.n:
            return ""
        if sparse_ahead or width.n >= found.n:
            return f"; dense is faster from about N = {found.told}"
        return f"; sparse is faster at larger N, up to about {found.told}"
    if found.sparse_wins:
        if width.n >= found.most:
            return ""
        stays = sparse_ahead and all(dense >= sparse for n, dense, sparse in answer.curve if n > width.n)
        return f"; sparse {'stays faster up to' if stays else 'is faster at'} N = {found.most}, the largest looked at"
    if found.least == found.most or (sparse_ahead and inside):
        return ""
    return f"; dense is faster at every N looked at, {found.least} to {found.most}"


def as_json(answer: Answer) -> dict[str, Any]:
    """The answer as JSON's types; times in microseconds, sizes in bytes."""
    return {
        "layer": answer.label,
        "op": answer.op,
        "dtype": answer.dtype,
        "m": answer.m,
        "k": answer.k,
        "nnz": answer.nnz,
        "sparsity": round(answer.sparsity, 6),
        "where": answer.where,
        "estimated": answer.estimated,
        "note": answer.note,
        "problems": list(answer.problems),
        "crossover_n": answer.crossover.n if answer.crossover else None,
        "crossover": vars(answer.crossover) if answer.crossover else None,
        "widths": [_width_json(answer, width) for width in answer.widths],
        "curve": [list(point) for point in answer.curve],
    }


def _width_json(answer: Answer, width: Width) -> dict[str, Any]:
    rival = width.rival(answer.dtype)
    return {
        "n": width.n,
        "sentence": sentence(answer, width),
        "tried": width.tried,
        "unfinished": list(width.unfinished),
        "near": [vars(one) for one in width.near],
        "entries": [
            {
                "kernel": one.kernel,
                "label": one.label,
                "role": one.role,
                "math": one.math,
                "variant": one.variant,
                "hot_us": one.hot_us,
                "cold_us": one.cold_us,
                "memory_bytes": one.memory_bytes,
                "packing_ms": one.packing_ms,
                "paid_back_after_launches": _finite(paid_back(one, rival)),
                "relative_error": one.error,
                "reason": one.reason,
                "held_out_error": one.uncertainty,
                "guess": one.guess,
                "recorded": one.recorded,
            }
            for one in width.entries
        ],
    }  # fmt: skip


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
