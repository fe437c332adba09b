"""Where the answer of a first screen does not hold, computed again from the records; `recompute.py` checks it."""

from __future__ import annotations

import re
from pathlib import Path

from recompute_records import Wrong, ratio

LOST = 4
"""How many combinations a page names under "where it does not hold"."""


def expect(text: str, wanted: str, where: str = "") -> None:
    """Raises `Wrong` where two texts differ."""
    if text != wanted:
        raise Wrong(f"{where}the text says {text}, the records {wanted}")


def limited(folder: Path, text: str, lines: list[list[str]], seen: dict[str, list[str]]) -> None:
    """Where it does not hold: every combination of what the answer speaks of that is below 1, lowest first.

    Where none is, those of the table's other lines, against rivals of their own arithmetic.
    """
    of = [(line[1].rpartition(" (")[0], line[0]) for line in lines[2:]]
    groups = dict.fromkeys(group for group, _ in of)
    spoken = [(group, mine) for group in groups for mine in first_sides(group, lines, seen)]
    below, cut = losses(folder, lines, spoken)
    if not below:
        below, others = losses(folder, lines, of, alike=True)
        cut = cut or others
    items = text.removesuffix(".").split("; ")
    if text.startswith("Nowhere in geometric mean"):
        if below:
            raise Wrong(f"it does not hold for {below[0][0]}")
        expect(text, f"Nowhere in geometric mean, against the rivals below{', before tuning' if cut else ''}.")
        return
    rest = re.fullmatch(r"(\d+) more (?:is|are) in the table", items[-1])
    items = items[:-1] if rest else items
    expect(str(rest[1] if rest else 0), str(max(len(below) - LOST, 0)), "more in the table: ")
    known = dict(below)
    if items[0] not in known:  # it begins the sentence
        items[0] = items[0][0].lower() + items[0][1:]
    for item in items:
        if item not in known:
            raise Wrong(f"the records do not say: {item}")
    lowest = sorted(known.values())[: len(items)]
    if len(items) != min(len(below), LOST) or sorted(round(known[item], 9) for item in items) != [
        round(value, 9) for value in lowest
    ]:
        raise Wrong("these are not the lowest ratios below 1")


def losses(
    folder: Path, lines: list[list[str]], of: list[tuple[str, str]], alike: bool = False
) -> tuple[list[tuple[str, float]], bool]:
    """What is said of each ratio below 1 of these groups' sides, with the ratio; whether any is before tuning.

    `alike`: only against rivals of the side's arithmetic.
    """
    heads = [head.rpartition(", ") for head in (lines[0][2:] if lines else [])]
    policies = heads[0][2].split(" / ") if heads else []
    below, cut = [], False
    for group, mine in of:
        for rival in (head[0] for head in heads if not alike or arithmetic(head[0]) == arithmetic(mine)):
            both = [(policy, ratio(folder, group, policy, mine, rival)) for policy in policies]
            values = [(policy, one) for policy, one in both if one]
            cut = cut or any(one.cut for _, one in values)
            low = [one.value for _, one in values if one.value < 1]
            if low:
                words = " and ".join(f"{one.value:.2f}×{one.mark} {policy}" for policy, one in values)
                below.append((f"{mine} over {rival}, {group}: {words}", min(low)))
    return below, cut


def arithmetic(words: str) -> str:
    """Of a side or a rival; fp32 where its name says nothing."""
    found = re.search(r"\b(fp32|TF32|fp16|bf16|INT8)\b", words)
    return found[1] if found else "fp32"


def first_sides(group: str, lines: list[list[str]], seen: dict[str, list[str]]) -> list[str]:
    """The sides that the answer speaks of in this group; where it has no sentence on the group, those it would."""
    if group in seen:
        return seen[group]
    spoken = {name for names in seen.values() for name in names}
    inside = [line for line in lines[2:] if line[1].rpartition(" (")[0] == group]
    for at in range(2, len(lines[0])):
        timed = [line[0] for line in inside if not line[at].startswith("–")]
        if timed:
            second = [name for name in timed[1:] if name in spoken and name != timed[0]]
            return [timed[0], *[name for name in second if name in seconds(seen)]]
    return []


def seconds(seen: dict[str, list[str]]) -> set[str]:
    """Sides that sentences tell beside the first one."""
    return {names[1] for names in seen.values() if len(names) > 1}
