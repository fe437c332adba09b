"""Clocks of the matrix instruction, by counts and as a page; the instruction itself needs a GPU of sm_90."""

RUNNER = "studies.two_of_four"


def test_counts_are_of_multiply_adds_and_of_the_port(runner):
    of_both = {
        (one.sparse, one.columns, one.registers): (one.tensor_clocks, one.shared_clocks) for one in runner.INSTRUCTIONS
    }
    shared = {key[:2]: clocks for key, clocks in of_both.items() if not key[2]}
    assert shared == {(False, 256): (128, 80), (True, 256): (128, 144), (False, 128): (64, 48), (True, 128): (64, 80)}
    assert of_both[True, 256, True] == (128, 128)


def test_a_program_walks_along_all_tiles_and_stays_inside(runner):
    for one in runner.INSTRUCTIONS:
        lines = one.lines().split("\\n")
        assert sum("wgmma.mma_async" in line for line in lines) == runner.TOGETHER
        for name, rows in (("a", runner.ROWS), ("b", one.columns)):
            places = [
                16 * int(line.rsplit(", ", 1)[1].rstrip(";")) for line in lines if line.startswith(f"add.s64 {name},")
            ]
            assert max(places) // (128 * rows) == runner.CHUNKS - 1


def test_the_page_says_what_the_sparse_instruction_gains(runner):
    rows = [
        runner.Row("2:4" if one.sparse else "dense", one.columns, "registers" if one.registers else "shared memory",
                   one.tensor_clocks, one.shared_clocks, max(one.tensor_clocks, one.shared_clocks))
        for one in runner.INSTRUCTIONS
    ]  # fmt: skip
    page = runner.page("NVIDIA H200", rows)
    assert "1.78x with 256 columns and A from shared memory, 2.00x with 256 columns and A from registers" in page
    assert page.count("\n| 2:4 |") == 4
