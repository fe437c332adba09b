"""Rules for SparseRT's claims."""

from __future__ import annotations

from nnzbench.report.claims_quantities import How, Side
from nnzbench.report.claims_sides import CUBLAS, CUDNN, CUSPARSE, DENSE_BEST, OURS, Rule, Way, judged, speedup

TABLE1, TABLE3, ABLATION = "sparsert_table1", "sparsert_table3", "sparsert_ablation"
PAPER = Side("`sparsert_paper`", ("sparsert_paper",))
GENERATOR = Side("`sparsert`", ("sparsert",))
CONV_PAPER = Side("`sparsert_conv_paper`", ("sparsert_conv_paper",))
CONV = Side("`sparsert_conv`", ("sparsert_conv",))
SPUTNIK = Side("`sputnik` at its heuristic", ("sputnik",), variant="heuristic")
PAPER_WORDS = "`sparsert_paper`, the paper's tilings and code generated anew"
GENERATOR_WORDS = "`sparsert`, this project's generator over the paper's idea with tilings of its own"
CONV_PAPER_WORDS = "`sparsert_conv_paper`, the paper's virtual im2col and tilings, its code generated anew"
CONV_WORDS = "`sparsert_conv`, this project's generator over the paper's idea"


def _problems(first: int, last: int, level: str) -> str:
    return rf"((?:{'|'.join(f'{number:02}' for number in range(first, last + 1))})_.*_(?:{level}))$"


def _spmm(first: int, last: int, level: str, rival: Side, how: How = "geometric mean") -> Rule:
    """The paper's tilings where the rival ran beside them (cuBLAS alone in the ablation), else our generator."""
    cases = _problems(first, last, level)
    scope = f"problems {first} to {last} of its table 1 at {level.replace('|', ' and ')} %"
    in_ablation = CUBLAS if rival is DENSE_BEST else rival
    ways = [Way(PAPER_WORDS, speedup(TABLE1, scope, cases, PAPER, rival, how))]
    if level == "90":
        ways.append(Way(PAPER_WORDS, speedup(ABLATION, scope, cases, PAPER, in_ablation, how)))
    ways.append(Way(GENERATOR_WORDS, speedup(TABLE1, scope, cases, GENERATOR, rival, how)))
    against = f"against {rival.name}"
    return Rule(
        tuple(ways),
        (
            (f"`sparsert` {against}", speedup(TABLE1, scope, cases, GENERATOR, rival, how)),
            (f"{OURS.name} {against}", speedup(TABLE1, scope, cases, OURS, rival, how)),
        ),
    )


def _conv(level: str, how: How = "geometric mean") -> Rule:
    scope, cases = f"its table 3 at {level} %", rf"(.*_{level})$"
    published = speedup(TABLE3, scope, cases, CONV_PAPER, CUDNN, how)
    ours = speedup(TABLE3, scope, cases, CONV, CUDNN, how)
    return Rule(
        (Way(CONV_PAPER_WORDS, published), Way(CONV_WORDS, ours)), ((f"{CONV.name} against {CUDNN.name}", ours),)
    )


def _without(part: str, how: How) -> Rule:
    other = Side(f"`sparsert_{part}`", (f"sparsert_{part}",))
    return judged(PAPER_WORDS, speedup(ABLATION, "its figure 8's problems at 90 %", "(.*)", PAPER, other, how))


RULES = {
    "sparsert-spmm-90": _spmm(1, 20, "90", DENSE_BEST),
    "sparsert-spmm-95": _spmm(1, 11, "95", DENSE_BEST),
    "sparsert-spmm-always": _spmm(1, 20, "90|95", DENSE_BEST, "share faster"),
    "sparsert-cusparse-90": _spmm(1, 20, "90", CUSPARSE),
    "sparsert-cusparse-95": _spmm(1, 11, "95", CUSPARSE),
    "sparsert-cusparse-most": _spmm(1, 20, "90|95", CUSPARSE, "largest"),
    "sparsert-cublas-over-cusparse": judged(
        "no kernel of this project",
        speedup(TABLE1, "its table 1 at 90 %", _problems(1, 20, "90"), CUBLAS, CUSPARSE, "share faster"),
    ),
    "sparsert-sputnik-small": _spmm(12, 16, "90", SPUTNIK),
    "sparsert-sputnik-large": _spmm(17, 20, "90", SPUTNIK),
    "sparsert-conv-90": _conv("90"),
    "sparsert-conv-95": _conv("95"),
    "sparsert-conv-most": _conv("95", "largest"),
    "sparsert-unrolling": _without("rolled", "largest"),
    "sparsert-load-balancing": _without("unbalanced", "geometric mean"),
    "sparsert-tuning": _without("fixed", "geometric mean"),
}
