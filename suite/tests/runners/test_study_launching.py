"""The summary of ways of launching, of times that are known."""

import re

import pandas as pd
import pytest

from nnzbench.papers.predict import launching

RUNNER = "studies.launching"
US = {"sputnik": 10.0, "sputnik_unscaled": 11.0, "sputnik_unsorted": 22.0, "cublas": 5.0, "cublas_f16_sums": 4.0}
LONGER = {"hot": 0.0, "loop": 1.0, "pair": 6.0}


def table(problems=("magnitude_pruning.0.9.one_8x8x512_90_dlmc", "l0_regularization.0.9.two_8x8x512_90_dlmc")):
    return pd.DataFrame(
        {"problem": problem, "source": "dlmc:it", "program": program, "way": way, "us": us + longer}
        for problem in problems
        for program, us in US.items()
        for way, longer in LONGER.items()
    )


def test_a_program_is_set_over_another_on_the_same_problems():
    ratio, longer = launching.over(table(), ("sputnik_unsorted", "hot"), ("sputnik_unscaled", "hot"))
    assert (ratio, longer) == (pytest.approx(2.0), pytest.approx(11.0))
    assert launching.over(table(), ("cublas", "pair"), ("cublas", "hot"))[1] == pytest.approx(6.0)


def test_the_page_tells_each_program_each_way_and_by_method(runner):
    text = runner.page("GPU", table())
    assert text.count("| pair |") == text.count("| loop |") == len(US)
    assert text.count("| magnitude pruning |") == text.count("| l0 regularization |") == 3
    assert re.search(r"\| pair \| 1\.60 \| \+6\.0 \|", text)
    assert set(launching.PROGRAMS) == set(US)
