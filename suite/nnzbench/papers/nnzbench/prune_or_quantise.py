"""Prune or quantise: layers of a language model with zeros anywhere beside the same layers dense in FP8 and INT4, and
what PyTorch's own sparse layouts take."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from nnzbench.papers.claims.peers import read
from nnzbench.report.page import Answer, Crossings, Made, Page, Pivot, View
from nnzbench.results.groups import Group
from nnzbench.results.selector import FP16, best_dense, kernel, written_here
from nnzbench.results.table import Comparison

FP8, INT4 = best_dense("f8"), replace(kernel("pytorch_int4", "i4"), label="PyTorch's INT4")
SPARSE = (kernel("tensor_spmm", "f16"), kernel("delta_spmv", "f16"), kernel("tensor_spmm", "f8"),
          kernel("delta_spmv", "f8"))  # fmt: skip
PYTORCH = kernel("pytorch", "f16", "f16_csr", "CSR")
BSR = tuple(kernel("pytorch", "f16", f"f16_bsr{side}", f"BSR {side}×{side}") for side in (16, 64))
LIBRARIES = (PYTORCH, kernel("pytorch", "f16", "f16_semi", "2:4"), kernel("cusparselt", "f16"))
SCATTERED = Group(where="kind == 'uniform'", words="three layers")
BLOCKS = Group(where="kind == 'block'", words="whole blocks")


def at(level: int, n: int) -> Group:
    """The three layers at so many zeros and columns."""
    return replace(SCATTERED, level=level, columns=n)


CELLS = tuple(at(level, n) for n in (1, 16, 64) for level in (70, 90))
BEST, BEST_F8 = written_here("f16"), written_here("f8")


ANOTHER = " (another session)"
"""Behind the names of codes that their authors wrote and no run of ours times."""
CLOSE = 1.05
"""Times the fastest up to which another wins as well: so much may two sessions differ."""


def _who_wins(view: View) -> pd.DataFrame | None:
    """Microseconds of the one layer that every code was timed on, and the fastest, by columns and zeros."""
    forms = (FP16, FP8, INT4, replace(BEST, label="best sparse fp16"), replace(BEST_F8, label="best sparse FP8"))
    here = view.cells(
        (*forms, *LIBRARIES, kernel("cusparselt", "f8")), Group(where="m == k == 8192 and kind != 'block'")
    )
    here = here[here["policy"] == "stream"]
    if here.empty:
        return None
    codes, sessions, times = read()
    known = sessions.loc[sessions["gpu"] == view.results.gpu, "session"]
    theirs = times[times["session"].isin(known)]
    theirs = theirs.query("policy == 'stream' and m == k == 8192 and code != 'cublas'")
    theirs = theirs.drop_duplicates(["code", "n", "source", "sparsity"], keep="last")  # the newest session's
    name = theirs["code"].map(codes.set_index("code")["name"]) + theirs["math"].map({"f32": " fp32"}).fillna("")
    theirs = theirs.assign(subject=name + ANOTHER, level=100 * theirs["sparsity"])
    levels = here[["n", "level"]].drop_duplicates()
    dense = theirs[theirs["level"] == 0].drop(columns="level").merge(levels)  # takes as long at each
    every = pd.concat([here, dense, theirs.round({"level": 1}).merge(levels)])
    cells = every.pivot_table("median_us", ["n", "level"], "subject", sort=False).sort_index()
    least = cells.min(axis=1)
    best = cells.le(CLOSE * least, axis=0).apply(lambda row: ", ".join(row.index[row]), axis=1)
    cells.insert(0, "fastest, and within 5 %", best)
    return cells.reset_index().rename(columns={"n": "columns", "level": "% zeros"}).rename_axis(columns=None)


def _bits(view: View) -> pd.DataFrame | None:
    """What each form of a weight takes, zeros counted, as the rows of one token say."""
    cells = view.cells((FP16, FP8, *SPARSE[1:]), replace(SCATTERED, columns=1))
    if cells.empty:
        return None
    bits = 8 * (cells["bytes"] - 2.0 * cells["n"] * (cells["m"] + cells["k"])) / (cells["m"] * cells["k"])
    cells = cells.assign(bits=bits).drop_duplicates(["label", "subject", "level"])
    return cells.pivot_table("bits", "subject", "level", sort=False).rename_axis("bits a weight").reset_index()


def prune_or_quantise() -> Page:
    """Its page."""
    rows, ratios = ("label", "level", "subject"), ("subject", "label", "level")
    return Page(
        answers=(
            Answer(CELLS[1], BEST, FP8, paper_baseline=INT4),
            Answer(CELLS[0], BEST, FP8, paper_baseline=INT4),
            Answer(CELLS[3], BEST, FP8, paper_baseline=INT4),
        ),
        comparison=Comparison((BEST, BEST_F8), (FP16, FP8, INT4), CELLS),
        tables=(
            Crossings("Zeros from which on fp16 weights with zeros are as fast as dense FP8", BEST, FP8,
                      group=SCATTERED),
            *(Crossings(f"Zeros from which on {words} with zeros are as fast as {over.label}", best, over,
                        group=SCATTERED, collapsed=True)
              for best, words, over in ((BEST, "fp16 weights", INT4), (BEST_F8, "FP8 weights", FP8),
                                        (BEST_F8, "FP8 weights", INT4))),
            Made("Who wins: µs of 8192×8192, streamed (2:4, N:M at 50 % alone)", _who_wins, "codes of other sessions"),
            Made("Bits a weight by zeros (%), with indices (INT4 in groups of 128: 4.25)", _bits, "no ratio"),
            Pivot("µs", (FP16, FP8, INT4, *SPARSE, *LIBRARIES, *BSR), rows=rows, columns="n"),
            Pivot("Over dense FP8", SPARSE, "ratio", FP8, ratios, "n", SCATTERED),
            Pivot("Over dense INT4", SPARSE, "ratio", INT4, ratios, "n", SCATTERED),
            Pivot("PyTorch's CSR over dense fp16", (PYTORCH,), "ratio", FP16, ("label", "level"), "n", SCATTERED),
            Pivot("Whole blocks of 64×64 over dense fp16", (*BSR, PYTORCH, BEST), "ratio", FP16, ratios, "n", BLOCKS),
        ),
        facts=(Comparison((*SPARSE, PYTORCH), (FP16, FP8, INT4), CELLS),),
        baseline=FP16,
        arithmetic="fp16 with sums in fp32 unless a row names another arithmetic",
    )  # fmt: skip
