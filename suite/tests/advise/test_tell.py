"""Answers on a terminal: the verdict first, few rows, whole where the output is no terminal."""

import dataclasses
import io

import pytest
from rich.console import Console

from nnzbench.advise.answer import Answer, Entry, Width, sentence
from nnzbench.advise.tell import MOST_ROWS, console, tell
from nnzbench.results.crossover import Crossover

DENSE = Entry("cublas", "f32", hot_us=10.0, cold_us=20.0, memory_bytes=4000, packing_ms=0.1)
SPARSE = Entry("sputnik", "f32", "v1", hot_us=4.0, cold_us=16.0, memory_bytes=1000, packing_ms=2.0, error=1e-7)
REFUSED = Entry("aspt", "f32", reason="for 32 columns alone")


def answer(label="a.layer.with.a.very.long.name." + "x" * 80, entries=(SPARSE, DENSE), estimated=False, **facts):
    return Answer(
        label, "spmm", "f32", 64, 128, 819, "a-gpu", estimated, (Width(32, tuple(entries), 7),),
        Crossover(437, True, 1, 4096), **facts,
    )  # fmt: skip


def told(*answers, brief=False, verbose=False):
    out = io.StringIO()
    tell(answers, Console(file=out, width=110, highlight=False), brief, verbose)
    return out.getvalue()


def rows(text):
    """The lines that begin with a kernel."""
    return [line for line in text.splitlines() if line.split()[1:2] == ["fp32"] and "x faster" not in line]


def test_the_verdict_comes_first_and_the_notes_are_few():
    one = answer("a", (SPARSE, DENSE, REFUSED))
    lines = told(one).splitlines()
    assert lines[0] == sentence(one, one.widths[0])
    assert len(lines) <= 10


def test_eight_rows_hold_the_verdict_and_what_it_beats_whatever_else_is_fast():
    others = [Entry("ring", "f32", str(at), hot_us=4.5 + at / 100, cold_us=17.0) for at in range(20)]
    one = answer("a", (SPARSE, *others, DENSE))
    shown = rows(told(one))
    assert len(shown) == MOST_ROWS
    assert (shown[0].split()[0], shown[-1].split()[0]) == ("sputnik", "cuBLAS")
    assert len(rows(told(one, verbose=True))) == 22
    widths = tuple(Width(n, one.widths[0].entries) for n in (1, 32, 256))
    assert sum("fp32 " in line for line in told(dataclasses.replace(one, widths=widths)).splitlines()[4:]) == 6


def test_a_guess_and_other_numbers_stand_below_what_is_certain():
    guess = dataclasses.replace(SPARSE, kernel="ring", guess="is recorded from a width of 64 on", hot_us=3.0)
    rough = dataclasses.replace(DENSE, math="tf32", hot_us=2.0)
    text = told(answer("a", (rough, guess, SPARSE, DENSE), estimated=True))
    names = ("sputnik fp32 ", "cuBLAS fp32 ", "cuBLAS TF32 ", "ring fp32 ?")
    places = [next(at for at, line in enumerate(text.splitlines()) if at and line.startswith(name)) for name in names]
    assert places == sorted(places)


def test_a_time_at_more_columns_has_that_width_in_place_of_an_error():
    wider = dataclasses.replace(SPARSE, as_width=64)
    text = told(answer("a", (wider, DENSE), estimated=True))
    assert rows(text)[0].split()[-1] == "N=64"
    assert "N=: the time at so many columns" in text
    assert "N=" not in told(answer("a", (SPARSE, DENSE), estimated=True))


def test_refusals_are_one_line_and_their_reasons_are_there_when_asked_for():
    lacking = [Entry(name, "f32", reason=f"{name} needs a GPU") for name in ("cusparse", "cublaslt")]
    narrow = [Entry("delta_spmv", "f32", reason=f"one column alone, not {n}") for n in (8, 32)]
    widths = tuple(Width(n, (SPARSE, DENSE, *lacking, one)) for n, one in zip((8, 32), narrow, strict=True))
    one = dataclasses.replace(answer("a"), widths=widths)
    assert sum("cuSPARSE" in line for line in told(one).splitlines()) == 1
    assert "needs a GPU" not in told(one)
    text = told(one, verbose=True)
    assert text.count("needs a GPU\n") == 2
    assert text.count("one column alone\n") == 1


def test_many_layers_are_one_table_with_whole_names_and_totals_first():
    text = told(answer(), answer("second", note="weights of 4 filters"), brief=True)
    first = next(line for line in text.splitlines() if "very.long" in line)
    assert first.split() == [
        answer().label, "64", "x", "128", "90.0", "%", "f32", "32", "sputnik", "fp32", "4.00", "us", "2.50x", "1.25x",
        "25", "%", "440",
    ]  # fmt: skip
    assert "weights of 4 filters" in text
    assert "2 of 2 layers" in text.splitlines()[0]


def test_of_many_layers_none_timed_the_checks_are_counted_and_wrong_ones_named():
    right = Entry("sputnik", "f32", "v1", error=1e-7)
    wrong = Entry("ring", "f32", "v2", reason="far off", wrong=True)
    text = told(answer("a", (right, wrong)), answer("b", (right,)), brief=True)
    assert text.count("1 kernel ") == 2
    assert "WRONG: ring fp32" in text


def test_where_nothing_is_timed_no_column_of_times_stands_empty():
    text = told(answer("a", (Entry("sputnik", "f32", "v1", memory_bytes=10, error=1e-7),)))
    assert "paid back" not in text
    assert "packing" not in text  # of a compilation for this processor, which tells nothing of a GPU


def test_where_no_kernel_ran_no_empty_table_stands():
    assert "whose" not in told(answer("a", (Entry("balanced", "f32", reason="not balanced"),)))


def test_estimates_say_how_far_off_they_may_be_or_that_they_are_recorded():
    known, same = dataclasses.replace(SPARSE, within=0.12), dataclasses.replace(DENSE, recorded=True)
    (sparse, dense) = rows(told(answer("a", (known, same), estimated=True)))
    assert sparse.endswith("±12 %")
    assert dense.endswith(" recorded")
    text = told(*(answer(name, (known, DENSE), estimated=True) for name in "abc"), brief=True)
    assert text.count("±12 %") == 3
    assert "±" not in told(answer("a"), answer("b"), answer("c"), brief=True)


@pytest.mark.parametrize(("setting", "styled"), [("1", False), ("", True)])
def test_no_color_removes_bold(monkeypatch, setting, styled):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", setting)
    out = console()
    with out.capture() as captured:
        out.print("a", style="bold")
    assert ("\x1b" in captured.get()) == styled


def test_numbers_that_a_gpu_does_not_multiply_are_no_hint_for_it():
    one = answer("a")
    for gpu, fp8, two_four in (
        ("a-gpu", True, True),
        ("nvidia-h200", True, True),
        ("nvidia-a100-sxm4-40gb", False, True),
    ):
        text = told(dataclasses.replace(one, where=gpu))
        assert ("FP8 (not compared here)" in text, "--pattern 2:4" in text) == (fp8, two_four)
    half = told(dataclasses.replace(one, where="tesla-v100-sxm2-16gb"))
    assert "FP8" not in half
    assert "2:4" not in half
