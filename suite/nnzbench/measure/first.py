"""What of a kernel runs untuned: its rule's choice, the paper's, and of a library its defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from nnzbench.kernels.registry import about
from nnzbench.plans.plan import Candidate

DEFAULT = re.compile(r"(^|_)(default|heuristic)(_|$)")
"""In the name of a variant that a library or a rule chooses."""
LOOKED_AT = 64
"""Candidates of a kernel of two roles among which the first of each is looked for."""


def first_choices(kernel: str, found: Iterator[Candidate]) -> Iterator[Candidate]:
    """The first candidate of each role and arithmetic; of a library also every default, in each layout.

    Kernels yield what their rule would run first, and one that has a paper's mapping beside ours has a first of each.
    """
    said = about(kernel)
    library = said.role == "library"
    roles = 2 if said.paper_variants else 1
    seen: set[tuple[str, str]] = set()
    for candidate in islice(found, None if library else LOOKED_AT):
        kind = (said.role_of(candidate.variant), candidate.math)
        if kind not in seen or (library and DEFAULT.search(candidate.variant)):
            seen.add(kind)
            yield candidate
        if not library and len(seen) == roles:
            return
