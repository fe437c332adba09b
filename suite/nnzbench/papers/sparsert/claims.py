"""Rules for SparseRT's claims: its own kernels judge, as the paper describes them; our generator stands beside."""

from __future__ import annotations

from dataclasses import replace

from nnzbench.report.claims.quantities import How, Ratio, Side
from nnzbench.report.claims.sides import CUBLAS, CUDNN, CUSPARSE, DENSE_BEST, OURS, Rule, judged, speedup, unmeasured

TABLE1, TABLE3, ABLATION = "sparsert_table1", "sparsert_table3", "sparsert_ablation"
PAPER = Side("`sparsert_paper`", ("sparsert_paper",))
CONV_PAPER = Side("`sparsert_conv_paper`", ("sparsert_conv_paper",))
GENERATOR = Side("`sparsert`", ("sparsert",))
CONV = Side("`sparsert_conv`", ("sparsert_conv",))
SPUTNIK = Side("`sputnik` at its heuristic", ("sputnik",), variant="heuristic")
PAPER_WORDS = "`sparsert_paper`, the paper's tilings and code generated anew"
CONV_WORDS = "`sparsert_conv_paper`, the paper's convolution generated anew"


def _problems(first: int, last: int, level: str) -> str:
    return rf"((?:{'|'.join(f'{number:02}' for number in range(first, last + 1))})_.*_(?:{level}))$"


def _spmm(first: int, last: int, level: str, rival: Side, how: How = "geometric mean") -> Rule:
    """The paper took the best of its rivals' algorithms, so its rivals are today's best of the same arithmetic."""
    cases = _problems(first, last, level)
    scope = f"problems {first} to {last} of its table 1 at {level.replace('|', ' and ')} %"
    return judged(
        PAPER_WORDS,
        speedup(TABLE1, scope, cases, PAPER, rival, how),
        ("this project's generator `sparsert`", speedup(TABLE1, scope, cases, GENERATOR, rival, how)),
        (OURS.name, speedup(TABLE1, scope, cases, OURS, rival, how)),
    )


def _halving() -> Rule:
    """From 90 to 95 % zeros on the same layers; the paper's speed-ups share the dense time, so they divide out."""
    twice = Side("its time at 90 %", PAPER.kernels, r"(0[1-9]|1[01])_.*_90$")
    once = Side("its time at 95 %", PAPER.kernels, r"(0[1-9]|1[01])_.*_95$")
    return judged(PAPER_WORDS, Ratio(TABLE1, "problems 1 to 11 of its table 1", (once,), (twice,)))


def _conv(level: str, how: How = "geometric mean") -> Rule:
    scope, cases = f"its table 3 at {level.replace('|', ' and ')} %", rf"(.*_(?:{level}))$"
    return judged(
        CONV_WORDS,
        speedup(TABLE3, scope, cases, CONV_PAPER, CUDNN, how),
        ("this project's generator `sparsert_conv`", speedup(TABLE3, scope, cases, CONV, CUDNN, how)),
    )


def _without(part: str, how: How) -> Rule:
    """Of what is not unrolled the paper says that its tiling is the same."""
    other = Side(f"`sparsert_{part}`", (f"sparsert_{part}",))
    own = speedup(ABLATION, "its figure 8's problems at 90 %", "(.*)", PAPER, other, how)
    if part != "rolled":
        return judged(PAPER_WORDS, own)
    return judged(PAPER_WORDS, replace(own, alike=True), ("each at its own fastest tiling", own))


RULES = {
    "sparsert-spmm-90": _spmm(1, 20, "90", DENSE_BEST),
    "sparsert-spmm-95": _spmm(1, 11, "95", DENSE_BEST),
    "sparsert-spmm-always": _spmm(1, 20, "90|95", DENSE_BEST, "share faster"),
    "sparsert-95-over-90": _halving(),
    "sparsert-cusparse-90": _spmm(1, 20, "90", CUSPARSE),
    "sparsert-cusparse-95": _spmm(1, 11, "95", CUSPARSE),
    "sparsert-cusparse-always": _spmm(1, 20, "90|95", CUSPARSE, "share faster"),
    "sparsert-cusparse-most": _spmm(1, 20, "90|95", CUSPARSE, "largest"),
    "sparsert-cusparse-early": _spmm(1, 20, "90", CUSPARSE, "largest"),
    "sparsert-cublas-over-cusparse": judged(
        "no kernel of this project: cuBLAS",
        speedup(TABLE1, "its table 1 at 90 %", _problems(1, 20, "90"), DENSE_BEST, CUSPARSE, "share faster"),
        ("cuBLAS's default algorithm", speedup(TABLE1, "", _problems(1, 20, "90"), CUBLAS, CUSPARSE, "share faster")),
    ),
    "sparsert-v100-always": _spmm(1, 11, "90|95", DENSE_BEST, "share faster"),
    "sparsert-v100-cusparse-always": _spmm(1, 11, "90|95", CUSPARSE, "share faster"),
    "sparsert-t4-over-v100": unmeasured(TABLE1, "One GPU's records can't say on which of two GPUs the gain is larger."),
    "sparsert-instances": unmeasured(TABLE1, "One matrix per problem is run, so times can't differ between instances."),
    "sparsert-dense-1x1": unmeasured(TABLE1, "cuDNN does not run on the 1x1 layers of this table."),
    "sparsert-sputnik-small": _spmm(12, 16, "90", SPUTNIK),
    "sparsert-sputnik-large": _spmm(17, 20, "90", SPUTNIK),
    "sparsert-conv-90": _conv("90"),
    "sparsert-conv-95": _conv("95"),
    "sparsert-conv-most": _conv("95", "largest"),
    "sparsert-conv-over-5": _conv("90|95", "largest"),
    "sparsert-conv-up-to-4": _conv("90|95", "largest"),
    "sparsert-conv-always": _conv("90|95", "share faster"),
    "sparsert-winograd": unmeasured(TABLE3, "cuDNN does not say which of its engines is the implicit GEMM."),
    "sparsert-padding": unmeasured(TABLE3, "There is no variant that tests bounds for every pixel to compare with."),
    "sparsert-tuning-time": unmeasured(TABLE1, "It is time of the processor that assembles candidates, not of a GPU."),
    "sparsert-unrolling": _without("rolled", "largest"),
    "sparsert-load-balancing": _without("unbalanced", "geometric mean"),
    "sparsert-tuning": _without("fixed", "geometric mean"),
}
