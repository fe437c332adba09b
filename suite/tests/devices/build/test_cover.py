from hypothesis import given, settings
from hypothesis import strategies as st

from nnzbench.cli.compile import cover


@settings(max_examples=30)
@given(st.dictionaries(st.text("abc", max_size=3), st.sets(st.integers(0, 9))))
def test_a_cover_has_every_trait_and_nobody_for_nothing(members):
    taken = cover(members)
    assert set().union(*(members[name] for name in taken)) == set().union(*members.values())
    seen: set[int] = set()
    for name in taken:
        assert members[name] - seen
        seen |= members[name]


def test_the_fewest_are_taken_and_the_first_of_equals():
    assert cover({"a": {1}, "b": {1, 2, 3}, "c": {2, 4}, "d": {4}}) == ["b", "c"]
    assert cover({}) == []
