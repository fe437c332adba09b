"""What published numbers stand on changes on purpose alone: the constants of what times, checks, limits and judges.

By module in kept_constants.csv: the numbers that are its own, of its classes' fields and of its functions' parameters.
Of one that moves or goes nothing is asked any more.

    python suite/tests/core/test_constants.py     writes them anew, where a change is meant
"""

from __future__ import annotations

import csv
import hashlib
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

KEPT = Path(__file__).with_name("kept_constants.csv")
ROOMS = ("bench", "core", "data", "devices", "kernels", "papers.claims", "papers.predict", "results")
LONGEST = 24
"""Of a constant as it is written; of a longer one a digest is kept."""


def plain(value: Any) -> Any:
    """The value in an order of its own; raises `TypeError` where it is more than numbers and words."""
    if hasattr(type(value), "__dataclass_fields__"):
        value = vars(value)
    if isinstance(value, dict):
        return [(plain(one), plain(other)) for one, other in value.items()]
    if isinstance(value, frozenset | set):
        value = sorted(value, key=repr)
    if isinstance(value, tuple | list):
        return [*map(plain, value)]
    if isinstance(value, bool | int | float | str | None):
        return value
    raise TypeError


def told(value: Any) -> str:
    """Of what holds a number."""
    text = repr(plain(value))
    if not re.search(r"\d|True|False|inf", text):
        raise TypeError
    return text if len(text) <= LONGEST and ";" not in text else hashlib.sha256(text.encode()).hexdigest()[:8]


def constants(module: ModuleType) -> Iterator[tuple[str, str]]:
    members = list(vars(module).items())
    own = [(name, one) for name, one in members if getattr(one, "__module__", "") == module.__name__]
    of_classes = [
        (f"{name}.{inner}", one) for name, of in own if inspect.isclass(of) for inner, one in vars(of).items()
    ]
    found = [(name, one) for name, one in members if name.lstrip("_").isupper()]
    found += [(name, one) for name, one in of_classes if "._" not in name]
    for name, one in [*own, *of_classes]:
        if inspect.isfunction(one) and "__" not in name:
            found += [(f"{name}({of})", what.default) for of, what in inspect.signature(one).parameters.items()]
    for name, one in found:
        with suppress(TypeError):
            yield name, told(one)


def of_rooms() -> Iterator[tuple[str, str]]:
    for room in ROOMS:
        package = importlib.import_module(f"nnzbench.{room}")
        for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield one.name, "; ".join(map("=".join, constants(importlib.import_module(one.name))))


def test_constants_are_those_kept():
    now = {module: dict(one.split("=", 1) for one in said.split("; ") if one) for module, said in of_rooms()}
    with KEPT.open(newline="", encoding="utf-8") as stream:
        kept = [
            (row["module"], *one.split("=", 1))
            for row in csv.DictReader(stream)
            for one in row["constants"].split("; ")
        ]
    assert len(kept) > 500
    changed = [one for one in kept if now.get(one[0], {}).get(one[1], one[2]) != one[2]]
    assert not changed, "where this is meant: python suite/tests/core/test_constants.py"


if __name__ == "__main__":
    with KEPT.open("w", newline="", encoding="utf-8") as stream:
        rows = [("module", "constants"), *(row for row in of_rooms() if row[1])]
        csv.writer(stream, lineterminator="\n").writerows(rows)
