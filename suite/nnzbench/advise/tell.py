"""Answers on a terminal: the verdicts, at most eight rows, totals of a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nnzbench.advise.answer import (
    MOST_ROWS,
    Answer,
    Entry,
    Width,
    alternatives,
    checked,
    crossover_text,
    estimated_us,
    heading,
    paid_back,
    ratio_text,
    sentence,
    two_digits,
    us_text,
)
from nnzbench.core.architectures import architecture
from nnzbench.core.gpus import gpus
from nnzbench.core.progress import terminal
from nnzbench.results.crossover import rounded, times_as_fast

GAP = "–"
NARROWEST = 110
"""Columns that a table needs; what is no terminal gets as many."""
_WIDEST = 400
"""Columns at most of the table of many layers: names are long, and a cut one tells nothing."""
_HELD_OUT = "±: nine in ten times of layer sizes that were left out lie so near"
_JOINED = f"{_HELD_OUT}, joined with that of GPUs that were held out"
_WIDENED = "N=: the time at so many columns, the fewest recorded, which fewer rarely exceed"
_GUESS = "?: a guess, as nothing recorded is near, as wide or of such a pattern"
_REASON = 160


@dataclass(frozen=True)
class Total:
    """A whole checkpoint at one width: every layer by the kernel of its own verdict."""

    n: int
    layers: int
    best_us: float
    dense_us: float
    best_bytes: int
    dense_bytes: int
    sparse_layers: int
    """Layers whose verdict is a kernel that leaves zeros out, those apart where both sides are about even."""
    even_layers: int = 0
    estimated: bool = False
    guesses: int = 0
    """Layers for which one of the two times is a guess."""

    def sentence(self) -> str:
        """The total in words."""
        about = "about " if self.estimated else ""
        best, dense = (us_text(us, self.estimated) for us in (self.best_us, self.dense_us))
        ratio = times_as_fast(self.best_us, self.dense_us)
        saved = f"{about}{ratio_text(ratio, self.estimated)}x faster than" if ratio > 1.05 else "about as fast as"
        even = f", about even on {self.even_layers}" if self.even_layers else ""
        memory = f"{100 * self.best_bytes / self.dense_bytes:.0f} % of the memory" if self.dense_bytes else "no memory"
        text = (
            f"Sparse wins on {self.sparse_layers} of {self.layers} layers at N = {self.n}{even}: {saved} all dense "
            f"({about}{best} for {dense}) in {memory}"
        )
        return text + (f"; a guess for {self.guesses} of them" if self.guesses else "")


def totals(answers: Sequence[Answer]) -> list[Total]:
    """The sums over layers that have both a dense and another time, per width."""
    known: dict[int, list[tuple[Entry, Entry, bool]]] = {width.n: [] for answer in answers for width in answer.widths}
    for answer in answers:
        for width in answer.widths:
            dense, found = width.baseline(answer.dtype), answer.verdict(width)
            if dense is not None and found.chosen is not None and width.sparse(answer.dtype) is not None:
                known[width.n].append((dense, found.chosen, found.reason == "even"))
    return [
        Total(
            n,
            len(pairs),
            sum(best.us or 0.0 for _, best, _ in pairs),
            sum(dense.us or 0.0 for dense, _, _ in pairs),
            sum(best.memory_bytes or 0 for _, best, _ in pairs),
            sum(dense.memory_bytes or 0 for dense, _, _ in pairs),
            sum(not best.dense and not even for _, best, even in pairs),
            sum(even for *_, even in pairs),
            any(answer.estimated for answer in answers),
            sum(bool(dense.guess or best.guess) for dense, best, _ in pairs),
        )
        for n, pairs in known.items()
        if pairs
    ]


def console() -> Console:
    """Standard output, as wide as a table needs where it is not a terminal."""
    found = terminal(highlight=False)
    if found.is_terminal and found.width >= NARROWEST:
        return found
    return terminal(highlight=False, width=NARROWEST)


def tell(answers: Sequence[Answer], out: Console, brief: bool, verbose: bool = False) -> None:
    """Prints the answers; `brief` puts them into one table, as for the many layers of a checkpoint.

    `verbose` lists every kernel, each refusal with its reason, and the recorded problems near by.
    """
    for total in totals(answers) if len(answers) > 1 else ():
        out.print(escape(total.sentence()), style="bold", soft_wrap=True)
    if brief:
        _together(answers, out)
        return
    for answer in answers:
        _one(answer, out, verbose)


def _one(answer: Answer, out: Console, verbose: bool) -> None:
    for width in answer.widths:
        out.print(escape(sentence(answer, width)), style="bold", soft_wrap=True)
    crossing = crossover_text(answer)
    streamed = all(any(one.stream_us for one in width.entries) for width in answer.widths)
    about = [heading(answer), answer.note, *([f"{'Streamed' if streamed else 'Hot'}, {crossing}"] if crossing else [])]
    for line in filter(None, about):
        out.print(escape(line), soft_wrap=True)
    shown = {width.n: _shown(answer, width, verbose) for width in answer.widths}
    if any(shown.values()):
        out.print(_table(answer, shown))
    for line in (*_remarks(answer), *(_refusals(answer) if verbose else _refused(answer)), *_legend(answer, shown)):
        out.print(escape(f"  {line}"), style="dim", soft_wrap=True)


def _shown(answer: Answer, width: Width, verbose: bool) -> list[Entry]:
    """The rows of a width: what the verdict is made of, then the fastest; guesses and other numbers last."""
    found, exact = answer.verdict(width), width.exact(answer.dtype)
    others = [one for one in width.entries if one not in exact and (one.us is not None or one.error is not None)]
    rows = sorted([*exact, *others], key=lambda one: (one is not found.chosen, bool(one.guess), one not in exact))
    if verbose:
        return rows
    needed = filter(None, (found.chosen, found.other, width.baseline(answer.dtype)))
    kept = list(dict.fromkeys([*needed, *rows]))[: max(2, MOST_ROWS // len(answer.widths))]
    return [one for one in rows if one in kept]


_TIMED = ("verdict", "hot", "speed", "cold", "memory", "dense from")
"""Columns of the table of many layers."""


def _together(answers: Sequence[Answer], out: Console) -> None:
    first = answers[0]
    out.print(f"{len(answers)} layers, {first.op}; {first.how}", soft_wrap=True)
    for note in dict.fromkeys(answer.note for answer in answers if answer.note):
        out.print(escape(note), soft_wrap=True)
    timed = any(width.timed() for answer in answers for width in answer.widths)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    columns = (*_TIMED, "held out") if first.estimated else _TIMED if timed else ("checked",)
    for at, title in enumerate(("layer", "m x k", "zeros", "type", "N", *columns)):
        table.add_column(title, justify="left" if at in (0, 5) else "right", no_wrap=True)
    for answer in answers:
        name = (escape(answer.label), f"{answer.m} x {answer.k}", f"{100 * answer.sparsity:.1f} %", answer.dtype)
        for at, width in enumerate(answer.widths):
            told = _fastest(answer, width)[: len(columns)] if timed else (checked(width),)
            table.add_row(*(name if at == 0 else ("",) * len(name)), str(width.n), *told)
            if wrong := [one.label for one in width.entries if one.wrong]:
                table.add_row("", "", "", "", "", f"WRONG: {', '.join(wrong)}")
    out.width = max(out.width, out.measure(table, options=out.options.update(max_width=_WIDEST)).maximum)
    out.print(table)
    if timed:
        text = "speed (hot), cold, memory: against the fastest dense library of that precision; dense from: this N on"
        out.print(f"  {text}", style="dim", soft_wrap=True)
    if first.estimated:
        out.print(f"  {_held_out(first)}", style="dim", soft_wrap=True)


def _fastest(answer: Answer, width: Width) -> tuple[str, ...]:
    """The cells of `_TIMED`, and what is held out of an estimate."""
    dense, verdict, found = width.baseline(answer.dtype), answer.verdict(width), answer.crossover
    best = verdict.chosen
    if best is None:
        return (GAP,) * (len(_TIMED) + 1)
    crossing = GAP
    if found is not None:
        beyond = f"> {found.most}" if found.sparse_wins else f"{found.least}"
        crossing = beyond if found.n is None else f"{found.told}"
    share = best.memory_bytes / dense.memory_bytes if dense and dense.memory_bytes and best.memory_bytes else None
    return (
        "about even" if verdict.reason == "even" else f"{escape(best.label)}{' ?' if best.guess else ''}",
        _us(best.hot_us, answer.estimated),
        _ratio(dense.us if dense else None, best.us, answer.estimated),
        _ratio(dense.cold_us if dense else None, best.cold_us, answer.estimated),
        GAP if share is None else f"{100 * share:.0f} %",
        crossing,
        _certainty(best),
    )


def _ratio(longer: float | None, shorter: float | None, estimated: bool) -> str:
    if not longer or not shorter:
        return GAP
    return f"{ratio_text(times_as_fast(shorter, longer), estimated)}x"


def _table(answer: Answer, shown: dict[int, list[Entry]]) -> Table:
    """The kernels of each width; with several widths, N stands beside the first of each."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    timed = any(one.us is not None for rows in shown.values() for one in rows)
    streamed = any(one.stream_us is not None for rows in shown.values() for one in rows)
    of_times = ["hot", "cold", *["stream"] * streamed, "speed"] if timed else []
    headings = ["N"] * (len(shown) > 1) + ["", "whose", *of_times, "memory"]
    headings += ["packing", "paid back"] * timed + ["error"]
    for title in headings:
        table.add_column(title, justify="left" if title in ("", "whose") else "right", no_wrap=True)
    for width in answer.widths:
        dense = width.baseline(answer.dtype)
        for entry in shown[width.n]:
            speed = _ratio(dense.us if dense else None, entry.us, answer.estimated)
            own = [entry.hot_us, entry.cold_us, *[entry.stream_us] * streamed]
            times = [*(_us(us, answer.estimated) for us in own), speed]
            once = [_ms(entry.packing_ms, answer.estimated), _launches(paid_back(entry, dense), answer.estimated)]
            known = GAP if entry.error is None else f"{entry.error:.1e}"
            table.add_row(
                *[str(width.n) if entry is shown[width.n][0] else ""] * (len(shown) > 1),
                f"{escape(entry.label)}{' ?' if entry.guess else ''}",
                entry.role,
                *(times if timed else ()),
                _bytes(entry.memory_bytes),
                *(once if timed else ()),
                _certainty(entry) if answer.estimated else known,
            )
    return table


