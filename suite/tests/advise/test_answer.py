"""What follows from times: the verdict, alternatives, the crossover, what pays back, totals."""

import json
from dataclasses import replace

import pytest
from commands import invoke

from nnzbench.advise.answer import Answer, Entry, Width, alternatives, as_json, crossover_text, paid_back, sentence
from nnzbench.advise.tell import totals
from nnzbench.papers.predict.estimator import FAR
from nnzbench.results.crossover import WIDEST, Crossover, crossing


def entry(kernel, us, math="f32", cold_us=None, **other):
    return Entry(kernel, math, "", us, us + 5 if cold_us is None else cold_us, **other)


def answered(*entries, n=8, crossover=None, estimated=False, nnz=2000, **width):
    one = Width(n, tuple(sorted(entries, key=lambda one: one.us or 1e9)), **width)
    return Answer("w", "spmm", "f32", 100, 200, nnz, "gpu", estimated, (one,), crossover)


DENSE, SPARSE = entry("cublas", 10.0), entry("ring", 5.0)
GUESS, STREAMED = replace(SPARSE, guess=FAR), replace(DENSE, stream_us=12.0)
WIDE, HEAVY = replace(DENSE, within=0.2), replace(DENSE, memory_bytes=1000)
SURE = entry("sputnik", 6.0, within=0.1)
MANY = 15_000
"""Nonzeros, of 20,000 weights."""


@pytest.mark.parametrize(
    ("given", "chosen", "other", "reason"),
    [
        (answered(DENSE, SPARSE), "ring", "cublas", ""),
        (answered(DENSE, entry("ring", 12.0)), "cublas", "ring", ""),
        (answered(DENSE), "cublas", None, ""),
        (answered(SPARSE, entry("cublas", 4.0, "tf32")), "ring", None, ""),
        (answered(DENSE, replace(SPARSE, cold_us=16.0)), "cublas", "ring", "cold"),
        (answered(DENSE, replace(SPARSE, cold_us=16.0), entry("sputnik", 6.0)), "sputnik", "cublas", ""),
        # faster hot and slower cold, it still wins where it is faster as a layer of a model
        (answered(STREAMED, replace(SPARSE, cold_us=16.0, stream_us=9.0)), "ring", "cublas", ""),
        (answered(STREAMED, replace(SPARSE, stream_us=13.0)), "cublas", "ring", ""),
        (answered(DENSE, replace(SPARSE, cold_us=16.0, stream_us=9.0)), "cublas", "ring", "cold"),
        (answered(DENSE, GUESS, estimated=True), "cublas", "ring", "guess"),
        (answered(DENSE, GUESS, entry("sputnik", 6.0), estimated=True), "sputnik", "cublas", ""),
        (answered(DENSE, GUESS, entry("sputnik", 11.0), estimated=True), "cublas", "ring", "guess"),
        (answered(replace(DENSE, guess=FAR), SPARSE, estimated=True), "cublas", "ring", "guess"),
        (answered(GUESS, estimated=True), None, None, "guess"),
        (answered(DENSE, replace(SPARSE, as_width=16), estimated=True), "ring", "cublas", ""),
        (answered(DENSE, entry("ring", 8.5, as_width=16), estimated=True), "cublas", "ring", "guess"),
        (answered(DENSE, entry("ring", 8.5), estimated=True), "ring", "cublas", ""),
        (answered(WIDE, replace(SPARSE, within=0.3), estimated=True), "ring", "cublas", ""),
        (answered(WIDE, replace(SPARSE, hot_us=8.5, within=0.1), estimated=True), "ring", "cublas", "even"),
        (answered(WIDE, replace(SPARSE, hot_us=7.5, within=0.3), estimated=True), "ring", "cublas", "likely"),
        (
            answered(WIDE, replace(SPARSE, within=0.9), SURE, estimated=True),
            "sputnik",
            "cublas",
            "",
        ),
        (answered(WIDE, entry("ring", 12.0, within=0.1), estimated=True), "cublas", "ring", "even"),
        (answered(WIDE, entry("ring", 15.0, within=0.1), estimated=True), "cublas", "ring", ""),
        (answered(HEAVY, replace(GUESS, memory_bytes=100), estimated=True, nnz=0), "ring", "cublas", "bytes"),
        (answered(HEAVY, replace(GUESS, memory_bytes=101), estimated=True, nnz=0), "cublas", "ring", "guess"),
        (answered(HEAVY, replace(GUESS, memory_bytes=100), estimated=True), "cublas", "ring", "guess"),
        (answered(DENSE, SPARSE, estimated=True, nnz=MANY), "cublas", "ring", "few zeros"),
        (answered(DENSE, SPARSE, nnz=MANY), "ring", "cublas", ""),  # measured is measured
        (answered(Entry("balanced", "f32", reason="not balanced")), None, None, ""),
    ],
)
def test_the_verdict_is_dense_where_sparse_is_slower_or_in_doubt(given, chosen, other, reason):
    found = given.verdict(given.widths[0])
    names = [one.kernel if one else None for one in (found.chosen, found.other)]
    assert (*names, found.reason) == (chosen, other, reason)
    told = json.loads(json.dumps(as_json(given)))["widths"][0]["verdict"]
    assert (told["kernel"], told["against"], told["reason"]) == (chosen, other, reason)
    assert sentence(given, given.widths[0])


@pytest.mark.parametrize("others", [(), (entry("ring", 12.0),)])
@pytest.mark.parametrize("guess", ["", FAR])
def test_a_sentence_says_that_a_dense_time_is_a_guess(guess, others):
    given = answered(replace(DENSE, guess=guess), *others, estimated=True)
    assert ("a guess" in sentence(given, given.widths[0])) == bool(guess)


