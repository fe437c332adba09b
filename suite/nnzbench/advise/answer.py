"""What is answered about a layer, and the verdict. Plain values; nothing here measures or estimates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nnzbench.data.problems.problem import DType
from nnzbench.kernels.registry import about
from nnzbench.results.crossover import Crossover, times_as_fast
from nnzbench.results.selector import MATHS

MOST_ROWS = 8
"""Of an answer's table, all widths together, unless all are asked for."""
FEW_ZEROS = 0.5
"""Below this share of zeros no estimate makes a sparse kernel the verdict."""
SURELY = 1.25
"""Times as fast as dense that a kernel must be by its time at more columns to be the verdict at fewer."""
_MUCH_LESS = 0.95
"""Share of a time from which on another is named as faster with other numbers."""
_BY_BYTES, _NEARLY_NONE = 10, 0.98
"""Times fewer bytes that weights of so many zeros must have in a kernel's format for a guess to be the verdict."""
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
    """Inspecting and packing the weights, uploading them, and compiling: what is paid once. None of a dense product,
    which takes them as they are: what is recorded of it is the making of a dense array out of the sparse matrix."""
    error: float | None = None
    """Relative error of its check against float64."""
    reason: str = ""
    """Why it has no time (and no check), empty where it has."""
    wrong: bool = False
    """Whether it computed something else than float64 does; `reason` says how far off."""
    within: float | None = None
    """Of an estimate that is no guess: nine in ten such times, held out, were within this fraction of the estimate."""
    as_width: int | None = None
    """Of an estimate at fewer columns than are recorded: the fewest recorded, whose time it is."""
    guess: str = ""
    """Why an estimate is a guess, as what follows the kernel's name; empty where it is none."""
    recorded: bool = False
    """Whether these are the times of a recorded problem of the same sizes, and no estimates."""
    unestimated: bool = False
    """Whether it may be as fast as any, and has no time because too little of it is recorded."""
    wins_on: str = ""
    """Of one without an estimate: the recorded GPU most like this one, where it is faster than dense there."""
    stream_us: float | None = None
    """Of a launch among others, each over another copy of the weights: what a layer of a model takes."""
    near: tuple[Near, ...] = ()
    """Recorded problems that its estimate leans on."""

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
        return f"{_name(self)} {math_words(self.math)}"

    @property
    def us(self) -> float | None:
        """The time that it is ranked by: streamed, as in a model, else hot, or cold where only that is known."""
        return next((one for one in (self.stream_us, self.hot_us, self.cold_us) if one is not None), None)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Microseconds that nine in ten such times lie between; None of what is measured, recorded or a guess."""
        if self.within is None or self.us is None:
            return None
        return self.us / (1 + self.within), self.us * (1 + self.within)

    @property
    def doubt(self) -> float:
        """Factor of its times that it must be as fast as dense with."""
        return 1.0 if self.as_width is None else SURELY


@dataclass(frozen=True)
class Near:
    """A recorded problem that an estimate leans on."""

    experiment: str
    problem: str
    octaves: float
    """How far it is: one for a factor of two in one size."""


@dataclass(frozen=True)
class Beside:
    """What the same layer takes with fewer bits, as an estimate."""

    math: str
    dense_us: float
    kernel: str = ""
    """The dense kernel; empty where the time is only what memory takes for the bytes."""
    sparse_us: float | None = None
    """Of the fastest sparse kernel in that arithmetic, where it was asked for."""
    zeros: float | None = None
    """Share of zeros from which on the fastest sparse kernel in the answer's own type takes no longer than dense so, 1
    where at none; None where nothing tells."""

    @property
    def text(self) -> str:
        """Such as `FP8 dense 9.1 us (sparse from 85 % zeros)`."""
        how = f" in {about(self.kernel).label.split()[0]}" if self.kernel else ", by its bytes alone"
        where = "at none" if self.zeros == 1 else f"from {100 * (self.zeros or 0):.0f} % zeros"
        than = "" if self.zeros is None else f" (sparse wins {where})"
        return f"{math_words(self.math)} dense takes about {estimated_us(self.dense_us)}{how}{than}"


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
    missed: tuple[tuple[str, float], ...] = ()
    """Kernels that were not timed though they may be the fastest, and the microseconds that they are estimated at."""
    pruned: Entry | None = None
    """With the same weights pruned 2:4 in place of their own zeros: other numbers, and an estimate."""
    beside: tuple[Beside, ...] = ()

    def timed(self) -> list[Entry]:
        """Entries with a time, fastest first."""
        return [one for one in self.entries if one.us is not None]

    def exact(self, dtype: DType) -> list[Entry]:
        """Those that compute in the precision asked for: TF32 is another answer, and never wins fp32."""
        return [one for one in self.timed() if one.math == dtype or one.math in _FREE_MATH]

    def baseline(self, dtype: DType) -> Entry | None:
        """What a sparse kernel must beat: the fastest dense library in that precision."""
        return next((one for one in self.exact(dtype) if one.dense), None)

    def sparse(self, dtype: DType) -> Entry | None:
        """The fastest that leaves zeros out."""
        return next((one for one in self.exact(dtype) if not one.dense), None)

    @property
    def near(self) -> tuple[Near, ...]:
        """What the fastest estimate of one that leaves zeros out leans on."""
        return next((one.near for one in self.timed() if not one.dense), ())

    def all_estimated(self, dtype: DType) -> bool:
        """Whether no kernel of that precision is left out that may be as fast as those with a time."""
        return not any(one.unestimated and (one.math == dtype or one.math in _FREE_MATH) for one in self.entries)


@dataclass(frozen=True)
class Verdict:
    """What to multiply by at one width."""

    chosen: Entry | None
    other: Entry | None = None
    """Where a sparse kernel is chosen, the baseline; where dense is, the fastest sparse kernel."""
    reason: str = ""
    """Why dense is chosen though the other has the lower time: `few zeros`, `guess` or `cold`. Where both estimates'
    intervals overlap, `even`, or `likely` where one is still `SURELY` shorter; `bytes` where those of a guess decide;
    `unknown` where none is chosen, as the other has no time and is faster than dense on the GPU most like this one;
    else empty."""


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
    like: str = ""
    """Name of the layer of its kind whose choices and dense times it has; empty where it was searched for itself."""

    @property
    def sparsity(self) -> float:
        """Share of zeros as counted."""
        return 1 - self.nnz / (self.m * self.k)

    @property
    def how(self) -> str:
        """Where it holds, and whether it is an estimate."""
        return f"estimated for {self.where}, not measured" if self.estimated else f"on {self.where}"

    def __str__(self) -> str:
        """The verdict for each width, and what it is about."""
        return "\n".join([*(sentence(self, width) for width in self.widths), heading(self)])

    def verdict(self, width: Width) -> Verdict:
        """The fastest in the precision asked for; dense where an estimate that says otherwise can't be trusted.

        That is below `FEW_ZEROS`, where either side is a guess (but of nearly no nonzeros, whose bytes decide), where a
        time at more columns is not shorter by `SURELY`, and (measured too) where sparse is slower with its weights from
        memory.
        """
        found = self._by_times(width)
        rival = next((one for one in width.entries if one.wins_on and one.math == self.dtype), None)
        if rival is not None and found.chosen is not None and found.chosen.dense:
            return Verdict(None, rival, "unknown")
        return found

    def _by_times(self, width: Width) -> Verdict:
        dense, fastest = width.baseline(self.dtype), width.sparse(self.dtype)
        sure = [one for one in width.exact(self.dtype) if not one.dense and not one.guess]
        if dense is None:
            return Verdict(sure[0] if sure else None, None, "" if sure or fastest is None else "guess")
        limit = dense.us or 0.0
        if fastest is None or (fastest.us or 0.0) > limit:
            return Verdict(dense, fastest, _doubt(dense, fastest) if fastest else "")
        if self.estimated and self.sparsity < FEW_ZEROS:
            return Verdict(dense, fastest, "few zeros")
        faster = [one for one in sure if one.doubt * (one.us or 0.0) <= limit]
        fewer = _BY_BYTES * (fastest.memory_bytes or math.inf) <= (dense.memory_bytes or 0)
        if not faster and self.sparsity >= _NEARLY_NONE and fewer and SURELY * (fastest.us or 0.0) <= limit:
            return Verdict(fastest, dense, "bytes")
        if dense.guess or not faster:
            return Verdict(dense, fastest, "guess")
        hold = [one for one in faster if not self._slower_from_memory(one, dense)]
        if not hold:
            return Verdict(dense, faster[0], "cold")
        known = [hold[0], *(one for one in hold[1:] if one.interval or not self.estimated)]
        chosen = next((one for one in known if not _doubt(one, dense)), hold[0])
        return Verdict(chosen, dense, _doubt(chosen, dense))

    @staticmethod
    def _slower_from_memory(one: Entry, dense: Entry) -> bool:
        """By cold times: those that were streamed, by which both are ranked then, are from memory already."""
        streamed = one.stream_us is not None and dense.stream_us is not None
        return not streamed and (one.cold_us or 0.0) > (dense.cold_us or math.inf)

    def wrong(self) -> list[Entry]:
        """Entries that computed something else than float64 does."""
        return [entry for width in self.widths for entry in width.entries if entry.wrong]


def _doubt(one: Entry, other: Entry) -> str:
    """What is said of the shorter of two estimates whose intervals overlap; nothing of others."""
    if one.interval is None or other.interval is None or one.interval[1] < other.interval[0]:
        return ""
    return "likely" if SURELY * (one.us or 0.0) <= (other.us or 0.0) else "even"


def ranked(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Timed ones by time, then checked ones, then those with a reason. What can't be streamed where others are comes
    after these: its time is of another policy."""
    found = list(entries)
    streamed = any(one.stream_us is not None for one in found)

    def place(one: Entry) -> tuple[object, ...]:
        other = streamed and one.stream_us is None
        return one.us is None, other, one.us or 0.0, one.error is None, about(one.kernel).rank

    return tuple(sorted(found, key=place))


