"""Answers on a terminal: a sentence per width, the ranked table, totals of a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nnzbench.advise.answer import (
    Answer,
    Entry,
    Width,
    checked,
    heading,
    paid_back,
    sentence,
)
from nnzbench.advise.figures import estimated_us, ratio_text, two_digits
from nnzbench.advise.totals import totals
from nnzbench.facts.ratio import times_as_fast
from nnzbench.facts.widths import rounded

GAP = "–"
NARROWEST = 110
"""Columns that a table needs; what is no terminal gets as many."""
_WIDEST = 400
"""Columns at most of the table of many layers: names are long, and a cut one tells nothing."""
_HELD_OUT = "held out: how far off such estimates are on average for layer sizes kept out of the fit"
_GUESS = "?: a guess, as nothing recorded is near or as wide; no error is known of it"
_RECORDED = "recorded: the time of a recorded problem of the same sizes"
_SHOWN_REASONS = 12
_REASON = 160


def console() -> Console:
    """Standard output, as wide as a table needs where it is not a terminal."""
    found = Console(highlight=False)
    return found if found.is_terminal and found.width >= NARROWEST else Console(highlight=False, width=NARROWEST)


def tell(answers: Sequence[Answer], out: Console, brief: bool) -> None:
    """Prints the answers; `brief` puts them into one table, as for the many layers of a checkpoint."""
    if brief:
        _together(answers, out)
    for answer in () if brief else answers:
        _heading(answer, out)
        for width in answer.widths:
            out.print(escape(sentence(answer, width)), soft_wrap=True)
            if any(one.us is not None or one.error is not None for one in width.entries):
                out.print(_table(answer, width))
            _remarks(answer, width, out)
        _left_out(answer, out)
    if not brief:
        _legend(answers, out)
    found = totals(answers)
    if len(answers) > 1 and found:
        which = "estimated times" if answers[0].estimated else "times"
        out.print(f"\nAll layers, {which} added:", style="bold")
        for total in found:
            out.print(escape(total.sentence()), soft_wrap=True)


_TIMED = ("fastest", "hot", "speed", "cold", "memory", "dense from")
"""Columns of the table of many layers."""


def _together(answers: Sequence[Answer], out: Console) -> None:
    """One line for each layer and width."""
    first = answers[0]
    how = f"estimated for {first.where}, not measured" if first.estimated else f"on {first.where}"
    out.print(f"\n[bold]{len(answers)} layers[/bold]: {first.op}; {how}", soft_wrap=True)
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
        text = "speed (hot), cold and memory are against the fastest dense library of that precision; dense from: the"
        out.print(f"  {text} width from which on it is faster", style="dim", soft_wrap=True)
    if first.estimated:
        for line in _of_estimates([(answer, width) for answer in answers for width in answer.widths]):
            out.print(f"  {line}", style="dim", soft_wrap=True)


def _fastest(answer: Answer, width: Width) -> tuple[str, ...]:
    """The cells of `_TIMED`, and what is held out of an estimate."""
    rival, ranked = width.rival(answer.dtype), width.exact(answer.dtype)
    if not ranked:
        return (GAP,) * (len(_TIMED) + 1)
    best, found = ranked[0], answer.crossover
    crossing = GAP
    if found is not None and found.n is not None:
        crossing = f"{found.told}"
    elif found is not None:
        crossing = f"> {found.most}" if found.sparse_wins else f"{found.least}"
    share = best.memory_bytes / rival.memory_bytes if rival and rival.memory_bytes and best.memory_bytes else None
    return (
        f"{escape(best.label)}{' ?' if width.guesses(answer.dtype) else ''}",
        _us(best.hot_us, answer.estimated),
        _ratio(rival.us if rival else None, best.us, answer.estimated),
        _ratio(rival.cold_us if rival else None, best.cold_us, answer.estimated),
        GAP if share is None else f"{100 * share:.0f} %",
        crossing,
        _certainty(best),
    )


def _ratio(longer: float | None, shorter: float | None, estimated: bool) -> str:
    if not longer or not shorter:
        return GAP
    return f"{ratio_text(times_as_fast(shorter, longer), estimated)}x"


def _heading(answer: Answer, out: Console) -> None:
    out.print(f"\n{escape(heading(answer))}", style="bold", soft_wrap=True)
    if answer.note:
        out.print(escape(answer.note), soft_wrap=True)


def _table(answer: Answer, width: Width) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rival = width.rival(answer.dtype)
    timed = bool(width.timed())
    headings = ["", "whose", *(("hot", "cold", "speed") if timed else ()), "memory"]
    headings += ["packing", "paid back"] * timed + ["held out" if answer.estimated else "error"]
    for at, title in enumerate(headings):
        table.add_column(title, justify="left" if at < 2 else "right", no_wrap=True)
    for entry in width.entries:
        if entry.us is None and entry.error is None:
            continue
        speed = _ratio(rival.us if rival else None, entry.us, answer.estimated)
        times = [_us(entry.hot_us, answer.estimated), _us(entry.cold_us, answer.estimated), speed] if timed else []
        once = [_ms(entry.packing_ms, answer.estimated), _launches(paid_back(entry, rival), answer.estimated)]
        row = [
            f"{escape(entry.label)}{' ?' if entry.guess else ''}",
            entry.role,
            *times,
            _bytes(entry.memory_bytes),
            *(once if timed else []),
            _certainty(entry) if answer.estimated else GAP if entry.error is None else f"{entry.error:.1e}",
        ]
        table.add_row(*row)
    return table


def _remarks(answer: Answer, width: Width, out: Console) -> None:
    tried = f"  {width.tried} candidate{'s' if width.tried != 1 else ''} tried"
    if answer.estimated:
        _nearest(width, out)
    elif width.unfinished:
        names = ", ".join(width.unfinished)
        out.print(f"{tried}; the time was over with some left of {names}: a larger --budget tries them", style="dim")
    elif width.tried:
        out.print(f"{tried}, {'all there are' if width.timed() else 'the first of each kernel'}", style="dim")


def _left_out(answer: Answer, out: Console) -> None:
    """Kernels without a time and why, each reason once for all widths and kernels that it holds for."""
    widths: dict[tuple[str, str], list[int]] = {}
    for width in answer.widths:
        for entry in width.entries:
            if entry.us is None and entry.error is None:
                reason = " ".join(entry.reason.split()).removeprefix(f"{entry.kernel} ")
                reason = reason.removesuffix(f", not {width.n}")  # else it is another one at each width
                widths.setdefault((entry.label, reason), []).append(width.n)
    together: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for (label, reason), ns in widths.items():
        together.setdefault((reason, tuple(ns)), []).append(label)
    for (reason, at), labels in list(together.items())[:_SHOWN_REASONS]:
        where = "" if len(at) == len(answer.widths) else f" at N = {', '.join(map(str, at))}"
        text = f"  no {', '.join(labels)}{where}: {reason[:_REASON]}{'...' * (len(reason) > _REASON)}"
        out.print(escape(text), style="dim", soft_wrap=True)
    if answer.op == "spmv":
        out.print("  --op spmm --n 1 is the same product, by the kernels for matrices too", style="dim", soft_wrap=True)
    if answer.estimated and answer.op == "spmm" and any(width.n == 1 for width in answer.widths):
        out.print("  at N = 1 the nearer of spmm and spmv, the same product, is estimated", style="dim", soft_wrap=True)


def _legend(answers: Sequence[Answer], out: Console) -> None:
    """What the columns are, once below all tables."""
    widths = [(answer, width) for answer in answers for width in answer.widths if width.timed()]
    if not widths:
        return
    lines = ["packing: once, with compilation"]
    if any(width.rival(answer.dtype) for answer, width in widths):
        lines = ["speed: against the fastest dense library in the precision asked for, hot"]
        lines += ["packing: once, with compilation; paid back: after so many launches in place of that library's"]
    if answers[0].estimated:
        lines += _of_estimates(widths)
    else:
        lines += ["error: against float64"]
    for line in lines:
        out.print(f"  {line}", style="dim", soft_wrap=True)


def _of_estimates(widths: Sequence[tuple[Answer, Width]]) -> list[str]:
    """What is said of an estimate's certainty, as far as the tables show it."""
    entries = [entry for _, width in widths for entry in width.timed()]
    lines = [_HELD_OUT]
    if any(entry.guess for entry in entries):
        lines.append(_GUESS)
    return [*lines, _RECORDED] if any(entry.recorded for entry in entries) else lines


def _nearest(width: Width, out: Console) -> None:
    for near in width.near:
        text = f"  near, recorded: {near.problem} of {near.experiment}, {near.octaves:.1f} octaves away"
        out.print(escape(text), style="dim", soft_wrap=True)


def _us(us: float | None, estimated: bool = False) -> str:
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
    """How far off such an estimate is on average, where that is known."""
    if entry.guess:
        return "?"
    error = entry.uncertainty
    known = GAP if error is None or math.isnan(error) else f"±{100 * error:.0f} %"
    return "recorded" if entry.recorded else known
