"""Fits the constants of the selection rules to recorded runs and says how near the rules come to the oracle.

    python runners/tables/fit_selection_rule.py RECORDS... [--rule RULE...] [--judge RECORDS...] [--write]

RECORDS are records.csv or records.parquet files. All of them must be of the kernels as they are now, because a tile
keeps its name when the kernel behind it changes; the snapshots beside a file (environment*.json) name the commit that
was measured.

Prints, per rule, the percent of the oracle's speed (geometric mean and worst problem): cross-validated on matrices that
the constants were not fitted to; of the paper's heuristic, of the constants in use and of the slowest candidate; and,
for each file to be judged, of constants that were fitted to the other files alone. With --write the constants fitted to
RECORDS replace the same rules' in datasets/selection_rule.csv.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnzbench.fitting import STRIPS, TILES, family_trials
from nnzbench.kernels.choice import cost_rule
from nnzbench.kernels.choice.cost_rule import Costs, Score, Trial
from nnzbench.matrices import prune
from nnzbench.matrices.formats import MatrixError
from nnzbench.problems.problem import Op, Problem
from nnzbench.problems.sources import load_sparse
from nnzbench.records.record import Record, read_records

MakeTrials = Callable[[Sequence[Record]], list[Trial]]
MakeChoices = Callable[[Sequence[Record]], dict[str, str]]

LARGE = 1 << 24
"""Weights of a matrix beyond which its pattern isn't made again."""


@cache
def lengths_of(problem: Problem, pattern: str) -> NDArray[np.int64] | None:
    """Row lengths of a problem's matrix, made or read again; None where it is not on disk or has another pattern.

    Those of a large uniform pattern are drawn as they are distributed, because making it takes up to a minute and no
    feature of so many rows differs by a percent.
    """
    if problem.source.startswith("uniform:") and problem.m * problem.k > LARGE:
        count = prune.keep_count(problem.m * problem.k, problem.sparsity)
        seed = int(problem.source.partition(":")[2])
        cells = np.full(problem.m, problem.k)
        return np.random.default_rng(seed).multivariate_hypergeometric(cells, count, method="marginals")
    try:
        matrix = load_sparse(problem)
    except MatrixError:
        return None
    return matrix.row_lengths if matrix.pattern_hash() == pattern else None


def lengths(record: Record) -> NDArray[np.int64] | None:
    """Row lengths of a record's matrix."""
    sizes = (record.m, record.k, record.n)
    # Named by its pattern, so that problems which share a matrix share the work.
    op: Op = "sddmm" if record.op == "sddmm" else "spmm"
    problem = Problem(record.experiment, record.pattern, op, *sizes, record.sparsity, record.source)
    return lengths_of(problem, record.pattern)


RULES: dict[str, tuple[MakeTrials, MakeChoices]] = {
    "sputnik_tile": (lambda some: TILES.trials(some, lengths), TILES.heuristic_choices),
    "sputnik_strip": (lambda some: STRIPS.trials(some, lengths), STRIPS.heuristic_choices),
    "family": (lambda some: family_trials(some, lengths), lambda some: {}),
}
"""How each rule's trials come from records, and what the paper's heuristic would choose."""


def tell(label: str, score: Score) -> None:
    """One line of the result."""
    ends = f"{score.percent:6.1f} % of the oracle, worst {score.worst_percent:5.1f} %"
    print(f"  {label:<22}{ends}, {score.contests} problems")


def rivals(trials: Sequence[Trial], heuristic: dict[str, str]) -> None:
    """The scores of what the rule competes with."""
    if heuristic:
        tell("paper's heuristic", cost_rule.score(trials, heuristic))
    else:
        for candidate in sorted({trial.candidate for trial in trials}):
            tell(f"always {candidate}", cost_rule.score(trials, dict.fromkeys(cost_rule.contests(trials), candidate)))
    tell("slowest candidate", cost_rule.score(trials, cost_rule.slowest(trials)))


def in_use(rule: str, trials: Sequence[Trial]) -> None:
    """The score of the constants in use, where there are any."""
    try:
        costs = cost_rule.load(rule)
    except KeyError:
        return
    tell("constants in use", cost_rule.score(trials, cost_rule.choices(costs, trials)))


def report(rule: str, trials: list[Trial], heuristic: dict[str, str], folds: int) -> Costs:
    """Prints the rule's scores and returns its constants fitted to all trials."""
    matrices = len({trial.matrix for trial in trials})
    print(f"{rule}: {len(trials)} timed candidates on {matrices} matrices")
    costs = cost_rule.fit(trials)
    tell("cross-validated", cost_rule.cross_validate(trials, folds))
    tell("fitted to all", cost_rule.score(trials, cost_rule.choices(costs, trials)))
    in_use(rule, trials)
    rivals(trials, heuristic)
    return costs


def judge(rule: str, fitted: Sequence[Record], judged: Sequence[Record], name: str) -> None:
    """Prints, per type of value, the scores of constants fitted to `fitted` on the matrices of `judged`."""
    make, heuristic = RULES[rule]
    seen = {record.pattern for record in judged}
    training = make([record for record in fitted if record.pattern not in seen])
    for dtype in sorted({record.dtype for record in judged}):
        records = [record for record in judged if record.dtype == dtype]
        trials = make(records)
        if not training or len({trial.candidate for trial in trials}) < 2:
            continue
        print(f"{rule} on {name}, {dtype}, fitted elsewhere:")
        tell("rule", cost_rule.score(trials, cost_rule.choices(cost_rule.fit(training), trials)))
        rivals(trials, heuristic(records))


def main() -> None:
    """Parses the command line, fits, prints, and writes where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument("--rule", nargs="+", choices=RULES, default=list(RULES), help="these rules alone")
    parser.add_argument("--judge", nargs="+", type=Path, default=[], help="judge constants of the other files on these")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="keep the constants")
    arguments = parser.parse_args()
    for path in (*arguments.records, *arguments.judge):
        if not path.is_file():
            parser.error(f"{path} is no file of records")

    files = {path: list(read_records(path)) for path in arguments.records}
    records = [record for found in files.values() for record in found]
    fitted = {}
    for rule in arguments.rule:
        make, heuristic = RULES[rule]
        trials = make(records)
        if len({trial.candidate for trial in trials}) > 1:
            fitted[rule] = report(rule, trials, heuristic(records), arguments.folds)
        for path in arguments.judge:
            others = [record for other, found in files.items() if other != path for record in found]
            judge(rule, others, files.get(path) or list(read_records(path)), path.parent.name)
    if arguments.write:
        origin = f"fitted to {', '.join(sorted({f'{r.gpu} {r.experiment}' for r in records}))}"
        cost_rule.save(cost_rule.path(), fitted, origin.replace(",", ";"))
        print(f"wrote {cost_rule.path()}")


if __name__ == "__main__":
    main()