def heading(answer: Answer) -> str:
    """What is answered about: the layer, its sizes, the device."""
    sizes = f"{answer.m} x {answer.k}, {100 * answer.sparsity:.1f} % zeros, {answer.op} in {math_words(answer.dtype)}"
    return f"{answer.label}: {sizes}; {answer.how}"


def sentence(answer: Answer, width: Width) -> str:
    """The verdict for a width in about ten words, and what else might have won."""
    missed = ", ".join(f"{about(name).label} (estimated {us_text(us, True)})" for name, us in width.missed)
    text = _sentence(answer, width) + _in_fewer_bits(answer, width)
    return text + (f"; not timed, and may be faster: {missed}" if missed else "")


def _in_fewer_bits(answer: Answer, width: Width) -> str:
    """What the fastest takes in TF32 and fp16 where that is clearly less than the verdict in fp32, so that no choice of
    arithmetic turns a verdict silently."""
    if answer.dtype != "f32":
        return ""
    verdict = answer.verdict(width)
    chosen = verdict.chosen
    if chosen is None:
        return ""
    rough = next((one for one in width.timed() if one.math == "tf32" and not one.guess), None)
    found = [("TF32", rough.dense, rough.us or math.inf)] if rough else []
    for one in width.beside:
        if one.math == "f16":
            sparse = one.sparse_us is not None and one.sparse_us < one.dense_us
            found.append(("fp16", not sparse, min(one.dense_us, one.sparse_us or math.inf)))
    faster = [one for one in found if one[2] <= _MUCH_LESS * (chosen.us or 0.0)]
    told = [f"in {name} {'dense' if dense else 'sparse'} takes about {estimated_us(us)}" for name, dense, us in faster]
    own = "" if chosen.dense or verdict.reason else f" ({us_text(chosen.us, answer.estimated)})"
    return f"{own}; {', '.join(told)}" if told else ""


