"""Answers on a terminal: a sentence per width, the ranked table, totals of a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nnzbench.advise.answer import Answer, Width, paid_back, sentence, totals

GAP = "–"
NARROWEST = 110
"""Columns that a table needs; what is no terminal gets as many."""
_SHOWN_REASONS = 12
_REASON = 100


def console() -> Console:
    """Standard output, as wide as a table needs where it is not a terminal."""
    found = Console(highlight=False)
    return found if found.is_terminal and found.width >= NARROWEST else Console(highlight=False, width=NARROWEST)


def tell(answers: Sequence[Answer], out: Console, brief: bool) -> None:
    """Prints the answers; `brief` leaves the ranked tables out, as for the many layers of a checkpoint."""
    for answer in answers:
        _heading(answer, out)
        for width in answer.widths:
            out.print(escape(sentence(answer, width)), soft_wrap=True)
            if not brief:
                out.print(_table(answer, width))
                _remarks(answer, width, out)
    found = totals(answers)
    if len(answers) > 1 and found:
        out.print("\nAll layers, times added:", style="bold")
        for total in found:
            out.print(escape(total.sentence()), soft_wrap=True)


def _heading(answer: Answer, out: Console) -> None:
    sizes = f"{answer.m} x {answer.k}, {100 * answer.sparsity:.1f} % zeros, {answer.op} in {answer.dtype}"
    how = f"estimated for {answer.where}, not measured" if answer.estimated else f"on {answer.where}"
    out.print(f"\n[bold]{escape(answer.label)}[/bold]: {sizes}; {how}", soft_wrap=True)
    if answer.note:
        out.print(escape(answer.note), soft_wrap=True)


def _table(answer: Answer, width: Width) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rival = width.rival(answer.dtype)
    headings = ["", "whose", "hot", "cold", "speed", "memory", "packing", "paid back"]
    headings.append("held out" if answer.estimated else "error")
    for at, heading in enumerate(headings):
        table.add_column(heading, justify="left" if at < 2 else "right", no_wrap=True)
    for entry in width.entries:
        if entry.us is None and entry.error is None:
            continue
        row = [
            escape(entry.label),
            entry.role,
            _us(entry.hot_us),
            _us(entry.cold_us),
            f"{rival.us / entry.us:.2f}x" if rival and rival.us and entry.us else GAP,
            _bytes(entry.memory_bytes),
            GAP if entry.packing_ms is None else _ms(entry.packing_ms),
            _launches(paid_back(entry, rival)),
            _share(entry.uncertainty) if answer.estimated else GAP if entry.error is None else f"{entry.error:.1e}",
        ]
        table.add_row(*row)
    return table


def _remarks(answer: Answer, width: Width, out: Console) -> None:
    refused = [one for one in width.entries if one.us is None and one.error is None]
    for entry in refused[:_SHOWN_REASONS]:
        reason = " ".join(entry.reason.split())
        out.print(escape(f"  no {entry.label}: {reason[:_REASON]}{'...' * (len(reason) > _REASON)}"), style="dim")
    if any(entry.us is not None for entry in width.entries):
        legend = "speed is against the fastest dense library of that precision; paid back: launches until packing and"
        out.print(f"  {legend} compiling are, which is all of packing", style="dim", soft_wrap=True)
    if answer.estimated:
        _nearest(width, out)
    elif width.unfinished:
        names = ", ".join(width.unfinished)
        out.print(
            f"  {width.tried} candidates tried; the time was over with some left of {names}: a larger --budget tries "
            "them",
            style="dim",
        )
    else:
        out.print(f"  {width.tried} candidates tried, all there are", style="dim")


def _nearest(width: Width, out: Console) -> None:
    for near in width.near:
        text = f"  near, recorded: {near.problem} of {near.experiment}, {near.octaves:.1f} octaves away"
        out.print(escape(text), style="dim", soft_wrap=True)


def _us(us: float | None) -> str:
    if us is None:
        return GAP
    return f"{us / 1e3:.3f} ms" if us >= 1e4 else f"{us:.2f} us"


def _ms(ms: float) -> str:
    return f"{ms / 1e3:.1f} s" if ms >= 1e3 else f"{ms:.3g} ms"


def _bytes(size: int | None) -> str:
    if size is None:
        return GAP
    return f"{size / 1e6:.2f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def _launches(count: float | None) -> str:
    if count is None:
        return GAP
    return "never" if math.isinf(count) else f"{count:,.0f}" if count else "at once"


def _share(error: float | None) -> str:
    return GAP if error is None or math.isnan(error) else f"±{100 * error:.0f} %"
