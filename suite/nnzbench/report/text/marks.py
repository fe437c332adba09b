"""The mark of a number that stands on kernels which a run did not tune, and the sentence that says what it means.

"Best cuSPARSE" of a run whose time was over after the first choices is no best: the library, and this project's
kernels, may be faster than the number says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from nnzbench.problems.names import stem_of
from nnzbench.report.data.series import Series, rows_of

MARK = "†"
WORDS = "before tuning"
"""The mark where a sentence has room for words."""
_HOW = {
    "first": "the run's time was over with the first choices tried, but not all candidates, of",
    "some": "`--quick` or `--candidates` let the run try few candidates of",
}


class Cut(NamedTuple):
    """A kernel of whose candidates the run did not try all on a problem."""

    scope: str
    """`first` or `some`, as `tuned.cut_short` has it."""
    kernel: str
    problem: str
    """Without its type (`names.stem_of`)."""


Cuts = Mapping[str, frozenset[Cut]]
"""By policy."""


@dataclass(frozen=True)
class Basis:
    """What a number stands on: the problems that have all of its times, and what was not tuned on them."""

    problems: frozenset[str] = frozenset()
    """Without their types."""
    cuts: frozenset[Cut] = frozenset()

    @property
    def mark(self) -> str:
        """What stands behind the number: empty where everything that competes in it was tuned."""
        return MARK if self.cuts else ""


ALL_TUNED = Basis()
"""Of a number of which nothing says otherwise."""


def cuts(frame: pd.DataFrame, *series: Series) -> Cuts:
    """What was not tuned among the kernels that compete in the series, the one that won there or not.

    Nothing for a series that no tuning changes.
    """
    found: dict[str, set[Cut]] = {}
    for one in series if "cut_short" in frame else ():
        rows = rows_of(frame[frame["cut_short"] != ""], one)
        rows = rows[["policy", "cut_short", "kernel", "problem"]].drop_duplicates()
        for policy, scope, kernel, problem in [] if one.untunable else rows.itertuples(index=False):
            found.setdefault(policy, set()).add(Cut(scope, kernel, stem_of(problem)))
    return {policy: frozenset(those) for policy, those in found.items()}


def basis(*sides: tuple[Cuts, Iterable[str]], policy: str) -> Basis:
    """Of a number made of times under a policy: of each side its cuts, and the problems (without type) counted."""
    counted = [(frozenset(stems), those.get(policy, frozenset())) for those, stems in sides]
    return Basis(
        frozenset().union(*(stems for stems, _ in counted)),
        frozenset(cut for stems, those in counted for cut in those if cut.problem in stems),
    )


def mark_of(found: Iterable[Basis]) -> str:
    """That of what is said of several numbers: any one's."""
    return next((one.mark for one in found if one.mark), "")


def told(found: Iterable[Basis]) -> str:
    """Which kernels were not tuned on how many of the problems of these numbers; empty where all were."""
    every = list(found)
    problems: Set[str] = frozenset().union(*(one.problems for one in every))
    on: dict[tuple[str, str], set[str]] = {}
    for cut in frozenset().union(*(one.cuts for one in every)):
        on.setdefault((cut.scope, cut.kernel), set()).add(cut.problem)
    kernels: dict[str, dict[int, list[str]]] = {}
    for (scope, kernel), those in sorted(on.items(), key=lambda one: (one[0][0], -len(one[1]), one[0][1])):
        kernels.setdefault(scope, {}).setdefault(len(those), []).append(f"`{kernel}`")
    said = []
    for scope, counts in kernels.items():
        first, *others = (f"{', '.join(names)} on {count}" for count, names in counts.items())
        whole = f" of {len(problems)} problem{'s' * (len(problems) != 1)}"
        said.append(", of ".join([f"{_HOW[scope]} {first}{whole}", *others]))
    return "; ".join(said)


def sentence(found: Mapping[str, Iterable[Basis]]) -> str:
    """What the mark means in a table of these numbers, by what they are of (empty for a table of one thing).

    Empty where no number has the mark.
    """
    parts = [
        f". {words}: {said}" if words else f": {said}" for words, numbers in found.items() if (said := told(numbers))
    ]
    return f"{MARK} {WORDS.capitalize()}{''.join(parts)}. Tuned, these may be faster." if parts else ""