def _sentence(answer: Answer, width: Width) -> str:
    found = answer.verdict(width)
    about_so, at = "about " if answer.estimated else "", _at(answer.op, width.n)
    chosen, other = found.chosen, found.other
    if chosen is None:
        dense = width.baseline(answer.dtype)
        if other is not None and dense is not None:
            why = f"{other.label} is on {other.wins_on}, and nothing tells its time here"
            return f"Not known which is faster {at}: {why}; dense ({dense.label}) takes about {us_text(dense.us, True)}"
        if answer.estimated:
            return f"No kernel is {'recorded near enough' if found.reason else 'estimated'} {at}"
        wrong = [one.label for one in width.entries if one.wrong]
        return f"{checked(width)} checked against float64 {at}, none timed" + (
            f"; WRONG: {', '.join(wrong)}" if wrong else ""
        )
    guess = ", a guess" if chosen.guess else ""
    if other is None:
        alone = "no sparse kernel is timed" if chosen.dense else "there is no dense time to compare with"
        return f"{chosen.label} takes {about_so}{us_text(chosen.us, answer.estimated)} {at}{guess}; {alone}"
    ratio = times_as_fast(chosen.us or math.inf, other.us or 0.0)
    if found.reason == "even":
        times = " and ".join(f"{one.label} ({us_text(one.us, True)})" for one in (chosen, other))
        return f"About even {at}: {times} differ by less than such estimates are off"
    if found.reason == "bytes":
        text = f"{ratio_text(ratio, True)}x faster than {_name(other)} {at}"
        return f"{chosen.label} is probably {text}: nothing as sparse is recorded, but its bytes are few"
    if found.reason == "likely":
        faster = f"about {ratio_text(ratio, True)}x faster than {_name(other)} {at}"
        return f"{chosen.label} is probably {faster} ({us_text(chosen.us, True)}), but both may be off by as much"
    if not chosen.dense:
        by = f", by its time {_at(answer.op, chosen.as_width)}" if chosen.as_width else ""
        return f"{chosen.label} is {about_so}{ratio_text(ratio, answer.estimated)}x faster than {_name(other)} {at}{by}"
    text = f"Dense wins {at}: {chosen.label}, {about_so}{us_text(chosen.us, answer.estimated)}{guess}"
    if found.reason:
        return f"{text} ({other.label} {_DOUBTS[found.reason]})"
    every = "" if width.all_estimated(answer.dtype) else " of those estimated"
    best = f"{other.label}, a guess" if other.guess else other.label
    return f"{text}; the best sparse{every} ({best}) takes {ratio_text(ratio, answer.estimated)}x as long"


