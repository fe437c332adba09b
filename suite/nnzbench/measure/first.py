"""What of a kernel runs untuned: its rule's choice, the paper's, and of a library its defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nnzbench.kernels.registry import about
from nnzbench.plans.plan import Candidate

DEFAULT = re.compile(r"(^|_)(default|heuristic)(_|$)")
"""In the name of a variant that a library or a rule chooses."""
LOOKED_AT = 64
"""Candidates of a kernel with its paper's variants beside ours, among which the first of each is looked for."""


class FirstChoices:
    """Tells, of a kernel's candidates in their order, which run untuned.

    The first candidate of each arithmetic; of a library also every default, in each layout. Kernels yield what their
    rule would run first, and one that has variants of its paper beside ours has a first of each.
    """

    def __init__(self, kernel: str) -> None:
        self._said = about(kernel)
        self._library = self._said.role == "library"
        self._choosers = 2 if self._said.paper_variants else 1
        self._seen: set[tuple[bool, str]] = set()
        self.looked_at = 0

    @property
    def complete(self) -> bool:
        """Whether no further candidate can be one."""
        return not self._library and (
            len({of_paper for of_paper, _ in self._seen}) >= self._choosers or self.looked_at >= LOOKED_AT
        )

    def takes(self, candidate: Candidate) -> bool:
        """Whether the next candidate runs untuned."""
        if self.complete:
            return False
        self.looked_at += 1
        kind = (self._said.of_paper(candidate.variant), candidate.math)
        new = kind not in self._seen
        self._seen.add(kind)
        return new or (self._library and DEFAULT.search(candidate.variant) is not None)


def first_choices(kernel: str, found: Iterator[Candidate]) -> Iterator[Candidate]:
    """The candidates that run untuned, and no others."""
    choices = FirstChoices(kernel)
    for candidate in found:
        if choices.takes(candidate):
            yield candidate
        if choices.complete:
            return
