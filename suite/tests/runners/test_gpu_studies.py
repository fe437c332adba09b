"""The studies behind one command line, on schedulers and times that are known; `devices` is tested beside its page."""

import heapq
import json
import re
import sys

import numpy as np
import pandas as pd
import pytest
from fakes import FakeDevice

from nnzbench.papers.predict.launching import PROGRAMS, over

RUNNER = "gpu_studies"


@pytest.mark.parametrize("study", ["blocks", "launching"])
def test_a_study_without_a_gpu_is_refused_in_a_sentence(runner, monkeypatch, capsys, tmp_path, study):
    monkeypatch.setattr("studies.open_gpu", FakeDevice)
    assert runner.main([study, "--out", str(tmp_path)]) == 2
    assert "on a GPU, and none works here" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_trace_needs_pytorch(runner, monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert runner.main(["busy", "--out", str(tmp_path)]) == 2
    assert "PyTorch with CUDA" in capsys.readouterr().err


def test_each_study_says_what_it_measures(runner, capsys):
    for study in ("devices", "blocks", "busy", "launching"):
        with pytest.raises(SystemExit, match="0"):
            runner.main([study, "--help"])
        assert f"python runners/gpu_studies.py {study} " in capsys.readouterr().out


def test_kernels_of_a_trace_are_summed_in_their_order(runner, tmp_path):
    events = [
        {"cat": "kernel", "ts": 5.0, "dur": 2.0},
        {"cat": "kernel", "ts": 1.0, "dur": 3.5},
        {"cat": "gpu_memcpy", "ts": 9.0, "dur": 1.0},
        {"ph": "M"},
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    assert runner.busy.kernels_us(tmp_path / "trace.json") == [3.5, 2.0]


@pytest.fixture
def blocks(runner):
    return runner.blocks


@pytest.fixture
def hopper(runner):
    return runner.two_of_four


SMS = 8


def grid_of(blocks, first, per_sm=1, lengths=None):
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
    return blocks.Grid("equal", per_sm, sm, began, ended)


@pytest.mark.parametrize("per_sm", [1, 2])
def test_the_formulas_own_scheduler_is_recognised(blocks, per_sm):
    found = blocks.told(grid_of(blocks, lambda block: blocks.formula(np.array(block), SMS), per_sm), SMS)
    assert found["first wave"] == str(SMS * per_sm)
    assert found["as the formula"] == found["a round of SMs has each once"] == "100 %"
    assert found["blocks an SM has of it"] == f"{per_sm} to {per_sm}"
    assert found["later blocks in order"] == found["put where a block ended last"] == "100 %"


def test_another_first_wave_is_not_the_formulas_and_still_goes_round(blocks):
    found = blocks.told(grid_of(blocks, lambda block: block % SMS), SMS)
    assert found["as the formula"] == "25 %"
    assert found["a round of SMs has each once"] == found["next block on the next SM"] == "100 %"


def test_a_scheduler_that_fills_one_multiprocessor_after_another_does_not_go_round(blocks):
    found = blocks.told(grid_of(blocks, lambda block: block // 2 % SMS, per_sm=2), SMS)
    assert found["a round of SMs has each once"] == "50 %"


def test_uneven_blocks_follow_those_that_end_first(blocks):
    lengths = np.linspace(120_000, 30_000, 4 * SMS).astype(int)
    found = blocks.told(grid_of(blocks, lambda block: block, lengths=lengths), SMS)
    assert found["later blocks in order"] == found["put where a block ended last"] == "100 %"
    assert blocks.in_order(np.array([0, 5000, 1000])) == 0.5


def test_the_formula_is_the_papers_on_a_v100(blocks):
    assert blocks.formula(np.array([0, 1, 39, 40, 79]), 80).tolist() == [0, 2, 78, 1, 79]


def test_the_page_names_the_gpu_and_every_grid(blocks):
    text = blocks.page("NVIDIA X", SMS, [grid_of(blocks, lambda block: block % SMS)] * 2)
    assert text.count("| equal |") == 2
    assert "# Where blocks run on NVIDIA X" in text


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
    ratio, longer = over(table(), ("sputnik_unsorted", "hot"), ("sputnik_unscaled", "hot"))
    assert (ratio, longer) == (pytest.approx(2.0), pytest.approx(11.0))
    assert over(table(), ("cublas", "pair"), ("cublas", "hot"))[1] == pytest.approx(6.0)


def test_the_page_tells_each_program_each_way_and_by_method(runner):
    text = runner.launching.page("GPU", table())
    assert text.count("| pair |") == text.count("| loop |") == len(US)
    assert text.count("| magnitude pruning |") == text.count("| l0 regularization |") == 3
    assert re.search(r"\| pair \| 1\.60 \| \+6\.0 \|", text)
    assert set(PROGRAMS) == set(US)


def test_counts_are_of_multiply_adds_and_of_the_port(hopper):
    of_both = {
        (one.sparse, one.columns, one.registers): (one.tensor_clocks, one.shared_clocks) for one in hopper.INSTRUCTIONS
    }
    shared = {key[:2]: clocks for key, clocks in of_both.items() if not key[2]}
    assert shared == {(False, 256): (128, 80), (True, 256): (128, 144), (False, 128): (64, 48), (True, 128): (64, 80)}
    assert of_both[True, 256, True] == (128, 128)


def test_a_program_walks_along_all_tiles_and_stays_inside(hopper):
    for one in hopper.INSTRUCTIONS:
        lines = one.lines().split("\\n")
        assert sum("wgmma.mma_async" in line for line in lines) == hopper.TOGETHER
        for name, rows in (("a", hopper.ROWS), ("b", one.columns)):
            places = [
                16 * int(line.rsplit(", ", 1)[1].rstrip(";")) for line in lines if line.startswith(f"add.s64 {name},")
            ]
            assert max(places) // (128 * rows) == hopper.CHUNKS - 1


def test_the_page_says_what_the_sparse_instruction_gains(hopper):
    rows = [
        hopper.Row("2:4" if one.sparse else "dense", one.columns, "registers" if one.registers else "shared memory",
                   one.tensor_clocks, one.shared_clocks, max(one.tensor_clocks, one.shared_clocks))
        for one in hopper.INSTRUCTIONS
    ]  # fmt: skip
    page = hopper.page("NVIDIA H200", rows)
    assert "1.78x with 256 columns and A from shared memory, 2.00x with 256 columns and A from registers" in page
    assert page.count("\n| 2:4 |") == 4
