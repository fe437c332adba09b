"""A whole checkpoint: the sums over its layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nnzbench.advise.answer import Answer
from nnzbench.advise.figures import times_text, us_text


@dataclass(frozen=True)
class Total:
    """A whole checkpoint at one width: every layer by its own fastest kernel."""

    n: int
    layers: int
    best_us: float
    dense_us: float
    best_bytes: int
    dense_bytes: int
    sparse_layers: int
    """Layers whose fastest kernel leaves zeros out."""
    estimated: bool = False
    guesses: int = 0
    """Layers for which one of the two times is a guess."""

    def sentence(self) -> str:
        """The total in words."""
        about = "about " if self.estimated else ""
        best, dense = (us_text(us, self.estimated) for us in (self.best_us, self.dense_us))
        saved = times_text(self.dense_us, self.best_us, self.estimated)
        memory = f"{100 * self.best_bytes / self.dense_bytes:.0f} % of the memory" if self.dense_bytes else "no memory"
        text = (
            f"N = {self.n}: {self.layers} layers take {about}{best} by the fastest kernel of each, {about}{saved} the "
            f"speed of all dense ({dense}), in {memory}; {self.sparse_layers} of them sparse"
        )
        return text + (f"; a guess for {self.guesses} of them" if self.guesses else "")


def totals(answers: Sequence[Answer]) -> list[Total]:
    """The sums over layers that have both a dense and another time, per width."""
    out = []
    for n in dict.fromkeys(width.n for answer in answers for width in answer.widths):
        pairs = []
        for answer in answers:
            for width in answer.widths:
                rival, sparse = width.rival(answer.dtype), width.sparse(answer.dtype)
                if width.n == n and rival is not None and sparse is not None:
                    pairs.append((rival, min(rival, sparse, key=lambda one: one.us or math.inf)))
        if pairs:
            out.append(
                Total(
                    n,
                    len(pairs),
                    sum(best.us or 0.0 for _, best in pairs),
                    sum(rival.us or 0.0 for rival, _ in pairs),
                    sum(best.memory_bytes or 0 for _, best in pairs),
                    sum(rival.memory_bytes or 0 for rival, _ in pairs),
                    sum(not best.dense for _, best in pairs),
                    any(answer.estimated for answer in answers),
                    sum(bool(rival.guess or best.guess) for rival, best in pairs),
                )
            )
    return out
