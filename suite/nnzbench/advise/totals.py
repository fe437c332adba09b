"""A whole checkpoint: the sums over its layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nnzbench.advise.answer import Answer
from nnzbench.advise.figures import ratio_text, us_text
from nnzbench.facts.ratio import times_as_fast


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
    """Layers whose verdict is a kernel that leaves zeros out."""
    estimated: bool = False
    guesses: int = 0
    """Layers for which one of the two times is a guess."""

    def sentence(self) -> str:
        """The total in words."""
        about = "about " if self.estimated else ""
        best, dense = (us_text(us, self.estimated) for us in (self.best_us, self.dense_us))
        saved = ratio_text(times_as_fast(self.best_us, self.dense_us), self.estimated)
        memory = f"{100 * self.best_bytes / self.dense_bytes:.0f} % of the memory" if self.dense_bytes else "no memory"
        text = (
            f"Sparse wins on {self.sparse_layers} of {self.layers} layers at N = {self.n}: {about}{saved}x faster than "
            f"all dense ({about}{best} for {dense}) in {memory}"
        )
        return text + (f"; a guess for {self.guesses} of them" if self.guesses else "")


def totals(answers: Sequence[Answer]) -> list[Total]:
    """The sums over layers that have both a dense and another time, per width."""
    out = []
    for n in dict.fromkeys(width.n for answer in answers for width in answer.widths):
        pairs = []
        for answer in answers:
            for width in answer.widths:
                dense, chosen = width.baseline(answer.dtype), answer.verdict(width).chosen
                if width.n == n and dense is not None and chosen is not None and width.sparse(answer.dtype) is not None:
                    pairs.append((dense, chosen))
        if pairs:
            out.append(
                Total(
                    n,
                    len(pairs),
                    sum(best.us or 0.0 for _, best in pairs),
                    sum(dense.us or 0.0 for dense, _ in pairs),
                    sum(best.memory_bytes or 0 for _, best in pairs),
                    sum(dense.memory_bytes or 0 for dense, _ in pairs),
                    sum(not best.dense for _, best in pairs),
                    any(answer.estimated for answer in answers),
                    sum(bool(dense.guess or best.guess) for dense, best in pairs),
                )
            )
    return out
