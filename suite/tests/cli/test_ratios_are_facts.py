"""No time is divided by a time outside `facts`: what pages, index.html, `compare` and `best` show are its ratios."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "nnzbench"
ROOMS = ("site", "advise", "cli", "contribute")


def is_time(node: ast.AST) -> bool:
    """Whether an expression names a kernel's µs: `us`, `..._us`, as a name, an attribute or a column.

    `floor_us`, an empty kernel's, is none: what share of a time it takes compares no kernels.
    """
    words = [
        getattr(one, "id", None) or getattr(one, "attr", None) or getattr(one, "value", "") for one in ast.walk(node)
    ]
    return any(
        isinstance(word, str) and word != "floor_us" and (word == "us" or word.endswith("_us")) for word in words
    )


def divided(text: str) -> list[int]:
    """Lines on which a time is divided by a time."""
    found = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div)]
    return [one.lineno for one in found if is_time(one.left) and is_time(one.right)]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_divides_no_times(room: str) -> None:
    found = {path.name: lines for path in (PACKAGE / room).rglob("*.py") if (lines := divided(path.read_text("utf-8")))}
    assert not found


def test_a_division_is_seen() -> None:
    assert divided('a["dense_us"] / row.median_us\nus / 1e3\nflops / us') == [1]