def _held_out(answer: Answer) -> str:
    return _JOINED if "±" in answer.note else _HELD_OUT


def _remarks(answer: Answer) -> list[str]:
    """What else could be asked: other numbers, a larger budget, the same product by another name."""
    lines = []
    for width in answer.widths:
        if bits := [one.text for one in width.beside if one.math != "f16"]:
            lines.append(f"at N = {width.n}, {', '.join(bits)}")
    faster: dict[str, str] = {}
    for width in answer.widths:
        for one in alternatives(answer, width):
            told = f"{'pruned 2:4, ' if one is width.pruned else ''}{one.label}"
            faster.setdefault(told, f"{told} ({us_text(one.us, answer.estimated)} at N = {width.n})")
    if answer.op == "spmm" and any(width.timed() for width in answer.widths):
        gpu = gpus().get(answer.where)
        unknown = ["fp16 (--dtype f16)"] * (answer.dtype == "f32")
        beside = any(one.math == "f8" for width in answer.widths for one in width.beside)
        unknown += ["FP8 (not compared here)"] * (not beside and (gpu is None or gpu.rate("f8") > 0))
        two_four = gpu is None or architecture(gpu.arch).has("mma_sparse")
        unknown += ["2:4 (--pattern 2:4)"] * (two_four and all(one.pruned is None for one in answer.widths))
        if others := [*faster.values(), *unknown]:
            lines.append(f"other numbers may be faster still: {', '.join(others)}")
    unfinished = dict.fromkeys(name for width in answer.widths for name in width.unfinished)
    tried = sum(width.tried for width in answer.widths)
    if unfinished:
        lines.append(f"{tried} candidates tried; a larger --budget tries the rest of {', '.join(unfinished)}")
    elif tried:
        every = "all there are" if any(width.timed() for width in answer.widths) else "the first of each kernel"
        lines.append(f"{tried} candidate{'s' if tried != 1 else ''} tried, {every}")
    if answer.op == "spmv":
        lines.append("--op spmm --n 1 is the same product, by the kernels for matrices too")
    return lines


