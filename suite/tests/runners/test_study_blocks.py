"""Where blocks run, on schedulers that are known."""

import heapq

import numpy as np
import pytest

RUNNER = "studies.blocks"
SMS = 8


def grid_of(runner, first, per_sm=1, lengths=None):
    """Blocks of the first wave on the multiprocessors of `first`, others where one ended."""
    count = 4 * SMS
    lengths = np.full(count, 30_000) if lengths is None else lengths
    sm, began, ended = (np.zeros(count, np.int64) for _ in range(3))
    running = []
    for block in range(count):
        if block < SMS * per_sm:
            sm[block], began[block] = first(block), 10 * block
        else:
            began[block], sm[block] = heapq.heappop(running)
            began[block] += 1000
        ended[block] = began[block] + lengths[block]
        heapq.heappush(running, (int(ended[block]), int(sm[block])))
    return runner.Grid("equal", per_sm, sm, began, ended)


@pytest.mark.parametrize("per_sm", [1, 2])
def test_the_formulas_own_scheduler_is_recognised(runner, per_sm):
    found = runner.told(grid_of(runner, lambda block: runner.formula(np.array(block), SMS), per_sm), SMS)
    assert found["first wave"] == str(SMS * per_sm)
    assert found["as the formula"] == found["a round of SMs has each once"] == "100 %"
    assert found["blocks an SM has of it"] == f"{per_sm} to {per_sm}"
    assert found["later blocks in order"] == found["put where a block ended last"] == "100 %"


def test_another_first_wave_is_not_the_formulas_and_still_goes_round(runner):
    found = runner.told(grid_of(runner, lambda block: block % SMS), SMS)
    assert found["as the formula"] == "25 %"
    assert found["a round of SMs has each once"] == found["next block on the next SM"] == "100 %"


def test_a_scheduler_that_fills_one_multiprocessor_after_another_does_not_go_round(runner):
    found = runner.told(grid_of(runner, lambda block: block // 2 % SMS, per_sm=2), SMS)
    assert found["a round of SMs has each once"] == "50 %"


def test_uneven_blocks_follow_those_that_end_first(runner):
    lengths = np.linspace(120_000, 30_000, 4 * SMS).astype(int)
    found = runner.told(grid_of(runner, lambda block: block, lengths=lengths), SMS)
    assert found["later blocks in order"] == found["put where a block ended last"] == "100 %"
    assert runner.in_order(np.array([0, 5000, 1000])) == 0.5


def test_the_formula_is_the_papers_on_a_v100(runner):
    assert runner.formula(np.array([0, 1, 39, 40, 79]), 80).tolist() == [0, 2, 78, 1, 79]


def test_the_page_names_the_gpu_and_every_grid(runner):
    text = runner.page("NVIDIA X", SMS, [grid_of(runner, lambda block: block % SMS)] * 2)
    assert text.count("| equal |") == 2
    assert "# Where blocks run on NVIDIA X" in text
