"""The list of planted mistakes keeps up with the tree; whether tests catch them is for run.py to tell, in minutes."""

import importlib.util
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
spec = importlib.util.spec_from_file_location("planted_mistakes", HERE / "run.py")
run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run)


def test_every_mistake_can_be_planted_and_its_tests_are_there():
    rows = run.listed()
    assert len(rows) >= 60
    assert len({(one.file, one.number, one.old, one.new) for one in rows}) == len(rows)
    for one in rows:
        one.planted((run.ROOT / one.file).read_text("utf-8"))
        assert one.kind
        assert one.tests
        for test in one.tests.split():
            file, _, name = test.partition("@")[0].partition("::")
            defined = rf"(?m)^def {name}\(" if name else "(?m)^def test_"
            assert re.search(defined, (run.ROOT / "suite/tests" / file).read_text("utf-8")), test


def test_a_mistake_whose_place_is_gone_or_not_the_only_one_is_refused():
    one = run.Mutation("file", 0, "a < b", "a <= b", "off by one", "test", "")
    assert one.planted("if (a < b) c") == "if (a <= b) c"
    assert one._replace(number=2).planted("a < b, a < b") == "a < b, a <= b"
    for text, changed in (("b < a", one), ("a < b, a < b", one), ("a < b", one._replace(number=2))):
        with pytest.raises(ValueError, match="place"):
            changed.planted(text)