def _refused(answer: Answer) -> list[str]:
    names = dict.fromkeys(entry.label for width in answer.widths for entry in filter(_no_time, width.entries))
    count = f"{len(names)} kernel{'s' if len(names) != 1 else ''} without a time"
    return [f"{count} (--verbose says why): {', '.join(names)}"] if names else []


def _no_time(entry: Entry) -> bool:
    return entry.us is None and entry.error is None


def _refusals(answer: Answer) -> list[str]:
    """Kernels without a time and why, each reason once; then the recorded problems that estimates lean on."""
    widths: dict[tuple[str, str], list[int]] = {}
    for width in answer.widths:
        for entry in filter(_no_time, width.entries):
            reason = " ".join(entry.reason.split()).removeprefix(f"{entry.kernel} ")
            reason = reason.removesuffix(f", not {width.n}")  # else it is another one at each width
            widths.setdefault((entry.label, reason), []).append(width.n)
    lines = []
    for (label, reason), ns in widths.items():
        where = "" if len(ns) == len(answer.widths) else f" at N = {', '.join(map(str, ns))}"
        lines.append(f"no {label}{where}: {reason[:_REASON]}{'...' * (len(reason) > _REASON)}")
    near = dict.fromkeys(one for width in answer.widths for one in width.near)
    return lines + [f"near: {one.problem} of {one.experiment}, {one.octaves:.1f} octaves away" for one in near]


