"""A sample of programs in which every choice occurs, for architectures that not all of them are compiled for."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Set
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T", bound=Hashable)


def cover(members: Mapping[K, Set[T]]) -> list[K]:
    """Members in which each trait of any member occurs at least once; as few as a greedy choice finds.

    Each step takes the member with the most traits that are still missing, the first of several. A member without
    traits is never taken. The same members in the same order always give the same answer.
    """
    missing: set[T] = set().union(*members.values())
    taken: list[K] = []
    while missing:
        best = max(members, key=lambda name: len(members[name] & missing))
        missing -= members[best]
        taken.append(best)
    return taken
