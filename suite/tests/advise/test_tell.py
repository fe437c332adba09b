"""Answers on a terminal: what stands in the tables, whole where the output is no terminal."""

from __future__ import annotations

import dataclasses
import io

from rich.console import Console

from nnzbench.advise.answer import Answer, Entry, Width, sentence
from nnzbench.advise.tell import tell
from nnzbench.facts.widths import Crossover

DENSE = Entry("cublas", "f32", hot_us=10.0, cold_us=20.0, memory_bytes=4000, packing_ms=0.1)
SPARSE = Entry("sputnik", "f32", "v1", hot_us=4.0, cold_us=16.0, memory_bytes=1000, packing_ms=2.0, error=1e-7)


def answer(label="a.layer.with.a.very.long.name." + "x" * 80, entries=(SPARSE, DENSE), estimated=False, **facts):
    return Answer(
        label, "spmm", "f32", 64, 128, 819, "a-gpu", estimated, (Width(32, tuple(entries), 7),),
        Crossover(437, True, 1, 4096), **facts,
    )  # fmt: skip


def told(*answers, brief=False):
    out = io.StringIO()
    tell(answers, Console(file=out, width=110, highlight=False), brief)
    return out.getvalue()


def test_many_layers_are_one_table_with_whole_names_and_totals():
    text = told(answer(), answer("second", note="weights of 4 filters"), brief=True)
    first = next(line for line in text.splitlines() if "very.long" in line)
    assert first.split() == [
        answer().label, "64", "x", "128", "90.0", "%", "f32", "32", "sputnik", "fp32", "4.00", "us", "2.50x", "1.25x",
        "25", "%", "440",
    ]  # fmt: skip
    assert "weights of 4 filters" in text
    assert "2 layers take 8.00 us" in text
    assert "N = 32: fastest" not in text


def test_of_many_layers_none_timed_the_checks_are_counted_and_wrong_ones_named():
    right = Entry("sputnik", "f32", "v1", error=1e-7)
    wrong = Entry("ring", "f32", "v2", reason="far off", wrong=True)
    text = told(answer("a", (right, wrong)), answer("b", (right,)), brief=True)
    assert text.count("1 kernel ") == 2
    assert "WRONG: ring fp32" in text


def test_where_nothing_is_timed_no_column_of_times_stands_empty():
    text = told(answer("a", (Entry("sputnik", "f32", "v1", memory_bytes=10, error=1e-7),)))
    assert "hot" not in text
    assert "paid back" not in text
    assert "packing" not in text  # of a compilation for this processor, which tells nothing of a GPU
    assert "7 candidates tried, the first of each kernel" in text
    assert "all there are" in told(answer("a"))


def test_where_no_kernel_ran_no_empty_table_stands_and_a_vector_is_one_column():
    one = answer("a", (Entry("balanced", "f32", reason="not balanced"),))
    text = told(dataclasses.replace(one, op="spmv"))
    assert "whose" not in text
    assert "no balanced fp32: not balanced" in text
    assert "--op spmm --n 1 is the same product" in text


def test_an_estimate_claims_no_more_digits_than_it_has():
    estimated = answer("a", estimated=True)
    assert sentence(estimated, estimated.widths[0]).endswith("dense is faster from about N = 440")
    dense = answer("a", (Entry("cublas", "f32", hot_us=3.0), SPARSE), estimated=True)
    assert "dense is fastest: cuBLAS fp32, about 3.0 us" in sentence(dense, dense.widths[0])


def test_reasons_stand_once_for_all_widths_and_kernels_and_the_columns_are_told_once():
    lacking = [Entry(name, "f32", reason=f"{name} needs a GPU") for name in ("cusparse", "cublaslt")]
    narrow = Entry("aspt", "f32", reason="for 32 columns alone")
    one = answer("a")
    widths = (Width(8, (SPARSE, DENSE, *lacking, narrow)), Width(32, (SPARSE, DENSE, *lacking)))
    text = told(dataclasses.replace(one, widths=widths))
    assert text.count("no cuSPARSE fp32, cuBLASLt fp32: needs a GPU\n") == 1
    assert text.count("no ASpT fp32 at N = 8: for 32 columns alone") == 1
    assert text.count("speed: against") == text.count("paid back: after") == 1


def test_an_estimate_for_one_column_says_that_vectors_count_too():
    one = dataclasses.replace(answer("a", estimated=True), widths=(Width(1, (SPARSE, DENSE)),))
    assert "at N = 1 the nearer of spmm and spmv" in told(one)
    assert "spmv" not in told(dataclasses.replace(one, estimated=False)) + told(answer("a", estimated=True))


def test_a_reason_that_ends_in_the_width_stands_once():
    widths = [Width(n, (SPARSE, Entry("delta_spmv", "f32", reason=f"one column alone, not {n}"))) for n in (8, 32)]
    text = told(dataclasses.replace(answer("a"), widths=tuple(widths)))
    assert text.count("no delta_spmv fp32: one column alone\n") == 1


def test_a_table_of_estimates_says_how_far_off_they_may_be():
    one = dataclasses.replace(SPARSE, uncertainty=0.12)
    text = told(*(answer(name, (one, DENSE), estimated=True) for name in "abc"), brief=True)
    assert text.count("±12 %") == 3
    assert text.count("held out: how far off") == 1
    assert "All layers, estimated times added" in text
    assert "held out" not in told(answer("a"), answer("b"), answer("c"), brief=True)


def test_a_guess_and_a_recorded_time_are_marked_in_place_of_an_error():
    guess = dataclasses.replace(SPARSE, guess="is recorded from a width of 64 on")
    recorded = dataclasses.replace(DENSE, recorded=True)
    text = told(answer("a", (guess, recorded), estimated=True))
    assert next(line for line in text.splitlines() if line.startswith("sputnik fp32 ?")).endswith(" ?")
    assert next(line for line in text.splitlines() if line.startswith("cuBLAS fp32 ")).endswith(" recorded")
    assert "?: a guess" in text
    assert "recorded: the time of a recorded problem" in text
    brief = told(*(answer(name, (guess, recorded), estimated=True) for name in "abc"), brief=True)
    assert brief.count("sputnik fp32 ?") == 3
    assert "±" not in text + brief