@pytest.mark.parametrize(
    ("given", "kernels"),
    [
        (answered(DENSE, entry("cublas", 9.6, "tf32")), []),  # not clearly
        (answered(DENSE, entry("cublas", 9.4, "tf32")), ["cublas"]),
        (answered(DENSE, entry("cublas", 9.4, "tf32", guess=FAR)), []),
        (answered(DENSE, pruned=entry("cusparselt", 6.0)), ["cusparselt"]),
        (answered(DENSE, SPARSE, pruned=entry("cusparselt", 6.0)), []),
    ],
)
def test_other_numbers_are_named_where_they_are_clearly_faster_alone(given, kernels):
    assert [one.kernel for one in alternatives(given, given.widths[0])] == kernels


def test_crossings():
    """None beyond the widest that is looked at."""
    assert crossing([]) is None
    assert crossing([(1, 4, 1), (4, 4, 4), (16, 4, 16)]) == Crossover(5, True, 1, 16, 4, 16)  # at 4 it is as fast
    assert crossing([(1, 1, 2), (4, 1, 2)]) == Crossover(None, False, 1, 4)
    assert crossing([(4, 2, 1), (1, 2, 1)]) == Crossover(None, True, 1, 4)
    points = [(1, 2.0, 1.0), (WIDEST, 2.0, 1.0), (2 * WIDEST, 1.0, 2.0)]
    assert crossing(points) == Crossover(None, True, 1, WIDEST)
    assert crossing(points[2:]) is None


def test_crossovers_are_told_by_what_the_curve_has():
    ahead = answered(SPARSE, DENSE, crossover=Crossover(None, True, 8, 64))
    ahead = replace(ahead, curve=((8, 9.0, 5.0), (32, 9.0, 5.0), (64, 9.0, 5.0)))
    between = replace(ahead, curve=((8, 9.0, 5.0), (32, 4.0, 5.0), (64, 9.0, 5.0)))
    assert "at all widths looked at, 8 to 64 columns" in crossover_text(ahead)
    assert "all widths" not in crossover_text(between)
    assert crossover_text(replace(ahead, crossover=None)) == ""
    assert crossover_text(replace(ahead, crossover=Crossover(None, False, 8, 8))) == ""


@pytest.mark.parametrize(
    ("points", "told"),
    [
        ([(1, 9.2, 8.0), (2, 9.2, 9.3)], 2),  # crossed near 1.9: at 1, sparse is ahead
        ([(1, 9.2, 9.19), (2, 9.2, 13.0)], 2),
        ([(16, 3.61, 3.6), (23, 3.6, 4.4)], 17),  # by two digits 16, and there sparse is ahead
        ([(91, 3.6, 3.2), (128, 3.5, 3.52)], 126),  # by two digits 130, and at 128 dense is ahead already
        ([(64, 10.0, 5.0), (256, 10.0, 20.0)], 130),
        ([(100, 2.0, 1.9), (101, 2.0, 2.1)], 101),
    ],
)
def test_a_crossover_is_told_between_the_widths_that_were_looked_at(points, told):
    found = crossing(points)
    assert found.told == told
    assert points[0][0] < found.n <= points[1][0]


def test_a_sentence_names_the_width_whose_time_it_is():
    given = answered(DENSE, replace(SPARSE, as_width=16), estimated=True)
    assert sentence(given, given.widths[0]).endswith(" at 8 columns, by its time at 16 columns")


def test_packing_is_paid_back_by_what_a_launch_saves():
    dense, sparse = entry("cublas", 10.0), entry("ring", 5.0, packing_ms=2.0)
    assert paid_back(sparse, dense) == 400
    assert paid_back(entry("ring", 11.0, packing_ms=2.0), dense) == float("inf")
    assert paid_back(dense, dense) is None
    assert paid_back(sparse, None) is None


def test_totals_take_the_verdict_of_each_layer():
    one = answered(entry("cublas", 10.0, memory_bytes=8), entry("ring", 5.0, memory_bytes=2))
    other = answered(entry("cublas", 4.0, memory_bytes=8), entry("ring", 5.0, memory_bytes=2))
    guessed = answered(entry("cublas", 7.0, memory_bytes=8), replace(GUESS, memory_bytes=2), estimated=True)
    (total,) = totals([one, other, guessed])
    assert (total.best_us, total.dense_us, total.best_bytes, total.sparse_layers) == (16.0, 21.0, 18, 1)
    (doubtful,) = totals([answered(replace(DENSE, guess=FAR), SPARSE, estimated=True)])
    assert (doubtful.guesses, doubtful.sparse_layers) == (1, 0)
    (even,) = totals([answered(WIDE, replace(SPARSE, hot_us=9.7, within=0.1), estimated=True)])
    assert (even.sparse_layers, even.even_layers) == (0, 1)
    assert "on 0 of 1 layers at N = 8, about even on 1: about as fast as all dense" in even.sentence()


@pytest.mark.parametrize(("wrong", "status"), [(False, 0), (True, 1)])
def test_a_wrong_kernel_is_exit_status_1(monkeypatch, wrong, status):
    found = answered(entry("cublas", 9.0), Entry("ring", "f32", reason="relative error 2", wrong=wrong))
    monkeypatch.setattr("nnzbench.cli.best._measure", lambda *_: [found])
    assert invoke("best", "100x200@0.9").exit_code == status