_DOUBTS = {
    "few zeros": f"may be faster, but no estimate below {100 * FEW_ZEROS:.0f} % zeros is certain of it",
    "guess": "may be faster, but that is a guess",
    "cold": "is faster hot, and slower with its weights from memory",
}


def _at(op: str, n: int) -> str:
    if op == "sddmm":
        return f"with products of length {n}"
    what = "image" if op.startswith("conv") else "column"
    return f"at {n} {what}{'s' if n != 1 else ''}"


def _name(entry: Entry) -> str:
    return str(about(entry.kernel).label)


def math_words(math_name: str) -> str:
    """An arithmetic as it is written in text, such as `fp16`."""
    return "fp32 (Winograd)" if math_name == "winograd" else MATHS.get(math_name, math_name)


def checked(width: Width) -> str:
    """How many kernels came out right, in words."""
    right = sum(one.error is not None for one in width.entries)
    return f"{right or 'No'} kernel{'s' if right != 1 else ''}"


def alternatives(answer: Answer, width: Width) -> list[Entry]:
    """What is clearly faster than the verdict, and computes other numbers: less precision, or weights pruned 2:4."""
    found = answer.verdict(width).chosen
    limit = _MUCH_LESS * (found.us or 0.0) if found else math.inf
    others = [one for one in width.timed() if one not in width.exact(answer.dtype) and not one.guess][:1]
    if width.pruned is not None:
        others.append(width.pruned)
    return [one for one in others if (one.us or 0.0) <= limit]


