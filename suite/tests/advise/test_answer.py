"""What is said of times: sentences, the crossover, what pays back, totals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from nnzbench.advise.answer import FAR, Answer, Entry, Near, Width, paid_back, sentence
from nnzbench.advise.totals import totals
from nnzbench.cli import main
from nnzbench.facts.widths import Crossover, crossing


def entry(kernel, us, math="f32", **other):
    return Entry(kernel, math, "", us, us + 5, **other)


NEAR = (Near("e", "p", 1.0),)


def answered(*entries, n=8, crossover=None, dtype="f32", near=(), label="w"):
    width = Width(n, tuple(entries), near=near)
    return Answer(label, "spmm", dtype, 100, 200, 2000, "gpu", bool(near), (width,), crossover)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            answered(entry("cublas", 10.0, memory_bytes=100), entry("ring", 5.0, memory_bytes=34)),
            "fastest: ring fp32 (this project's), 5.00 us, 2.00 times the speed of cuBLAS fp32 (1.50 times cold) in 34",
        ),
        (answered(entry("cublas", 4.0), entry("ring", 5.0)), "dense is fastest: cuBLAS fp32, 4.00 us; the best sparse"),
        (answered(entry("cublas", 4.0, "tf32"), entry("ring", 5.0)), "nothing dense to compare with"),
        (answered(entry("ring", 5.0, guess=FAR), near=NEAR), "N = 8 (a guess: nothing near it is recorded): "),
        (
            answered(entry("ring", 5.0, guess=FAR), entry("sputnik", 6.0), entry("cublas", 9.0), near=NEAR),
            "N = 8 (a guess: ring fp32 is not recorded within 3 octaves): fastest: ring fp32 (this project's), about "
            "5.0 us, about 1.8 times the speed of cuBLAS fp32 (1.4 times cold); of those recorded near, sputnik fp32 "
            "takes about 6.0 us",
        ),
        (
            answered(entry("cublas", 9.0), Entry("ring", "f32", reason="x", unestimated=True), near=NEAR),
            "N = 8: dense is fastest of those estimated: cuBLAS fp32, about 9.0 us; no sparse kernel is estimated",
        ),
        (
            answered(entry("cublas", 4.0), entry("sputnik", 5.0), Entry("ring", "f32", unestimated=True), near=NEAR),
            "of those estimated: cuBLAS fp32, about 4.0 us; the best sparse kernel estimated, sputnik fp32, takes",
        ),
        (answered(Entry("balanced", "f32", reason="not balanced"), near=NEAR), "N = 8: no kernel is estimated"),
        (
            answered(entry("cublas", 9.0), entry("ring", 5.0), crossover=Crossover(None, True, 1, 64)),
            "sparse stays faster up to N = 64, the largest looked at",
        ),
        (
            answered(entry("cublas", 3.0), entry("ring", 5.0), crossover=Crossover(None, False, 1, 64)),
            "dense is faster at every N looked at, 1 to 64",
        ),
        (
            answered(entry("cublas", 3.0), entry("ring", 5.0), crossover=Crossover(64, True, 1, 512)),
            "1.67 times as long; sparse is faster at larger N, up to about 64",
        ),
        (
            answered(entry("cublas", 4.0, "tf32"), entry("ring", 5.0), entry("cublas", 9.0)),
            "; with less precision, cuBLAS TF32 takes 4.00 us",
        ),
    ],
)
def test_sentences(given, words):
    assert words in sentence(given, given.widths[0])


def test_where_dense_is_ahead_in_between_sparse_is_not_said_to_stay_ahead():
    one = answered(entry("ring", 5.0), entry("cublas", 9.0), crossover=Crossover(None, True, 8, 64))
    ahead = replace(one, curve=((8, 9.0, 5.0), (32, 9.0, 5.0), (64, 9.0, 5.0)))
    between = replace(one, curve=((8, 9.0, 5.0), (32, 4.0, 5.0), (64, 9.0, 5.0)))
    assert "sparse stays faster up to N = 64" in sentence(ahead, ahead.widths[0])
    assert "sparse is faster at N = 64" in sentence(between, between.widths[0])


def test_crossings():
    assert crossing([]) is None
    assert crossing([(1, 4, 1), (4, 4, 4), (16, 4, 16)]) == Crossover(5, True, 1, 16, 4, 16)  # at 4 it is as fast
    assert crossing([(1, 1, 2), (4, 1, 2)]) == Crossover(None, False, 1, 4)
    assert crossing([(4, 2, 1), (1, 2, 1)]) == Crossover(None, True, 1, 4)


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
    width = Width(points[0][0], (entry("ring", points[0][2]), entry("cublas", points[0][1])))
    one = replace(answered(width.entries[0], crossover=found), widths=(width,), curve=tuple(points))
    assert sentence(one, width).endswith(f"dense is faster from about N = {told}")


def test_a_guess_is_not_contradicted_by_the_crossover_of_other_kernels():
    known = Crossover(40, True, 1, 512, 32, 64)
    ahead = answered(entry("ring", 5.0, guess=FAR), entry("cublas", 9.0), n=128, crossover=known)
    assert "dense is faster" not in sentence(ahead, ahead.widths[0])
    never = replace(ahead, crossover=Crossover(None, False, 1, 512))
    assert "dense is faster" not in sentence(never, never.widths[0])
    below = answered(entry("ring", 5.0, guess=FAR), entry("cublas", 9.0), n=8, crossover=known)
    assert "dense is faster from about N = 40" in sentence(below, below.widths[0])
    last = answered(entry("cublas", 3.0), entry("ring", 5.0, guess=FAR), n=64, crossover=Crossover(None, True, 1, 64))
    assert "sparse is faster" not in sentence(last, last.widths[0])


def test_packing_is_paid_back_by_what_a_launch_saves():
    dense, sparse = entry("cublas", 10.0, packing_ms=1.0), entry("ring", 5.0, packing_ms=2.0)
    assert paid_back(sparse, dense) == 200
    assert paid_back(entry("ring", 11.0, packing_ms=2.0), dense) == float("inf")
    assert paid_back(dense, dense) is None
    assert paid_back(sparse, None) is None


def test_totals_take_the_fastest_of_each_layer():
    one = answered(entry("cublas", 10.0, memory_bytes=8), entry("ring", 5.0, memory_bytes=2))
    other = answered(entry("cublas", 4.0, memory_bytes=8), entry("ring", 5.0, memory_bytes=2))
    (total,) = totals([one, other])
    assert (total.best_us, total.dense_us, total.best_bytes, total.sparse_layers) == (9.0, 14.0, 10, 1)
    assert "2 layers take 9.00 us" in total.sentence()


def test_totals_of_estimates_claim_two_digits_and_count_their_guesses():
    layers = [
        answered(entry("cublas", 1.234), entry("ring", 0.5124, guess=FAR), near=NEAR),
        answered(entry("cublas", 1.111), entry("ring", 0.4321), near=NEAR),
    ]
    (total,) = totals(layers)
    assert total.sentence() == (
        "N = 8: 2 layers take about 0.94 us by the fastest kernel of each, about 2.5 times the speed of all dense "
        "(2.3 us), in no memory; 2 of them sparse; a guess for 1 of them"
    )
    (measured,) = totals([answered(entry("cublas", 1.234), entry("ring", 0.5124))])
    assert "take 0.51 us" in measured.sentence()
    assert "guess" not in measured.sentence()


@pytest.mark.parametrize(("wrong", "status"), [(False, 0), (True, 1)])
def test_a_wrong_kernel_is_exit_status_1(monkeypatch, wrong, status):
    found = answered(entry("cublas", 9.0), Entry("ring", "f32", reason="relative error 2", wrong=wrong))
    monkeypatch.setattr("nnzbench.cli.best._measure", lambda *_: [found])
    assert CliRunner().invoke(main, ["best", "100x200@0.9"]).exit_code == status


def test_less_precision_is_told_where_it_is_clearly_faster_alone():
    assert "with less precision" not in said(answered(entry("cublas", 9.6, "tf32"), entry("ring", 10.0)))
    assert "; with less precision, cuBLAS TF32 takes 9.40" in said(
        answered(entry("cublas", 9.4, "tf32"), entry("ring", 10.0))
    )


def said(answer: Answer) -> str:
    return sentence(answer, answer.widths[0])