def _legend(answer: Answer, shown: dict[int, list[Entry]]) -> list[str]:
    """What the columns are, in two lines at most."""
    rows = [one for entries in shown.values() for one in entries if one.us is not None]
    if not rows:
        return []
    line = "speed: streamed where known, else hot, over the fastest dense library of that type; paid back: in launches"
    if not any(width.baseline(answer.dtype) for width in answer.widths):
        line = "packing: once, with compilation"
    if not answer.estimated:
        return [line]
    marks = [_WIDENED] * any(one.as_width for one in rows) + [_GUESS] * any(one.guess for one in rows)
    return [line, "; ".join([_held_out(answer), *marks])]


def _us(us: float | None, estimated: bool) -> str:
    if us is None:
        return GAP
    if estimated:
        return estimated_us(us)
    return f"{us / 1e3:.3f} ms" if us >= 1e4 else f"{us:.2f} us"


def _ms(ms: float | None, estimated: bool) -> str:
    if ms is None:
        return GAP
    if ms >= 1e3:
        return f"{ms / 1e3:.1f} s"
    return f"{two_digits(ms) if estimated else f'{ms:.3g}'} ms"


def _bytes(size: int | None) -> str:
    if size is None:
        return GAP
    return f"{size / 1e6:.2f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def _launches(count: float | None, estimated: bool) -> str:
    if count is None:
        return GAP
    if math.isinf(count):
        return "never"
    return f"{rounded(int(count)) if estimated else count:,.0f}" if count else "at once"


def _certainty(entry: Entry) -> str:
    """What nine in ten times are within of such an estimate, where that is known."""
    if entry.guess:
        return "?"
    if entry.as_width:
        return f"N={entry.as_width}"
    if entry.recorded:
        return "recorded"
    return GAP if entry.within is None or math.isnan(entry.within) else f"±{100 * entry.within:.0f} %"