def crossover_text(answer: Answer) -> str:
    """From which width on dense is faster, hot; empty where nothing tells."""
    found = answer.crossover
    if found is None:
        return ""
    if found.n is not None:
        if found.sparse_wins:
            return f"dense is faster from about {found.told} columns"
        return f"sparse is faster up to about {found.told} columns, and dense at the fewest"
    if found.least == found.most:
        return ""
    if not found.sparse_wins:
        return f"dense is faster at all widths looked at, {found.least} to {found.most} columns"
    if all(dense >= sparse for _, dense, sparse in answer.curve):
        return f"sparse is faster at all widths looked at, {found.least} to {found.most} columns"
    return f"sparse is faster at {found.most} columns, the most looked at"


def paid_back(entry: Entry, baseline: Entry | None) -> float | None:
    """Launches until packing is paid back by what each saves against the baseline; infinite where none saves any."""
    if baseline is None or entry is baseline or entry.packing_ms is None or entry.us is None or baseline.us is None:
        return None
    saved = baseline.us - entry.us
    return math.ceil(1e3 * entry.packing_ms / saved) if saved > 0 else math.inf


def as_json(answer: Answer) -> dict[str, Any]:
    """The answer as JSON's types; times in microseconds, sizes in bytes."""
    return {
        "layer": answer.label,
        **_values(answer, "op", "dtype", "m", "k", "nnz"),
        "sparsity": round(answer.sparsity, 6),
        **_values(answer, "where", "estimated", "note"),
        "problems": list(answer.problems),
        "crossover_n": answer.crossover.n if answer.crossover else None,
        "crossover": vars(answer.crossover) if answer.crossover else None,
        "widths": [_width_json(answer, width) for width in answer.widths],
        "curve": [list(point) for point in answer.curve],
    }


def _values(one: object, *names: str) -> dict[str, Any]:
    return {name: getattr(one, name) for name in names}


def _width_json(answer: Answer, width: Width) -> dict[str, Any]:
    baseline, found = width.baseline(answer.dtype), answer.verdict(width)
    chosen, other = found.chosen, found.other
    return {
        "n": width.n,
        "sentence": sentence(answer, width),
        "verdict": {
            **{name: getattr(chosen, name, None) for name in ("kernel", "math", "dense")},
            "against": other.kernel if other else None,
            "times_as_fast": times_as_fast(chosen.us or math.inf, other.us or 0.0) if chosen and other else None,
            "reason": found.reason,
        },
        "alternatives": [
            {"kernel": one.kernel, "math": one.math, "hot_us": one.hot_us, "pruned_2_4": one is width.pruned}
            for one in alternatives(answer, width)
        ],
        "fewer_bits": [vars(one) for one in width.beside],
        "tried": width.tried,
        "unfinished": list(width.unfinished),
        "near": [vars(one) for one in width.near],
        "entries": [_entry_json(one, baseline) for one in width.entries],
    }


def _entry_json(one: Entry, baseline: Entry | None) -> dict[str, Any]:
    launches = paid_back(one, baseline)
    return {
        **_values(one, "kernel", "label", "role", "math", "variant", "hot_us", "cold_us", "stream_us"),
        **_values(one, "memory_bytes", "packing_ms"),
        "paid_back_after_launches": None if launches is None or not math.isfinite(launches) else launches,
        "relative_error": one.error,
        "reason": one.reason,
        "interval_us": one.interval,
        **_values(one, "guess", "as_width", "recorded"),
    }


def ratio_text(ratio: float, estimated: bool) -> str:
    """A quotient of two times in digits."""
    return two_digits(ratio) if estimated else f"{ratio:.2f}"


def two_digits(value: float) -> str:
    """As many as an estimate may claim."""
    return f"{value:.0f}" if value >= 99.5 else f"{value:#.2g}".rstrip(".")


def estimated_us(us: float) -> str:
    """Microseconds of an estimate, with their unit."""
    return f"{two_digits(us / 1e3)} ms" if us >= 1e4 else f"{two_digits(us)} us"


def us_text(us: float | None, estimated: bool = False) -> str:
    """Microseconds with their unit, `-` for none."""
    if us is None:
        return "-"
    if estimated:
        return estimated_us(us)
    return f"{us / 1e3:.2f} ms" if us >= 1e4 else f"{us:.1f} us" if us >= 10 else f"{us:.2f} us"
